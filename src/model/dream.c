/* dream.c - `general.architecture = dream` (Dream-7B, Dream-Coder, DiffuCoder): Qwen2's network, that is biases on
 * queries, keys and values and rotary positions on halves, with every row seeing every other.  It was trained from a
 * model that predicts the next token, and still does: row i-1 scores position i. */
#include "model/transformer.h"

static llada_status build(model *m, llada_err *err)
{
    static const transformer_parts parts = { .qkv_bias = true };
    return transformer_build(m, &parts, err);
}

const model_arch arch_dream = { .name = "dream", .shift_logits = true, .rope = ROPE_HALVES, .build = build };
