/* llada_moe.c - `general.architecture = llada-moe` (LLaDA-MoE-7B-A1B): queries and keys normalised head by head,
 * rotary positions on halves, and a mixture of experts in place of the feed-forward part: the 8 of 64 that a softmax
 * over all of them finds most probable, weighed with just these probabilities. */
#include "model/transformer.h"

static tensor_id mixture(builder *b, tensor_id x)
{
    int64_t ff = b->m->n_ff;
    tensor_id h = b_norm(b, x, "ffn_norm.weight");
    tensor_id route = b_route(b, b_linear(b, h, b->m->n_expert, "ffn_gate_inp", NO_TENSOR));
    tensor_id gate = b_experts(b, h, route, ff, "ffn_gate_exps", NO_TENSOR);
    tensor_id up = b_experts(b, h, route, ff, "ffn_up_exps", NO_TENSOR);
    tensor_id a = b_swiglu(b, gate, up);
    return b_experts(b, a, route, b->m->n_embd, "ffn_down_exps", x);
}

static llada_status build(model *m, llada_err *err)
{
    static const transformer_parts parts = {
        .qk_norm = true, .feed_forward = mixture, .more_ops = 2, .more_tensors = 3
    };
    return transformer_build(m, &parts, err);
}

const model_arch arch_llada_moe = { .name = "llada-moe", .experts = true, .rope = ROPE_HALVES, .build = build };
