/* fuzz_safetensors.c - opens any bytes as a safetensors file, and reads every byte of every tensor that opens. */
#include <stdlib.h>

#include "base/mem.h"
#include "format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    safetensors *s = NULL;
    llada_err err = { .text = "" };
    uint64_t total = 0;
    volatile uint8_t sum = 0;
    /* the last byte, when odd, makes one allocation fail */
    if (size && data[size - 1] & 1) mem_fail_at(data[size - 1] / 2 % 16 + 1);
    llada_status st = st_open_memory(&s, data, size, &err);
    mem_fail_at(0);
    /* a refusal must leave nothing behind and say why */
    if ((st == LLADA_OK) != (s != NULL) || (st != LLADA_OK && !err.text[0])) abort();
    for (uint32_t i = 0; s && i < st_n_tensors(s); i++) {
        const gguf_tensor *t = st_tensor_at(s, i);
        if (st_find(s, t->name) != t) abort();
        for (size_t k = 0; k < t->bytes; k++) sum = (uint8_t)(sum + t->data[k]);
        total += t->bytes;
    }
    if (total > size) abort(); /* tensors do not overlap */
    st_close(&s);
    return 0;
}
