/* transformer.c - see transformer.h. */
#include "model/transformer.h"

/* Operators and tensors, as added below. */
enum { LAYER_OPS = 16, LAYER_TENSORS = 22, OTHER_OPS = 4, OTHER_TENSORS = 6 };

static tensor_id projection(builder *b, const transformer_parts *parts, tensor_id h, int heads, const char *name)
{
    int64_t width = (int64_t)heads * b->m->head_dim;
    return parts->qkv_bias ? b_linear_bias(b, h, width, name) : b_linear(b, h, width, name, NO_TENSOR);
}

static tensor_id attention(builder *b, const transformer_parts *parts, tensor_id x)
{
    const model *m = b->m;
    tensor_id h = b_norm(b, x, "attn_norm.weight");
    tensor_id q = projection(b, parts, h, m->n_head, "attn_q");
    tensor_id k = projection(b, parts, h, m->n_head_kv, "attn_k");
    tensor_id v = projection(b, parts, h, m->n_head_kv, "attn_v");
    if (parts->qk_norm) {
        b_head_norm(b, q, "attn_q_norm.weight");
        b_head_norm(b, k, "attn_k_norm.weight");
    }
    b_rope(b, q, m->n_head);
    b_rope(b, k, m->n_head_kv);
    tensor_id a = b_attention(b, q, k, v);
    return b_linear(b, a, m->n_embd, "attn_output", x);
}

static tensor_id swiglu(builder *b, tensor_id x)
{
    tensor_id h = b_norm(b, x, "ffn_norm.weight");
    tensor_id gate = b_linear(b, h, b->m->n_ff, "ffn_gate", NO_TENSOR);
    tensor_id up = b_linear(b, h, b->m->n_ff, "ffn_up", NO_TENSOR);
    tensor_id a = b_swiglu(b, gate, up);
    return b_linear(b, a, b->m->n_embd, "ffn_down", x);
}

llada_status transformer_build(model *m, const transformer_parts *parts, llada_err *err)
{
    int ops = LAYER_OPS + parts->more_ops, tensors = LAYER_TENSORS + parts->more_tensors;
    builder b = b_begin(m, ops * m->n_layer + OTHER_OPS, tensors * m->n_layer + OTHER_TENSORS, err);
    tensor_id table = b_weight(&b, b_vocab_rows(&b, "token_embd.weight"), m->n_embd, "token_embd.weight");
    tensor_id x = b_embed(&b, table);
    for (b.layer = 0; b.layer < m->n_layer; b.layer++) {
        x = attention(&b, parts, x);
        x = parts->feed_forward ? parts->feed_forward(&b, x) : swiglu(&b, x);
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
