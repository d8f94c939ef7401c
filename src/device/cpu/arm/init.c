/* init.c - the arm64 kernels.  NEON is part of the architecture: nothing has to be asked. */
#include "device/cpu/kern.h"

void kern_init_arm(kern_table *t, uint64_t features)
{
    if (!(features & CPU_NEON))
        return;
    t->mm = (kern_mm){ mm_f32_4x5_neon, "mm_f32_4x5_neon", 4, 5, 20, 512 };
    t->unpack[QT_F16].fn = unpack_f16_neon, t->unpack[QT_F16].name = "unpack_f16_neon";
    t->unpack[QT_BF16].fn = unpack_bf16_neon, t->unpack[QT_BF16].name = "unpack_bf16_neon";
    t->unpack[QT_Q8_0].fn = unpack_q8_0_neon, t->unpack[QT_Q8_0].name = "unpack_q8_0_neon";
    t->unpack[QT_Q4_0].fn = unpack_q4_0_neon, t->unpack[QT_Q4_0].name = "unpack_q4_0_neon";
    t->norm.fn = norm_neon, t->norm.name = "norm_neon";
    t->rope[0].fn = rope_pairs_neon, t->rope[0].name = "rope_pairs_neon";
    t->rope[1].fn = rope_halves_neon, t->rope[1].name = "rope_halves_neon";
    t->swiglu.fn = swiglu_neon, t->swiglu.name = "swiglu_neon";
    t->softmax.fn = softmax_neon, t->softmax.name = "softmax_neon";
    t->dots[KV_F32].fn = dots_f32_neon, t->dots[KV_F32].name = "dots_f32_neon";
    t->dots[KV_F16].fn = dots_f16_neon, t->dots[KV_F16].name = "dots_f16_neon";
    t->mix[KV_F32].fn = mix_f32_neon, t->mix[KV_F32].name = "mix_f32_neon";
    t->mix[KV_F16].fn = mix_f16_neon, t->mix[KV_F16].name = "mix_f16_neon";
    t->half.fn = half_neon, t->half.name = "half_neon";
}
