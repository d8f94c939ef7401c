/* quant_k.c - decoding of the formats with super-blocks of 256: Q2_K to Q6_K and IQ4_XS.  A super-block has one or two
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

/* Q2_K: 16 bytes (scale low, minimum high nibble) for 16 sub-blocks of 16; 64 bytes of 2-bit values; d f16, dmin f16.
 * w = d * scale * q - dmin * min.  32 bytes serve 128 values: value 32 k + l has bits 2k of byte l. */
void quant_decode_q2_k(float *dst, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 256, s += 84, dst += 256) {
        float d = q_half(s + 80), dmin = q_half(s + 82);
        for (int i = 0; i < 256; i++) {
            uint8_t sc = s[i / 16];
            int q = s[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
            dst[i] = d * (float)(sc & 15) * (float)q - dmin * (float)(sc >> 4);
        }
    }
}

/* Q3_K: 32 bytes of third bits, 64 bytes of 2-bit values (as in Q2_K), 12 bytes with sixteen 6-bit scales, d f16.
 * w = d * (scale - 32) * (q - 4), where bit i / 32 of byte i % 32 is worth 4. */
void quant_decode_q3_k(float *dst, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 256, s += 110, dst += 256) {
        float d = q_half(s + 108);
        const uint8_t *sc = s + 96;
        float dl[16];
        for (int i = 0; i < 16; i++) {
            int low = i < 8 ? sc[i] & 15 : sc[i - 8] >> 4;
            int high = sc[8 + i % 4] >> (i / 4 * 2) & 3;
            dl[i] = d * (float)((low | high << 4) - 32);
        }
        for (int i = 0; i < 256; i++) {
            int q = s[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
            int third = s[i % 32] >> (i / 32) & 1;
            dst[i] = dl[i / 16] * (float)(q + 4 * third - 4);
        }
    }
}

/* Q4_K: d f16, dmin f16, 12 bytes of scales and minima, 128 bytes; eight sub-blocks of 32.
 * w = d * scale * q - dmin * min; 32 bytes hold an even sub-block in the low nibbles, the next in the high ones. */
void quant_decode_q4_k(float *dst, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 256, s += 144, dst += 256) {
        float d = q_half(s), dmin = q_half(s + 2);
        for (int i = 0; i < 8; i++) {
            int scale, min;
            scale_min(s + 4, i, &scale, &min);
            float a = d * (float)scale, b = dmin * (float)min;
            const uint8_t *q = s + 16 + i / 2 * 32;
            for (int j = 0; j < 32; j++) dst[32 * i + j] = a * (float)(q[j] >> (i % 2 * 4) & 15) - b;
        }
    }
}

/* Q5_K: as Q4_K with 32 bytes of fifth bits before the nibbles: bit i of byte j belongs to value j of sub-block i. */
void quant_decode_q5_k(float *dst, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 256, s += 176, dst += 256) {
        float d = q_half(s), dmin = q_half(s + 2);
        for (int i = 0; i < 8; i++) {
            int scale, min;
            scale_min(s + 4, i, &scale, &min);
            float a = d * (float)scale, b = dmin * (float)min;
            const uint8_t *q = s + 48 + i / 2 * 32, *h = s + 16;
            for (int j = 0; j < 32; j++)
                dst[32 * i + j] = a * (float)((q[j] >> (i % 2 * 4) & 15) | (h[j] >> i & 1) << 4) - b;
        }
    }
}

/* Q6_K: 128 bytes of low nibbles, 64 bytes of high pairs, 16 signed scales for sub-blocks of 16, d f16.
 * w = d * scale * (q - 32).  Each half of 128 values has four runs of 32: runs 0 and 1 in the low nibbles of 64 bytes,
 * runs 2 and 3 in the high ones; run k has bits 2k of the half's 32 bytes of pairs. */
void quant_decode_q6_k(float *dst, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 256, s += 210, dst += 256) {
        float d = q_half(s + 208);
        for (int i = 0; i < 256; i++) {
            int half = i / 128, run = i % 128 / 32, l = i % 32;
            int low = s[half * 64 + run % 2 * 32 + l] >> (run / 2 * 4) & 15;
            int high = s[128 + half * 32 + l] >> (run * 2) & 3;
            dst[i] = d * (float)(int8_t)s[192 + i / 16] * (float)((low | high << 4) - 32);
        }
    }
}

/* IQ4_XS: d f16, high pairs of eight 6-bit scales u16, their low nibbles 4 bytes, 128 bytes; eight sub-blocks of 32.
 * w = d * (scale - 32) * level[q]; a sub-block's 16 bytes hold value j low, value j + 16 high. */
void quant_decode_iq4_xs(float *dst, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 256, s += 136, dst += 256) {
        float d = q_half(s);
        unsigned high = q_le16(s + 2);
        for (int i = 0; i < 8; i++) {
            int scale = (s[4 + i / 2] >> (i % 2 * 4) & 15) | (int)(high >> (2 * i) & 3) << 4;
            float dl = d * (float)(scale - 32);
            const uint8_t *q = s + 8 + 16 * i;
            for (int j = 0; j < 16; j++) {
                dst[32 * i + j] = dl * (float)quant_iq4_levels[q[j] & 15];
                dst[32 * i + j + 16] = dl * (float)quant_iq4_levels[q[j] >> 4];
            }
        }
    }
}
