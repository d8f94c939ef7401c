/* params.c - hyper-parameters: read, bounded, compared with each other.  Keys that describe what this version can't do
 * (stretched rotary positions, heads of another width) are refused when they say so, not ignored. */
#include "model/params.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Far above any published model, far below where products of two overflow an int64. */
enum {
    MAX_LAYERS = 512,
    MAX_HEADS = 4096,
    MAX_EMBD = 1 << 17,
    MAX_FF = 1 << 20,
    MAX_CTX = 1 << 24,
    MAX_EXPERTS = 4096
};

typedef struct {
    char s[96];
} key_name;

/* "<architecture>.<what>" */
static key_name key_of(const model *m, const char *what)
{
    key_name k;
    snprintf(k.s, sizeof k.s, "%s.%s", m->arch->name, what);
    return k;
}

void model_warn(model *m, const char *fmt, ...)
{
    if (m->warn[0]) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(m->warn, sizeof m->warn, fmt, ap);
    va_end(ap);
}

static llada_status read_int(const model *m, const char *what, int hi, int *out, llada_err *err)
{
    int64_t v = 0;
    llada_status st = gguf_get_int(m->file, key_of(m, what).s, 1, hi, &v, err);
    *out = (int)v;
    return st;
}

/* Leaves *out as it is when the key is missing. */
static llada_status maybe_int(const model *m, const char *what, int hi, int *out, llada_err *err)
{
    return gguf_has(m->file, key_of(m, what).s) ? read_int(m, what, hi, out, err) : LLADA_OK;
}

static llada_status maybe_f64(const model *m, const char *what, double *out, llada_err *err)
{
    key_name k = key_of(m, what);
    return gguf_has(m->file, k.s) ? gguf_get_f64(m->file, k.s, out, err) : LLADA_OK;
}

static llada_status read_sizes(model *m, llada_err *err)
{
    const struct {
        const char *what;
        int hi, *out;
    } sizes[] = { { "block_count", MAX_LAYERS, &m->n_layer },
                  { "context_length", MAX_CTX, &m->n_ctx },
                  { "embedding_length", MAX_EMBD, &m->n_embd },
                  { "attention.head_count", MAX_HEADS, &m->n_head } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        llada_status st = read_int(m, sizes[i].what, sizes[i].hi, sizes[i].out, err);
        if (st != LLADA_OK) return st;
    }
    llada_status st = m->arch->experts ? maybe_int(m, "feed_forward_length", MAX_FF, &m->n_ff, err)
                                       : read_int(m, "feed_forward_length", MAX_FF, &m->n_ff, err);
    if (st != LLADA_OK) return st;
    m->n_head_kv = m->n_head;
    return maybe_int(m, "attention.head_count_kv", MAX_HEADS, &m->n_head_kv, err);
}

/* Keys of experts that ask for another mixture than the published one: "sum to one", scales, gates, shared experts. */
static llada_status refuse_mixtures(const model *m, llada_err *err)
{
    static const struct {
        const char *what;
        double fine, too; /* either */
    } keys[] = { { "expert_weights_scale", 0, 1 },
                 { "expert_shared_count", 0, 0 },
                 { "expert_gating_func", 1, 1 }, /* softmax */
                 { "leading_dense_block_count", 0, 0 } };
    bool norm = false;
    key_name k = key_of(m, "expert_weights_norm");
    llada_status st = gguf_has(m->file, k.s) ? gguf_get_bool(m->file, k.s, &norm, err) : LLADA_OK;
    if (st == LLADA_OK && norm)
        return llada_fail(err, LLADA_UNSUPPORTED, "%s is true, but %s models are run with false", k.s, m->arch->name);
    for (size_t i = 0; st == LLADA_OK && i < sizeof keys / sizeof *keys; i++) {
        double v = keys[i].fine;
        st = maybe_f64(m, keys[i].what, &v, err);
        if (st == LLADA_OK && !(v == keys[i].fine || v == keys[i].too))
            return llada_fail(err, LLADA_UNSUPPORTED, "%s.%s is %g, but %s models are run with %g", m->arch->name,
                              keys[i].what, v, m->arch->name, keys[i].fine);
    }
    return st;
}

/* n_ff becomes the width of one expert. */
static llada_status read_experts(model *m, llada_err *err)
{
    const char *arch = m->arch->name;
    if (!m->arch->experts) {
        double n = 0;
        llada_status st = maybe_f64(m, "expert_count", &n, err);
        if (st == LLADA_OK && n != 0)
            return llada_fail(err, LLADA_UNSUPPORTED, "%s.expert_count is %g, but %s models are run without experts",
                              arch, n, arch);
        return st;
    }
    llada_status st = read_int(m, "expert_count", MAX_EXPERTS, &m->n_expert, err);
    if (st == LLADA_OK) st = read_int(m, "expert_used_count", MAX_EXPERTS, &m->n_expert_used, err);
    if (st != LLADA_OK) return st;
    if (m->n_expert_used > m->n_expert)
        return llada_fail(err, LLADA_BAD_MODEL, "%s.expert_used_count is %d, but %s.expert_count is %d", arch,
                          m->n_expert_used, arch, m->n_expert);
    if ((st = refuse_mixtures(m, err)) != LLADA_OK) return st;
    if (gguf_has(m->file, key_of(m, "expert_feed_forward_length").s))
        return read_int(m, "expert_feed_forward_length", MAX_FF, &m->n_ff, err);
    if (m->n_ff == 0 || m->n_ff % m->n_expert_used != 0)
        return llada_fail(
            err, LLADA_BAD_MODEL,
            "%s.expert_feed_forward_length is missing, and %s.feed_forward_length, %d, is not one that %d "
            "experts share",
            arch, arch, m->n_ff, m->n_expert_used);
    m->n_ff /= m->n_expert_used;
    return LLADA_OK;
}

