/* qmatmul.c - the matrix product of a pass with weights that are levels on a grid, in integers (kern.h).  The rows of x
 * are made integers once; threads take whole stripes of QCOLS columns, expand a panel of weights that stays in the
 * first cache, and run all rows over it.  A column's sums are added in rising k, bias and residual last. */
#include <string.h>

#include "device/cpu/product.h"

/* ------------------------------------------------------------ rows of x */

typedef struct {
    const device_ctx *c;
    const float *x;
    size_t k;
    int m;
} rows_job;

static kern_qrows rows_from(const kern_qrows *x, size_t at)
{
    return (kern_qrows){ x->q + at, x->scale + at / QBLOCK, x->sum32 + at / QBLOCK, x->sum16 + at / QSUB };
}

static void quantize_part(void *user, int t, int n)
{
    const rows_job *b = user;
    int lo, hi;

    pool_share(b->m, 1, t, n, &lo, &hi);
    for (int i = lo; i < hi; i++) {
        kern_qrows to = rows_from(&b->c->qx, (size_t)i * b->k);
        b->c->k.quantize.fn(to.q, to.scale, to.sum32, to.sum16, b->x + (size_t)i * b->k, b->k);
    }
}

/* ------------------------------------------------------------ panels of weights */

/* Levels of one column, k values from p on. */
static void levels(const product *b, uint8_t *level, float *scale, float *low, int j, int p, int k)
{
    quant_levels_fn *fn = b->c->k.levels[b->w->type].fn;
    const int tile_k = (int)b->t32.tile_k, sub = quant_get(b->w->type)->grid.sub;
    uint8_t room[T32_BLOCK];

    if (b->w->layout == LAYOUT_ROWS) {
        fn(level, scale, low, product_packed(b, j, p), (size_t)k);
        return;
    }
    for (int done = 0; done < k; done += tile_k) {
        const uint8_t *tile = t32_tile(&b->t32, b->w->data, (size_t)(j / T32_ROWS), (size_t)((p + done) / tile_k));
        const int at = done / sub;
        fn(level + done, scale + at, low + at, t32_block(&b->t32, tile, (size_t)(j % T32_ROWS), room), (size_t)tile_k);
    }
}

/* A stripe by way of rows of levels; columns behind the matrix become zeros. */
static void panel_weave(const product *b, const cpu_scratch *s, int j, int p, int k)
{
    enum { SUBS = Q_KC / QSUB };
    const quant_grid *g = &quant_get(b->w->type)->grid;
    const int n = b->n - j < QCOLS ? b->n - j : QCOLS, subs = k / g->sub;
    float *scale = s->qrow, *low = s->qrow + QCOLS * SUBS;
    kern_weave_fn *weave = b->c->k.weave.fn;

    for (int r = 0; r < n; r++) levels(b, s->qlevel + r * Q_KC, scale + r * SUBS, low + r * SUBS, j + r, p, k);
    for (int r = n; r < QCOLS; r++) {
        memset(s->qlevel + r * Q_KC, 0, (size_t)k);
        memset(scale + r * SUBS, 0, SUBS * sizeof *scale);
        memset(low + r * SUBS, 0, SUBS * sizeof *low);
    }
    weave(s->qpanel.level, s->qlevel, Q_KC, k);
    /* a float is 4 bytes, as four levels are */
    weave((uint8_t *)s->qpanel.scale, (const uint8_t *)scale, SUBS * sizeof *scale, subs * QQUAD);
    if (g->low) weave((uint8_t *)s->qpanel.low, (const uint8_t *)low, SUBS * sizeof *low, subs * QQUAD);
}

