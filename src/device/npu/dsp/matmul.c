/* matmul.c - out[r][n] = sum over k of in[r][k] w[n][k], by HMX on tiles.
 *
 * Weights come by DMA, a stripe of 32 outputs at a time into one of two places, so that the next is on its way while
 * this one is expanded to halves and multiplied.  Rows go 32 to a tile; as many tiles of rows as VTCM holds share a
 * stripe, and if they are more, the weights stream again. */
#include "device/npu/dsp/dsp.h"
#include "device/npu/dsp/half.h"
#include "device/npu/dsp/lanes.h"
#include "device/npu/dsp/plan.h"

typedef struct {
    dsp *d;
    const half *in;
    half *out;
    const half *residual; /* NULL: none */
    const float *bias;    /* NULL: none */
    uint32_t in_stride, out_stride, residual_stride;
    uint32_t rows, n, k_tiles, type, stripe_bytes;
    const port_buffer *weights;
    uint32_t weights_off;
    /* VTCM */
    uint32_t *scales;
    half *act; /* [row tiles][k_tiles] */
    uint8_t *packed[2];
    half *wide; /* [k_tiles] expanded weights; NULL: they come as halves */
    half *result;
} product;

static bool take_vtcm(product *p, uint32_t row_tiles)
{
    port *m = p->d->m;
    const uint32_t tiles = p->k_tiles * TILE_BYTES;
    p->act = port_vtcm(m, row_tiles * tiles, TILE_BYTES);
    p->result = port_vtcm(m, TILE_BYTES, TILE_BYTES);
    p->wide = p->type == NPU_T32_F16 ? NULL : port_vtcm(m, tiles, TILE_BYTES);
    p->scales = port_vtcm(m, 256, 256);
    for (int i = 0; i < 2; i++) p->packed[i] = port_vtcm(m, p->stripe_bytes, NPU_LINE);
    return p->act && p->result && (p->wide || p->type == NPU_T32_F16) && p->scales && p->packed[0] && p->packed[1];
}

/* The stripe's scales are 1; its biases, as halves, are the bias. */
static void set_scales(product *p, uint32_t stripe)
{
    for (uint32_t c = 0; c < TILE; c++) {
        const uint32_t n = stripe * TILE + c;
        const uint32_t bias = p->bias && n < p->n ? narrow(p->bias[n]) : 0;
        p->scales[c] = bias << 16 | 0x3c00;
        p->scales[TILE + c] = 0;
    }
    port_hmx_scale(p->d->m, p->scales);
}

/* The stripe's weights as halves, from where DMA has put them. */
static const half *expand(const product *p, const uint8_t *packed)
{
    port_touch(p->d->m, packed, p->stripe_bytes);
    if (p->type == NPU_T32_F16) return (const half *)(const void *)packed;
    if (p->type == NPU_T32_Q8_0)
        lanes_expand_q8_0(p->wide, packed, p->k_tiles);
    else
        lanes_expand_q4_0(p->wide, packed, p->k_tiles);
    return p->wide;
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static void multiply(const product *p, const half *w, uint32_t row_tile, uint32_t first_row, uint32_t stripe)
{
    port *m = p->d->m;
    const half *act = p->act + row_tile * p->k_tiles * TILE_VALUES;
    port_hmx_clear(m);
    for (uint32_t k = 0; k < p->k_tiles; k += MAX_TILES)
        port_hmx_mac(m, act + k * TILE_VALUES, w + k * TILE_VALUES, least(p->k_tiles - k, MAX_TILES));
    port_hmx_store(m, p->result);
    lanes_unpack(p->out + first_row * p->out_stride + stripe * TILE, p->out_stride, p->result,
                 least(p->rows - first_row, TILE),
                 p->residual ? p->residual + first_row * p->residual_stride + stripe * TILE : NULL);
}

/* Rows from `first` on, as many tiles as there is room for, by all of the weights. */
static void pass_over(product *p, uint32_t first, uint32_t row_tiles)
{
    port *m = p->d->m;
    const uint32_t stripes = (p->n + TILE - 1) / TILE;
    for (uint32_t t = 0; t < row_tiles; t++) {
        const uint32_t row = first + t * TILE;
        lanes_pack(p->act + t * p->k_tiles * TILE_VALUES, p->in + row * p->in_stride, p->in_stride,
                   least(p->rows - row, TILE), p->k_tiles);
    }
    port_dma(m, p->packed[0], p->weights, p->weights_off, p->stripe_bytes);
    for (uint32_t s = 0; s < stripes; s++) {
        port_dma_wait(m);
        if (s + 1 < stripes)
            port_dma(m, p->packed[(s + 1) & 1], p->weights, p->weights_off + (s + 1) * p->stripe_bytes,
                     p->stripe_bytes);
        const half *w = expand(p, p->packed[s & 1]);
        set_scales(p, s);
        for (uint32_t t = 0; t < row_tiles; t++) multiply(p, w, t, first + t * TILE, s);
    }
}

/* An odd number of tiles leaves half a cache line behind them: zero, as behind every row. */
static void clear_ends(const product *p)
{
    const uint32_t end = (p->n + TILE - 1) / TILE * TILE;
    for (uint32_t r = 0; r < p->rows; r++)
        for (uint32_t c = end; c < npu_stride(p->n); c++) p->out[r * p->out_stride + c] = 0;
}

uint32_t dsp_matmul(dsp *d, const npu_op *o)
{
    const npu_tensor *w = &d->t[o->weight], *in = &d->t[o->in], *out = &d->t[o->out];
    product p = { .d = d, .rows = in->rows, .n = w->rows, .k_tiles = (w->cols + TILE - 1) / TILE, .type = w->type };
    p.in = (const half *)(const void *)dsp_at(d, o->in);
    p.out = (half *)(void *)dsp_at(d, o->out);
    p.weights = dsp_buffer(d, o->weight);
    p.weights_off = w->offset;
    p.in_stride = in->stride;
    p.out_stride = out->stride;
    p.stripe_bytes = p.k_tiles * npu_tile_bytes(w->type);
    if (o->bias >= 0) p.bias = (const float *)(const void *)dsp_at(d, o->bias);
    if (o->residual >= 0) {
        p.residual = (const half *)(const void *)dsp_at(d, o->residual);
        p.residual_stride = d->t[o->residual].stride;
    }
    if (!p.in || !p.out || !p.weights || (o->bias >= 0 && !p.bias) || (o->residual >= 0 && !p.residual))
        return NPU_NOT_MAPPED;
    const uint32_t all = (p.rows + TILE - 1) / TILE;
    const uint32_t room = plan_row_tiles(port_vtcm_left(d->m), p.k_tiles, w->type);
    const uint32_t share = least(room, all);
    if (share == 0 || !take_vtcm(&p, share)) {
        port_vtcm_free(d->m);
        return NPU_NO_VTCM;
    }
    port_hmx_lock(d->m);
    for (uint32_t t = 0; t < all; t += share) pass_over(&p, t * TILE, least(share, all - t));
    port_hmx_unlock(d->m);
    clear_ends(&p);
    port_vtcm_free(d->m);
    return NPU_OK;
}
