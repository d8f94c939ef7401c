/* checkpoint.c - see checkpoint.h. */
#include "checkpoint.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/half.h"

enum { MOST = 256 };

typedef struct {
    char name[128];
    int file;
    float *v; /* owned */
    uint64_t rows, cols; /* rows 0: a vector */
} entry;

typedef struct {
    const gguf *g;
    const char *arch;
    int64_t layers, heads, kv, experts;
    bool own, illada; /* LLaDA's own names; iLLaDA's class */
    entry *e; /* owned */
    size_t n;
} maker;

static int64_t number(const maker *m, const char *what, int64_t missing)
{
    char key[96];
    int64_t v;
    llada_err err;
    snprintf(key, sizeof key, "%s.%s", m->arch, what);
    return gguf_get_int(m->g, key, 0, 1 << 24, &v, &err) ? missing : v;
}

static double real(const maker *m, const char *what)
{
    char key[96];
    double v;
    llada_err err;
    snprintf(key, sizeof key, "%s.%s", m->arch, what);
    assert_int_equal(gguf_get_f64(m->g, key, &v, &err), LLADA_OK);
    return v;
}

/* ------------------------------------------------------------ tensors */

/* Neighbours 2i, 2i+1 of a head become i and i + half, the order of checkpoints. */
static void uninterleave(float *v, uint64_t rows, uint64_t cols, uint64_t heads)
{
    uint64_t width = rows / heads;
    float *old = malloc(rows * cols * sizeof *old);
    memcpy(old, v, rows * cols * sizeof *old);
    for (uint64_t h = 0; h < heads; h++)
        for (uint64_t i = 0; i < width / 2; i++)
            for (uint64_t j = 0; j < 2; j++)
                memcpy(v + (h * width + j * (width / 2) + i) * cols, old + (h * width + 2 * i + j) * cols,
                       cols * sizeof *v);
    free(old);
}

static void add(maker *m, const char *name, const float *v, uint64_t rows, uint64_t cols)
{
    entry *e = &m->e[m->n++];
    assert_true(m->n <= MOST);
    uint64_t n = (rows ? rows : 1) * cols;
    *e = (entry){ .rows = rows, .cols = cols };
    snprintf(e->name, sizeof e->name, "%s", name);
    e->v = malloc(n * sizeof *v);
    memcpy(e->v, v, n * sizeof *v);
}

/* The name a checkpoint gives to blk.LAYER.WHAT. */
static void layer_name(const maker *m, char out[128], int layer, const char *what)
{
    static const char *const llada[][2] = {
        { "attn_norm.weight", "attn_norm.weight" }, { "attn_q.weight", "q_proj.weight" },
        { "attn_k.weight", "k_proj.weight" },
        { "attn_v.weight", "v_proj.weight" }, { "attn_output.weight", "attn_out.weight" },
        { "ffn_norm.weight", "ff_norm.weight" }, { "ffn_gate.weight", "ff_proj.weight" },
        { "ffn_up.weight", "up_proj.weight" },
        { "ffn_down.weight", "ff_out.weight" } };
    static const char *const hf[][2] = {
        { "attn_norm.weight", "input_layernorm.weight" }, { "attn_q.weight", "self_attn.q_proj.weight" },
        { "attn_k.weight", "self_attn.k_proj.weight" }, { "attn_v.weight", "self_attn.v_proj.weight" },
        { "attn_q.bias", "self_attn.q_proj.bias" }, { "attn_k.bias", "self_attn.k_proj.bias" },
        { "attn_v.bias", "self_attn.v_proj.bias" }, { "attn_q_norm.weight", "self_attn.q_norm.weight" },
        { "attn_k_norm.weight", "self_attn.k_norm.weight" }, { "attn_output.weight", "self_attn.o_proj.weight" },
        { "ffn_norm.weight", "post_attention_layernorm.weight" }, { "ffn_gate.weight", "mlp.gate_proj.weight" },
        { "ffn_up.weight", "mlp.up_proj.weight" }, { "ffn_down.weight", "mlp.down_proj.weight" },
        { "ffn_gate_inp.weight", "mlp.gate.weight" } };
    bool own = m->own;
    size_t n = own ? sizeof llada / sizeof *llada : sizeof hf / sizeof *hf;
    for (size_t i = 0; i < n; i++) {
        const char *const *pair = own ? llada[i] : hf[i];
        if (strcmp(pair[0], what)) continue;
        snprintf(out, 128, own ? "model.transformer.blocks.%d.%s" : "model.layers.%d.%s", layer, pair[1]);
        return;
    }
    fail_msg("blk.%d.%s", layer, what);
}

