/* init.c - the plain C kernels: the whole table.  Types without a kernel of their own decode through format/quant.h. */
#include "device/cpu/kern.h"

void kern_init_ref(kern_table *t)
{
    t->mm = (kern_mm){ mm_f32_1x1_ref, "mm_f32_1x1_ref", 1, 1, 24, 512 };
    for (uint32_t type = 0; type < QT_COUNT; type++) {
        const quant_info *q = quant_get(type);
        if (!q || !q->decode)
            continue;
        t->unpack[type].fn = q->decode;
        t->unpack[type].name = q->name;
    }
    t->norm.fn = norm_ref, t->norm.name = "norm_ref";
    t->rope[0].fn = rope_pairs_ref, t->rope[0].name = "rope_pairs_ref";
    t->rope[1].fn = rope_halves_ref, t->rope[1].name = "rope_halves_ref";
    t->swiglu.fn = swiglu_ref, t->swiglu.name = "swiglu_ref";
    t->softmax.fn = softmax_ref, t->softmax.name = "softmax_ref";
    t->dots[KV_F32].fn = dots_f32_ref, t->dots[KV_F32].name = "dots_f32_ref";
    t->dots[KV_F16].fn = dots_f16_ref, t->dots[KV_F16].name = "dots_f16_ref";
    t->mix[KV_F32].fn = mix_f32_ref, t->mix[KV_F32].name = "mix_f32_ref";
    t->mix[KV_F16].fn = mix_f16_ref, t->mix[KV_F16].name = "mix_f16_ref";
    t->half.fn = half_ref, t->half.name = "half_ref";
}
