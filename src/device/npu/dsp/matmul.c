/* matmul.c - out[r][n] = sum over k of in[r][k] w[n][k], by HMX on tiles, as plan.h says how.
 *
 * Weights go through the stages DMA | expand | multiply | out, a chunk of stripes at a time.  All stages work at once,
 * each on a chunk of its own, in steps: the message's thread asks DMA for the next chunk, gives the HMX thread one that
 * is expanded, and shares the vector unit's part with the workers; when all have done theirs, everything moves on by
 * one chunk.  Each place between two stages is there twice, and chunk i uses place i & 1.
 *
 * Rows go 32 to a tile; as many tiles of rows as the plan says share one reading of the weights. */
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
    uint32_t rows, n;
    plan_shape shape;
    plan_cut cut;
    uint32_t stripe_bytes, chunks;
    const port_buffer *weights;
    uint32_t weights_off;
    uint32_t first, row_tiles; /* of this reading */
    /* VTCM */
    uint32_t *scales;
    half *act;          /* [row tiles][k_tiles] */
    uint8_t *packed[2]; /* [chunk][k_tiles] tiles */
    half *wide[2];      /* the same as halves; of weights that come as halves: where they came */
    half *result[2];    /* [chunk][row tiles] */
} product;

/* What the stages do in one step: numbers of chunks, NONE if nothing. */
typedef struct {
    product *p;
    uint32_t expand, multiply, out;
    uint32_t expand_parts;
} step;

static const uint32_t NONE = UINT32_MAX;

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t tiles_of(uint32_t n) { return (n + TILE - 1) / TILE; }

/* Stripes of a chunk: the last may have fewer. */
static uint32_t stripes_of(const product *p, uint32_t chunk)
{
    return least(p->cut.chunk, p->shape.stripes - chunk * p->cut.chunk);
}

/* The part of `total` things that is the `part`th of `parts`, in whole pairs: [*lo, *hi). */
static void share(uint32_t total, uint32_t part, uint32_t parts, uint32_t *lo, uint32_t *hi)
{
    const uint32_t pairs = (total + 1) / 2, each = (pairs + parts - 1) / parts;
    *lo = least(part * each * 2, total);
    *hi = least((part + 1) * each * 2, total);
}

static bool take_vtcm(product *p)
{
    port *m = p->d->m;
    const plan_cut *c = &p->cut;
    const uint32_t row = p->shape.k_tiles * TILE_BYTES;
    bool all = (p->act = port_vtcm(m, c->row_tiles * row, TILE_BYTES)) != NULL;
    for (int i = 0; i < 2; i++) {
        all = all && (p->result[i] = port_vtcm(m, c->chunk * c->row_tiles * TILE_BYTES, TILE_BYTES));
        if (p->shape.type != NPU_T32_F16) all = all && (p->wide[i] = port_vtcm(m, c->chunk * row, TILE_BYTES));
    }
    all = all && (p->scales = port_vtcm(m, 256, 256));
    for (int i = 0; i < 2; i++) {
        all = all && (p->packed[i] = port_vtcm(m, c->chunk * p->stripe_bytes, NPU_LINE));
        if (p->shape.type == NPU_T32_F16) p->wide[i] = (half *)(void *)p->packed[i];
    }
    return all;
}

/* ------------------------------------------------------------ stages */

static void fetch(const product *p, uint32_t chunk)
{
    const uint32_t bytes = p->cut.chunk * p->stripe_bytes;
    port_dma(p->d->m, p->packed[chunk & 1], p->weights, p->weights_off + chunk * bytes,
             stripes_of(p, chunk) * p->stripe_bytes);
}

