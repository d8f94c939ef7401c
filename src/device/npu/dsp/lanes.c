/* lanes.c - see lanes.h: plain C, for the host and as the measure of the vector code. */
#include "device/npu/dsp/lanes.h"

#include "device/npu/dsp/half.h"

static uint32_t place(uint32_t row, uint32_t col) { return row / 2 * 64 + col * 2 + (row & 1); }

#ifndef __hexagon__ /* hexagon/lanes_hvx.c has these */
void lanes_pack(half *tiles, const half *src, uint32_t stride, uint32_t rows, uint32_t k_tiles)
{
    for (uint32_t t = 0; t < k_tiles; t++)
        for (uint32_t r = 0; r < TILE; r++)
            for (uint32_t k = 0; k < TILE; k++)
                tiles[t * TILE_VALUES + place(r, k)] = r < rows ? src[r * stride + t * TILE + k] : 0;
}

void lanes_expand_q8_0(half *tiles, const uint8_t *packed, uint32_t n)
{
    for (uint32_t t = 0; t < n; t++, tiles += TILE_VALUES, packed += TILE_VALUES + 2 * TILE) {
        float scale[TILE];
        for (uint32_t c = 0; c < TILE; c++) {
            half h;
            memcpy(&h, packed + TILE_VALUES + 2 * c, sizeof h);
            scale[c] = widen(h);
        }
        for (uint32_t i = 0; i < TILE_VALUES; i++) tiles[i] = narrow((float)(int8_t)packed[i] * scale[i / 2 % TILE]);
    }
}

void lanes_expand_q4_0(half *tiles, const uint8_t *packed, uint32_t n)
{
    for (uint32_t t = 0; t < n; t++, tiles += TILE_VALUES, packed += TILE_VALUES / 2 + 2 * TILE) {
        half value[TILE][16]; /* of each column: its 16 possible values */
        for (uint32_t c = 0; c < TILE; c++) {
            half h;
            memcpy(&h, packed + TILE_VALUES / 2 + 2 * c, sizeof h);
            for (int q = 0; q < 16; q++) value[c][q] = narrow((float)(q - 8) * widen(h));
        }
        for (uint32_t i = 0; i < TILE_VALUES / 2; i++) {
            tiles[2 * i] = value[i % TILE][packed[i] & 15];
            tiles[2 * i + 1] = value[i % TILE][packed[i] >> 4];
        }
    }
}

/* Integer k of tile t. */
static int32_t level(const few_row *x, uint32_t t, uint32_t k)
{
    return (int8_t)(x->word[t * TILE / 4 + k / 4] >> 8 * (k % 4));
}

/* One tile: value[k][column] as stored, and the half floats behind it. */
static void add_tile(float *acc, const few_row *x, uint32_t rows, uint32_t t, const int8_t *value,
                     const uint8_t *scales)
{
    for (uint32_t c = 0; c < TILE; c++) {
        half h;
        memcpy(&h, scales + 2 * c, sizeof h);
        for (uint32_t r = 0; r < rows; r++) {
            int32_t sum = 0;
            for (uint32_t k = 0; k < TILE; k++) sum += level(&x[r], t, k) * value[k * TILE + c];
            acc[r * TILE + c] += (float)sum * (widen(h) * x[r].scale[t]);
        }
    }
}

void lanes_few_q8_0(float *acc, const few_row *x, uint32_t rows, const uint8_t *packed, uint32_t n)
{
    int8_t value[TILE_VALUES];
    for (uint32_t t = 0; t < n; t++, packed += TILE_VALUES + 2 * TILE) {
        for (uint32_t k = 0; k < TILE; k++)
            for (uint32_t c = 0; c < TILE; c++) value[k * TILE + c] = (int8_t)packed[place(k, c)];
        add_tile(acc, x, rows, t, value, packed + TILE_VALUES);
    }
}

void lanes_few_q4_0(float *acc, const few_row *x, uint32_t rows, const uint8_t *packed, uint32_t n)
{
    int8_t value[TILE_VALUES];
    for (uint32_t t = 0; t < n; t++, packed += TILE_VALUES / 2 + 2 * TILE) {
        for (uint32_t k = 0; k < TILE; k++)
            for (uint32_t c = 0; c < TILE; c++)
                value[k * TILE + c] = (int8_t)((packed[k / 2 * TILE + c] >> 4 * (k & 1) & 15) - 8);
        add_tile(acc, x, rows, t, value, packed + TILE_VALUES / 2);
    }
}
#endif

/* The 32 values of a block. */
static void block_to_integers(few_row *to, const half *in, uint32_t t)
{
    uint32_t most = 0; /* halves without their signs are in the order of their values */
    for (uint32_t i = 0; i < TILE; i++) most = (in[i] & 0x7fffu) > most ? in[i] & 0x7fffu : most;
    const bool finite = most < 0x7c00;
    const float largest = widen((half)most), per = finite && most ? 127.0f / largest : 0;
    to->scale[t] = finite ? largest / 127.0f : largest;
    to->sum[t] = 0;
    for (uint32_t i = 0; i < TILE; i++) {
        const float x = finite ? widen(in[i]) * per : 0;
        const int32_t q = (int32_t)(x < 0 ? x - 0.5f : x + 0.5f);
        uint32_t *word = &to->word[t * TILE / 4 + i / 4];
        *word = (i % 4 ? *word : 0) | (uint32_t)(q & 255) << 8 * (i % 4);
        to->sum[t] += q;
    }
}

void lanes_to_integers(few_row *to, const half *in, uint32_t k_tiles)
{
    for (uint32_t t = 0; t < k_tiles; t++) block_to_integers(to, in + t * TILE, t);
}

void lanes_unpack(half *out, uint32_t stride, const half *tile, uint32_t rows, const half *residual)
{
    for (uint32_t r = 0; r < rows; r++, out += stride) {
        for (uint32_t c = 0; c < TILE; c++) {
            half h = tile[place(r, c)];
            out[c] = residual ? narrow(widen(residual[c]) + widen(h)) : h;
        }
        if (residual) residual += stride;
    }
}

float lanes_dot(const half *a, const half *b, uint32_t n)
{
    float part[8] = { 0 }, sum = 0;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (uint32_t j = 0; j < 8; j++) part[j] += widen(a[i + j]) * widen(b[i + j]);
    for (; i < n; i++) part[i % 8] += widen(a[i]) * widen(b[i]);
    for (uint32_t j = 0; j < 8; j++) sum += part[j];
    return sum;
}

void lanes_mix(float *acc, const half *v, float p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) acc[i] += p * widen(v[i]);
}
