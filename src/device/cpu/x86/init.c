/* init.c - the x86-64 kernels, in rising order: AVX2 (with FMA and F16C), then AVX-512 (F, BW, VL, DQ). */
#include "device/cpu/kern.h"

static void init_avx2(kern_table *t)
{
    t->mm = (kern_mm){ mm_f32_4x3_avx2, "mm_f32_4x3_avx2", 4, 3, 24, 512 };
    t->unpack[QT_F16].fn = unpack_f16_avx2, t->unpack[QT_F16].name = "unpack_f16_avx2";
    t->unpack[QT_BF16].fn = unpack_bf16_avx2, t->unpack[QT_BF16].name = "unpack_bf16_avx2";
    t->unpack[QT_Q8_0].fn = unpack_q8_0_avx2, t->unpack[QT_Q8_0].name = "unpack_q8_0_avx2";
    t->unpack[QT_Q4_0].fn = unpack_q4_0_avx2, t->unpack[QT_Q4_0].name = "unpack_q4_0_avx2";
    t->norm.fn = norm_avx2, t->norm.name = "norm_avx2";
    t->rope[0].fn = rope_pairs_avx2, t->rope[0].name = "rope_pairs_avx2";
    t->rope[1].fn = rope_halves_avx2, t->rope[1].name = "rope_halves_avx2";
    t->swiglu.fn = swiglu_avx2, t->swiglu.name = "swiglu_avx2";
    t->softmax.fn = softmax_avx2, t->softmax.name = "softmax_avx2";
    t->dots[KV_F32].fn = dots_f32_avx2, t->dots[KV_F32].name = "dots_f32_avx2";
    t->dots[KV_F16].fn = dots_f16_avx2, t->dots[KV_F16].name = "dots_f16_avx2";
    t->mix[KV_F32].fn = mix_f32_avx2, t->mix[KV_F32].name = "mix_f32_avx2";
    t->mix[KV_F16].fn = mix_f16_avx2, t->mix[KV_F16].name = "mix_f16_avx2";
    t->half.fn = half_avx2, t->half.name = "half_avx2";
}

static void init_avx512(kern_table *t)
{
    t->mm = (kern_mm){ mm_f32_4x6_avx512, "mm_f32_4x6_avx512", 4, 6, 24, 512 };
    t->unpack[QT_F16].fn = unpack_f16_avx512, t->unpack[QT_F16].name = "unpack_f16_avx512";
    t->unpack[QT_BF16].fn = unpack_bf16_avx512, t->unpack[QT_BF16].name = "unpack_bf16_avx512";
    t->unpack[QT_Q8_0].fn = unpack_q8_0_avx512, t->unpack[QT_Q8_0].name = "unpack_q8_0_avx512";
    t->unpack[QT_Q4_0].fn = unpack_q4_0_avx512, t->unpack[QT_Q4_0].name = "unpack_q4_0_avx512";
    t->norm.fn = norm_avx512, t->norm.name = "norm_avx512";
    t->swiglu.fn = swiglu_avx512, t->swiglu.name = "swiglu_avx512";
    t->softmax.fn = softmax_avx512, t->softmax.name = "softmax_avx512";
    t->dots[KV_F32].fn = dots_f32_avx512, t->dots[KV_F32].name = "dots_f32_avx512";
    t->dots[KV_F16].fn = dots_f16_avx512, t->dots[KV_F16].name = "dots_f16_avx512";
    t->mix[KV_F32].fn = mix_f32_avx512, t->mix[KV_F32].name = "mix_f32_avx512";
    t->mix[KV_F16].fn = mix_f16_avx512, t->mix[KV_F16].name = "mix_f16_avx512";
}

void kern_init_x86(kern_table *t, uint64_t features)
{
    if (!(features & CPU_AVX2))
        return;
    init_avx2(t);
    if (!(features & CPU_AVX512))
        return;
    init_avx512(t);
}
