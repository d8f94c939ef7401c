/* fuzz_chat.c - conversations made of any bytes.  The input is cut at NULs into role, text, role, text, ...; a role of
 * one byte 0..2 stands for a known one.  Only the layout's own special tokens may come out, each where it belongs. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/chat.h"

#ifndef FUZZ_MODEL
#define FUZZ_MODEL LLADA_SOURCE_DIR "/models/tiny-llada-q8_0.gguf"
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_MESSAGES = 16 };

static const char *const roles[3] = { "system", "user", "assistant" };
static tok *t;
static const chat_layout *layout;

static void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "fuzz_chat: %s\n", what);
    abort();
}

static void open_once(void)
{
    llada_err err;
    gguf *g = NULL;
    if (t) return;
    must(gguf_open(&g, FUZZ_MODEL, true, NULL, 0, &err) == LLADA_OK, "the model can't be opened");
    must(tok_open(&t, g, &err) == LLADA_OK, err.text);
    must(chat_choose(&layout, g, t, NULL, &err) == LLADA_OK && layout, "the model has no chat layout");
    gguf_close(&g);
}

/* s ends with a NUL. */
static size_t split(const char *s, size_t size, llada_message *m)
{
    size_t n = 0;
    for (const char *p = s; n < MAX_MESSAGES && p < s + size; n++) {
        size_t len = strlen(p);
        m[n].role = len == 1 && (uint8_t)*p >= '0' && (uint8_t)*p <= '2' ? roles[*p - '0'] : p;
        p += len + 1;
        if (p > s + size) { /* a role without a text */
            m[n++].text = "";
            break;
        }
        m[n].text = p;
        p += strlen(p) + 1;
    }
    return n;
}

static bool all_known(const llada_message *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool known = false;
        for (int k = 0; k < 3; k++) known |= strcmp(m[i].role, roles[k]) == 0;
        if (!known) return false;
    }
    return n > 0;
}

static void check(const llada_message *m, size_t n_msgs)
{
    llada_err err;
    size_t n = 0, again = 0, special = 0, eot = 0;
    llada_status st = chat_encode(layout, t, m, n_msgs, NULL, 0, &n, &err);
    must(st == (all_known(m, n_msgs) ? LLADA_OK : LLADA_BAD_ARG), "another status");
    if (st) return;
    int32_t *ids = malloc(n * sizeof *ids);
    must(ids != NULL, "no memory");
    must(chat_encode(layout, t, m, n_msgs, ids, n, &again, &err) == LLADA_OK && again == n, "another count");
    for (size_t i = 0; i < n; i++) {
        special += tok_is_special(t, ids[i]);
        eot += ids[i] == tok_eot(t);
    }
    must(ids[0] == tok_bos(t) && eot == n_msgs && special == 3 * n_msgs + 3, "special tokens out of the text");
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    llada_message m[MAX_MESSAGES];
    llada_err err;
    size_t n;
    open_once();
    if (size == 0) return 0;
    char *s = calloc(1, size + 1);
    must(s != NULL, "no memory");
    memcpy(s, data + 1, size - 1);
    size_t n_msgs = split(s, size - 1, m);
    mem_fail_at(data[0] & 31);
    llada_status st = chat_encode(layout, t, m, n_msgs, NULL, 0, &n, &err);
    mem_fail_at(0);
    must(st == LLADA_OK || st == LLADA_BAD_ARG || (st == LLADA_NO_MEMORY && data[0] & 31), "another status");
    check(m, n_msgs);
    free(s);
    return 0;
}
