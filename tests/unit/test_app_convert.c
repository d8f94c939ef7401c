/* test_app_convert.c - convert: a checkpoint derived from a GGUF file gives a file with the same numbers and scores,
 * bit for bit; checkpoints that are wrong are refused with a sentence, and leave nothing behind. */
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/commands.h"
#include "checkpoint.h"
#include "tiny_gguf.h"

#define FIXTURES LLADA_SOURCE_DIR "/tests/fixtures/"

static gguf *open_file(const char *path)
{
    gguf *g;
    llada_err err;
    if (gguf_open(&g, path, true, NULL, 0, &err)) fail_msg("%s", err.text);
    return g;
}

/* The command's exit code; its sentences in said. */
static int convert(const char *dir, const char *out, const char *type, char *said, size_t cap)
{
    char log[] = "/tmp/llada-said-XXXXXX";
    int fd = mkstemp(log), kept = dup(STDERR_FILENO);
    options o = { .arg = dir, .arg2 = out, .type = type, .quiet = true, .threads = 2 };
    fflush(stderr);
    dup2(fd, STDERR_FILENO);
    int rc = cmd_convert(&o);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    ssize_t n = pread(fd, said, cap - 1, 0);
    said[n > 0 ? n : 0] = 0;
    close(fd);
    unlink(log);
    return rc;
}

static float *scores(const char *path, size_t *n)
{
    enum { N = 12 };
    llada_model *m;
    llada_session *s;
    llada_err err = { .text = "" };
    llada_model_info info = { .size = sizeof info };
    if (llada_model_open(&m, path, NULL, &err)) fail_msg("%s: %s", path, err.text);
    llada_model_get_info(m, &info);
    int32_t ids[N];
    for (int i = 0; i < N; i++) ids[i] = (i * 37 + 5) % info.n_vocab;
    llada_session_opts so;
    llada_session_opts_defaults(&so);
    so.ctx = N;
    so.threads = 1;
    llada_recipe r;
    llada_recipe_for(&r, m);
    r.gen = 1;
    if (llada_session_open(&s, m, &r, &so, &err)) fail_msg("%s", err.text);
    *n = (size_t)N * (size_t)info.n_vocab;
    float *out = malloc(*n * sizeof *out);
    if (llada_logits(s, ids, N, out, &err)) fail_msg("%s", err.text);
    llada_session_close(&s);
    llada_model_close(&m);
    return out;
}

static void same_scores(const char *a, const char *b)
{
    size_t n, k;
    float *x = scores(a, &n), *y = scores(b, &k);
    assert_int_equal(n, k);
    assert_memory_equal(x, y, n * sizeof *x);
    free(x);
    free(y);
}

/* Every tensor of the old file is in the new one, with the same values. */
static void same_tensors(const gguf *a, const gguf *b)
{
    assert_int_equal(gguf_n_tensors(a), gguf_n_tensors(b));
    for (uint64_t i = 0; i < gguf_n_tensors(a); i++) {
        const gguf_tensor *t = gguf_tensor_at(a, i), *u = gguf_find(b, t->name);
        assert_non_null(u);
        assert_int_equal(t->n_dims, u->n_dims);
        assert_memory_equal(t->dims, u->dims, sizeof t->dims);
        size_t n = (size_t)(t->dims[0] * t->dims[1] * t->dims[2]);
        float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
        quant_get(t->type)->decode(x, t->data, n);
        quant_get(u->type)->decode(y, u->data, n);
        if (memcmp(x, y, n * sizeof *x)) fail_msg("%s differs", t->name);
        free(x);
        free(y);
    }
}

