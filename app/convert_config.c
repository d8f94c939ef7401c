/* convert_config.c - config.json of a checkpoint: found to be one of the architectures we run, read, bounded, and
 * refused where it asks for what the file or the engine can't express. */
#include "convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_JSON = 256 << 20 };

/* Names of pre-tokenizers: those that programs knew when they learnt the architecture. */
static const convert_family families[] = {
    { .classes = { "LLaDAModelLM" }, .arch = "llada", .pre = "bailingmoe", .mask = "<|mdm_mask|>", .mask_id = -1,
      .llada_names = true, .pairs = true, .bos = true },
    { .classes = { "ILLaDAForCausalLM" }, .arch = "llada", .pre = "seed-coder", .mask = "<[MASK]>", .mask_id = -1,
      .pairs = true },
    { .classes = { "DreamModel" }, .arch = "dream", .pre = "qwen2", .mask = "<|mask|>", .mask_id = -1, .bias = true,
      .shift = true },
    { .classes = { "LLaDAMoEModelLM", "LLaDAMoEModel" }, .arch = "llada-moe", .pre = "llada-moe", .mask = "<|mask|>",
      .mask_id = 156895, .experts = true },
    { .classes = { "LlamaForCausalLM" }, .arch = "llama", .pre = "llama-bpe", .mask_id = -1, .pairs = true,
      .causal = true, .bos = true },
};

int convert_json(json_t **out, const char *dir, const char *name, bool optional)
{
    text path = {0}, body = {0};
    json_error_t e;
    *out = NULL;
    text_fmt(&path, "%s/%s", dir, name);
    FILE *there = optional ? fopen(path.p, "re") : NULL;
    int rc = EXIT_FINE;
    if (there) fclose(there);
    if (!optional || there) {
        rc = file_read(&body, path.p, MOST_JSON);
        if (!rc && !(*out = json_loadb(body.p ? body.p : "", body.n, JSON_REJECT_DUPLICATES, &e))) {
            app_error("%s: line %d, column %d: %s", path.p, e.line, e.column, e.text);
            rc = EXIT_WRONG_USE;
        }
        if (*out && !json_is_object(*out)) {
            app_error("%s is not a JSON object", path.p);
            json_decref(*out);
            *out = NULL;
            rc = EXIT_WRONG_USE;
        }
    }
    text_free(&path);
    text_free(&body);
    return rc;
}

/* ---------------------------------------------------------------- fields */

/* The first of up to three names that is there and not null. */
static json_t *field(const convert_model *m, const char *a, const char *b, const char *c, const char **name)
{
    const char *names[] = {a, b, c};
    for (int i = 0; i < 3 && names[i]; i++) {
        json_t *v = json_object_get(m->json, names[i]);
        if (!v || json_is_null(v)) continue;
        *name = names[i];
        return v;
    }
    *name = a;
    return NULL;
}

/* missing: the value when none of the names is there; -1: refuse. */
static int whole(const convert_model *m, const char *a, const char *b, const char *c, int most, int missing, int *out)
{
    const char *name;
    json_t *v = field(m, a, b, c, &name);
    *out = missing;
    if (!v && missing >= 0) return EXIT_FINE;
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > most) {
        app_error("config.json: %s %s a whole number from 1 to %d", name, v ? "is not" : "is missing; it is", most);
        return EXIT_WRONG_USE;
    }
    *out = (int)json_integer_value(v);
    return EXIT_FINE;
}

static int real(const json_t *in, const char *name, double missing, double *out)
{
    json_t *v = json_object_get(in, name);
    *out = missing;
    if (!v || json_is_null(v)) return EXIT_FINE;
    *out = json_is_number(v) ? json_number_value(v) : NAN;
    if (isfinite(*out) && *out > 0) return EXIT_FINE;
    app_error("config.json: %s is not a positive number", name);
    return EXIT_WRONG_USE;
}

static bool flag(const convert_model *m, const char *name) { return json_is_true(json_object_get(m->json, name)); }

/* ---------------------------------------------------------------- what can't be expressed */

/* null, false and 0 are "not so". */
static bool is_off(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0);
}

static int refuse(const convert_model *m, const char *key, const char *what)
{
    app_error("config.json: %s is %s, which %s files can't express", key, what, m->fam->arch);
    return EXIT_WRONG_USE;
}

