/* test_forward.c - the network against scores of an independent implementation (float32): full passes over all-mask and
 * half-filled canvases on every instruction set of this machine, and passes over a few rows with everything else
 * cached, which must give the very bits of the full pass. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/features.h"
#include "device/npu/npu.h"
#include "model/model.h"

#define SOURCE(path) LLADA_SOURCE_DIR "/tests/" path

enum { N_FILES = 3, MAX_LEN = 256, FIRST = 16 };
static const double TOLERANCE = 2e-4; /* of a score; rounding in the files is 5e-6, and 2e-5 was the most seen */
static const char *const canvases[] = { "all_mask", "half" };

/* ------------------------------------------------------------ a model, and a context to run it in */

typedef struct {
    model *m;
    const device *dev;
    device_weights *w;
    double tolerance; /* of a score */
} fixture;

static int open_model(void **state)
{
    static fixture f;
    gguf *g = NULL;
    llada_err err = { 0 };
    llada_status st = gguf_open(&g, SOURCE("fixtures/tiny-llada-f32.gguf"), true, NULL, 0, &err);
    if (st == LLADA_OK) st = model_open(&f.m, g, "small", NULL, &err);
    f.dev = &device_cpu;
    f.tolerance = TOLERANCE;
    if (st == LLADA_OK) st = f.dev->weights_open(&f.w, &f.m->g, &err);
    if (st != LLADA_OK) print_error("%s\n", err.text);
    *state = &f;
    return st != LLADA_OK;
}

static int close_model(void **state)
{
    fixture *f = *state;
    f->dev->weights_close(&f->w);
    model_close(&f->m);
    return 0;
}

static device_ctx *open_ctx(const fixture *f, uint64_t cpu_mask, int threads)
{
    device_ctx *c = NULL;
    llada_err err = { 0 };
    const device_limits lim = { .max_rows = MAX_LEN,
                                .max_want = MAX_LEN,
                                .slots = MAX_LEN,
                                .max_pos = MAX_LEN,
                                .threads = threads,
                                .cpu_mask = cpu_mask };
    if (f->dev->open(&c, f->w, &lim, &err) != LLADA_OK) fail_msg("%s", err.text);
    return c;
}

/* ------------------------------------------------------------ passes */

/* A canvas and what a pass over rows [first, first + n) of it gives: position p lies in slot p and all n_tokens are
 * seen; every row is scored. */
typedef struct {
    int32_t token[MAX_LEN];
    int n_tokens;
    int vocab;
    float *logits; /* [MAX_LEN][vocab], by position */
    score scores[MAX_LEN];
} canvas;

static void run_rows(const fixture *f, device_ctx *c, canvas *x, int first, int n)
{
    int32_t count[MAX_LEN];
    uint8_t group[MAX_LEN] = { 0 };
    score_ask ask[MAX_LEN] = { { 0 } };
    const score_how how = { .n_vocab = x->vocab, .top_p = 1 };
    for (int i = 0; i < MAX_LEN; i++) count[i] = i;
    const pass p = { .n = n,
                     .pos = count + first,
                     .token = x->token + first,
                     .slot = count + first,
                     .group = group,
                     .cols = { { count, count, x->n_tokens } },
                     .n_want = n,
                     .want = count,
                     .how = &how,
                     .ask = ask,
                     .out = x->scores + first,
                     .logits = x->logits + (size_t)first * (size_t)x->vocab };
    llada_err err = { 0 };
    if (f->dev->run(c, &p, &err) != LLADA_OK) fail_msg("%s", err.text);
}

static void add_tokens(canvas *x, const json_t *ids)
{
    size_t i;
    json_t *id;
    json_array_foreach(ids, i, id)
    {
        assert_in_range(x->n_tokens, 0, MAX_LEN - 1);
        x->token[x->n_tokens++] = (int32_t)json_integer_value(id);
    }
}

