/* emulate_amx.h - the tile operations that the kernels use, in plain C; to be included before them.  Rows and widths
 * are those that were configured, so that a read behind an operand meets a guard page here as it would there. */
#ifndef EMULATE_AMX_H
#define EMULATE_AMX_H

#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

/* As the processor reads it. */
typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t width[16];
    uint8_t rows[16];
} e_config;

static e_config e_tiles;
static uint8_t e_tile[8][16][64];

/* Where the processor would raise an exception, the check ends. */
static void e_need(int ok, const char *what)
{
    if (ok) return;
    printf("BAD  tiles: %s\n", what);
    exit(1);
}

static void e_configure(const void *from, size_t n)
{
    e_need(n == sizeof e_tiles, "a configuration is 64 bytes");
    memcpy(&e_tiles, from, sizeof e_tiles);
    e_need(e_tiles.palette == 1 && e_tiles.start == 0, "the palette is 1, the first row 0");
    for (int i = 0; i < 8; i++) e_need(e_tiles.rows[i] <= 16 && e_tiles.width[i] <= 64, "16 rows of 64 bytes at most");
    memset(e_tile, 0, sizeof e_tile);
}

static void e_release(void) { memset(&e_tiles, 0, sizeof e_tiles); }

static void e_used(int t) { e_need(e_tiles.palette && e_tiles.rows[t] && e_tiles.width[t], "it is configured"); }

static void e_zero(int t)
{
    e_used(t);
    memset(e_tile[t], 0, sizeof e_tile[t]);
}

static void e_load(int t, const void *from, size_t stride)
{
    e_zero(t);
    for (size_t r = 0; r < e_tiles.rows[t]; r++)
        memcpy(e_tile[t][r], (const char *)from + r * stride, e_tiles.width[t]);
}

static void e_store(int t, void *to, size_t stride)
{
    e_used(t);
    for (size_t r = 0; r < e_tiles.rows[t]; r++) memcpy((char *)to + r * stride, e_tile[t][r], e_tiles.width[t]);
}

/* c += signed bytes of a times unsigned bytes of b, quad by quad. */
static void e_dpbsud(int c, int a, int b)
{
    const int n = e_tiles.width[c] / 4, quads = e_tiles.width[a] / 4;

    e_used(a), e_used(b), e_used(c);
    e_need(e_tiles.rows[c] == e_tiles.rows[a] && e_tiles.width[c] == e_tiles.width[b] && e_tiles.rows[b] == quads,
           "shapes fit each other");
    for (int m = 0; m < e_tiles.rows[c]; m++)
        for (int j = 0; j < n; j++) {
            int32_t sum;
            memcpy(&sum, &e_tile[c][m][4 * j], 4);
            for (int i = 0; i < 4 * quads; i++) sum += (int8_t)e_tile[a][m][i] * e_tile[b][i / 4][4 * j + i % 4];
            memcpy(&e_tile[c][m][4 * j], &sum, 4);
        }
}

#undef TILE_CONFIG
#define TILE_CONFIG(config) e_configure(&(config), sizeof(config))
#undef _tile_zero
#define _tile_zero e_zero
#undef _tile_loadd
#define _tile_loadd e_load
#undef _tile_stored
#define _tile_stored e_store
#undef _tile_dpbsud
#define _tile_dpbsud e_dpbsud
#define _tile_release e_release

#endif
