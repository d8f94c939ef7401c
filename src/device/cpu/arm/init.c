/* init.c - the arm64 kernels, in rising order: NEON, then products of bytes with sdot, then with smmla. */
#include "device/cpu/kern.h"

void kern_init_arm(kern_table *t, uint64_t features)
{
    if (!(features & CPU_NEON)) return;
    t->mm = (kern_mm){ mm_f32_4x5_neon, "mm_f32_4x5_neon", 4, 5, 20, 512 };
    KERN_PUT(t->quantize, quantize_neon);
    KERN_PUT(t->weave, weave_neon);
    KERN_PUT(t->expand[QT_Q4_0], expand_q4_0_neon);
    KERN_PUT(t->expand_tiles[QT_Q4_0], expand_tiles_q4_0_neon);
    KERN_PUT(t->expand_tiles[QT_Q8_0], expand_tiles_q8_0_neon);
    KERN_PUT(t->qmm, qmm_neon);
    KERN_PUT(t->unpack[QT_F16], unpack_f16_neon);
    KERN_PUT(t->unpack[QT_BF16], unpack_bf16_neon);
    KERN_PUT(t->unpack[QT_Q8_0], unpack_q8_0_neon);
    KERN_PUT(t->unpack[QT_Q4_0], unpack_q4_0_neon);
    KERN_PUT(t->norm, norm_neon);
    KERN_PUT(t->rope[0], rope_pairs_neon);
    KERN_PUT(t->rope[1], rope_halves_neon);
    KERN_PUT(t->swiglu, swiglu_neon);
    KERN_PUT(t->softmax, softmax_neon);
    KERN_PUT(t->dots[KV_F32], dots_f32_neon);
    KERN_PUT(t->dots[KV_F16], dots_f16_neon);
    KERN_PUT(t->mix[KV_F32], mix_f32_neon);
    KERN_PUT(t->mix[KV_F16], mix_f16_neon);
    KERN_PUT(t->half, half_neon);
    if (features & CPU_DOTPROD) KERN_PUT(t->qmm, qmm_dotprod);
    if (features & CPU_I8MM) KERN_PUT(t->qmm, qmm_i8mm);
}