static void fill_canvas(canvas *x, const fixture *f, const json_t *file, const char *which)
{
    x->n_tokens = 0;
    x->vocab = f->m->g.n_vocab_rows;
    add_tokens(x, json_object_get(file, "prompt_ids"));
    add_tokens(x, json_object_get(json_object_get(json_object_get(file, "forward"), which), "gen_ids"));
    assert_true(x->n_tokens > 128);
}

static json_t *load(int number)
{
    char path[512];
    json_error_t e;
    snprintf(path, sizeof path, SOURCE("golden/data/tiny-llada-%d.json"), number);
    json_t *file = json_load_file(path, 0, &e);
    if (!file) fail_msg("%s: %s", path, e.text);
    return file;
}

/* ------------------------------------------------------------ the golden values */

static double number(const json_t *o, const char *key)
{
    assert_true(json_is_number(json_object_get(o, key)));
    return json_number_value(json_object_get(o, key));
}

static void check_row(const fixture *f, const canvas *x, const json_t *row, const char *where)
{
    int pos = (int)number(row, "pos");
    const float *lg = x->logits + (size_t)pos * (size_t)x->vocab;
    const score *s = &x->scores[pos];
    const json_t *first = json_object_get(row, "first16");
    assert_int_equal(json_array_size(first), FIRST);
    for (size_t i = 0; i < FIRST; i++) {
        double want = json_number_value(json_array_get(first, i));
        if (!(fabs(lg[i] - want) < f->tolerance))
            fail_msg("%s, position %d: score of token %zu is %g, not %g", where, pos, i, (double)lg[i], want);
    }
    double max = number(row, "max"), lse = number(row, "logsumexp");
    if (s->token != (int)number(row, "argmax") || s->bad)
        fail_msg("%s, position %d: token %d is highest, not %d", where, pos, (int)s->token, (int)number(row, "argmax"));
    if (!(fabs(lg[s->token] - max) < f->tolerance) || !(fabs(s->lse - lse) < f->tolerance))
        fail_msg("%s, position %d: max %g, not %g; log-sum-exp %g, not %g", where, pos, (double)lg[s->token], max,
                 s->lse, lse);
    if (!(fabs(s->p - exp(max - lse)) < f->tolerance))
        fail_msg("%s, position %d: confidence %g, not %g", where, pos, s->p, exp(max - lse));
}

/* Both canvases of the first n files with a context of these features and threads. */
static void check_files(const fixture *f, int n_files, uint64_t cpu_mask, int threads)
{
    device_ctx *c = open_ctx(f, cpu_mask, threads);
    canvas x;
    x.logits = malloc((size_t)MAX_LEN * (size_t)f->m->g.n_vocab_rows * sizeof(float));
    assert_non_null(x.logits);
    for (int i = 0; i < n_files * 2; i++) {
        json_t *file = load(i / 2), *row;
        char where[64];
        snprintf(where, sizeof where, "tiny-llada-%d, %s, features %llx", i / 2, canvases[i % 2],
                 (unsigned long long)cpu_mask);
        fill_canvas(&x, f, file, canvases[i % 2]);
        run_rows(f, c, &x, 0, x.n_tokens);
        json_t *rows = json_object_get(json_object_get(json_object_get(file, "forward"), canvases[i % 2]), "rows");
        size_t k;
        assert_true(json_array_size(rows) >= 10);
        json_array_foreach(rows, k, row) check_row(f, &x, row, where);
        json_decref(file);
    }
    free(x.logits);
    f->dev->close(&c);
}

/* From no features at all (slow: one file) upward, one more at a time. */
static void full_passes(void **state)
{
    uint64_t found;
    size_t n;
    cpu_features(&n, &found);
    check_files(*state, found ? 1 : N_FILES, 0, 1);
    for (size_t i = 0; i < n; i++) {
        if (found >> i & 1) check_files(*state, N_FILES, found & ((2ull << i) - 1), 2);
    }
}

/* ------------------------------------------------------------ cached rows */

static void same_bits(const canvas *a, const canvas *b, int first, int n, const char *what)
{
    for (int p = first; p < first + n; p++) {
        size_t at = (size_t)p * (size_t)a->vocab;
        if (memcmp(a->logits + at, b->logits + at, (size_t)a->vocab * sizeof(float)) != 0 ||
            a->scores[p].token != b->scores[p].token || a->scores[p].p != b->scores[p].p)
            fail_msg("%s: position %d differs from the full pass", what, p);
    }
}

