/* init.c - the x86-64 kernels, in rising order: AVX2 (with FMA and F16C), then AVX-512 (F, BW, VL, DQ), then products
 * of bytes by VNNI, in the wider registers where both are allowed, or in tiles (AMX); panels by VBMI. */
#include "device/cpu/kern.h"

static void init_avx2(kern_table *t)
{
    t->mm = (kern_mm){ mm_f32_4x3_avx2, "mm_f32_4x3_avx2", 4, 3, 24, 512 };
    KERN_PUT(t->quantize, quantize_avx2);
    KERN_PUT(t->levels[QT_Q8_0], levels_q8_0_avx2);
    KERN_PUT(t->levels[QT_Q4_K], levels_q4_k_avx2);
    KERN_PUT(t->levels[QT_Q5_K], levels_q5_k_avx2);
    KERN_PUT(t->levels[QT_Q6_K], levels_q6_k_avx2);
    KERN_PUT(t->weave, weave_avx2);
    KERN_PUT(t->expand[QT_Q4_0], expand_q4_0_avx2);
    KERN_PUT(t->expand_tiles[QT_Q4_0], expand_tiles_q4_0_avx2);
    KERN_PUT(t->expand_tiles[QT_Q8_0], expand_tiles_q8_0_avx2);
    KERN_PUT(t->row_tiles[QT_Q4_0], row_tiles_q4_0_avx2);
    KERN_PUT(t->qmm, qmm_avx2);
    KERN_PUT(t->unpack[QT_F16], unpack_f16_avx2);
    KERN_PUT(t->unpack[QT_BF16], unpack_bf16_avx2);
    KERN_PUT(t->unpack[QT_Q8_0], unpack_q8_0_avx2);
    KERN_PUT(t->unpack[QT_Q4_0], unpack_q4_0_avx2);
    KERN_PUT(t->norm, norm_avx2);
    KERN_PUT(t->rope[0], rope_pairs_avx2);
    KERN_PUT(t->rope[1], rope_halves_avx2);
    KERN_PUT(t->swiglu, swiglu_avx2);
    KERN_PUT(t->softmax, softmax_avx2);
    KERN_PUT(t->dots[KV_F32], dots_f32_avx2);
    KERN_PUT(t->dots[KV_F16], dots_f16_avx2);
    KERN_PUT(t->mix[KV_F32], mix_f32_avx2);
    KERN_PUT(t->mix[KV_F16], mix_f16_avx2);
    KERN_PUT(t->half, half_avx2);
}

static void init_avx512(kern_table *t)
{
    t->mm = (kern_mm){ mm_f32_4x6_avx512, "mm_f32_4x6_avx512", 4, 6, 24, 512 };
    KERN_PUT(t->unpack[QT_F16], unpack_f16_avx512);
    KERN_PUT(t->unpack[QT_BF16], unpack_bf16_avx512);
    KERN_PUT(t->unpack[QT_Q8_0], unpack_q8_0_avx512);
    KERN_PUT(t->unpack[QT_Q4_0], unpack_q4_0_avx512);
    KERN_PUT(t->norm, norm_avx512);
    KERN_PUT(t->swiglu, swiglu_avx512);
    KERN_PUT(t->softmax, softmax_avx512);
    KERN_PUT(t->dots[KV_F32], dots_f32_avx512);
    KERN_PUT(t->dots[KV_F16], dots_f16_avx512);
    KERN_PUT(t->mix[KV_F32], mix_f32_avx512);
    KERN_PUT(t->mix[KV_F16], mix_f16_avx512);
}

void kern_init_x86(kern_table *t, uint64_t features)
{
    if (!(features & CPU_AVX2)) return;
    init_avx2(t);
    if (features & CPU_AVX512) init_avx512(t);
    if (features & CPU_AVXVNNI) KERN_PUT(t->qmm, qmm_avxvnni);
    if ((features & CPU_AVX512) && (features & CPU_AVX512VNNI)) KERN_PUT(t->qmm, qmm_avx512vnni);
    if ((features & CPU_AVX512) && (features & CPU_AVX512VBMI)) {
        KERN_PUT(t->expand_tiles[QT_Q4_0], expand_tiles_q4_0_avx512vbmi);
        KERN_PUT(t->expand_tiles[QT_Q8_0], expand_tiles_q8_0_avx512vbmi);
    }
    if (t->qmm.fn != qmm_avx512vnni || !(features & CPU_AMX)) return;
    KERN_PUT(t->qmm, qmm_amx);
    t->qmm_rows = 32;
}
