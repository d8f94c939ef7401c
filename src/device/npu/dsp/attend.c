/* attend.c - attention over half-float keys and values in slots, each row with its own list of columns. */
#include "device/npu/dsp/dsp.h"
#include "device/npu/dsp/half.h"
#include "device/npu/dsp/lanes.h"

/* VTCM for one row at a time. */
typedef struct {
    int32_t *cols;  /* slots the row sees */
    float *weights; /* [columns] */
    float *sum;     /* [width] */
} scratch;

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

uint32_t dsp_attention(dsp *d, const npu_op *o)
{
    const npu_tensor *in = &d->t[o->in], *to = &d->t[o->out];
    const half *q = (const half *)(const void *)dsp_at(d, o->in), *k = (const half *)(const void *)dsp_at(d, o->keys);
    const half *v = (const half *)(const void *)dsp_at(d, o->values);
    half *out = (half *)(void *)dsp_at(d, o->out);
    const uint32_t most = (d->head->n_cols[0] > d->head->n_cols[1] ? d->head->n_cols[0] : d->head->n_cols[1]) + 1;
    if (!q || !k || !v || !out) return NPU_NOT_MAPPED;
    const scratch s = { port_vtcm(d->m, most * 4, NPU_LINE), port_vtcm(d->m, most * 4, NPU_LINE),
                        port_vtcm(d->m, NPU_MAX_HEAD * 4, NPU_LINE) };
    const bool room = s.cols && s.weights && s.sum;
    const uint32_t stride = d->t[o->keys].stride, per = o->heads / o->kv_heads;
    for (uint32_t r = 0; room && r < d->head->n_rows; r++) {
        const uint32_t n = see(d, r, (o->flags & NPU_CAUSAL) != 0, s.cols);
        for (uint32_t h = 0; h < o->heads; h++) {
            const size_t head = (size_t)(h / per) * o->width;
            attend(&s, out + (size_t)r * to->stride + h * o->width, q + (size_t)r * in->stride + h * o->width, k + head,
                   v + head, stride, n, o->width);
        }
        for (uint32_t i = to->cols; i < npu_stride(to->cols); i++) out[(size_t)r * to->stride + i] = 0;
    }
    port_vtcm_free(d->m);
    return room ? NPU_OK : NPU_NO_VTCM;
}
