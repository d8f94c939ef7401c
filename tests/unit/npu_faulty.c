/* npu_faulty.c - see npu_faulty.h. */
#include "npu_faulty.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SHARED = 64 };

const char *const fault_words[FAULT_COUNT] = { "none",  "no buffer", "map",      "time-out", "death",    "old reply",
                                               "stale", "wrong",     "infinity", "garbage",  "many rows" };

typedef struct {
    npu_transport t;
    npu_transport *inner;
    fault_kind kind;
    int at, calls, takes;
    npu_reply last;
    npu_shared shared[MAX_SHARED];
    int n_shared;
} faulty;

static void faulty_close(npu_transport **t)
{
    faulty *f = (faulty *)*t;
    f->inner->calls->close(&f->inner);
    free(f);
    *t = NULL;
}

static void faulty_stop(npu_transport *t)
{
    faulty *f = (faulty *)t;
    f->inner->calls->stop(f->inner);
}

static llada_status faulty_take(npu_transport *t, uint32_t bytes, npu_shared *out, llada_err *err)
{
    faulty *f = (faulty *)t;
    if (f->kind == FAULT_NO_BUFFER && ++f->takes == f->at) return llada_fail(err, LLADA_NO_MEMORY, "a planted refusal");
    llada_status st = f->inner->calls->take(f->inner, bytes, out, err);
    if (st == LLADA_OK && f->n_shared < MAX_SHARED) f->shared[f->n_shared++] = *out;
    return st;
}

static void faulty_give(npu_transport *t, npu_shared *b)
{
    faulty *f = (faulty *)t;
    for (int i = 0; i < f->n_shared; i++)
        if (f->shared[i].id == b->id) f->shared[i] = f->shared[--f->n_shared];
    f->inner->calls->give(f->inner, b);
}

/* Where the last operator of the message, an OUTPUT, has its tensor; NULL: it is none. */
static uint16_t *output_of(const faulty *f, const void *message, uint32_t *rows, uint32_t *cols, uint32_t *stride)
{
    const npu_head *h = message;
    const npu_buffer *b = (const npu_buffer *)(h + 1);
    const npu_tensor *t = (const npu_tensor *)(b + h->n_buffers);
    const npu_op *o = (const npu_op *)(t + h->n_tensors);
    if (h->n_ops == 0 || o[h->n_ops - 1].kind != NPU_OP_OUTPUT) return NULL;
    t += o[h->n_ops - 1].in;
    *rows = t->rows;
    *cols = t->cols;
    *stride = t->stride;
    for (int i = 0; i < f->n_shared; i++)
        if (f->shared[i].id == b[t->buffer].id) return (uint16_t *)(void *)(f->shared[i].at + t->offset);
    return NULL;
}

/* Every buffer that both sides see as it was before the call. */
static llada_status call_in_vain(faulty *f, const void *message, uint32_t bytes, npu_reply *reply, llada_err *err)
{
    uint8_t *kept[MAX_SHARED];
    for (int i = 0; i < f->n_shared; i++) {
        kept[i] = malloc(f->shared[i].bytes);
        memcpy(kept[i], f->shared[i].at, f->shared[i].bytes);
    }
    llada_status st = f->inner->calls->call(f->inner, message, bytes, reply, err);
    for (int i = 0; i < f->n_shared; i++) {
        memcpy(f->shared[i].at, kept[i], f->shared[i].bytes);
        free(kept[i]);
    }
    return st;
}

/* Wrong in a way that no checksum shows. */
static void spoil_many(const faulty *f, const void *message, npu_reply *reply)
{
    uint32_t rows, cols, stride;
    uint16_t *x = output_of(f, message, &rows, &cols, &stride);
    npu_sum sum = { 0, 0 };
    if (!x || rows < 5) return;
    for (uint32_t r = 4; r < rows; r++)
        for (uint32_t c = 0; c < cols; c++) x[r * stride + c] = x[c];
    for (uint32_t r = 0; r < rows; r++) npu_sum_add(&sum, x + r * stride, cols);
    reply->sum[0] = npu_sum_end(&sum);
}

static llada_status faulty_call(npu_transport *t, const void *message, uint32_t bytes, npu_reply *reply, llada_err *err)
{
    faulty *f = (faulty *)t;
    uint32_t rows, cols, stride;
    const bool now = ++f->calls == f->at || (f->kind == FAULT_MANY_ROWS && f->at && f->calls >= f->at);
    if (now && f->kind == FAULT_OLD_REPLY) {
        *reply = f->last;
        return LLADA_OK;
    }
    llada_status st = now && f->kind == FAULT_STALE ? call_in_vain(f, message, bytes, reply, err)
                                                    : f->inner->calls->call(f->inner, message, bytes, reply, err);
    f->last = *reply;
    if (!now || st) return st;
    uint16_t *out = output_of(f, message, &rows, &cols, &stride);
    switch (f->kind) {
    case FAULT_MAP: reply->status = NPU_MAP_FAILED; break;
    case FAULT_TIMEOUT: return llada_fail(err, LLADA_IO, "a planted time-out");
    case FAULT_DEATH:
        for (uint32_t i = 0; out && i < rows * stride / 2; i++) out[i] = 0x7fff;
        return llada_fail(err, LLADA_IO, "a planted death");
    case FAULT_WRONG:
        if (out) out[cols / 2] ^= 1;
        break;
    case FAULT_NAN: {
        npu_sum sum = { 0, 0 };
        if (!out) break;
        out[1] = 0x7c00;
        for (uint32_t r = 0; r < rows; r++) npu_sum_add(&sum, out + r * stride, cols);
        reply->sum[0] = npu_sum_end(&sum);
        break;
    }
    case FAULT_GARBAGE: memset(reply, 0xa5, sizeof *reply); break;
    case FAULT_MANY_ROWS: spoil_many(f, message, reply); break;
    default: break;
    }
    return LLADA_OK;
}

static const npu_transport_calls calls = { "faulty", faulty_close, faulty_stop, faulty_take, faulty_give, faulty_call };

npu_transport *npu_faulty(npu_transport *inner, fault_kind kind, int at)
{
    faulty *f = calloc(1, sizeof *f);
    f->t = *inner;
    f->t.calls = &calls;
    f->inner = inner;
    f->kind = kind;
    f->at = at;
    return &f->t;
}

int npu_faulty_calls(const npu_transport *t) { return ((const faulty *)t)->calls; }

void npu_faulty_set(npu_transport *t, fault_kind kind, int at)
{
    faulty *f = (faulty *)t;
    f->kind = kind;
    f->at = f->calls + at;
}