static llada_status check_heads(model *m, llada_err *err)
{
    const char *arch = m->arch->name;
    if (m->n_embd % m->n_head != 0)
        return llada_fail(err, LLADA_BAD_MODEL,
                          "%s.embedding_length is %d, which %s.attention.head_count, %d, does not divide", arch,
                          m->n_embd, arch, m->n_head);
    if (m->n_head % m->n_head_kv != 0)
        return llada_fail(err, LLADA_BAD_MODEL,
                          "%s.attention.head_count is %d, which %s.attention.head_count_kv, %d, does not divide", arch,
                          m->n_head, arch, m->n_head_kv);
    m->head_dim = m->n_embd / m->n_head;
    if (m->head_dim % 2 != 0)
        return llada_fail(err, LLADA_BAD_MODEL,
                          "heads of %d values (%d / %d) can't be rotated in pairs: the width is odd", m->head_dim,
                          m->n_embd, m->n_head);
    /* Where the file also names the width of a head, or how much of it is rotated, it must be the whole one. */
    static const char *const widths[] = { "attention.key_length", "attention.value_length", "rope.dimension_count" };
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        int width = m->head_dim;
        llada_status st = maybe_int(m, widths[i], MAX_EMBD, &width, err);
        if (st != LLADA_OK) return st;
        if (width != m->head_dim)
            return llada_fail(err, LLADA_BAD_MODEL, "%s.%s is %d, but heads are %d wide (%d / %d)", arch, widths[i],
                              width, m->head_dim, m->n_embd, m->n_head);
    }
    return LLADA_OK;
}

static llada_status read_rope(model *m, llada_err *err)
{
    m->rope_base = 10000; /* the usual one, where a file names none */
    llada_status st = maybe_f64(m, "rope.freq_base", &m->rope_base, err);
    if (st != LLADA_OK) return st;
    if (!isfinite(m->rope_base) || !(m->rope_base > 0))
        return llada_fail(err, LLADA_BAD_MODEL, "%s.rope.freq_base is %g, not a positive number", m->arch->name,
                          m->rope_base);
    double factor = 1;
    st = maybe_f64(m, "rope.scaling.factor", &factor, err);
    if (st != LLADA_OK) return st;
    key_name type = key_of(m, "rope.scaling.type");
    gguf_str s = { "none", 4 };
    if (gguf_has(m->file, type.s)) st = gguf_get_str(m->file, type.s, &s, err);
    if (st != LLADA_OK) return st;
    /* a factor of 1 stretches nothing, whatever the type; 0 is how some writers say "none" */
    bool none = s.len == 4 && memcmp(s.s, "none", 4) == 0;
    bool off = factor == 1 || factor == 0;
    if (!off || (!none && !gguf_has(m->file, key_of(m, "rope.scaling.factor").s)))
        return llada_fail(err, LLADA_UNSUPPORTED,
                          "%s asks for positions stretched by %g (%.*s), which this version can't do", type.s, factor,
                          (int)(s.len < 32 ? s.len : 32), s.s);
    return LLADA_OK;
}

static llada_status read_eps(model *m, llada_err *err)
{
    key_name k = key_of(m, "attention.layer_norm_rms_epsilon");
    double eps = 0;
    llada_status st = gguf_get_f64(m->file, k.s, &eps, err);
    if (st != LLADA_OK) return st;
    m->eps = isfinite(eps) && eps <= 1 ? (float)eps : 0;
    if (!(m->eps > 0))
        return llada_fail(err, LLADA_BAD_MODEL, "%s is %g, where a number above 0 and up to 1 is wanted", k.s, eps);
    return LLADA_OK;
}

/* What makes a model one of diffusion: every row sees every other, and a known row scores each position.  Other
 * programs take a missing diffusion.shift_logits for true; where that is wrong it is worth a word. */
static llada_status read_direction(model *m, llada_err *err)
{
    bool causal = m->arch->causal, shift = m->arch->shift_logits;
    key_name k = key_of(m, "attention.causal");
    llada_status st = gguf_has(m->file, k.s) ? gguf_get_bool(m->file, k.s, &causal, err) : LLADA_OK;
    if (st != LLADA_OK) return st;
    if (causal && !m->arch->causal)
        return llada_fail(err, LLADA_BAD_MODEL,
                          "%s is true: a diffusion model must see both ways, this file is autoregressive", k.s);
    if (!causal && m->arch->causal)
        return llada_fail(err, LLADA_UNSUPPORTED, "%s is false, but %s models are run as autoregressive", k.s,
                          m->arch->name);
    if (m->arch->causal) return LLADA_OK;
    static const char shift_key[] = "diffusion.shift_logits";
    if (!gguf_has(m->file, shift_key)) {
        if (!shift) model_warn(m, "%s is missing: taken as false, as %s models are", shift_key, m->arch->name);
        return LLADA_OK;
    }
    st = gguf_get_bool(m->file, shift_key, &shift, err);
    if (st == LLADA_OK && shift != m->arch->shift_logits)
        return llada_fail(err, LLADA_UNSUPPORTED, "%s is %s, but %s models are run with %s", shift_key,
                          shift ? "true" : "false", m->arch->name, shift ? "false" : "true");
    return st;
}

llada_status model_read_params(model *m, llada_err *err)
{
    static llada_status (*const steps[])(model *, llada_err *) = { read_direction, read_sizes, read_experts,
                                                                   check_heads,    read_rope,  read_eps };
    llada_status st = LLADA_OK;
    for (size_t i = 0; st == LLADA_OK && i < sizeof steps / sizeof *steps; i++) st = steps[i](m, err);
    return st;
}