/* Lists of the tokenizer, and the ids that count. */
static void same_tokens(const gguf *a, const gguf *b)
{
    static const char *const lists[] = { "tokenizer.ggml.tokens", "tokenizer.ggml.merges" };
    static const char *const ids[] = { "bos", "eos", "mask" };
    llada_err err;
    for (size_t k = 0; k < 2; k++) {
        gguf_kind kind;
        uint64_t n, m;
        assert_int_equal(gguf_get_arr(a, lists[k], &kind, &n, &err), LLADA_OK);
        assert_int_equal(gguf_get_arr(b, lists[k], &kind, &m, &err), LLADA_OK);
        assert_int_equal(n, m);
        gguf_str *x = calloc(n + 1, sizeof *x), *y = calloc(n + 1, sizeof *y);
        gguf_arr_str(a, lists[k], x, n, &err);
        gguf_arr_str(b, lists[k], y, n, &err);
        for (uint64_t i = 0; i < n; i++) {
            assert_int_equal(x[i].len, y[i].len);
            assert_memory_equal(x[i].s, y[i].s, x[i].len);
        }
        free(x);
        free(y);
    }
    for (size_t k = 0; k < 3; k++) {
        char key[64];
        int64_t x = -1, y = -1;
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ids[k]);
        gguf_get_int(a, key, 0, 1 << 24, &x, &err);
        gguf_get_int(b, key, 0, 1 << 24, &y, &err);
        assert_int_equal(x, y);
    }
}

static void round_trip(scratch *s, const char *from, const checkpoint_opts *o, const char *type)
{
    char dir[128], out[128], said[512];
    gguf *g = open_file(from);
    checkpoint_write(s, "model", g, o);
    snprintf(dir, sizeof dir, "%s/model", s->dir);
    snprintf(out, sizeof out, "%s/out.gguf", s->dir);
    if (convert(dir, out, type, said, sizeof said)) fail_msg("%s: %s", from, said);
    gguf *new = open_file(out);
    same_tensors(g, new);
    same_tokens(g, new);
    gguf_close(&new);
    gguf_close(&g);
    same_scores(from, out);
    nftw(dir, scratch_remove, 8, FTW_DEPTH | FTW_PHYS);
}

/* The llama file has factors of its own making, which no configuration can say: a copy without them. */
static void without_factors(const char *from, const char *to)
{
    gguf *g = open_file(from);
    gguf_writer *w;
    llada_err err;
    assert_int_equal(gguf_writer_open(&w, to, &err), LLADA_OK);
    for (uint64_t i = 0; i < gguf_n_keys(g); i++) assert_int_equal(gguf_copy_key(w, g, i, &err), LLADA_OK);
    for (int data = 0; data < 2; data++) {
        for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
            const gguf_tensor *t = gguf_tensor_at(g, i);
            if (!strcmp(t->name, "rope_freqs.weight")) continue;
            llada_status st = data ? gguf_write_data(w, t->data, t->bytes, &err)
                                   : gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, &err);
            assert_int_equal(st, LLADA_OK);
        }
    }
    assert_int_equal(gguf_writer_finish(&w, &err), LLADA_OK);
    gguf_close(&g);
}

static void same_logits(void **state)
{
    scratch s;
    char llama[128];
    assert_true(scratch_open(&s));
    snprintf(llama, sizeof llama, "%s/llama.gguf", s.dir);
    without_factors(FIXTURES "net-llama.gguf", llama);
    const char *const files[] = { FIXTURES "net-llada.gguf", FIXTURES "net-dream.gguf", FIXTURES "net-llada-moe.gguf",
                                  llama };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        round_trip(&s, files[i], &(checkpoint_opts){ .dtype = "F32", .shards = 1 }, "f16");
        round_trip(&s, files[i], &(checkpoint_opts){ .dtype = "F32", .shards = 3, .pairs = true }, "f16");
    }
    round_trip(&s, FIXTURES "tiny-llada-f32.gguf", &(checkpoint_opts){ .dtype = "F32", .shards = 2 }, "f32");
    scratch_close(&s);
}

/* Names of files in the scratch folder that begin with a dot, or are the output. */
static int left_behind(const scratch *s)
{
    int n = 0;
    DIR *d = opendir(s->dir);
    for (struct dirent *e; (e = readdir(d));)
        n += !strcmp(e->d_name, "out.gguf") || (e->d_name[0] == '.' && e->d_name[1] && e->d_name[1] != '.');
    closedir(d);
    return n;
}

