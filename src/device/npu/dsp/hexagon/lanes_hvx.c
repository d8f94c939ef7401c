/* lanes_hvx.c - lanes.h with vectors of 128 bytes.  Only integer operations but for one product of halves, which the
 * emulated flavour does value by value: its emulator has no vectors of floats. */
#include <hexagon_protos.h>
#include <hexagon_types.h>
#include <hvx_hexagon_protos.h>

#include "device/npu/dsp/half.h"
#include "device/npu/dsp/lanes.h"

enum { LANES = 64 }; /* halves of a vector */

typedef union {
    HVX_Vector v;
    half h[LANES];
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
