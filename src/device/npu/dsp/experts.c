/* experts.c - mixtures of experts: which serve a row, and the products of rows with their experts' matrices.  Rows are
 * gathered by expert, so that each matrix that is needed comes once, and a row's parts are added by rising number of the
 * expert: its result does not depend on the company. */
#include "device/npu/dsp/dsp.h"
#include "device/npu/dsp/half.h"

static half *row_of(const dsp *d, int32_t tensor, uint32_t r)
{
    return (half *)(void *)dsp_at(d, tensor) + (size_t)r * d->t[tensor].stride;
}

static void clear_end(half *row, uint32_t cols)
{
    for (uint32_t i = cols; i < npu_stride(cols); i++) row[i] = 0;
}

/* ------------------------------------------------------------ the choice */

/* Falling; of equal ones the lower number first. */
static void route_row(half *out, const half *in, uint32_t experts, uint32_t used)
{
    uint32_t n = 0;
    float most = widen(in[0]), sum = 0;
    for (uint32_t e = 1; e < experts; e++) most = widen(in[e]) > most ? widen(in[e]) : most;
    for (uint32_t e = 0; e < experts; e++) {
        sum += exp_of(widen(in[e]) - most);
        uint32_t at = n < used ? n++ : used; /* at == used: would fall off the end */
        while (at > 0 && widen(in[e]) > widen(in[(uint32_t)widen(out[at - 1])])) {
            if (at < used) out[at] = out[at - 1];
            at--;
        }
        if (at < used) out[at] = narrow((float)e);
    }
    for (uint32_t i = 0; i < used; i++) out[used + i] = narrow(exp_of(widen(in[(uint32_t)widen(out[i])]) - most) / sum);
    clear_end(out, 2 * used);
}

uint32_t dsp_route(dsp *d, const npu_op *o)
{
    if (!dsp_at(d, o->in) || !dsp_at(d, o->out)) return NPU_NOT_MAPPED;
    for (uint32_t r = 0; r < d->head->n_rows; r++)
        route_row(row_of(d, o->out, r), row_of(d, o->in, r), o->heads, o->kv_heads);
    return NPU_OK;
}

/* ------------------------------------------------------------ the products */

/* As the how-manieth expert e serves row r; kv_heads: it does not. */
static uint32_t nth(const dsp *d, const npu_op *o, uint32_t r, uint32_t e)
{
    const half *chosen = row_of(d, o->in2, r), number = narrow((float)e);
    uint32_t i = 0;
    while (i < o->kv_heads && chosen[i] != number) i++;
    return i;
}

/* The rows that expert e serves, one behind the other in their room.  Returns how many. */
static uint32_t gather(const dsp *d, const npu_op *o, uint32_t e)
{
    const uint32_t k = d->t[o->weight].cols;
    half *to = row_of(d, o->keys, 0);
    uint32_t n = 0;
    for (uint32_t r = 0; r < d->head->n_rows; r++) {
        const uint32_t i = nth(d, o, r, e);
        if (i == o->kv_heads) continue;
        const half *from = row_of(d, o->in, r) + (o->residual >= 0 ? i * k : 0);
        for (uint32_t j = 0; j < k; j++) to[j] = from[j];
        clear_end(to, k);
        to += npu_stride(k);
        n++;
    }
    return n;
}

/* Their products, as dsp_matmul makes them of tensors that stand for one expert's part. */
static uint32_t multiply(dsp *d, const npu_op *o, uint32_t e, uint32_t rows)
{
    enum { IN, OUT, WEIGHT };
    npu_tensor part[] = { d->t[o->keys], d->t[o->values], d->t[o->weight] };
    npu_tensor *w = &part[WEIGHT];
    w->rows /= o->heads;
    w->offset += e * (w->rows / TILE) * ((w->cols + TILE - 1) / TILE) * npu_tile_bytes(w->type);
    part[IN].rows = part[OUT].rows = rows;
    part[IN].cols = w->cols;
    part[IN].stride = npu_stride(w->cols);
    part[OUT].cols = w->rows;
    part[OUT].stride = npu_stride(w->rows);
    const npu_op product = {
        .kind = NPU_OP_MATMUL, .in = IN, .out = OUT, .weight = WEIGHT, .bias = -1, .residual = -1
    };
    const npu_tensor *all = d->t;
    d->t = part;
    const uint32_t st = dsp_matmul(d, &product);
    d->t = all;
    return st;
}

static float *sums_of(const dsp *d, const npu_op *o, uint32_t r)
{
    return (float *)(void *)dsp_at(d, o->bias) + (size_t)r * d->t[o->bias].stride;
}

/* Each product to the row it belongs to. */
static void scatter(const dsp *d, const npu_op *o, uint32_t e)
{
    const uint32_t n = d->t[o->weight].rows / o->heads;
    const half *from = row_of(d, o->values, 0);
    for (uint32_t r = 0; r < d->head->n_rows; r++) {
        const uint32_t i = nth(d, o, r, e);
        if (i == o->kv_heads) continue;
        if (o->residual >= 0) {
            const float p = widen(row_of(d, o->in2, r)[o->kv_heads + i]);
            for (uint32_t j = 0; j < n; j++) sums_of(d, o, r)[j] += p * widen(from[j]);
        } else {
            half *to = row_of(d, o->out, r) + i * n;
            for (uint32_t j = 0; j < n; j++) to[j] = from[j];
        }
        from += npu_stride(n);
    }
}

static void begin_sums(const dsp *d, const npu_op *o)
{
    for (uint32_t r = 0; r < d->head->n_rows; r++)
        for (uint32_t j = 0; j < d->t[o->residual].cols; j++) sums_of(d, o, r)[j] = widen(row_of(d, o->residual, r)[j]);
}

static void end_sums(const dsp *d, const npu_op *o)
{
    for (uint32_t r = 0; r < d->head->n_rows; r++)
        for (uint32_t j = 0; j < d->t[o->out].cols; j++) row_of(d, o->out, r)[j] = narrow(sums_of(d, o, r)[j]);
}

uint32_t dsp_experts(dsp *d, const npu_op *o)
{
    const int32_t here[] = { o->out, o->in, o->in2, o->keys, o->values };
    for (uint32_t i = 0; i < sizeof here / sizeof *here; i++)
        if (!dsp_at(d, here[i])) return NPU_NOT_MAPPED;
    if (o->residual >= 0 && (!dsp_at(d, o->residual) || !dsp_at(d, o->bias))) return NPU_NOT_MAPPED;
    if (o->residual >= 0) begin_sums(d, o);
    for (uint32_t e = 0; e < o->heads; e++) {
        const uint32_t rows = gather(d, o, e), st = rows ? multiply(d, o, e, rows) : NPU_OK;
        if (st != NPU_OK) return st;
        if (rows) scatter(d, o, e);
    }
    if (o->residual >= 0) end_sums(d, o);
    for (uint32_t r = 0; r < d->head->n_rows; r++) clear_end(row_of(d, o->out, r), d->t[o->out].cols);
    return NPU_OK;
}
