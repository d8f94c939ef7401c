/* init.c - the plain C kernels: the whole table.  Types without a kernel of their own decode, and become
 * levels, through format/quant.h. */
#include "device/cpu/kern.h"

void kern_init_ref(kern_table *t)
{
    t->mm = (kern_mm){ mm_f32_1x1_ref, "mm_f32_1x1_ref", 1, 1, 24, 512 };
    for (uint32_t type = 0; type < QT_COUNT; type++) {
        const quant_info *q = quant_get(type);
        if (!q || !q->decode) continue;
        t->unpack[type].fn = q->decode;
        t->unpack[type].name = q->name;
        t->levels[type].fn = q->levels;
        t->levels[type].name = q->name;
    }
    KERN_PUT(t->quantize, quantize_ref);
    KERN_PUT(t->weave, weave_ref);
    KERN_PUT(t->qmm, qmm_ref);
    t->qmm_rows = 12;
    KERN_PUT(t->norm, norm_ref);
    KERN_PUT(t->rope[0], rope_pairs_ref);
    KERN_PUT(t->rope[1], rope_halves_ref);
    KERN_PUT(t->swiglu, swiglu_ref);
    KERN_PUT(t->softmax, softmax_ref);
    KERN_PUT(t->dots[KV_F32], dots_f32_ref);
    KERN_PUT(t->dots[KV_F16], dots_f16_ref);
    KERN_PUT(t->mix[KV_F32], mix_f32_ref);
    KERN_PUT(t->mix[KV_F16], mix_f16_ref);
    KERN_PUT(t->half, half_ref);
}