static const struct {
    const char *file;
    checkpoint_opts o;
    const char *says;
} wrong[] = {
    { "net-llada.gguf", { .config = "{\"architectures\":[\"GPT2LMHeadModel\"]}" }, "GPT2LMHeadModel" },
    { "net-llada.gguf", { .config = "{\"architectures\":null}" }, "names no architecture" },
    { "net-llada.gguf", { .config = "{\"n_layers\":1}" }, "have no place" },
    { "net-llada.gguf", { .config = "{\"n_layers\":3}" }, "blocks.2.attn_norm.weight is missing" },
    { "net-llada.gguf", { .config = "{\"n_layers\":0}" }, "n_layers is not a whole number" },
    { "net-llada.gguf", { .config = "{\"n_layers\":513}" }, "n_layers is not" },
    { "net-llada.gguf", { .config = "{\"n_layers\":\"2\"}" }, "n_layers is not" },
    { "net-llada.gguf", { .config = "{\"n_layers\":null}" }, "n_layers is missing" },
    { "net-llada.gguf", { .config = "{\"d_model\":64}" }, "config.json makes it" },
    { "net-llada.gguf", { .config = "{\"n_heads\":3}" }, "do not fit together" },
    { "net-llada.gguf", { .config = "{\"n_kv_heads\":3}" }, "do not fit together" },
    { "net-llada.gguf", { .config = "{\"mlp_hidden_size\":32}" }, "ff_proj.weight has 2 dimensions, 40 x 32" },
    { "net-llada.gguf", { .config = "{\"vocab_size\":289}" }, "has 288 rows, but config.json says vocab_size 289" },
    { "net-llada.gguf", { .config = "{\"rope_theta\":0}" }, "rope_theta is not a positive number" },
    { "net-llada.gguf", { .config = "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}}" }, "stretched (yarn)" },
    { "net-llada.gguf", { .config = "{\"include_bias\":true}" }, "include_bias is set" },
    { "net-llada.gguf", { .config = "{\"activation_type\":\"gelu\"}" }, "activation_type is gelu" },
    { "net-llada-moe.gguf", { .config = "{\"norm_topk_prob\":true}" }, "norm_topk_prob is set" },
    { "net-llada-moe.gguf", { .config = "{\"moe_router_enable_expert_bias\":true}" }, "expert_bias is set" },
    { "net-llada-moe.gguf", { .config = "{\"moe_router_score_function\":\"sigmoid\"}" }, "score_function is sigmoid" },
    { "net-llada-moe.gguf", { .config = "{\"routed_scaling_factor\":2.5}" }, "routed_scaling_factor is not 1" },
    { "net-llada-moe.gguf", { .config = "{\"shared_expert_intermediate_size\":512}" }, "shared_expert_intermediate" },
    { "net-llada-moe.gguf", { .config = "{\"moe_layer_freq\":[0,1]}" }, "moe_layer_freq is 0 for a layer" },
    { "net-llada-moe.gguf", { .config = "{\"qk_layernorm\":false}" }, "qk_layernorm is false" },
    { "net-llada.gguf", { .config = "{\"rope\":false}" }, "rope is false" },
    { "net-llada.gguf", { .illada = true, .config = "{\"layer_norm_eps\":1e-6}" }, "layer_norm_eps is set" },
    { "net-llada.gguf", { .illada = true }, "no mask token" },
    { "net-dream.gguf", { .config = "{\"use_mrope\":true}" }, "use_mrope is set" },
    { "net-llada-moe.gguf", { .config = "{\"num_experts\":5}" }, "6 x 32; config.json makes it 5 x 32" },
    { "net-llada-moe.gguf", { .config = "{\"num_experts\":7}" }, "mlp.gate.weight has 2 dimensions" },
    { "net-llada-moe.gguf", { .config = "{\"num_experts_per_tok\":7}" }, "num_experts_per_tok is not" },
    { "net-llada-moe.gguf", { .skip = "model.layers.1.mlp.experts.3.up_proj.weight" },
      "experts.3.up_proj.weight is missing" },
    { "net-dream.gguf", { .skip = "model.layers.0.self_attn.k_proj.bias" }, "k_proj.bias is missing" },
    { "net-dream.gguf", { .rename = "model.norm.weight" }, "model.norm.weight is missing" },
    { "net-dream.gguf", { .extra = "model.layers.0.mlp.more.weight" }, "the first is model.layers.0.mlp.more.weight" },
    { "net-llama.gguf", { .skip = "model.embed_tokens.weight" }, "model.embed_tokens.weight is missing" },
    { "net-llama.gguf", { .config = "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":-8}}" }, "factor is not" },
};

