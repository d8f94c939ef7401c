/* convert_tokens.c - a checkpoint's tokenizer (tokenizer.json, tokenizer_config.json, generation_config.json, a chat
 * template) as tokenizer.ggml.* keys. */
#include "convert.h"

#include <stdlib.h>
#include <string.h>

enum { NORMAL = 1, CONTROL = 3, USER = 4, UNUSED = 5 }; /* tokenizer.ggml.token_type */
enum { MOST_TEMPLATE = 1 << 20, MOST_MERGES = 1 << 22 };

typedef struct {
    const convert_model *m;
    json_t *tok, *conf, *gen; /* owned; conf and gen may be NULL */
    const char **token;       /* owned; [m->rows]; the texts are borrowed from tok, or owned below */
    int32_t *type;            /* owned; [m->rows] */
    const char **merge;       /* owned */
    size_t n_merges;
    const char *pre;          /* tokenizer.ggml.pre */
    text *made;               /* owned: spellings that stand in no file */
    size_t n_made;
} reader;

/* Kept until the reader is freed. */
static const char *keep(reader *r, text t)
{
    r->made = app_grow(r->made, r->n_made + 1, sizeof *r->made);
    r->made[r->n_made++] = t;
    return t.p;
}

/* ---------------------------------------------------------------- tokens */

static int place(reader *r, const char *s, json_t *id, int32_t type)
{
    json_int_t i = json_is_integer(id) ? json_integer_value(id) : -1;
    if (i < 0 || i >= r->m->rows) {
        app_error("tokenizer.json: token \"%.64s\" has the id %lld, but the embedding has %d rows", s, (long long)i,
                  r->m->rows);
        return EXIT_WRONG_USE;
    }
    if (r->token[i] && strcmp(r->token[i], s)) {
        app_error("tokenizer.json: both \"%.64s\" and \"%.64s\" have the id %lld", r->token[i], s, (long long)i);
        return EXIT_WRONG_USE;
    }
    r->token[i] = s;
    r->type[i] = type;
    return EXIT_FINE;
}

/* Marks that layouts put into texts, whatever their file says of them. */
static bool looks_special(const char *s)
{
    size_t n = strlen(s);
    return n > 4 && !strncmp(s, "<|", 2) && !strcmp(s + n - 2, "|>");
}

static int read_added(reader *r)
{
    size_t i;
    json_t *t;
    json_array_foreach(json_object_get(r->tok, "added_tokens"), i, t)
    {
        const char *s = json_string_value(json_object_get(t, "content"));
        bool special = json_is_true(json_object_get(t, "special"));
        if (!s || !s[0]) {
            app_error("tokenizer.json: added token %zu has no content", i);
            return EXIT_WRONG_USE;
        }
        int rc = place(r, s, json_object_get(t, "id"), special || looks_special(s) ? CONTROL : USER);
        if (rc) return rc;
    }
    return EXIT_FINE;
}

static int read_tokens(reader *r)
{
    json_t *model = json_object_get(r->tok, "model"), *vocab = json_object_get(model, "vocab"), *id;
    const char *kind = json_string_value(json_object_get(model, "type")), *s;
    if ((kind && strcmp(kind, "BPE")) || !json_is_object(vocab)) {
        app_error("tokenizer.json: the model is %.32s; BPE with a vocabulary can be converted",
                  kind ? kind : "not named");
        return EXIT_WRONG_USE;
    }
    r->token = app_new((size_t)r->m->rows, sizeof *r->token);
    r->type = app_new((size_t)r->m->rows, sizeof *r->type);
    json_object_foreach(vocab, s, id)
    {
        int rc = place(r, s, id, NORMAL);
        if (rc) return rc;
    }
    int rc = read_added(r);
    for (int i = 0; i < r->m->rows && !rc; i++) {
        if (r->token[i]) continue;
        text t = {0};
        text_fmt(&t, "[PAD%d]", i);
        r->token[i] = keep(r, t);
        r->type[i] = UNUSED;
    }
    return rc;
}

/* Either "a b", or ["a", "b"], where blanks inside a part are written as the byte alphabet's blank. */
static const char *read_merge(reader *r, json_t *v)
{
    if (json_is_string(v)) return json_string_value(v);
    text t = {0};
    if (json_array_size(v) != 2) return NULL;
    for (size_t i = 0; i < 2; i++) {
        const char *s = json_string_value(json_array_get(v, i));
        if (!s) {
            text_free(&t);
            return NULL;
        }
        if (i) text_str(&t, " ");
        for (; *s; s++) {
            if (*s == ' ') text_str(&t, "\xc4\xa0");
            else text_add(&t, s, 1);
        }
    }
    return keep(r, t);
}