/* Keys of the published configurations of all four families, and what the files can say of them. */
static int refuse_flags(const convert_model *m)
{
    static const char *const off[] = {
        "alibi", "include_bias", "include_qkv_bias", "bias_for_layer_norm", "input_emb_norm", "scale_logits",
        "attention_layer_norm", "multi_query_attention", "clip_qkv", "mlp_bias", "layer_norm_eps", "use_sliding_window",
        "use_mrope", "norm_topk_prob", "moe_router_enable_expert_bias", "router_num_group", "router_topk_group",
        "shared_expert_intermediate_size"};
    static const char *const on[] = {"rope", "layer_norm_with_affine", "qk_layernorm"};
    static const char *const one[] = {"partial_rotary_factor", "routed_scaling_factor", "block_group_size"};
    static const struct {
        const char *key, *fine, *too;
    } words[] = {{"activation_type", "silu", "swiglu"}, {"hidden_act", "silu", "swiglu"},
                 {"layer_norm_type", "rms", "rms"}, {"block_type", "llama", "llama"},
                 {"moe_router_score_function", "softmax", "softmax"}};
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (!is_off(json_object_get(m->json, off[i]))) return refuse(m, off[i], "set");
    if (!m->fam->bias && !is_off(json_object_get(m->json, "attention_bias"))) return refuse(m, "attention_bias", "set");
    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        if (json_is_false(json_object_get(m->json, on[i]))) return refuse(m, on[i], "false");
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        json_t *v = json_object_get(m->json, one[i]);
        if (v && !json_is_null(v) && json_number_value(v) != 1) return refuse(m, one[i], "not 1");
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *v = json_string_value(json_object_get(m->json, words[i].key));
        if (!v || !strcmp(v, words[i].fine) || !strcmp(v, words[i].too)) continue;
        app_error("config.json: %s is %.32s; %s files can express %s only", words[i].key, v, m->fam->arch,
                  words[i].fine);
        return EXIT_WRONG_USE;
    }
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(m->json, "moe_layer_freq"), i, v)
        if (m->fam->experts && is_off(v)) return refuse(m, "moe_layer_freq", "0 for a layer");
    return EXIT_FINE;
}

/* The object that stretches positions; NULL: none. */
static const json_t *scaling(const convert_model *m, const char **kind)
{
    static const char *const where[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; i < 2; i++) {
        json_t *s = json_object_get(m->json, where[i]);
        if (!json_is_object(s)) continue;
        *kind = json_string_value(json_object_get(s, "rope_type"));
        if (!*kind) *kind = json_string_value(json_object_get(s, "type"));
        if (*kind && strcmp(*kind, "default")) return s;
    }
    return NULL;
}

/* Llama 3.1's stretching: slow rotations by `factor`, fast ones not, those between by a blend.  Source: the published
 * model code. */
int convert_rope_factors(const convert_model *m, float **factors)
{
    const char *kind = NULL;
    const json_t *s = scaling(m, &kind);
    double factor, low, high, old;
    *factors = NULL;
    if (!s) return EXIT_FINE;
    if (!m->fam->causal || strcmp(kind, "llama3")) {
        app_error("config.json: positions are stretched (%.32s), which %s files can't express", kind, m->fam->arch);
        return EXIT_WRONG_USE;
    }
    if (real(s, "factor", 8, &factor) || real(s, "low_freq_factor", 1, &low) || real(s, "high_freq_factor", 4, &high) ||
        real(s, "original_max_position_embeddings", 8192, &old))
        return EXIT_WRONG_USE;
    int half = m->head_dim / 2;
    *factors = app_new((size_t)half, sizeof **factors);
    for (int i = 0; i < half; i++) {
        double wave = 2 * 3.14159265358979323846 * pow(m->theta, 2.0 * i / m->head_dim), f = 1;
        if (wave > old / low) f = factor;
        else if (wave >= old / high && high > low) {
            double smooth = (old / wave - low) / (high - low);
            f = 1 / ((1 - smooth) / factor + smooth);
        }
        (*factors)[i] = (float)f;
    }
    return EXIT_FINE;
}

/* ---------------------------------------------------------------- reading */