static void refuses(void **state)
{
    scratch s;
    char dir[128], out[128], said[512];
    assert_true(scratch_open(&s));
    snprintf(dir, sizeof dir, "%s/model", s.dir);
    snprintf(out, sizeof out, "%s/out.gguf", s.dir);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char path[256];
        checkpoint_opts o = wrong[i].o;
        o.dtype = "BF16";
        o.shards = 1;
        snprintf(path, sizeof path, FIXTURES "%s", wrong[i].file);
        gguf *g = open_file(path);
        checkpoint_write(&s, "model", g, &o);
        gguf_close(&g);
        int rc = convert(dir, out, "f16", said, sizeof said);
        if (rc != 2 || !strstr(said, wrong[i].says))
            fail_msg("case %zu wanted \"%s\", got %d \"%s\"", i, wrong[i].says, rc, said);
        assert_int_equal(left_behind(&s), 0);
    }
    scratch_close(&s);
}

/* ------------------------------------------------------------ single files of a good checkpoint, spoilt */

static const struct {
    const char *file, *body, *says;
} spoilt[] = {
    { "config.json", "", "config.json: line" },
    { "config.json", "[1]", "is not a JSON object" },
    { "config.json", "{\"architectures\":[\"LLaDAModelLM\"],", "config.json: line" },
    { "tokenizer.json", "{}", "BPE with a vocabulary" },
    { "tokenizer.json", "{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "the model is Unigram" },
    { "tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":288},\"merges\":[]}}",
      "id 288, but the embedding has 288" },
    { "tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "id -1" },
    { "tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}", "have the id 1" },
    { "tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1}}}", "no list of merges" },
    { "tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[7]}}", "merge 0 is neither" },
    { "model.safetensors.index.json", "{}", "has no weight_map" },
    { "model.safetensors.index.json", "{\"weight_map\":{}}", "lists no files" },
    { "model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../b\"}}", "not in a file beside it" },
    { "model.safetensors.index.json", "{\"weight_map\":{\"a\":\"model.safetensors\"}}", "it is nowhere" },
    { "model.safetensors.index.json", "{\"weight_map\":{\"model.transformer.wte.weight\":\"model.safetensors\"}}",
      "lists 1 tensors" },
    { "model.safetensors.index.json", "{\"weight_map\":{\"a\":\"none.safetensors\"}}", "none.safetensors" },
    { "model.safetensors", "junk", "not safetensors" },
    { "model.safetensors", "<!DOCTYPE html>                 ", "not safetensors" },
};

static void refuses_files(void **state)
{
    scratch s;
    char dir[128], out[128], said[512], name[128];
    assert_true(scratch_open(&s));
    snprintf(dir, sizeof dir, "%s/model", s.dir);
    snprintf(out, sizeof out, "%s/out.gguf", s.dir);
    gguf *g = open_file(FIXTURES "net-llada.gguf");
    for (size_t i = 0; i < sizeof spoilt / sizeof *spoilt; i++) {
        checkpoint_write(&s, "model", g, &(checkpoint_opts){ .dtype = "F16", .shards = 1 });
        snprintf(name, sizeof name, "model/%s", spoilt[i].file);
        assert_non_null(scratch_write(&s, name, spoilt[i].body, strlen(spoilt[i].body)));
        int rc = convert(dir, out, "f16", said, sizeof said);
        if (rc != 2 || !strstr(said, spoilt[i].says))
            fail_msg("case %zu wanted \"%s\", got %d \"%s\"", i, spoilt[i].says, rc, said);
        assert_int_equal(left_behind(&s), 0);
        nftw(dir, scratch_remove, 8, FTW_DEPTH | FTW_PHYS);
    }
    gguf_close(&g);
    scratch_close(&s);
}

/* Llama 3.1's factors: published values for head_dim 128 begin with ones and end with 8. */
static void stretched(void **state)
{
    scratch s;
    char dir[128], out[128], said[512];
    assert_true(scratch_open(&s));
    gguf *g = open_file(FIXTURES "net-llama.gguf");
    checkpoint_write(&s, "model", g, &(checkpoint_opts){ .dtype = "F16", .shards = 1, .config =
        "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
        "\"original_max_position_embeddings\":8192}}" });
    gguf_close(&g);
    snprintf(dir, sizeof dir, "%s/model", s.dir);
    snprintf(out, sizeof out, "%s/out.gguf", s.dir);
    if (convert(dir, out, "f16", said, sizeof said)) fail_msg("%s", said);
    g = open_file(out);
    const gguf_tensor *t = gguf_find(g, "rope_freqs.weight");
    assert_non_null(t);
    assert_int_equal(t->dims[0], 4); /* heads of 8; waves of 6, 167, 4443 and 118,142 positions */
    float f[4];
    memcpy(f, t->data, sizeof f);
    assert_true(f[0] == 1 && f[1] == 1 && f[3] == 8);
    assert_true(f[2] > 2.3f && f[2] < 2.8f); /* smooth = (8192/4443 - 1) / 3 = 0.281; 1 / (0.719/8 + 0.281) = 2.69 */
    gguf_close(&g);
    size_t n;
    free(scores(out, &n));
    scratch_close(&s);
}

/* ------------------------------------------------------------ the published configurations */

static json_t *read_json(const char *path)
{
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e);
    if (!j) fail_msg("%s: %s", path, e.text);
    return j;
}

