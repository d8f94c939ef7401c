/* lanes_hvx.c - lanes.h with vectors of 128 bytes.  Integer operations but for products of floats and
 * halves, which the emulated flavour does value by value: its emulator has no vectors of floats. */
#include <hexagon_protos.h>
#include <hexagon_types.h>
#include <hvx_hexagon_protos.h>

#include "device/npu/dsp/half.h"
#include "device/npu/dsp/lanes.h"

enum { LANES = 64 }; /* halves of a vector */

typedef union {
    HVX_Vector v;
    half h[LANES];
    float f[TILE];
    int32_t w[TILE];
    uint8_t b[128];
} lanes;

/* Two rows of 64 halves become row pairs of two tiles. */
void lanes_pack(half *tiles, const half *src, uint32_t stride, uint32_t rows, uint32_t k_tiles)
{
    const HVX_Vector zero = Q6_V_vzero();
    for (uint32_t r = 0; r < TILE; r += 2)
        for (uint32_t t = 0; t < k_tiles; t += 2) {
            const HVX_Vector a = r < rows ? *(const HVX_Vector *)(const void *)(src + r * stride + t * TILE) : zero;
            const HVX_Vector b =
                r + 1 < rows ? *(const HVX_Vector *)(const void *)(src + (r + 1) * stride + t * TILE) : zero;
            const HVX_VectorPair w = Q6_W_vshuff_VVR(b, a, -2);
            HVX_Vector *to = (HVX_Vector *)(void *)(tiles + t * TILE_VALUES) + r / 2;
            to[0] = Q6_V_lo_W(w);
            if (t + 1 < k_tiles) to[TILE_VALUES / LANES] = Q6_V_hi_W(w);
        }
}

/* 64 products of halves, each rounded once. */
static HVX_Vector product(HVX_Vector a, HVX_Vector b)
{
#ifdef DSP_DEVICE
    return Q6_Vhf_equals_Vqf16(Q6_Vqf16_vmpy_VhfVhf(a, b));
#else
    lanes x = { a }, y = { b };
    for (int i = 0; i < LANES; i++) x.h[i] = narrow(widen(x.h[i]) * widen(y.h[i]));
    return x.v;
#endif
}

/* The 32 scales behind a tile's values, each twice: for the even and the odd k of its column. */
static HVX_Vector scales_of(const uint8_t *p)
{
    lanes s;
    memcpy(s.b, p, 2 * TILE);
    memset(s.b + 2 * TILE, 0, 128 - 2 * TILE);
    return Q6_V_lo_W(Q6_W_vshuff_VVR(s.v, s.v, -2));
}

/* -8 to 7 as halves, every other place: what the table look-up of 16 halves wants. */
static const half nibbles[LANES]
    __attribute__((aligned(128))) = { 0xc800, 0, 0xc700, 0, 0xc600, 0, 0xc500, 0, 0xc400, 0, 0xc200, 0,
                                      0xc000, 0, 0xbc00, 0, 0x0000, 0, 0x3c00, 0, 0x4000, 0, 0x4200, 0,
                                      0x4400, 0, 0x4500, 0, 0x4600, 0, 0x4700, 0 };

void lanes_expand_q4_0(half *tiles, const uint8_t *packed, uint32_t n)
{
    const HVX_Vector table = *(const HVX_Vector *)(const void *)nibbles, low = Q6_Vb_vsplat_R(0x0f);
    HVX_Vector *to = (HVX_Vector *)(void *)tiles;
    for (uint32_t t = 0; t < n; t++, packed += TILE_VALUES / 2 + 2 * TILE) {
        const HVX_Vector scale = scales_of(packed + TILE_VALUES / 2);
        for (int g = 0; g < TILE_VALUES / 2 / 128; g++) {
            const HVX_Vector q = *(const HVX_UVector *)(const void *)(packed + g * 128);
            const HVX_Vector even = Q6_V_vand_VV(q, low), odd = Q6_V_vand_VV(Q6_Vuh_vlsr_VuhR(q, 4), low);
            const HVX_VectorPair pairs = Q6_W_vshuff_VVR(odd, even, -1); /* two row pairs each: k even, k odd, ... */
            for (int i = 0; i < 2; i++) {
                const HVX_Vector k = Q6_Vb_vshuff_Vb(i ? Q6_V_hi_W(pairs) : Q6_V_lo_W(pairs));
                const HVX_VectorPair h = Q6_Wh_vlut16_VbVhR(k, table, 0); /* takes even places first, then odd ones */
                *to++ = product(Q6_V_lo_W(h), scale);
                *to++ = product(Q6_V_hi_W(h), scale);
            }
        }
    }
}

/* Small integers as halves, exactly. */
static HVX_Vector to_halves(HVX_Vector x)
{
#ifdef DSP_DEVICE
    return Q6_Vhf_equals_Vh(x);
#else
    lanes v = { x };
    for (int i = 0; i < LANES; i++) v.h[i] = narrow((float)(int16_t)v.h[i]);
    return v.v;
#endif
}

