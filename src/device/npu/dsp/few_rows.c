/* few_rows.c - the product of matmul.c for so few rows that HMX, which counts 32 whether they are there or not, would
 * wait for its weights to become halves.  Rows become integers of 8 bits with a scale for each 32 values, weights stay
 * the integers they are stored as, and the vector threads multiply them; HMX is not used.  Weights come by DMA, a stripe
 * of 32 outputs for each thread at a time, into one of two places.
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

typedef struct {
    dsp *d;
    const npu_tensor *w;
    const port_buffer *weights;
    half *out;
    const half *residual; /* NULL: none */
    const float *bias;    /* NULL: none */
    uint32_t out_stride, residual_stride;
    uint32_t rows, stripes, k_tiles, stripe_bytes;
    uint32_t chunk, first; /* stripes that come at once; the first of those that are here */
    uint8_t *packed[2];    /* in VTCM */
} product;

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* As from HMX: rounded to a half with the bias, then the residual is added. */
static void write_stripe(const product *p, const float *acc, uint32_t stripe)
{
    for (uint32_t r = 0; r < p->rows; r++)
        for (uint32_t c = 0; c < TILE; c++) {
            const uint32_t n = stripe * TILE + c;
            const float bias = p->bias && n < p->w->rows ? p->bias[n] : 0;
            half h = narrow(acc[r * TILE + c] + bias);
            if (p->residual) h = narrow(widen(p->residual[r * p->residual_stride + n]) + widen(h));
            p->out[r * p->out_stride + n] = h;
        }
}

static void clear_ends(const product *p)
{
    for (uint32_t r = 0; r < p->rows; r++)
        for (uint32_t c = p->stripes * TILE; c < npu_stride(p->w->rows); c++) p->out[r * p->out_stride + c] = 0;
}

static uint8_t *place_of(const product *p, uint32_t first) { return p->packed[first / p->chunk & 1]; }

static void fetch(const product *p, uint32_t first)
{
    port_dma(p->d->m, place_of(p, first), p->weights, p->w->offset + first * p->stripe_bytes,
             least(p->chunk, p->stripes - first) * p->stripe_bytes);
}

/* One stripe of those that are here. */
static void multiply(void *arg, uint32_t part, uint32_t thread)
{
    _Alignas(128) float acc[PLAN_FEW_ROWS * TILE];
    const product *p = arg;
    const uint8_t *packed = place_of(p, p->first) + part * p->stripe_bytes;
    port_touch(p->d->m, packed, p->stripe_bytes);
    memset(acc, 0, sizeof acc);
    if (p->w->type == NPU_T32_Q8_0)
        lanes_few_q8_0(acc, p->d->few, p->rows, packed, p->k_tiles);
    else
        lanes_few_q4_0(acc, p->d->few, p->rows, packed, p->k_tiles);
    write_stripe(p, acc, p->first + part);
}

static void stream(product *p)
{
    team *all = &p->d->team;
    fetch(p, 0);
    for (p->first = 0; p->first < p->stripes; p->first += p->chunk) {
        const uint32_t here = least(p->chunk, p->stripes - p->first);
        port_dma_wait(p->d->m);
        if (p->first + here < p->stripes) fetch(p, p->first + here);
        team_run(all, least(all->workers, here - 1), here, multiply, p);
    }
    clear_ends(p);
}

/* A stripe for each thread, or as many as there is room for. */
static bool take_vtcm(product *p)
{
    const uint32_t room = (port_vtcm_left(p->d->m) - least(port_vtcm_left(p->d->m), NPU_LINE)) / 2 / p->stripe_bytes;
    p->chunk = least(least(p->d->team.workers + 1, p->stripes), room);
    for (int i = 0; i < 2 && p->chunk; i++) p->packed[i] = port_vtcm(p->d->m, p->chunk * p->stripe_bytes, NPU_LINE);
    return p->packed[0] && p->packed[1];
}

uint32_t dsp_few_rows(dsp *d, const npu_op *o)
{
    const npu_tensor *w = &d->t[o->weight], *in = &d->t[o->in], *out = &d->t[o->out];
    const half *x = (const half *)(const void *)dsp_at(d, o->in);
    product p = { .d = d, .w = w, .rows = in->rows, .stripes = (w->rows + TILE - 1) / TILE, .k_tiles = k_tiles_of(w) };
    p.weights = dsp_buffer(d, o->weight);
    p.stripe_bytes = p.k_tiles * npu_tile_bytes(w->type);
    p.out = (half *)(void *)dsp_at(d, o->out);
    p.out_stride = out->stride;
    if (o->bias >= 0) p.bias = (const float *)(const void *)dsp_at(d, o->bias);
    if (o->residual >= 0) {
        p.residual = (const half *)(const void *)dsp_at(d, o->residual);
        p.residual_stride = d->t[o->residual].stride;
    }
    if (!x || !p.out || !p.weights || (o->bias >= 0 && !p.bias) || (o->residual >= 0 && !p.residual))
        return NPU_NOT_MAPPED;
    const bool fits = take_vtcm(&p);
    if (fits) {
        for (uint32_t r = 0; r < p.rows; r++) lanes_to_integers(&d->few[r], x + r * in->stride, p.k_tiles);
        stream(&p);
    }
    port_vtcm_free(d->m);
    return fits ? NPU_OK : NPU_NO_VTCM;
}