static void add_experts(maker *m, int layer, const char *what, const float *v, const gguf_tensor *t)
{
    char name[128];
    const char *word = strstr(what, "gate") ? "gate" : strstr(what, "up") ? "up" : "down";
    for (uint64_t x = 0; x < t->dims[2]; x++) {
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s_proj.weight", layer, (int)x, word);
        add(m, name, v + x * t->dims[0] * t->dims[1], t->dims[1], t->dims[0]);
    }
}

static void add_tensor(maker *m, const gguf_tensor *t)
{
    uint64_t n = t->dims[0] * t->dims[1] * t->dims[2];
    float *v = malloc(n * sizeof *v);
    char name[128];
    int layer, end = 0;
    bool pairs = !strcmp(m->arch, "llada") || !strcmp(m->arch, "llama"), own = m->own;
    quant_get(t->type)->decode(v, t->data, n);
    if (sscanf(t->name, "blk.%d.%n", &layer, &end) == 1 && end) {
        const char *what = t->name + end;
        if (pairs && !strcmp(what, "attn_q.weight")) uninterleave(v, t->dims[1], t->dims[0], (uint64_t)m->heads);
        if (pairs && !strcmp(what, "attn_k.weight")) uninterleave(v, t->dims[1], t->dims[0], (uint64_t)m->kv);
        if (strstr(what, "_exps.")) {
            add_experts(m, layer, what, v, t);
            free(v);
            return;
        }
        layer_name(m, name, layer, what);
    } else if (!strcmp(t->name, "token_embd.weight")) {
        snprintf(name, sizeof name, own ? "model.transformer.wte.weight" : "model.embed_tokens.weight");
    } else if (!strcmp(t->name, "output_norm.weight")) {
        snprintf(name, sizeof name, own ? "model.transformer.ln_f.weight" : "model.norm.weight");
    } else {
        assert_string_equal(t->name, "output.weight");
        snprintf(name, sizeof name, own ? "model.transformer.ff_out.weight" : "lm_head.weight");
    }
    add(m, name, v, t->n_dims == 1 ? 0 : t->dims[1], t->dims[0]);
    free(v);
}

/* ------------------------------------------------------------ safetensors */

static size_t value_bytes(const char *dtype) { return !strcmp(dtype, "F32") ? 4 : 2; }

static void put_values(FILE *f, const char *dtype, const entry *e)
{
    uint64_t n = (e->rows ? e->rows : 1) * e->cols;
    for (uint64_t i = 0; i < n; i++) {
        uint16_t h = !strcmp(dtype, "F16") ? half_from_float(e->v[i]) : bf16_from_float(e->v[i]);
        if (value_bytes(dtype) == 4) fwrite(&e->v[i], 4, 1, f);
        else fwrite(&h, 2, 1, f);
    }
}

static void write_shard(const char *path, const maker *m, int file, const char *dtype)
{
    json_t *head = json_pack("{s:{s:s}}", "__metadata__", "format", "p\xc3\xa9t \"quoted\" \\");
    size_t at = 0;
    for (size_t i = 0; i < m->n; i++) {
        const entry *e = &m->e[i];
        if (e->file != file) continue;
        size_t n = (size_t)((e->rows ? e->rows : 1) * e->cols) * value_bytes(dtype);
        json_t *shape = e->rows ? json_pack("[I,I]", (json_int_t)e->rows, (json_int_t)e->cols)
                                : json_pack("[I]", (json_int_t)e->cols);
        json_object_set_new(head, e->name, json_pack("{s:s,s:o,s:[I,I]}", "dtype", dtype, "shape", shape,
                                                     "data_offsets",
                                                     (json_int_t)at, (json_int_t)(at + n)));
        at += n;
    }
    char *s = json_dumps(head, JSON_COMPACT | JSON_ENSURE_ASCII);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    size_t len = strlen(s);
    while (len % 8) len++; /* blanks behind the header, as writers do */
    for (int i = 0; i < 8; i++) fputc((int)(len >> (8 * i) & 255), f);
    fprintf(f, "%-*s", (int)len, s);
    for (size_t i = 0; i < m->n; i++)
        if (m->e[i].file == file) put_values(f, dtype, &m->e[i]);
    assert_int_equal(fclose(f), 0);
    free(s);
    json_decref(head);
}

static void dump(scratch *s, const char *folder, const char *file, json_t *j)
{
    char name[256];
    char *body = json_dumps(j, JSON_INDENT(1));
    snprintf(name, sizeof name, "%s/%s", folder, file);
    assert_non_null(scratch_write(s, name, body, strlen(body)));
    free(body);
    json_decref(j);
}

