/* quant_k.c - the levels of the formats with super-blocks of 256: Q2_K to Q6_K and IQ4_XS.  A super-block has one or two
 * half-float scales; each of its sub-blocks has small integer scales (and minima) of its own. */
#include <string.h>

#include "format/quant_impl.h"

/* Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minima in 12 bytes.  Sub-blocks 0-3 lie in the low six bits of
 * bytes 0-3 (scale) and 4-7 (minimum); of 4-7 the low nibbles lie in bytes 8-11 and the high two bits on top of the
 * others. */
static void scale_min(const uint8_t *s, int i, int *scale, int *min)
{
    if (i < 4) {
        *scale = s[i] & 63;
        *min = s[i + 4] & 63;
        return;
    }
    *scale = (s[i + 4] & 15) | s[i - 4] >> 6 << 4;
    *min = s[i + 4] >> 4 | s[i] >> 6 << 4;
}

/* The head of a block of Q4_K or Q5_K: d f16, dmin f16, the 12 bytes. */
static void scales_mins(float scale[8], float low[8], const uint8_t *s)
{
    float d = q_half(s), dmin = q_half(s + 2);
    for (int i = 0; i < 8; i++) {
        int sc, min;
        scale_min(s + 4, i, &sc, &min);
        scale[i] = d * (float)sc;
        low[i] = dmin * (float)min;
    }
}

/* Q2_K: 16 bytes (scale low, minimum high nibble) for 16 sub-blocks of 16; 64 bytes of 2-bit values; d f16, dmin f16.
 * w = d * scale * q - dmin * min.  32 bytes serve 128 values: value 32 k + l has bits 2k of byte l. */
void quant_levels_q2_k(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 256, s += 84, level += 256) {
        float d = q_half(s + 80), dmin = q_half(s + 82);
        for (int i = 0; i < 16; i++) {
            *scale++ = d * (float)(s[i] & 15);
            *low++ = dmin * (float)(s[i] >> 4);
        }
        for (int i = 0; i < 256; i++)
            level[i] = s[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    }
}

/* Q3_K: 32 bytes of third bits, 64 bytes of 2-bit values (as in Q2_K), 12 bytes with sixteen 6-bit scales, d f16.
 * w = d * (scale - 32) * (q - 4), where bit i / 32 of byte i % 32 is worth 4. */
void quant_levels_q3_k(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 256, s += 110, level += 256) {
        float d = q_half(s + 108);
        const uint8_t *sc = s + 96;
        for (int i = 0; i < 16; i++) {
            int four = i < 8 ? sc[i] & 15 : sc[i - 8] >> 4;
            int high = sc[8 + i % 4] >> (i / 4 * 2) & 3;
            *scale++ = d * (float)((four | high << 4) - 32);
        }
        for (int i = 0; i < 256; i++) {
            int q = s[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
            level[i] = (uint8_t)(q | (s[i % 32] >> (i / 32) & 1) << 2);
        }
    }
}

/* Q4_K: d f16, dmin f16, 12 bytes of scales and minima, 128 bytes; eight sub-blocks of 32.
 * w = d * scale * q - dmin * min; 32 bytes hold an even sub-block in the low nibbles, the next in the high ones. */
void quant_levels_q4_k(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 256, s += 144, level += 256) {
        scales_mins(scale, low, s);
        for (int i = 0; i < 128; i++) {
            level[i / 32 * 64 + i % 32] = s[16 + i] & 15;
            level[i / 32 * 64 + i % 32 + 32] = s[16 + i] >> 4;
        }
        scale += 8;
        low += 8;
    }
}

/* Q5_K: as Q4_K with 32 bytes of fifth bits before the nibbles: bit i of byte j belongs to value j of sub-block i. */
void quant_levels_q5_k(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 256, s += 176, level += 256) {
        scales_mins(scale, low, s);
        for (int i = 0; i < 256; i++) {
            int four = s[48 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
            level[i] = (uint8_t)(four | (s[16 + i % 32] >> (i / 32) & 1) << 4);
        }
        scale += 8;
        low += 8;
    }
}

/* Q6_K: 128 bytes of low nibbles, 64 bytes of high pairs, 16 signed scales for sub-blocks of 16, d f16.
 * w = d * scale * (q - 32).  Each half of 128 values has four runs of 32: runs 0 and 1 in the low nibbles of 64 bytes,
 * runs 2 and 3 in the high ones; run k has bits 2k of the half's 32 bytes of pairs. */
void quant_levels_q6_k(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 256, s += 210, level += 256) {
        float d = q_half(s + 208);
        for (int i = 0; i < 16; i++) *scale++ = d * (float)(int8_t)s[192 + i];
        for (int i = 0; i < 256; i++) {
            int half = i / 128, run = i % 128 / 32, l = i % 32;
            int four = s[half * 64 + run % 2 * 32 + l] >> (run / 2 * 4) & 15;
            level[i] = (uint8_t)(four | (s[128 + half * 32 + l] >> (run * 2) & 3) << 4);
        }
    }
}

/* IQ4_XS: d f16, high pairs of eight 6-bit scales u16, their low nibbles 4 bytes, 128 bytes; eight sub-blocks of 32.
 * w = d * (scale - 32) * level[q]; a sub-block's 16 bytes hold value j low, value j + 16 high. */
void quant_levels_iq4_xs(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 256, s += 136, level += 256) {
        float d = q_half(s);
        unsigned high = q_le16(s + 2);
        for (int i = 0; i < 8; i++) {
            int six = (s[4 + i / 2] >> (i % 2 * 4) & 15) | (int)(high >> (2 * i) & 3) << 4;
            *scale++ = d * (float)(six - 32);
            q_nibbles(level + 32 * i, s + 8 + 16 * i);
        }
        for (int i = 0; i < 256; i++) level[i] = (uint8_t)(quant_iq4_levels[level[i]] + 128);
    }
}
