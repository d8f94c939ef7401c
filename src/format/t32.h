/* t32.h - T32, the packed layout of weight matrices that every engine reads.  A matrix of n rows (outputs) of k values
 * is cut into stripes of 32 rows, a stripe into tiles along k: tile after tile in rising k, stripe after stripe, so
 * that one stripe streams from memory in order.  Within a tile, r being the row in its stripe and k the value in the
 * tile:
 *
 *   type    tile_k  bytes  where
 *   Q4_0        32    576  byte 32 (k / 2) + r: the nibble of even k low, of odd k high; then 32 half-float scales
 *   Q8_0        32   1088  byte 64 (k / 2) + 2 r + k % 2; then 32 half-float scales
 *   F16         32   2048  half float 64 (k / 2) + 2 r + k % 2: an HMX tile, or two AMX operands
 *   others   block  32 x   the 32 rows' GGUF blocks one behind the other; where a block is one value (F32, BF16), 32
 *                          of them count as one
 *
 * Every layout is a permutation of the GGUF bytes, so nothing is lost.  Rows are padded with zero bytes to 32, and k to
 * tile_k (F32, F16 and BF16 only: the other types' rows are whole blocks anyway). */
#ifndef FORMAT_T32_H
#define FORMAT_T32_H

#include "format/quant.h"

enum {
    T32_ROWS = 32,   /* of a stripe */
    T32_VERSION = 1, /* of what is said above; a packed file's key T32_KEY holds it */
    T32_BLOCK = 64   /* bytes t32_block may need */
};

/* In a packed file's table of tensors a packed tensor has the type T32_TYPE + its quant_type, which other programs do
 * not know and so refuse. */
#define T32_TYPE 0x54333200u
#define T32_KEY "t32.version"

typedef struct {
    uint32_t type;       /* quant_type */
    size_t n, k;         /* rows, values a row */
    size_t tile_k;       /* values of each row in a tile */
    size_t tile_bytes;
    size_t tiles;        /* in a stripe; the last may be padded */
    size_t stripe_bytes; /* tiles * tile_bytes */
    size_t stripes;
    size_t bytes;        /* of all stripes */
} t32_shape;

/* False when n or k is 0, the type is unknown, k is not a multiple of its block, or the size overflows. */
bool t32_shape_of(t32_shape *s, uint32_t type, uint64_t n, uint64_t k);

/* Where a tile of a packed matrix begins. */
static inline const uint8_t *t32_tile(const t32_shape *s, const void *data, size_t stripe, size_t tile)
{
    return (const uint8_t *)data + stripe * s->stripe_bytes + tile * s->tile_bytes;
}

/* Stripes [lo, hi) of the matrix whose GGUF rows lie one behind the other at `rows`; dst takes hi - lo stripes.
 * Stripes do not depend on each other: threads may share them. */
void t32_pack(const t32_shape *s, void *dst, const void *rows, size_t lo, size_t hi);

/* Row r (0..31) of a tile as it stands in a GGUF row: tile_k values, padding included.  Returns where they are: in the
 * tile, or gathered in `room` (T32_BLOCK bytes). */
const void *t32_block(const t32_shape *s, const void *tile, size_t r, void *room);

/* The reference decode, bit for bit that of the GGUF rows.  A tile: dst[r * ld + k], T32_ROWS rows of tile_k values,
 * zeros for padding.  A row: dst[k]. */
void t32_decode_tile(const t32_shape *s, float *dst, size_t ld, const void *tile);
void t32_decode_row(const t32_shape *s, float *dst, const void *data, size_t row);

#endif