static void write_json(const char *path, const json_t *j) { assert_int_equal(json_dump_file(j, path, 0), 0); }

/* Every field of a published configuration, with the sizes of a small model: converted, and scores as before. */
static void published_configs(void **state)
{
    static const struct {
        const char *config, *file;
        const char *mask; /* a token that gets this spelling: configurations without an id name the mask so */
    } rows[] = { { "llada-8b", "net-llada.gguf", NULL }, { "dream-7b", "net-dream.gguf", NULL },
                 { "llada-moe-7b", "net-llada-moe.gguf", NULL }, { "illada-8b", "net-llada.gguf", "<[MASK]>" } };
    scratch s;
    char dir[128], path[256], out[128], said[512];
    assert_true(scratch_open(&s));
    snprintf(dir, sizeof dir, "%s/model", s.dir);
    snprintf(out, sizeof out, "%s/out.gguf", s.dir);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *key;
        json_t *v;
        snprintf(path, sizeof path, FIXTURES "%s", rows[i].file);
        gguf *g = open_file(path);
        checkpoint_write(&s, "model", g, &(checkpoint_opts){ .dtype = "F32", .shards = 1, .illada = rows[i].mask });
        snprintf(path, sizeof path, FIXTURES "configs/%s.json", rows[i].config);
        json_t *published = read_json(path);
        snprintf(path, sizeof path, "%s/config.json", dir);
        json_t *small = read_json(path);
        json_object_foreach(small, key, v)
            if (!json_object_get(published, key)) fail_msg("%s has no %s", rows[i].config, key);
        json_object_update(published, small);
        json_object_del(published, "eos_token_id"); /* of the large vocabulary */
        json_object_del(published, "pad_token_id");
        json_object_del(published, "bos_token_id");
        write_json(path, published);
        json_decref(published);
        json_decref(small);
        if (rows[i].mask) {
            snprintf(path, sizeof path, "%s/tokenizer.json", dir);
            json_t *tok = read_json(path);
            size_t k;
            int64_t id;
            llada_err err;
            assert_int_equal(gguf_get_int(g, "tokenizer.ggml.mask_token_id", 0, 1 << 24, &id, &err), LLADA_OK);
            json_array_foreach(json_object_get(tok, "added_tokens"), k, v)
                if (json_integer_value(json_object_get(v, "id")) == id)
                    json_object_set_new(v, "content", json_string(rows[i].mask));
            write_json(path, tok);
            json_decref(tok);
        }
        if (convert(dir, out, "f32", said, sizeof said)) fail_msg("%s: %s", rows[i].config, said);
        gguf *new = open_file(out);
        same_tensors(g, new);
        int64_t a = -1, b = -2;
        llada_err err;
        gguf_get_int(g, "tokenizer.ggml.mask_token_id", 0, 1 << 24, &a, &err);
        gguf_get_int(new, "tokenizer.ggml.mask_token_id", 0, 1 << 24, &b, &err);
        assert_int_equal(a, b);
        gguf_close(&new);
        gguf_close(&g);
        nftw(dir, scratch_remove, 8, FTW_DEPTH | FTW_PHYS);
    }
    scratch_close(&s);
}

