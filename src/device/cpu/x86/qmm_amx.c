/* qmm_amx.c - products in integers with AMX.  A panel of levels already lies as tiles want it: a row of a tile is a
 * quad of 16 columns.  One tile product is the exact sums of one block of the grid, for 16 rows and 16 columns; they
 * go through memory to AVX-512, which scales and adds them in kern.h's order, so that the bits are those of all
 * kernels.  (Products of bfloat16 would need no scaling here, but round weights and x: docs/decisions.md.) */
#include <immintrin.h>
#include <string.h>

#include "base/compiler.h"
#include "device/cpu/kern.h"

enum {
    ROWS = 16, LANES = 16,
    BATCH = 4, /* blocks between two visits to the sums: 8 KiB of exact ones stay in the first cache */
    FEW = 4    /* fewer rows do not fill a tile enough */
};

/* What ldtilecfg reads: bytes a row, and rows, of each tile. */
typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t width[16];
    uint8_t rows[16];
} tile_config;

/* Tiles 0 and 1: sums of columns 0-15 and 16-31; 2: rows of x; 3 and 4: levels.  Rows are configured as they are, so
 * nothing behind x is touched. */
static void configure(int rows, int sub)
{
    tile_config t = { .palette = 1 };

    for (int i = 0; i < 5; i++) {
        t.width[i] = (uint16_t)(i == 2 ? sub : LANES * 4);
        t.rows[i] = (uint8_t)(i < 3 ? rows : sub / QQUAD);
    }
    TILE_CONFIG(t);
}

typedef struct {
    int32_t n[BATCH][ROWS][QCOLS];
} exact;

/* Exact sums of blocks; x: the first row at the first block, ldx values to the next. */
static void sums(exact *e, const int8_t *x, size_t ldx, const uint8_t *level, int sub, int blocks)
{
    for (int b = 0; b < blocks; b++, x += sub, level += sub * QCOLS) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_loadd(2, x, ldx);
        _tile_loadd(3, level, QCOLS * QQUAD);
        _tile_loadd(4, level + LANES * QQUAD, QCOLS * QQUAD);
        _tile_dpbsud(0, 2, 3);
        _tile_dpbsud(1, 2, 4);
        _tile_stored(0, e->n[b], sizeof e->n[b][0]);
        _tile_stored(1, e->n[b][0] + LANES, sizeof e->n[b][0]);
    }
}

/* The sums of one row are added to c[QCOLS]; its scales, sums of x and the panel's scales and lows from the first of
 * these blocks on; `wide`: blocks that share a scale of x, the first of which is `b0`. */
typedef struct {
    const float *scale, *total, *ws, *low;
    int b0, wide, zero;
} factors;

static ALWAYS_INLINE void finish(bool low, float *c, bool add, const exact *e, int row, int blocks, const factors *f)
{
    const __m512 zeros = _mm512_set1_ps((float)f->zero);
    __m512 acc[2];

    for (int j = 0; j < 2; j++) acc[j] = add ? _mm512_loadu_ps(c + j * LANES) : _mm512_setzero_ps();
    for (int b = 0; b < blocks; b++) {
        const __m512 d = _mm512_set1_ps(f->scale[(f->b0 + b) / f->wide]), t = _mm512_set1_ps(f->total[f->b0 + b]);
        for (int j = 0; j < 2; j++) {
            const int at = (f->b0 + b) * QCOLS + j * LANES;
            __m512 n = _mm512_cvtepi32_ps(_mm512_loadu_si512(e->n[b][row] + j * LANES));
            if (low)
                acc[j] = _mm512_fnmadd_ps(_mm512_loadu_ps(f->low + at), _mm512_mul_ps(d, t), acc[j]);
            else
                n = _mm512_fnmadd_ps(zeros, t, n); /* whole numbers below 2^24: exact */
            acc[j] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_loadu_ps(f->ws + at), d), n, acc[j]);
        }
    }
    for (int j = 0; j < 2; j++) _mm512_storeu_ps(c + j * LANES, acc[j]);
}

/* All of k for at most ROWS rows, the first at value `at` of x; the tiles are configured. */
static void rows_of(float *c, const kern_qrows *x, size_t at, size_t ldx, int rows, const kern_qpanel *w, int k,
                    const quant_grid *g, bool add)
{
    const float *sum = g->sub == QSUB ? x->sum16 : x->sum32;
    const size_t sub = (size_t)g->sub;
    _Alignas(64) exact e;

    for (int b = 0; b < k / g->sub; b += BATCH) {
        const int blocks = k / g->sub - b < BATCH ? k / g->sub - b : BATCH;
        sums(&e, x->q + at + (size_t)b * sub, ldx, w->level + (size_t)b * sub * QCOLS, g->sub, blocks);
        for (int i = 0; i < rows; i++) {
            const size_t row = at + (size_t)i * ldx;
            const factors f = { x->scale + row / QBLOCK, sum + row / sub, w->scale, w->low,
                                b,                       QBLOCK / g->sub, g->zero };
            if (g->low)
                finish(true, c + i * QCOLS, add || b, &e, i, blocks, &f);
            else
                finish(false, c + i * QCOLS, add || b, &e, i, blocks, &f);
        }
    }
}

/* The tiles are the caller's thread's: set up and given back here, so that no thread need be prepared. */
void qmm_amx(float *c, const kern_qrows *x, size_t ldx, int m, const kern_qpanel *w, int k, const quant_grid *g,
             bool add)
{
    if (m < FEW) {
        qmm_avx512vnni(c, x, ldx, m, w, k, g, add);
        return;
    }
    for (int i = 0, set = 0; i < m; i += ROWS, c += ROWS * QCOLS) {
        const int rows = m - i < ROWS ? m - i : ROWS;
        if (rows != set) configure(rows, g->sub);
        set = rows;
        rows_of(c, x, (size_t)i * ldx, ldx, rows, w, k, g, add);
    }
    _tile_release();
}
