/* llada.c - the network of `general.architecture = llada` (LLaDA-8B, LLaDA-1.5, iLLaDA): pre-norm blocks of multi-head
 * attention and SwiGLU without biases, rotary positions on adjacent pairs (the conversion to GGUF permutes the rows of
 * Q and K for that), every row seeing every other, a row scoring its own position. */
#include "model/build.h"

/* Operators and tensors, as added below. */
enum { LAYER_OPS = 14, LAYER_TENSORS = 17, OTHER_OPS = 4, OTHER_TENSORS = 6 };

static tensor_id attention(builder *b, tensor_id x)
{
    const model *m = b->m;
    int64_t q_width = (int64_t)m->n_head * m->head_dim, kv_width = (int64_t)m->n_head_kv * m->head_dim;
    tensor_id h = b_norm(b, x, "attn_norm.weight");
    tensor_id q = b_linear(b, h, q_width, "attn_q", NO_TENSOR);
    tensor_id k = b_linear(b, h, kv_width, "attn_k", NO_TENSOR);
    tensor_id v = b_linear(b, h, kv_width, "attn_v", NO_TENSOR);
    b_rope(b, q, m->n_head);
    b_rope(b, k, m->n_head_kv);
    tensor_id a = b_attention(b, q, k, v);
    return b_linear(b, a, m->n_embd, "attn_output", x);
}

static tensor_id feed_forward(builder *b, tensor_id x)
{
    tensor_id h = b_norm(b, x, "ffn_norm.weight");
    tensor_id gate = b_linear(b, h, b->m->n_ff, "ffn_gate", NO_TENSOR);
    tensor_id up = b_linear(b, h, b->m->n_ff, "ffn_up", NO_TENSOR);
    tensor_id a = b_swiglu(b, gate, up);
    return b_linear(b, a, b->m->n_embd, "ffn_down", x);
}

static llada_status build(model *m, llada_err *err)
{
    builder b = b_begin(m, LAYER_OPS * m->n_layer + OTHER_OPS, LAYER_TENSORS * m->n_layer + OTHER_TENSORS, err);
    tensor_id table = b_weight(&b, b_vocab_rows(&b, "token_embd.weight"), m->n_embd, "token_embd.weight");
    tensor_id x = b_embed(&b, table);
    for (b.layer = 0; b.layer < m->n_layer; b.layer++) {
        x = attention(&b, x);
        x = feed_forward(&b, x);
    }
    b.layer = -1;
    x = b_norm(&b, b_gather(&b, x), "output_norm.weight");
    /* Without a head of its own a model scores with its embedding. */
    tensor_id head = table;
    if (gguf_find(m->file, "output.weight"))
        head = b_weight(&b, b_vocab_rows(&b, "output.weight"), m->n_embd, "output.weight");
    b_score(&b, x, head);
    return b.st;
}

const model_arch arch_llada = { "llada", false, ROPE_PAIRS, build };
