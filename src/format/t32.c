/* t32.c - the packed layout: sizes, packing, and the way back from a tile to GGUF blocks, which the type's own decode
 * then reads. */
#include "format/t32.h"

#include <string.h>

#include "base/size.h"

enum {
    TILE_K = 32, /* values of k in a tile of those types whose block is not longer */
    PAIRS = TILE_K / 2,
    Q4_SCALES = PAIRS * T32_ROWS,    /* where the scales begin */
    Q8_SCALES = TILE_K * T32_ROWS
};

static size_t div_up(uint64_t n, uint64_t by) { return (size_t)(n / by + (n % by != 0)); }

bool t32_shape_of(t32_shape *s, uint32_t type, uint64_t n, uint64_t k)
{
    const quant_info *q = quant_get(type);
    if (!q || n < 1 || k < 1 || n > SIZE_MAX || k > SIZE_MAX || k % (uint64_t)q->block) return false;
    size_t tile_k = q->block > TILE_K ? (size_t)q->block : TILE_K;
    *s = (t32_shape){ .type = type, .n = (size_t)n, .k = (size_t)k, .tile_k = tile_k };
    s->tile_bytes = T32_ROWS * (tile_k / (size_t)q->block) * (size_t)q->bytes;
    s->tiles = div_up(k, tile_k);
    s->stripes = div_up(n, T32_ROWS);
    return size_mul(s->tiles, s->tile_bytes, &s->stripe_bytes) && size_mul(s->stripes, s->stripe_bytes, &s->bytes);
}

/* ------------------------------------------------------------ one row of one tile: `bytes` of its GGUF bytes */

static void put_q4_0(uint8_t *tile, size_t r, const uint8_t *block)
{
    memcpy(tile + Q4_SCALES + 2 * r, block, 2);
    for (size_t p = 0; p < PAIRS / 2; p++) {
        unsigned even = block[2 + 2 * p], odd = block[3 + 2 * p]; /* values 2p, 2p + 1 low; those 16 further on high */
        tile[p * T32_ROWS + r] = (uint8_t)((even & 15) | (odd & 15) << 4);
        tile[(p + PAIRS / 2) * T32_ROWS + r] = (uint8_t)(even >> 4 | (odd & 0xf0));
    }
}

static void get_q4_0(uint8_t *block, const uint8_t *tile, size_t r)
{
    memcpy(block, tile + Q4_SCALES + 2 * r, 2);
    for (size_t p = 0; p < PAIRS / 2; p++) {
        unsigned low = tile[p * T32_ROWS + r], high = tile[(p + PAIRS / 2) * T32_ROWS + r];
        block[2 + 2 * p] = (uint8_t)((low & 15) | (high & 15) << 4);
        block[3 + 2 * p] = (uint8_t)(low >> 4 | (high & 0xf0));
    }
}

static void put_q8_0(uint8_t *tile, size_t r, const uint8_t *block)
{
    memcpy(tile + Q8_SCALES + 2 * r, block, 2);
    for (size_t p = 0; p < PAIRS; p++) memcpy(tile + (p * T32_ROWS + r) * 2, block + 2 + 2 * p, 2);
}

static void get_q8_0(uint8_t *block, const uint8_t *tile, size_t r)
{
    memcpy(block, tile + Q8_SCALES + 2 * r, 2);
    for (size_t p = 0; p < PAIRS; p++) memcpy(block + 2 + 2 * p, tile + (p * T32_ROWS + r) * 2, 2);
}

/* The last tile of a row may have an odd number of values. */
static void put_f16(uint8_t *tile, size_t r, const uint8_t *values, size_t bytes)
{
    for (size_t b = 0; b < bytes; b += 4)
        memcpy(tile + b * T32_ROWS + 4 * r, values + b, bytes - b < 4 ? bytes - b : 4);
}

static void get_f16(uint8_t *values, const uint8_t *tile, size_t r)
{
    for (size_t p = 0; p < PAIRS; p++) memcpy(values + 4 * p, tile + (p * T32_ROWS + r) * 4, 4);
}

static void put_row(const t32_shape *s, uint8_t *tile, size_t r, const uint8_t *src, size_t bytes)
{
    switch (s->type) {
    case QT_Q4_0: put_q4_0(tile, r, src); return;
    case QT_Q8_0: put_q8_0(tile, r, src); return;
    case QT_F16: put_f16(tile, r, src, bytes); return;
    default: memcpy(tile + r * (s->tile_bytes / T32_ROWS), src, bytes);
    }
}

const void *t32_block(const t32_shape *s, const void *tile, size_t r, void *room)
{
    switch (s->type) {
    case QT_Q4_0: get_q4_0(room, tile, r); return room;
    case QT_Q8_0: get_q8_0(room, tile, r); return room;
    case QT_F16: get_f16(room, tile, r); return room;
    default: return (const uint8_t *)tile + r * (s->tile_bytes / T32_ROWS);
    }
}

/* ------------------------------------------------------------ all of it */

static void pack_stripe(const t32_shape *s, uint8_t *dst, const uint8_t *rows, size_t row_bytes, size_t n)
{
    const size_t piece = s->tile_bytes / T32_ROWS; /* bytes a row gives to a tile */
    if (n < T32_ROWS || s->k % s->tile_k) memset(dst, 0, s->stripe_bytes);
    for (size_t t = 0; t < s->tiles; t++) {
        const size_t at = t * piece, bytes = row_bytes - at < piece ? row_bytes - at : piece;
        for (size_t r = 0; r < n; r++) put_row(s, dst + t * s->tile_bytes, r, rows + r * row_bytes + at, bytes);
    }
}

void t32_pack(const t32_shape *s, void *dst, const void *rows, size_t lo, size_t hi)
{
    size_t row_bytes = 0;
    if (!quant_row_bytes(s->type, s->k, &row_bytes)) return; /* t32_shape_of has seen to it */
    for (size_t i = lo; i < hi; i++) {
        size_t first = i * T32_ROWS, n = s->n - first < T32_ROWS ? s->n - first : T32_ROWS;
        pack_stripe(s, (uint8_t *)dst + (i - lo) * s->stripe_bytes, (const uint8_t *)rows + first * row_bytes,
                    row_bytes, n);
    }
}

void t32_decode_tile(const t32_shape *s, float *dst, size_t ld, const void *tile)
{
    uint8_t room[T32_BLOCK];
    for (size_t r = 0; r < T32_ROWS; r++)
        quant_get(s->type)->decode(dst + r * ld, t32_block(s, tile, r, room), s->tile_k);
}

void t32_decode_row(const t32_shape *s, float *dst, const void *data, size_t row)
{
    uint8_t room[T32_BLOCK];
    for (size_t t = 0; t < s->tiles; t++) {
        const size_t at = t * s->tile_k, n = s->k - at < s->tile_k ? s->k - at : s->tile_k;
        const uint8_t *tile = t32_tile(s, data, row / T32_ROWS, t);
        quant_get(s->type)->decode(dst + at, t32_block(s, tile, row % T32_ROWS, room), n);
    }
}