static int read_merges(reader *r)
{
    json_t *list = json_object_get(json_object_get(r->tok, "model"), "merges");
    r->n_merges = json_array_size(list);
    if (!json_is_array(list) || r->n_merges > MOST_MERGES) {
        app_error("tokenizer.json: there is no list of merges, or it has more than %d", MOST_MERGES);
        return EXIT_WRONG_USE;
    }
    r->merge = app_new(r->n_merges + 1, sizeof *r->merge);
    for (size_t i = 0; i < r->n_merges; i++) {
        if ((r->merge[i] = read_merge(r, json_array_get(list, i)))) continue;
        app_error("tokenizer.json: merge %zu is neither a text nor a pair", i);
        return EXIT_WRONG_USE;
    }
    return EXIT_FINE;
}

/* The pattern that cuts words; *n: how many there are.  ByteLevel's own is GPT-2's, which is not spelt out. */
static const char *find_pattern(const json_t *pre, int *n, bool *byte_level)
{
    const char *regex = json_string_value(json_object_get(json_object_get(pre, "pattern"), "Regex"));
    json_t *v;
    size_t i;
    *n = regex ? 1 : 0;
    *byte_level = false;
    json_array_foreach(json_object_get(pre, "pretokenizers"), i, v)
    {
        const char *s = json_string_value(json_object_get(json_object_get(v, "pattern"), "Regex"));
        const char *type = json_string_value(json_object_get(v, "type"));
        if (type && !strcmp(type, "ByteLevel") && json_is_true(json_object_get(v, "use_regex"))) *byte_level = true;
        if (!s) continue;
        regex = s;
        ++*n;
    }
    return regex;
}

/* tokenizer.ggml.pre: the architecture's name where the file cuts like it, else another known one that does. */
static int choose_pre(reader *r)
{
    const char *const names[] = {r->m->fam->pre, "llama-bpe", "qwen2", "seed-coder", "gpt-2"};
    int n;
    bool byte_level;
    const char *regex = find_pattern(json_object_get(r->tok, "pre_tokenizer"), &n, &byte_level);
    r->pre = !n && byte_level ? "gpt-2" : r->m->fam->pre;
    if (!n) return EXIT_FINE;
    for (size_t i = 0; n == 1 && i < sizeof names / sizeof *names; i++) {
        if (!tools_pre_alike(names[i], regex, strlen(regex))) continue;
        r->pre = names[i];
        return EXIT_FINE;
    }
    app_error("tokenizer.json cuts words by %s that no pre-tokenizer we know cuts like: %.200s",
              n == 1 ? "a pattern" : "several patterns", regex);
    return EXIT_WRONG_USE;
}

/* ---------------------------------------------------------------- special tokens */

static int32_t find(const reader *r, const char *s)
{
    for (int32_t i = 0; s && i < r->m->rows; i++)
        if (!strcmp(r->token[i], s)) return i;
    return -1;
}

/* An id, or the first of a list of them. */
static int32_t id_in(const reader *r, const json_t *from, const char *key)
{
    json_t *v = json_object_get(from, key);
    if (json_is_array(v)) v = json_array_get(v, 0);
    json_int_t i = json_is_integer(v) ? json_integer_value(v) : -1;
    return i >= 0 && i < r->m->rows ? (int32_t)i : -1;
}

/* bos, eos, pad, mask: by its spelling in tokenizer_config.json, else by its id in config.json, else in
 * generation_config.json. */
static int32_t special(const reader *r, const char *what)
{
    char key[64];
    snprintf(key, sizeof key, "%s_token", what);
    json_t *v = json_object_get(r->conf, key);
    int32_t id = find(r, json_string_value(json_is_object(v) ? json_object_get(v, "content") : v));
    snprintf(key, sizeof key, "%s_token_id", what);
    if (id < 0) id = id_in(r, r->m->json, key);
    return id < 0 ? id_in(r, r->gen, key) : id;
}

/* A mask that is the end token too is none: one published configuration class has it so by default. */
static int32_t mask_of(const reader *r)
{
    int32_t id = id_in(r, r->m->json, "mask_token_id");
    if (id == special(r, "eos")) id = -1;
    if (id < 0) id = special(r, "mask");
    if (id < 0) id = find(r, r->m->fam->mask);
    return id < 0 && r->m->fam->mask_id < r->m->rows ? r->m->fam->mask_id : id;
}