/* A part of the rows' values into tiles. */
static void pack(void *arg, uint32_t part, uint32_t thread)
{
    const product *p = arg;
    const uint32_t parts = p->cut.workers + 1, tile = part / parts, row = p->first + tile * TILE;
    uint32_t lo, hi;
    share(p->shape.k_tiles, part % parts, parts, &lo, &hi);
    half *to = p->act + (tile * p->shape.k_tiles + lo) * TILE_VALUES;
    if (lo == hi) return;
    port_touch(p->d->m, to, (hi - lo) * TILE_BYTES);
    lanes_pack(to, p->in + row * p->in_stride + lo * TILE, p->in_stride, least(p->rows - row, TILE), hi - lo);
}

/* A part of a chunk's tiles as halves. */
static void expand(const step *s, uint32_t part)
{
    const product *p = s->p;
    const uint32_t bytes = npu_tile_bytes(p->shape.type);
    uint32_t lo, hi;
    share(stripes_of(p, s->expand) * p->shape.k_tiles, part, s->expand_parts, &lo, &hi);
    const uint8_t *from = p->packed[s->expand & 1] + lo * bytes;
    half *to = p->wide[s->expand & 1] + lo * TILE_VALUES;
    if (lo == hi) return;
    port_touch(p->d->m, from, (hi - lo) * bytes);
    port_touch(p->d->m, to, (hi - lo) * TILE_BYTES);
    if (p->shape.type == NPU_T32_Q8_0)
        lanes_expand_q8_0(to, from, hi - lo);
    else
        lanes_expand_q4_0(to, from, hi - lo);
}

/* One result tile of a chunk to its place. */
static void put(const step *s, uint32_t tile)
{
    const product *p = s->p;
    const uint32_t stripe = s->out * p->cut.chunk + tile / p->row_tiles, row = p->first + tile % p->row_tiles * TILE;
    const half *from = p->result[s->out & 1] + tile * TILE_VALUES;
    port_touch(p->d->m, from, TILE_BYTES);
    lanes_unpack(p->out + row * p->out_stride + stripe * TILE, p->out_stride, from, least(p->rows - row, TILE),
                 p->residual ? p->residual + row * p->residual_stride + stripe * TILE : NULL);
}

static void vector_part(void *arg, uint32_t part, uint32_t thread)
{
    const step *s = arg;
    if (part < s->expand_parts)
        expand(s, part);
    else
        put(s, part - s->expand_parts);
}

/* The stripe's scales are 1; its biases, as halves, are the bias. */
static void set_scales(const product *p, uint32_t stripe)
{
    for (uint32_t c = 0; c < TILE; c++) {
        const uint32_t n = stripe * TILE + c;
        const uint32_t bias = p->bias && n < p->n ? narrow(p->bias[n]) : 0;
        p->scales[c] = bias << 16 | 0x3c00;
        p->scales[TILE + c] = 0;
    }
    port_hmx_scale(p->d->m, p->scales);
}

static void multiply_tile(const product *p, half *out, const half *act, const half *w)
{
    port *m = p->d->m;
    port_hmx_clear(m);
    for (uint32_t k = 0; k < p->shape.k_tiles; k += MAX_TILES)
        port_hmx_mac(m, act + k * TILE_VALUES, w + k * TILE_VALUES, least(p->shape.k_tiles - k, MAX_TILES));
    port_hmx_store(m, out);
}

/* On the HMX thread, which holds the lock from a reading's first chunk to its last. */
static void multiply(void *arg)
{
    const step *s = arg;
    const product *p = s->p;
    const uint32_t row = p->shape.k_tiles * TILE_VALUES, stripes = stripes_of(p, s->multiply);
    half *out = p->result[s->multiply & 1];
    if (s->multiply == 0) port_hmx_lock(p->d->m);
    for (uint32_t i = 0; i < stripes; i++) {
        const half *w = p->wide[s->multiply & 1] + i * row;
        if (p->bias || (s->multiply == 0 && i == 0)) set_scales(p, s->multiply * p->cut.chunk + i);
        for (uint32_t t = 0; t < p->row_tiles; t++, out += TILE_VALUES) multiply_tile(p, out, p->act + t * row, w);
    }
    if (s->multiply == p->chunks - 1) port_hmx_unlock(p->d->m);
}

/* ------------------------------------------------------------ the whole */

