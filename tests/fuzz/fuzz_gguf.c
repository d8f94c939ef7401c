/* fuzz_gguf.c - opens any bytes as GGUF, and uses everything that opens: all keys, all arrays, and 1 MiB of tensors. */
#include <string.h>

#include "base/mem.h"
#include "tests/unit/gguf_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gguf *g = NULL;
    char warn[64];
    llada_err err = { .text = "" };
    /* the last byte, when odd, makes one allocation fail */
    if (size && data[size - 1] & 1) mem_fail_at(data[size - 1] / 2 % 16 + 1);
    llada_status st = gguf_open_memory(&g, data, size, warn, sizeof warn, &err);
    mem_fail_at(0);
    if (st == LLADA_OK) walk_gguf(g, 1 << 20);
    /* a refusal must leave nothing behind and say why */
    if ((st == LLADA_OK) != (g != NULL) || (st != LLADA_OK && !err.text[0])) abort();
    gguf_close(&g);
    return 0;
}