/* Columns j.. of k values from p on. */
static void panel_fill(const product *b, const cpu_scratch *s, int j, int p, int k)
{
    const uint32_t type = b->w->type;
    const kern_table *t = &b->c->k;
    const size_t tile = b->w->layout == LAYOUT_T32 ? (size_t)p / b->t32.tile_k : 0;

    if (b->w->layout == LAYOUT_T32 && t->expand_tiles[type].fn)
        t->expand_tiles[type].fn(&s->qpanel, t32_tile(&b->t32, b->w->data, (size_t)(j / QCOLS), tile), k);
    else if (b->w->layout == LAYOUT_ROWS && j + QCOLS <= b->n && t->expand[type].fn)
        t->expand[type].fn(&s->qpanel, product_packed(b, j, p), b->w->row_bytes, k);
    else
        panel_weave(b, s, j, p, k);
}

/* sums: [m][QCOLS] -> out[i0 + i][j ..]. */
static void put(const product *b, const float *sums, int i0, int m, int j, int nr)
{
    for (int i = 0; i < m; i++, sums += QCOLS) {
        const size_t at = (size_t)(i0 + i) * b->ld + (size_t)j;
        for (int r = 0; r < nr; r++) {
            float v = sums[r];
            if (b->bias) v += b->bias[j + r];
            if (b->residual) v += b->residual[at + (size_t)r];
            b->out[at + (size_t)r] = v;
        }
    }
}

/* Columns j.. of row i, without a panel; false: not with this type or layout. */
static bool stripe_of_row(const product *b, const cpu_scratch *s, int i, int j, int hi)
{
    kern_row_tiles_fn *fn = b->w->layout == LAYOUT_T32 ? b->c->k.row_tiles[b->w->type].fn : NULL;
    const kern_qrows x = rows_from(&b->c->qx, (size_t)i * (size_t)b->k);

    if (!fn) return false;
    fn(s->sums, &x, t32_tile(&b->t32, b->w->data, (size_t)(j / QCOLS), 0), b->k);
    put(b, s->sums, i, 1, j, hi - j < QCOLS ? hi - j : QCOLS);
    return true;
}

/* Columns j.. of m rows; hi: where this thread's columns end. */
static void stripe(const product *b, const cpu_scratch *s, int i0, int m, int j, int hi)
{
    const quant_grid *grid = &quant_get(b->w->type)->grid;
    const int nr = hi - j < QCOLS ? hi - j : QCOLS, most = b->c->k.qmm_rows;
    /* tiles lie in order: reading them and multiplying take turns often, and overlap; of rows whole lines are read */
    const int kc = b->w->layout == LAYOUT_T32 ? Q_KC / 2 : Q_KC;

    if (m == 1 && stripe_of_row(b, s, i0, j, hi)) return;
    for (int p = 0; p < b->k; p += kc) {
        const int k = b->k - p < kc ? b->k - p : kc;
        product_ahead next = product_ahead_of(b, j, nr, p, kc, hi);
        panel_fill(b, s, j, p, k);
        for (int i = 0; i < m; i += most) {
            const int rows = m - i < most ? m - i : most;
            const kern_qrows x = rows_from(&b->c->qx, (size_t)(i0 + i) * (size_t)b->k + (size_t)p);
            product_fetch(&next, i + rows, m);
            b->c->k.qmm.fn(s->sums + (size_t)i * QCOLS, &x, (size_t)b->k, rows, &s->qpanel, k, grid, p > 0);
        }
    }
    put(b, s->sums, i0, m, j, nr);
}

static void part(void *user, int t, int n)
{
    const product *b = user;
    const int most = (int)b->c->sums_ld;
    int lo, hi;

    pool_share(b->n, QCOLS, t, n, &lo, &hi);
    for (int i = 0; i < b->m; i += most)
        for (int j = lo; j < hi; j += QCOLS) stripe(b, &b->c->scratch[t], i, b->m - i < most ? b->m - i : most, j, hi);
}

void cpu_qrows(const device_ctx *c, const float *x, int m, int k)
{
    rows_job r = { c, x, (size_t)k, m };

    cpu_share(c, 16.0 * m * k, quantize_part, &r);
}

void cpu_qmatmul(const product *b) { cpu_share(b->c, (double)b->m * b->n * b->k, part, (void *)b); }