/* The chunk that is `behind` steps behind step t. */
static uint32_t chunk_at(const product *p, uint32_t t, uint32_t behind)
{
    return t >= behind && t - behind < p->chunks ? t - behind : NONE;
}

static void run_step(product *p, uint32_t t)
{
    team *all = &p->d->team;
    const uint32_t lag = plan_lag(p->shape.type);
    step s = { .p = p, .multiply = chunk_at(p, t, lag), .out = chunk_at(p, t, lag + 1) };
    s.expand = lag ? chunk_at(p, t, 0) : NONE;
    s.expand_parts = s.expand == NONE ? 0 : p->cut.workers + 1;
    if (s.multiply != NONE) team_matrix_start(all, multiply, &s);
    team_run(all, p->cut.workers, s.expand_parts + (s.out == NONE ? 0 : stripes_of(p, s.out) * p->row_tiles),
             vector_part, &s);
    if (s.multiply != NONE) team_matrix_wait(all);
}

/* Rows from `first` on, as many tiles as share a reading, by all of the weights. */
static void pass_over(product *p, uint32_t first, uint32_t row_tiles)
{
    port *m = p->d->m;
    const uint32_t steps = p->chunks + plan_lag(p->shape.type) + 1;
    p->first = first;
    p->row_tiles = row_tiles;
    fetch(p, 0);
    team_run(&p->d->team, p->cut.workers, row_tiles * (p->cut.workers + 1), pack, p);
    for (uint32_t t = 0; t < steps; t++) {
        port_dma_wait(m);
        if (t + 1 < p->chunks) fetch(p, t + 1);
        run_step(p, t);
    }
}

/* An odd number of tiles leaves half a cache line behind them: zero, as behind every row. */
static void clear_ends(const product *p)
{
    for (uint32_t r = 0; r < p->rows; r++)
        for (uint32_t c = p->shape.stripes * TILE; c < npu_stride(p->n); c++) p->out[r * p->out_stride + c] = 0;
}

uint32_t dsp_matmul(dsp *d, const npu_op *o)
{
    if (dsp_takes_few_rows(d, o)) return dsp_few_rows(d, o);
    const npu_tensor *w = &d->t[o->weight], *in = &d->t[o->in], *out = &d->t[o->out];
    product p = { .d = d, .rows = in->rows, .n = w->rows };
    p.shape = (plan_shape){ tiles_of(p.rows), tiles_of(p.n), tiles_of(w->cols), w->type };
    p.in = (const half *)(const void *)dsp_at(d, o->in);
    p.out = (half *)(void *)dsp_at(d, o->out);
    p.weights = dsp_buffer(d, o->weight);
    p.weights_off = w->offset;
    p.in_stride = in->stride;
    p.out_stride = out->stride;
    p.stripe_bytes = p.shape.k_tiles * npu_tile_bytes(w->type);
    if (o->bias >= 0) p.bias = (const float *)(const void *)dsp_at(d, o->bias);
    if (o->residual >= 0) {
        p.residual = (const half *)(const void *)dsp_at(d, o->residual);
        p.residual_stride = d->t[o->residual].stride;
    }
    if (!p.in || !p.out || !p.weights || (o->bias >= 0 && !p.bias) || (o->residual >= 0 && !p.residual))
        return NPU_NOT_MAPPED;
    p.cut = plan_product(&p.shape, port_vtcm_left(d->m), d->team.workers);
    if (p.cut.row_tiles == 0 || !take_vtcm(&p)) {
        port_vtcm_free(d->m);
        return NPU_NO_VTCM;
    }
    p.chunks = (p.shape.stripes + p.cut.chunk - 1) / p.cut.chunk;
    for (uint32_t t = 0; t < p.shape.row_tiles; t += p.cut.row_tiles)
        pass_over(&p, t * TILE, least(p.cut.row_tiles, p.shape.row_tiles - t));
    clear_ends(&p);
    port_vtcm_free(d->m);
    return NPU_OK;
}