/* After a full pass, rows computed alone against the cache get exactly its scores; so does a second full pass. */
static void cached_rows(void **state)
{
    const fixture *f = *state;
    const struct {
        int first, n; /* first: from the end of the prompt */
    } runs[] = {
        { 0, 1 }, { 0, 32 }, { 7, 3 }, { 32, 32 }, { 96, 32 }, { 127, 1 }, { -20, 30 }, { 5, 17 }, { -27, 155 }
    };
    uint64_t found;
    size_t n_names, bytes = (size_t)MAX_LEN * (size_t)f->m->g.n_vocab_rows * sizeof(float);
    canvas full, part;
    cpu_features(&n_names, &found);
    full.logits = malloc(bytes);
    part.logits = malloc(bytes);
    assert_true(full.logits && part.logits);
    for (int mask = 0; mask < 2; mask++) {
        device_ctx *c = open_ctx(f, mask ? found : 0, 1 + mask);
        json_t *file = load(2);
        int prompt = (int)json_array_size(json_object_get(file, "prompt_ids"));
        fill_canvas(&full, f, file, "half");
        memcpy(part.token, full.token, sizeof part.token);
        part.n_tokens = full.n_tokens;
        part.vocab = full.vocab;
        run_rows(f, c, &full, 0, full.n_tokens);
        size_t n_runs = sizeof runs / sizeof *runs - !mask; /* the long one is slow without features */
        for (size_t i = 0; i < n_runs; i++) {
            char what[64];
            snprintf(what, sizeof what, "%d rows from %d, features %d", runs[i].n, runs[i].first, mask);
            memset(part.logits, 0, bytes);
            run_rows(f, c, &part, prompt + runs[i].first, runs[i].n);
            same_bits(&full, &part, prompt + runs[i].first, runs[i].n, what);
        }
        json_decref(file);
        f->dev->close(&c);
    }
    free(full.logits);
    free(part.logits);
}

/* A changed token does change what cached rows see once it has been computed. */
static void cached_rows_depend(void **state)
{
    const fixture *f = *state;
    size_t row = (size_t)f->m->g.n_vocab_rows, bytes = MAX_LEN * row * sizeof(float);
    device_ctx *c = open_ctx(f, ~0ull, 2);
    canvas x;
    x.logits = malloc(bytes);
    float *before = malloc(bytes);
    assert_true(x.logits && before);
    json_t *file = load(0);
    int prompt = (int)json_array_size(json_object_get(file, "prompt_ids"));
    fill_canvas(&x, f, file, "half");
    run_rows(f, c, &x, 0, x.n_tokens);
    memcpy(before, x.logits, bytes);
    x.token[prompt] = f->m->mask;
    run_rows(f, c, &x, prompt, 1);
    run_rows(f, c, &x, prompt + 1, 1);
    size_t at = (size_t)(prompt + 1) * row;
    assert_memory_not_equal(before + at, x.logits + at, row * sizeof(float));
    json_decref(file);
    free(before);
    free(x.logits);
    f->dev->close(&c);
}

/* Half floats between all operators, 11 bits each: scores of up to 30 are off by a hundredth (0.02 was the most
 * seen); the highest of each row is the same. */
static void half_floats_of_the_npu(void **state)
{
    fixture f = *(fixture *)*state;
    llada_err err = { 0 };
    f.dev = &device_npu;
    f.tolerance = 0.03;
    if (npu_weights_open(&f.w, &f.m->g, &(npu_settings){ .transport = "inproc" }, &err)) fail_msg("%s", err.text);
    check_files(&f, 2, ~(uint64_t)0, 1);
    assert_true(npu_serves(f.w));
    f.dev->weights_close(&f.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_passes),
        cmocka_unit_test(cached_rows),
        cmocka_unit_test(cached_rows_depend),
        cmocka_unit_test(half_floats_of_the_npu),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