static int put_specials(const reader *r, tools_output *o)
{
    llada_err err = {0};
    const struct {
        const char *key;
        int32_t id;
    } ids[] = {{"tokenizer.ggml.bos_token_id", special(r, "bos")},
               {"tokenizer.ggml.eos_token_id", special(r, "eos")},
               {"tokenizer.ggml.padding_token_id", special(r, "pad")},
               {"tokenizer.ggml.mask_token_id", r->m->fam->mask ? mask_of(r) : -1}};
    llada_status st = LLADA_OK;
    for (size_t i = 0; i < sizeof ids / sizeof *ids && !st; i++)
        if (ids[i].id >= 0) st = tools_put_u32(o, ids[i].key, (uint32_t)ids[i].id, &err);
    if (r->m->fam->mask && ids[3].id < 0) {
        app_error("no mask token: config.json has no mask_token_id, and no token is spelled %s", r->m->fam->mask);
        return EXIT_WRONG_USE;
    }
    json_t *add = json_object_get(r->conf, "add_bos_token");
    bool always = r->m->fam->bos;
    if (!st && (always || json_is_boolean(add)))
        st = tools_put_bool(o, "tokenizer.ggml.add_bos_token", always || json_is_true(add), &err);
    return st ? app_fail(&err) : EXIT_FINE;
}

/* ---------------------------------------------------------------- chat template */

/* One text, or a list of named ones, of which "default" counts. */
static const char *template_in(const json_t *conf)
{
    json_t *v = json_object_get(conf, "chat_template"), *t;
    size_t i;
    if (json_is_string(v)) return json_string_value(v);
    json_array_foreach(v, i, t)
    {
        const char *name = json_string_value(json_object_get(t, "name"));
        if (name && !strcmp(name, "default")) return json_string_value(json_object_get(t, "template"));
    }
    return NULL;
}

static int put_template(const reader *r, tools_output *o)
{
    llada_err err = {0};
    text path = {0}, body = {0};
    const char *s = template_in(r->conf);
    int rc = EXIT_FINE;
    text_fmt(&path, "%s/chat_template.jinja", r->m->dir);
    FILE *f = fopen(path.p, "re");
    if (f) {
        fclose(f);
        rc = file_read(&body, path.p, MOST_TEMPLATE);
        s = body.p;
    }
    if (!rc && s && tools_put_str(o, "tokenizer.chat_template", s, &err)) rc = app_fail(&err);
    text_free(&path);
    text_free(&body);
    return rc;
}

/* ---------------------------------------------------------------- all */

static int put_lists(const reader *r, tools_output *o)
{
    llada_err err = {0};
    size_t n = (size_t)r->m->rows;
    llada_status st = tools_put_str(o, "tokenizer.ggml.model", "gpt2", &err);
    if (!st) st = tools_put_str(o, "tokenizer.ggml.pre", r->pre, &err);
    if (!st) st = tools_put_strs(o, "tokenizer.ggml.tokens", r->token, n, &err);
    if (!st) st = tools_put_i32s(o, "tokenizer.ggml.token_type", r->type, n, &err);
    if (!st) st = tools_put_strs(o, "tokenizer.ggml.merges", r->merge, r->n_merges, &err);
    return st ? app_fail(&err) : EXIT_FINE;
}

int convert_put_tokens(const convert_model *m, tools_output *o)
{
    reader r = {.m = m};
    int rc = convert_json(&r.tok, m->dir, "tokenizer.json", false);
    if (!rc) rc = convert_json(&r.conf, m->dir, "tokenizer_config.json", true);
    if (!rc) rc = convert_json(&r.gen, m->dir, "generation_config.json", true);
    if (!rc) rc = read_tokens(&r);
    if (!rc) rc = read_merges(&r);
    if (!rc) rc = choose_pre(&r);
    if (!rc) rc = put_lists(&r, o);
    if (!rc) rc = put_specials(&r, o);
    if (!rc) rc = put_template(&r, o);
    for (size_t i = 0; i < r.n_made; i++) text_free(&r.made[i]);
    free(r.made);
    free(r.token);
    free(r.type);
    free(r.merge);
    json_decref(r.tok);
    json_decref(r.conf);
    json_decref(r.gen);
    return rc;
}