static void write_tensors(scratch *s, const char *folder, maker *m, const checkpoint_opts *o)
{
    json_t *map = json_object();
    char file[64], path[256];
    for (int k = 0; k < o->shards; k++) {
        if (o->shards == 1) snprintf(file, sizeof file, "model.safetensors");
        else snprintf(file, sizeof file, "model-%05d-of-%05d.safetensors", k + 1, o->shards);
        for (size_t i = 0; i < m->n; i++) {
            m->e[i].file = (int)(i * (size_t)o->shards / m->n);
            if (m->e[i].file == k) json_object_set_new(map, m->e[i].name, json_string(file));
        }
        snprintf(path, sizeof path, "%s/%s", folder, file);
        assert_non_null(scratch_write(s, path, "", 0)); /* makes the folder */
        write_shard(s->path, m, k, o->dtype);
    }
    if (o->shards > 1)
        dump(s, folder, "model.safetensors.index.json",
             json_pack("{s:{s:i},s:o}", "metadata", "total_size", 1, "weight_map", map));
    else
        json_decref(map);
}

/* ------------------------------------------------------------ JSON */

static json_t *config_of(const maker *m, json_int_t vocab)
{
    json_int_t mask = -1;
    int64_t id;
    llada_err err;
    if (!gguf_get_int(m->g, "tokenizer.ggml.mask_token_id", 0, 1 << 24, &id, &err)) mask = id;
    bool own = m->own;
    const char *cls = m->illada ? "ILLaDAForCausalLM" : own ? "LLaDAModelLM" :
                      !strcmp(m->arch, "dream") ? "DreamModel" : !strcmp(m->arch, "llama") ?
                      "LlamaForCausalLM" : "LLaDAMoEModelLM";
    json_t *c = json_pack("{s:[s],s:I,s:f,s:f,s:b}", "architectures", cls, "vocab_size", vocab, "rope_theta",
                          real(m, "rope.freq_base"), "rms_norm_eps", real(m, "attention.layer_norm_rms_epsilon"),
                          own ? "weight_tying" : "tie_word_embeddings", !gguf_find(m->g, "output.weight"));
    const char *names[][2] = { { "n_layers", "num_hidden_layers" }, { "d_model", "hidden_size" },
                               { "n_heads", "num_attention_heads" }, { "n_kv_heads", "num_key_value_heads" },
                               { "max_sequence_length", "max_position_embeddings" },
                               { "mlp_hidden_size", m->experts ? "dense_intermediate_size" : "intermediate_size" } };
    int64_t values[] = { m->layers, number(m, "embedding_length", 0), m->heads, m->kv, number(m, "context_length", 0),
                         number(m, "feed_forward_length", 0) };
    for (size_t i = 0; i < 6; i++) json_object_set_new(c, names[i][own ? 0 : 1], json_integer(values[i]));
    if (mask >= 0 && strcmp(m->arch, "llada-moe") && !m->illada)
        json_object_set_new(c, "mask_token_id", json_integer(mask));
    if (m->experts) {
        json_object_set_new(c, "num_experts", json_integer(m->experts));
        json_object_set_new(c, "num_experts_per_tok", json_integer(number(m, "expert_used_count", 0)));
        json_object_set_new(c, "expert_intermediate_size", json_integer(number(m, "expert_feed_forward_length", 0)));
        json_object_set_new(c, "norm_topk_prob", json_null());
    }
    return c;
}

static json_t *merges_of(const gguf *g, bool pairs)
{
    gguf_kind kind;
    uint64_t n;
    llada_err err;
    json_t *list = json_array();
    assert_int_equal(gguf_get_arr(g, "tokenizer.ggml.merges", &kind, &n, &err), LLADA_OK);
    gguf_str *s = calloc(n + 1, sizeof *s);
    assert_int_equal(gguf_arr_str(g, "tokenizer.ggml.merges", s, n, &err), LLADA_OK);
    for (uint64_t i = 0; i < n; i++) {
        const char *gap = memchr(s[i].s, ' ', s[i].len);
        assert_non_null(gap);
        size_t a = (size_t)(gap - s[i].s);
        json_array_append_new(list, pairs ? json_pack("[s%,s%]", s[i].s, a, gap + 1, s[i].len - a - 1)
                                          : json_stringn(s[i].s, s[i].len));
    }
    free(s);
    return list;
}