/* tokenizer.ggml.pre follows the pattern that tokenizer.json spells, whatever the model is. */
static void patterns_become_names(void **state)
{
    static const struct {
        const char *pre_tokenizer, *name; /* NULL: refused */
    } rows[] = {
        { "{\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1}|"
          " ?[^\\\\s\\\\p{L}\\\\p{N}\\\\r\\\\n]+|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}}", "seed-coder" },
        { "{\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|"
          "\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}}",
          "llama-bpe" },
        { "{\"type\":\"ByteLevel\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"use_regex\":true}]}", "gpt-2" },
        { "null", "bailingmoe" },
        { "{\"pattern\":{\"Regex\":\"\\\\p{L}+|.\"}}", NULL },
        { "{\"pattern\":{\"Regex\":\"(((\"}}", NULL },
        { "{\"pattern\":{\"Regex\":\"(x*)*(x*)*(x*)*y\"}}", NULL },
        { "{\"pretokenizers\":[{\"pattern\":{\"Regex\":\"a\"}},{\"pattern\":{\"Regex\":\"b\"}}]}", NULL },
    };
    scratch s;
    char dir[128], path[256], out[128], said[512];
    assert_true(scratch_open(&s));
    snprintf(dir, sizeof dir, "%s/model", s.dir);
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    snprintf(out, sizeof out, "%s/out.gguf", s.dir);
    gguf *g = open_file(FIXTURES "net-llada.gguf");
    checkpoint_write(&s, "model", g, &(checkpoint_opts){ .dtype = "F16", .shards = 1 });
    gguf_close(&g);
    json_t *tok = read_json(path);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *pre = json_loads(rows[i].pre_tokenizer, JSON_DECODE_ANY, NULL);
        assert_non_null(pre);
        json_object_set_new(tok, "pre_tokenizer", pre);
        write_json(path, tok);
        int rc = convert(dir, out, "f16", said, sizeof said);
        if (!rows[i].name) {
            if (rc != 2 || !strstr(said, "that no pre-tokenizer we know")) fail_msg("row %zu: %d %s", i, rc, said);
            continue;
        }
        if (rc) fail_msg("row %zu: %s", i, said);
        gguf_str name;
        llada_err err;
        g = open_file(out);
        assert_int_equal(gguf_get_str(g, "tokenizer.ggml.pre", &name, &err), LLADA_OK);
        if (strlen(rows[i].name) != name.len || memcmp(rows[i].name, name.s, name.len))
            fail_msg("row %zu became %.*s", i, (int)name.len, name.s);
        gguf_close(&g);
    }
    json_decref(tok);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(same_logits), cmocka_unit_test(published_configs),
                                        cmocka_unit_test(patterns_become_names), cmocka_unit_test(refuses),
                                        cmocka_unit_test(refuses_files), cmocka_unit_test(stretched) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