void lanes_expand_q8_0(half *tiles, const uint8_t *packed, uint32_t n)
{
    HVX_Vector *to = (HVX_Vector *)(void *)tiles;
    for (uint32_t t = 0; t < n; t++, packed += TILE_VALUES + 2 * TILE) {
        const HVX_Vector scale = scales_of(packed + TILE_VALUES);
        for (int g = 0; g < TILE_VALUES / 128; g++) {
            const HVX_VectorPair w = Q6_Wh_vunpack_Vb(*(const HVX_UVector *)(const void *)(packed + g * 128));
            *to++ = product(to_halves(Q6_V_lo_W(w)), scale);
            *to++ = product(to_halves(Q6_V_hi_W(w)), scale);
        }
    }
}

/* ------------------------------------------------------------ few rows, in integers */

enum { QUADS = TILE / 4 }; /* vectors of a tile: four neighbouring k of each column */

/* The 32 scales behind a tile's values, as floats. */
static HVX_Vector float_scales(const uint8_t *p)
{
#ifdef DSP_DEVICE
    const HVX_Vector one = Q6_Vh_vsplat_R(0x3c00);
    return Q6_Vsf_equals_Vqf32(Q6_V_lo_W(Q6_Wqf32_vmpy_VhfVhf(scales_of(p), one))); /* of even places */
#else
    lanes s;
    for (int c = 0; c < TILE; c++) s.f[c] = widen((half)(p[2 * c] | p[2 * c + 1] << 8));
    return s.v;
#endif
}

/* acc + sums * (scales * scale), in floats. */
static HVX_Vector add_scaled(HVX_Vector acc, HVX_Vector sums, HVX_Vector scales, float scale)
{
#ifdef DSP_DEVICE
    const HVX_Vector x = Q6_V_vsplat_R((int32_t)bits_of_float(scale));
    const HVX_Vector both = Q6_Vsf_equals_Vqf32(Q6_Vqf32_vmpy_VsfVsf(scales, x));
    const HVX_Vector more = Q6_Vqf32_vmpy_VsfVsf(Q6_Vsf_equals_Vw(sums), both);
    return Q6_Vsf_equals_Vqf32(Q6_Vqf32_vadd_Vqf32Vsf(more, acc));
#else
    lanes a = { acc }, n = { sums }, w = { scales };
    for (int c = 0; c < TILE; c++) a.f[c] += (float)n.w[c] * (w.f[c] * scale);
    return a.v;
#endif
}

/* Weights are `bias` more than their values, so that they are not negative: what that adds is taken off beforehand. */
static void add_tile(HVX_Vector *acc, const few_row *x, uint32_t rows, uint32_t t, const HVX_Vector *quads,
                     HVX_Vector scales, int32_t bias)
{
    for (uint32_t r = 0; r < rows; r++) {
        HVX_Vector sums = Q6_V_vsplat_R(-bias * x[r].sum[t]);
        for (uint32_t i = 0; i < QUADS; i++)
            sums = Q6_Vw_vrmpyacc_VwVubRb(sums, quads[i], (int32_t)x[r].word[t * QUADS + i]);
        acc[r] = add_scaled(acc[r], sums, scales, x[r].scale[t]);
    }
}

void lanes_few_q8_0(float *acc, const few_row *x, uint32_t rows, const uint8_t *packed, uint32_t n)
{
    const HVX_Vector sign = Q6_Vb_vsplat_R(0x80);
    for (uint32_t t = 0; t < n; t++, packed += TILE_VALUES + 2 * TILE) {
        HVX_Vector quads[QUADS]; /* two row pairs each: pair beside pair, then value + 128 */
        for (int i = 0; i < QUADS; i++)
            quads[i] = Q6_V_vxor_VV(Q6_Vh_vshuff_Vh(*(const HVX_UVector *)(const void *)(packed + i * 128)), sign);
        add_tile((HVX_Vector *)(void *)acc, x, rows, t, quads, float_scales(packed + TILE_VALUES), 128);
    }
}

void lanes_few_q4_0(float *acc, const few_row *x, uint32_t rows, const uint8_t *packed, uint32_t n)
{
    const HVX_Vector low = Q6_Vb_vsplat_R(0x0f);
    for (uint32_t t = 0; t < n; t++, packed += TILE_VALUES / 2 + 2 * TILE) {
        HVX_Vector quads[QUADS];
        for (int i = 0; i < QUADS; i += 2) { /* four row pairs: nibbles as in lanes_expand_q4_0, then as above */
            const HVX_Vector q = *(const HVX_UVector *)(const void *)(packed + i * 64);
            const HVX_Vector even = Q6_V_vand_VV(q, low), odd = Q6_V_vand_VV(Q6_Vuh_vlsr_VuhR(q, 4), low);
            const HVX_VectorPair pairs = Q6_W_vshuff_VVR(odd, even, -1);
            quads[i] = Q6_Vh_vshuff_Vh(Q6_V_lo_W(pairs));
            quads[i + 1] = Q6_Vh_vshuff_Vh(Q6_V_hi_W(pairs));
        }
        add_tile((HVX_Vector *)(void *)acc, x, rows, t, quads, float_scales(packed + TILE_VALUES / 2), 8);
    }
}
