/* llama.c - `general.architecture = llama` (Llama-3 and its kind): the autoregressive reference that diffusion models
 * are compared with.  LLaDA's network, but a row sees nothing behind itself and scores the position after it. */
#include <math.h>
#include <string.h>

#include "model/transformer.h"

/* Llama 3.1 and later stretch slow rotations by factors that the file lists. */
static llada_status read_factors(model *m, llada_err *err)
{
    static const char name[] = "rope_freqs.weight";
    if (!gguf_find(m->file, name)) return LLADA_OK;
    llada_status st;
    tensor_id id = model_weight(m, 1, m->head_dim / 2, false, &st, err, "%s", name);
    if (st != LLADA_OK) return st;
    const tensor *t = &m->g.t[id];
    if (t->type != QT_F32)
        return llada_fail(err, LLADA_BAD_MODEL, "tensor %s is of type %u, but floats are wanted", name, t->type);
    for (int i = 0; i < m->head_dim / 2; i++) {
        float f;
        memcpy(&f, (const char *)t->data + (size_t)i * sizeof f, sizeof f);
        if (!isfinite(f) || !(f > 0))
            return llada_fail(err, LLADA_BAD_MODEL, "value %d of tensor %s is %g, not a positive number", i, name,
                              (double)f);
    }
    m->g.rope_factors = t->data;
    return LLADA_OK;
}

static llada_status build(model *m, llada_err *err)
{
    static const transformer_parts parts = { .more_tensors = 1 };
    llada_status st = transformer_build(m, &parts, err);
    return st == LLADA_OK ? read_factors(m, err) : st;
}

const model_arch arch_llama = { .name = "llama", .causal = true, .rope = ROPE_PAIRS, .build = build };
