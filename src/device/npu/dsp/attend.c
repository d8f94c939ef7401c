/* attend.c - attention over half-float keys and values in slots, each row with its own list of columns.  Rows and heads
 * are shared among the team. */
#include "device/npu/dsp/dsp.h"
#include "device/npu/dsp/half.h"
#include "device/npu/dsp/lanes.h"

/* VTCM of one thread. */
typedef struct {
    int32_t *cols;  /* slots the row sees */
    float *weights; /* [columns] */
    float *sum;     /* [width] */
} scratch;

typedef struct {
    const dsp *d;
    const npu_op *o;
    const half *q, *k, *v;
    half *out;
    scratch of[MAX_WORKERS + 1]; /* each thread */
} attention;

static uint32_t see(const dsp *d, uint32_t r, bool causal, int32_t *out)
{
    const int32_t other = d->instead[r];
    pass_row row = { .pos = d->pos[r], .slot = d->slot[r], .causal = causal, .instead = other >= 0 };
    if (other >= 0) {
        row.instead_pos = d->pos[other];
        row.instead_slot = d->slot[other];
    }
    return (uint32_t)columns_of(&d->cols[d->group[r]], &row, out);
}

/* s = exp(s - max s); returns the sum. */
static float softmax(float *s, uint32_t n)
{
    float most = s[0], sum = 0;
    for (uint32_t i = 1; i < n; i++) most = s[i] > most ? s[i] : most;
    for (uint32_t i = 0; i < n; i++) {
        s[i] = exp_of(s[i] - most);
        sum += s[i];
    }
    return sum;
}

/* One query head over n columns; k and v: the head's values in slot 0. */
static void attend(const scratch *s, half *out, const half *q, const half *k, const half *v, uint32_t stride,
                   uint32_t n, uint32_t width)
{
    const float scale = 1.0f / sqrt_of((float)width);
    for (uint32_t i = 0; i < n; i++)
        s->weights[i] = lanes_dot(q, k + (size_t)(uint32_t)s->cols[i] * stride, width) * scale;
    const float sum = softmax(s->weights, n);
    for (uint32_t i = 0; i < width; i++) s->sum[i] = 0;
    for (uint32_t i = 0; i < n; i++) lanes_mix(s->sum, v + (size_t)(uint32_t)s->cols[i] * stride, s->weights[i], width);
    for (uint32_t i = 0; i < width; i++) out[i] = narrow(s->sum[i] / sum);
}

/* Part: a head of a row. */
static void attend_part(void *arg, uint32_t part, uint32_t thread)
{
    const attention *a = arg;
    const dsp *d = a->d;
    const npu_op *o = a->o;
    const npu_tensor *in = &d->t[o->in], *to = &d->t[o->out];
    const uint32_t r = part / o->heads, h = part % o->heads;
    const size_t head = (size_t)(h / (o->heads / o->kv_heads)) * o->width;
    const scratch *s = &a->of[thread];
    half *out = a->out + (size_t)r * to->stride;
    const uint32_t n = see(d, r, (o->flags & NPU_CAUSAL) != 0, s->cols);
    attend(s, out + h * o->width, a->q + (size_t)r * in->stride + h * o->width, a->k + head, a->v + head,
           d->t[o->keys].stride, n, o->width);
    if (h > 0) return;
    for (uint32_t i = to->cols; i < npu_stride(to->cols); i++) out[i] = 0;
}

/* Scratch for as many threads as there is room for, `wanted` at most; returns how many. */
static uint32_t take_scratch(attention *a, uint32_t wanted)
{
    port *m = a->d->m;
    const uint32_t *n = a->d->head->n_cols, most = (n[0] > n[1] ? n[0] : n[1]) + 1;
    uint32_t got = 0;
    while (got < wanted) {
        scratch *s = &a->of[got];
        s->cols = port_vtcm(m, most * 4, NPU_LINE);
        s->weights = port_vtcm(m, most * 4, NPU_LINE);
        s->sum = port_vtcm(m, NPU_MAX_HEAD * 4, NPU_LINE);
        if (!s->cols || !s->weights || !s->sum) break;
        got++;
    }
    return got;
}

uint32_t dsp_attention(dsp *d, const npu_op *o)
{
    attention a = { .d = d, .o = o };
    a.q = (const half *)(const void *)dsp_at(d, o->in);
    a.k = (const half *)(const void *)dsp_at(d, o->keys);
    a.v = (const half *)(const void *)dsp_at(d, o->values);
    a.out = (half *)(void *)dsp_at(d, o->out);
    if (!a.q || !a.k || !a.v || !a.out) return NPU_NOT_MAPPED;
    const uint32_t threads = take_scratch(&a, d->team.workers + 1);
    if (threads > 0) team_run(&d->team, threads - 1, d->head->n_rows * o->heads, attend_part, &a);
    port_vtcm_free(d->m);
    return threads > 0 ? NPU_OK : NPU_NO_VTCM;
}
