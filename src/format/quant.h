/* quant.h - how tensor data is stored: the GGUF block formats, with the reference decode (and encode) of each.  A block
 * format packs `block` consecutive values of a row into `bytes` bytes.  These functions are the definition of right;
 * kernels are checked against them.  Layouts: the public GGUF documentation. */
#ifndef FORMAT_QUANT_H
#define FORMAT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers as in GGUF files. */
typedef enum {
    QT_F32 = 0, QT_F16 = 1, QT_Q4_0 = 2, QT_Q4_1 = 3, QT_Q5_0 = 6, QT_Q5_1 = 7, QT_Q8_0 = 8,
    QT_Q2_K = 10, QT_Q3_K = 11, QT_Q4_K = 12, QT_Q5_K = 13, QT_Q6_K = 14, QT_IQ4_NL = 20, QT_IQ4_XS = 23, QT_BF16 = 30,
    QT_COUNT = 31
} quant_type;

/* Packed values stand on grids: w = scale * (level - zero), or w = scale * level - low, with a scale (and a low) for
 * each `sub` consecutive values, 16 or 32.  Levels are 0 .. 2^bits - 1. */
typedef struct {
    int sub, bits;
    int zero;
    bool low;
} quant_grid;

/* n values, a multiple of the block -> n levels, n / sub scales, and as many lows where the grid has them (else low is
 * not touched). */
typedef void quant_levels_fn(uint8_t *level, float *scale, float *low, const void *src, size_t n);

typedef struct {
    const char *name;      /* "Q4_0" */
    int block, bytes;      /* values a block, bytes a block */
    void (*decode)(float *dst, const void *src, size_t n);  /* n values, a multiple of block; NULL: not supported yet */
    void (*encode)(void *dst, const float *src, size_t n);  /* NULL: decode only */
    quant_levels_fn *levels; /* NULL: plain numbers, not on a grid */
    quant_grid grid;
    /* The same with the errors of the n values weighed by w: finite, not negative; blocks whose weights are all 0 are
     * encoded as if they were alike.  NULL: this format makes nothing of weights. */
    void (*weigh)(void *dst, const float *src, const float *w, size_t n);
} quant_info;

/* NULL for a number that is not one of ours. */
const quant_info *quant_get(uint32_t type);

/* Bytes of a row of n values; false when n is not a multiple of the block or the product overflows. */
bool quant_row_bytes(uint32_t type, uint64_t n, size_t *bytes);

#endif