/* Returns the count of tokens. */
static json_int_t write_tokens(scratch *s, const char *folder, const maker *m, bool pairs)
{
    gguf_kind kind;
    uint64_t n;
    llada_err err;
    json_t *vocab = json_object(), *added = json_array();
    assert_int_equal(gguf_get_arr(m->g, "tokenizer.ggml.tokens", &kind, &n, &err), LLADA_OK);
    gguf_str *t = calloc(n, sizeof *t);
    int64_t *type = calloc(n, sizeof *type);
    assert_int_equal(gguf_arr_str(m->g, "tokenizer.ggml.tokens", t, n, &err), LLADA_OK);
    assert_int_equal(gguf_arr_i64(m->g, "tokenizer.ggml.token_type", type, n, &err), LLADA_OK);
    for (uint64_t i = 0; i < n; i++) {
        json_t *text = json_stringn(t[i].s, t[i].len);
        if (type[i] == 1) json_object_set_new(vocab, json_string_value(text), json_integer((json_int_t)i));
        else if (type[i] != 5)
            json_array_append_new(added, json_pack("{s:I,s:O,s:b}", "id", (json_int_t)i, "content", text, "special",
                                                   type[i] == 3));
        json_decref(text);
    }
    free(t);
    free(type);
    /* as published with Ling and LLaDA, and with Llama 3 */
    const char *digits = strcmp(m->arch, "llama")
        ? "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"
          "\\s+(?!\\S)|\\s+"
        : "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
          "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    dump(s, folder, "tokenizer.json",
         json_pack("{s:o,s:{s:s,s:[{s:s,s:{s:s}},{s:s}]},s:{s:s,s:o,s:o}}", "added_tokens", added, "pre_tokenizer",
                   "type", "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex", digits, "type",
                   "ByteLevel", "model", "type", "BPE", "vocab", vocab, "merges", merges_of(m->g, pairs)));
    return (json_int_t)n;
}

static json_int_t id_of(const maker *m, const char *what)
{
    char key[64];
    int64_t id;
    llada_err err;
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", what);
    return gguf_get_int(m->g, key, 0, 1 << 24, &id, &err) ? -1 : id;
}

/* Laid over: null removes. */
static void change(json_t *c, const char *with)
{
    const char *key;
    json_t *v, *over = with ? json_loads(with, 0, NULL) : json_object();
    assert_non_null(over);
    json_object_foreach(over, key, v)
    {
        if (json_is_null(v)) json_object_del(c, key);
        else json_object_set(c, key, v);
    }
    json_decref(over);
}

void checkpoint_write(scratch *s, const char *name, const gguf *g, const checkpoint_opts *o)
{
    maker m = { .g = g };
    char arch[32];
    gguf_str a;
    llada_err err;
    assert_int_equal(gguf_get_str(g, "general.architecture", &a, &err), LLADA_OK);
    snprintf(arch, sizeof arch, "%.*s", (int)a.len, a.s);
    m.arch = arch;
    m.layers = number(&m, "block_count", 0);
    m.heads = number(&m, "attention.head_count", 0);
    m.kv = number(&m, "attention.head_count_kv", m.heads);
    m.experts = number(&m, "expert_count", 0);
    m.illada = o->illada;
    m.own = !strcmp(m.arch, "llada") && !o->illada;
    m.e = calloc(MOST, sizeof *m.e);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) /* factors follow from the configuration */
        if (strcmp(gguf_tensor_at(g, i)->name, "rope_freqs.weight")) add_tensor(&m, gguf_tensor_at(g, i));
    if (o->extra) add(&m, o->extra, (float[4]){ 0 }, 0, 4);
    for (size_t i = 0; i < m.n; i++) {
        if (o->rename && !strcmp(m.e[i].name, o->rename)) strcat(m.e[i].name, "_");
        if (!o->skip || strcmp(m.e[i].name, o->skip)) continue;
        free(m.e[i].v);
        m.e[i] = m.e[--m.n];
    }
    write_tensors(s, name, &m, o);
    json_t *config = config_of(&m, write_tokens(s, name, &m, o->pairs));
    change(config, o->config);
    dump(s, name, "config.json", config);
    dump(s, name, "generation_config.json",
         json_pack("{s:I,s:[I]}", "bos_token_id", id_of(&m, "bos"), "eos_token_id", id_of(&m, "eos")));
    json_t *pad = json_object();
    gguf_str template;
    if (!gguf_get_str(g, "tokenizer.chat_template", &template, &err))
        json_object_set_new(pad, "chat_template", json_stringn(template.s, template.len));
    dump(s, name, "tokenizer_config.json", pad);
    for (size_t i = 0; i < m.n; i++) free(m.e[i].v);
    free(m.e);
}

uint8_t *safetensors_bytes(const char *header, size_t data, size_t *len)
{
    size_t n = strlen(header);
    uint8_t *b = malloc(8 + n + data);
    for (int i = 0; i < 8; i++) b[i] = (uint8_t)(n >> (8 * i));
    memcpy(b + 8, header, n);
    for (size_t i = 0; i < data; i++) b[8 + n + i] = (uint8_t)i;
    *len = 8 + n + data;
    return b;
}
