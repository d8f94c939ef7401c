/* session_kit.h - what tests of sessions share: the small synthetic model, recipes by text, one run and its answer. */
#ifndef SESSION_KIT_H
#define SESSION_KIT_H

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/os.h"
#include "llada.h"
#include "scratch.h"
#include "tiny_gguf.h"

enum { N_CTX = 256, MAX_TOKENS = 600 };

static scratch files;
static llada_model *small; /* one layer, 300 tokens */
static int32_t some_ids[MAX_TOKENS];

static inline void die(const char *what, const llada_err *err) { fail_msg("%s: %s", what, err->text); }

/* Writes a model file after `change`, and its path. */
static inline const char *write_model(const char *name, const tiny_opts *o, void (*change)(tiny_gguf *))
{
    tiny_gguf *t = tiny_llada(o);
    if (change) change(t);
    tiny_save(t, scratch_path(&files, name));
    tiny_free(t);
    return scratch_path(&files, name);
}

static inline tiny_opts small_opts(void)
{
    tiny_opts o = tiny_defaults();
    o.n_layer = 1;
    o.n_embd = 32;
    o.n_head = o.n_head_kv = 2;
    o.n_ff = 32;
    return o;
}

static inline int setup(void **state)
{
    llada_err err;
    tiny_opts o = small_opts();
    for (int i = 0; i < MAX_TOKENS; i++) some_ids[i] = (i * 37 + 11) % TINY_BOS;
    if (!scratch_open(&files)) return -1;
    return llada_model_open(&small, write_model("small.gguf", &o, NULL), NULL, &err);
}

static inline int teardown(void **state)
{
    llada_model_close(&small);
    scratch_close(&files);
    return 0;
}

/* Recipe by name, then "key=value key=value". */
static inline llada_recipe recipe(const char *name, const char *settings)
{
    llada_recipe r;
    llada_err err;
    char text[256];
    if (llada_recipe_named(&r, name, &err)) die(name, &err);
    snprintf(text, sizeof text, "%s", settings);
    char *rest = NULL;
    for (char *kv = strtok_r(text, " ", &rest); kv; kv = strtok_r(NULL, " ", &rest)) {
        char *eq = strchr(kv, '=');
        assert_non_null(eq);
        *eq = 0;
        if (llada_recipe_set(&r, kv, eq + 1, &err)) die(kv, &err);
    }
    return r;
}

static inline llada_session *open_session(const llada_model *m, const llada_recipe *r, int ctx, int threads)
{
    llada_session *s = NULL;
    llada_session_opts o;
    llada_err err;
    llada_session_opts_defaults(&o);
    o.ctx = ctx;
    o.threads = threads;
    if (llada_session_open(&s, m, r, &o, &err)) die("session", &err);
    return s;
}

static inline llada_request request(int n_prompt, int max_tokens)
{
    llada_request q;
    llada_request_defaults(&q);
    q.prompt = some_ids;
    q.n_prompt = n_prompt;
    q.max_tokens = max_tokens;
    return q;
}

static inline llada_result run(llada_session *s, const llada_request *q)
{
    llada_result res;
    llada_err err;
    if (llada_generate(s, q, &res, &err)) die("generate", &err);
    for (int i = 0; i < res.n_canvas; i++) assert_true(res.canvas[i] != TINY_MASK && res.canvas[i] >= 0);
    assert_true(res.passes == 0 || res.tokens_per_pass > 0);
    return res;
}

typedef struct {
    int n, canvas;
    int32_t tokens[MAX_TOKENS];
    double conf[MAX_TOKENS];
} answer;

static inline answer keep(const llada_result *r)
{
    answer a = {.n = r->n_tokens, .canvas = r->n_canvas};
    memcpy(a.tokens, r->canvas, (size_t)r->n_canvas * sizeof *a.tokens);
    memcpy(a.conf, r->confidence, (size_t)r->n_canvas * sizeof *a.conf);
    return a;
}

static inline void same_answer(const answer *a, const llada_result *r)
{
    assert_int_equal(a->n, r->n_tokens);
    assert_int_equal(a->canvas, r->n_canvas);
    assert_memory_equal(a->tokens, r->canvas, (size_t)a->canvas * sizeof *a->tokens);
    assert_memory_equal(a->conf, r->confidence, (size_t)a->canvas * sizeof *a->conf);
}

#endif
