/* llada.c - `general.architecture = llada` (LLaDA-8B, LLaDA-1.5, iLLaDA): no biases, rotary positions on adjacent
 * pairs (the conversion to GGUF permutes the rows of Q and K for that), every row seeing every other, a row scoring
 * its own position. */
#include "model/transformer.h"

static llada_status build(model *m, llada_err *err)
{
    static const transformer_parts parts = { .qkv_bias = false };
    return transformer_build(m, &parts, err);
}

const model_arch arch_llada = { .name = "llada", .rope = ROPE_PAIRS, .build = build };
