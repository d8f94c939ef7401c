/* rows.c - operators that take one row at a time: norm, rotation, storing keys and values, SwiGLU.  Halves in, halves
 * out, floats between.  All but the storing share their rows among the team. */
#include "device/npu/dsp/dsp.h"
#include "device/npu/dsp/half.h"
#include "device/npu/dsp/lanes.h"

static half *row_of(const dsp *d, int32_t tensor, uint32_t r)
{
    return (half *)(void *)dsp_at(d, tensor) + (size_t)r * d->t[tensor].stride;
}

static const float *floats(const dsp *d, int32_t tensor) { return (const float *)(const void *)dsp_at(d, tensor); }

typedef struct {
    dsp *d;
    const npu_op *o;
} row_job;

/* Part r of the job is row r. */
static void each_row(dsp *d, const npu_op *o, team_part row)
{
    row_job j = { d, o };
    team_run(&d->team, MAX_WORKERS, d->head->n_rows, row, &j);
}

/* Behind its columns a row is zero to the end of the stride it was given. */
static void clear_end(half *row, uint32_t cols)
{
    for (uint32_t i = cols; i < npu_stride(cols); i++) row[i] = 0;
}

static void norm_row(void *arg, uint32_t r, uint32_t thread)
{
    dsp *d = ((row_job *)arg)->d;
    const npu_op *o = ((row_job *)arg)->o;
    const uint32_t cols = d->t[o->in].cols, width = o->width ? o->width : cols;
    const float eps = float_of_bits(o->eps), *w = floats(d, o->weight);
    const half *in = row_of(d, o->in, r);
    half *out = row_of(d, o->out, r);
    for (uint32_t g = 0; g < cols; g += width) {
        const float mean = lanes_dot(in + g, in + g, width) / (float)width;
        const float scale = 1.0f / sqrt_of(mean + eps);
        for (uint32_t i = 0; i < width; i++) out[g + i] = narrow(widen(in[g + i]) * scale * w[i]);
    }
    clear_end(out, cols);
}

uint32_t dsp_rmsnorm(dsp *d, const npu_op *o)
{
    if (!floats(d, o->weight) || !dsp_at(d, o->in) || !dsp_at(d, o->out)) return NPU_NOT_MAPPED;
    each_row(d, o, norm_row);
    return NPU_OK;
}

/* Angle i turns values 2i and 2i + 1, or i and i + half. */
static void rotate(half *x, const float *cs, uint32_t half_width, bool halves)
{
    for (uint32_t i = 0; i < half_width; i++) {
        half *a = halves ? x + i : x + 2 * i, *b = halves ? x + i + half_width : x + 2 * i + 1;
        const float u = widen(*a), v = widen(*b), c = cs[i], s = cs[i + half_width];
        *a = narrow(u * c - v * s);
        *b = narrow(u * s + v * c);
    }
}

static void rope_row(void *arg, uint32_t r, uint32_t thread)
{
    dsp *d = ((row_job *)arg)->d;
    const npu_op *o = ((row_job *)arg)->o;
    half *x = row_of(d, o->in, r);
    const float *cs = floats(d, o->weight) + (size_t)d->pos[r] * d->t[o->weight].stride;
    for (uint32_t h = 0; h < o->heads; h++) rotate(x + h * o->width, cs, o->width / 2, (o->flags & NPU_HALVES) != 0);
}

uint32_t dsp_rope(dsp *d, const npu_op *o)
{
    if (!floats(d, o->weight) || !dsp_at(d, o->in)) return NPU_NOT_MAPPED;
    each_row(d, o, rope_row);
    return NPU_OK;
}

/* Rows that the host wrote since the last message are read again, of the columns that this pass sees. */
static void fetch_columns(dsp *d, const npu_op *o)
{
    const int32_t stores[] = { o->keys, o->values };
    for (int s = 0; s < 2; s++) {
        const npu_tensor *t = &d->t[stores[s]];
        for (int g = 0; g < NPU_GROUPS; g++)
            for (int i = 0; i < d->cols[g].n; i++)
                port_invalidate(d->m, dsp_buffer(d, stores[s]),
                                t->offset + (uint32_t)d->cols[g].slot[i] * t->stride * 2, t->stride * 2);
    }
}

uint32_t dsp_kv(dsp *d, const npu_op *o)
{
    const int32_t from[] = { o->in, o->in2 }, to[] = { o->keys, o->values };
    for (int s = 0; s < 2; s++)
        if (!dsp_at(d, from[s]) || !dsp_at(d, to[s])) return NPU_NOT_MAPPED;
    if (d->head->flags & NPU_HOST_WROTE_KV) fetch_columns(d, o);
    for (int s = 0; s < 2; s++) {
        const npu_tensor *t = &d->t[to[s]];
        for (uint32_t r = 0; r < d->head->n_rows; r++) {
            const half *in = row_of(d, from[s], r);
            half *out = row_of(d, to[s], (uint32_t)d->slot[r]);
            for (uint32_t i = 0; i < t->cols; i++) out[i] = in[i];
            for (uint32_t i = t->cols; i < t->stride; i++) out[i] = 0;
            port_flush(d->m, dsp_buffer(d, to[s]), t->offset + (uint32_t)d->slot[r] * t->stride * 2, t->stride * 2);
        }
    }
    return NPU_OK;
}

static void swiglu_row(void *arg, uint32_t r, uint32_t thread)
{
    dsp *d = ((row_job *)arg)->d;
    const npu_op *o = ((row_job *)arg)->o;
    const uint32_t cols = d->t[o->in].cols;
    const half *gate = row_of(d, o->in, r), *up = row_of(d, o->in2, r);
    half *out = row_of(d, o->out, r);
    for (uint32_t i = 0; i < cols; i++) {
        const float g = widen(gate[i]);
        out[i] = narrow(g / (1.0f + exp_of(-g)) * widen(up[i]));
    }
    clear_end(out, cols);
}

uint32_t dsp_swiglu(dsp *d, const npu_op *o)
{
    if (!dsp_at(d, o->in) || !dsp_at(d, o->in2) || !dsp_at(d, o->out)) return NPU_NOT_MAPPED;
    each_row(d, o, swiglu_row);
    return NPU_OK;
}