static int find_family(convert_model *m)
{
    json_t *list = json_object_get(m->json, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    if (!name) {
        app_error("%s/config.json names no architecture", m->dir);
        return EXIT_WRONG_USE;
    }
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (size_t k = 0; k < 2 && families[i].classes[k]; k++)
            if (!strcmp(name, families[i].classes[k])) m->fam = &families[i];
    if (m->fam) return EXIT_FINE;
    text list_of = {0};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        text_fmt(&list_of, "%s%s", i ? ", " : "", families[i].classes[0]);
    app_error("the checkpoint is a %.64s; these can be converted: %s", name, list_of.p);
    text_free(&list_of);
    return EXIT_WRONG_USE;
}

static int read_sizes(convert_model *m)
{
    int most = 1 << 24;
    if (whole(m, "n_layers", "num_hidden_layers", NULL, CONVERT_MAX_LAYERS, -1, &m->layers) ||
        whole(m, "d_model", "hidden_size", NULL, 1 << 17, -1, &m->embd) ||
        whole(m, "n_heads", "num_attention_heads", NULL, 4096, -1, &m->heads) ||
        whole(m, "n_kv_heads", "num_key_value_heads", NULL, 4096, m->heads, &m->kv_heads) ||
        whole(m, "max_sequence_length", "max_position_embeddings", NULL, most, -1, &m->ctx) ||
        whole(m, "vocab_size", NULL, NULL, most, -1, &m->vocab) ||
        whole(m, "mlp_hidden_size", "intermediate_size", "dense_intermediate_size", 1 << 20, m->fam->experts ? 0 : -1,
              &m->ff) ||
        whole(m, "head_dim", NULL, NULL, 1 << 17, m->embd / m->heads, &m->head_dim))
        return EXIT_WRONG_USE;
    if (m->head_dim * (int64_t)m->heads != m->embd || m->heads % m->kv_heads || m->head_dim % 2) {
        app_error("config.json: a width of %d, %d heads of %d, %d for keys and values: these do not fit together",
                  m->embd, m->heads, m->head_dim, m->kv_heads);
        return EXIT_WRONG_USE;
    }
    if (!m->fam->experts) return EXIT_FINE;
    if (whole(m, "num_experts", "num_local_experts", NULL, CONVERT_MAX_EXPERTS, -1, &m->n_experts) ||
        whole(m, "num_experts_per_tok", NULL, NULL, m->n_experts, -1, &m->n_used) ||
        whole(m, "expert_intermediate_size", "moe_intermediate_size", NULL, 1 << 20, -1, &m->expert_ff))
        return EXIT_WRONG_USE;
    return EXIT_FINE;
}

int convert_read_config(convert_model *m, const char *dir)
{
    const json_t *rope;
    m->dir = dir;
    int rc = convert_json(&m->json, dir, "config.json", false);
    if (rc || (rc = find_family(m)) || (rc = refuse_flags(m)) || (rc = read_sizes(m))) return rc;
    rope = json_object_get(m->json, "rope_parameters");
    if (!json_object_get(rope, "rope_theta")) rope = m->json;
    if ((rc = real(rope, "rope_theta", 10000, &m->theta))) return rc;
    if ((rc = real(m->json, "rms_norm_eps", m->fam->bias ? 1e-6 : 1e-5, &m->eps))) return rc;
    m->tied = flag(m, "weight_tying") || flag(m, "tie_word_embeddings");
    m->rows = m->vocab;
    return EXIT_FINE;
}

/* ---------------------------------------------------------------- keys */

static const char *base_name(const char *dir, size_t *n)
{
    size_t end = strlen(dir);
    while (end > 1 && dir[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && dir[begin - 1] != '/') begin--;
    *n = end - begin;
    return dir + begin;
}

static llada_status put_general(const convert_model *m, tools_output *o, llada_err *err)
{
    static const struct {
        const char *type;
        uint32_t number;
    } types[] = {{"f32", 0}, {"f16", 1}, {"q8_0", 7}, {"bf16", 32}};
    size_t n;
    const char *base = base_name(m->dir, &n);
    char *name = app_copy(base, n);
    text safe = {0};
    text_utf8(&safe, name, n);
    llada_status st = tools_put_str(o, "general.architecture", m->fam->arch, err);
    if (!st) st = tools_put_str(o, "general.type", "model", err);
    if (!st) st = tools_put_str(o, "general.name", safe.p ? safe.p : "", err);
    for (size_t i = 0; i < sizeof types / sizeof *types && !st; i++)
        if (!strcmp(types[i].type, m->type)) st = tools_put_u32(o, "general.file_type", types[i].number, err);
    if (!st) st = tools_put_u32(o, "general.quantization_version", 2, err);
    text_free(&safe);
    free(name);
    return st;
}

int convert_put_config(const convert_model *m, tools_output *o)
{
    llada_err err = {0};
    char key[96];
    const struct {
        const char *key;
        int value; /* 0: not written */
    } numbers[] = {{"block_count", m->layers}, {"context_length", m->ctx}, {"embedding_length", m->embd},
                   {"feed_forward_length", m->ff}, {"attention.head_count", m->heads},
                   {"attention.head_count_kv", m->kv_heads}, {"vocab_size", m->rows},
                   {"rope.dimension_count", m->fam->arch[0] == 'd' ? 0 : m->head_dim}, {"expert_count", m->n_experts},
                   {"expert_used_count", m->n_used}, {"expert_feed_forward_length", m->expert_ff}};
    llada_status st = put_general(m, o, &err);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !st; i++) {
        snprintf(key, sizeof key, "%s.%s", m->fam->arch, numbers[i].key);
        if (numbers[i].value) st = tools_put_u32(o, key, (uint32_t)numbers[i].value, &err);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", m->fam->arch);
    if (!st) st = tools_put_f32(o, key, m->eps, &err);
    snprintf(key, sizeof key, "%s.rope.freq_base", m->fam->arch);
    if (!st) st = tools_put_f32(o, key, m->theta, &err);
    snprintf(key, sizeof key, "%s.attention.causal", m->fam->arch);
    if (!st && !m->fam->causal) st = tools_put_bool(o, key, false, &err);
    if (!st && !m->fam->causal) st = tools_put_bool(o, "diffusion.shift_logits", m->fam->shift, &err);
    return st ? app_fail(&err) : EXIT_FINE;
}
