/* few_rows.c - the product of matmul.c for so few rows that HMX, which counts 32 whether they are there or not, would
 * wait for its weights to become halves.  Rows become integers of 8 bits with a scale for each 32 values, weights stay
 * the integers they are stored as, and the vector unit multiplies them; HMX is not used.  Weights come by DMA as in
 * matmul.c, a stripe of 32 outputs into one of two places.
 *
 * Rounding rows to 8 bits is not rounding them to halves: the same row has other bits here than among many rows.  So
 * this is done only when the message allows it. */
#include "device/npu/dsp/dsp.h"
#include "device/npu/dsp/half.h"

static uint32_t k_tiles_of(const npu_tensor *w) { return (w->cols + TILE - 1) / TILE; }

bool dsp_takes_few_rows(const dsp *d, const npu_op *o)
{
    const npu_tensor *w = &d->t[o->weight];
    return (d->head->flags & NPU_FEW_ROWS) && plan_in_integers(d->t[o->in].rows, k_tiles_of(w), w->type);
}

/* Where an operator's rows and vectors lie; NULL: it has none. */
typedef struct {
    half *out;
    const half *residual;
    const float *bias;
    uint32_t out_stride, residual_stride;
    uint32_t rows, n;
} place;

/* As from HMX: rounded to a half with the bias, then the residual is added. */
static void write_stripe(const place *p, const float *acc, uint32_t stripe)
{
    for (uint32_t r = 0; r < p->rows; r++)
        for (uint32_t c = 0; c < TILE; c++) {
            const uint32_t n = stripe * TILE + c;
            const float bias = p->bias && n < p->n ? p->bias[n] : 0;
            half h = narrow(acc[r * TILE + c] + bias);
            if (p->residual) h = narrow(widen(p->residual[r * p->residual_stride + n]) + widen(h));
            p->out[r * p->out_stride + n] = h;
        }
}

static void clear_ends(const place *p, uint32_t stripes)
{
    for (uint32_t r = 0; r < p->rows; r++)
        for (uint32_t c = stripes * TILE; c < npu_stride(p->n); c++) p->out[r * p->out_stride + c] = 0;
}

static void stream(dsp *d, const npu_tensor *w, const port_buffer *b, uint8_t *const *packed, const place *p)
{
    _Alignas(128) float acc[PLAN_FEW_ROWS * TILE];
    const uint32_t k_tiles = k_tiles_of(w), bytes = k_tiles * npu_tile_bytes(w->type);
    const uint32_t stripes = (p->n + TILE - 1) / TILE;
    port_dma(d->m, packed[0], b, w->offset, bytes);
    for (uint32_t s = 0; s < stripes; s++) {
        port_dma_wait(d->m);
        if (s + 1 < stripes) port_dma(d->m, packed[(s + 1) & 1], b, w->offset + (s + 1) * bytes, bytes);
        port_touch(d->m, packed[s & 1], bytes);
        memset(acc, 0, sizeof acc);
        if (w->type == NPU_T32_Q8_0)
            lanes_few_q8_0(acc, d->few, p->rows, packed[s & 1], k_tiles);
        else
            lanes_few_q4_0(acc, d->few, p->rows, packed[s & 1], k_tiles);
        write_stripe(p, acc, s);
    }
    clear_ends(p, stripes);
}

uint32_t dsp_few_rows(dsp *d, const npu_op *o)
{
    const npu_tensor *w = &d->t[o->weight], *in = &d->t[o->in], *out = &d->t[o->out];
    const half *x = (const half *)(const void *)dsp_at(d, o->in);
    const port_buffer *b = dsp_buffer(d, o->weight);
    place p = { .out = (half *)(void *)dsp_at(d, o->out), .out_stride = out->stride, .rows = in->rows, .n = w->rows };
    if (o->bias >= 0) p.bias = (const float *)(const void *)dsp_at(d, o->bias);
    if (o->residual >= 0) {
        p.residual = (const half *)(const void *)dsp_at(d, o->residual);
        p.residual_stride = d->t[o->residual].stride;
    }
    if (!x || !p.out || !b || (o->bias >= 0 && !p.bias) || (o->residual >= 0 && !p.residual)) return NPU_NOT_MAPPED;
    const uint32_t bytes = k_tiles_of(w) * npu_tile_bytes(w->type);
    uint8_t *const packed[2] = { port_vtcm(d->m, bytes, NPU_LINE), port_vtcm(d->m, bytes, NPU_LINE) };
    if (packed[0] && packed[1]) {
        for (uint32_t r = 0; r < p.rows; r++) lanes_to_integers(&d->few[r], x + r * in->stride, k_tiles_of(w));
        stream(d, w, b, packed, &p);
    }
    port_vtcm_free(d->m);
    return packed[0] && packed[1] ? NPU_OK : NPU_NO_VTCM;
}
