/* product.h - one matrix product of a pass, as its two ways (matmul.c: in floats, qmatmul.c: in integers) see it. */
#ifndef DEVICE_CPU_PRODUCT_H
#define DEVICE_CPU_PRODUCT_H

#include "device/cpu/cpu.h"
#include "format/t32.h"

/* out[m][n] = x[m][k] w^T (+ bias) (+ residual). */
typedef struct {
    const device_ctx *c;
    const tensor *w;
    const float *x, *bias, *residual;
    float *out;
    size_t ld; /* values from row to row of out and residual */
    int m, n, k;
    t32_shape t32; /* of w in LAYOUT_T32 */
} product;

/* The packed weights of column j from value p of k on; w in LAYOUT_ROWS. */
const uint8_t *product_packed(const product *b, int j, int p);

/* The weights that are read after a panel are fetched while the panel is computed with, a few lines before each tile
 * row: memory and arithmetic overlap. */
typedef struct {
    const uint8_t *at;
    size_t row_bytes, lines_row; /* a row of w; lines of it that are wanted */
    size_t line;                 /* of the row, the next to fetch */
    size_t lines, done;          /* of all rows */
} product_ahead;

/* What follows nr columns from j on, values p .. p + kc - 1; hi: where this thread's columns end. */
product_ahead product_ahead_of(const product *b, int j, int nr, int p, int kc, int hi);
/* Call it as rows are computed: `rows_done` of `rows`. */
void product_fetch(product_ahead *a, int rows_done, int rows);

/* With weights that are levels on a grid (quant_info.levels), after cpu_qrows of x. */
void cpu_qmatmul(const product *b);
/* Makes the context's integers of x[m][k], k a multiple of QBLOCK. */
void cpu_qrows(const device_ctx *c, const float *x, int m, int k);

#endif
