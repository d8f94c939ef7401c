/* test_networks.c - the network of each architecture on a small file of random weights: scores of whole passes against
 * float64 numpy (tests/ref/network.py), and that a row's bits depend on nothing but what it sees: not on which rows
 * share the pass, in which order, on how many threads, nor (mixtures of experts) on whom else an expert serves. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "device/cpu/features.h"
#include "device/device.h"
#include "model/model.h"

#define DATA     LLADA_SOURCE_DIR "/tests/golden/data/networks/networks.json"
#define FIXTURES LLADA_SOURCE_DIR "/tests/fixtures/"

enum { MAX_LEN = 40, SLOTS = MAX_LEN + 4, N_ARCHS = 4 };
static const double TOLERANCE = 2e-4; /* scores have a deviation of 4; values in the file are rounded to 5e-6 */
static const char *const files[N_ARCHS] = { "net-llada.gguf", "net-dream.gguf", "net-llada-moe.gguf",
                                            "net-llama.gguf" };

typedef struct {
    model *m;
    device_weights *w;
    int vocab;
} network;

static network open_network(const char *file)
{
    char path[512];
    network n = { 0 };
    gguf *g = NULL;
    llada_err err = { 0 };
    snprintf(path, sizeof path, FIXTURES "%s", file);
    llada_status st = gguf_open(&g, path, true, NULL, 0, &err);
    if (st == LLADA_OK) st = model_open(&n.m, g, file, NULL, &err);
    if (st == LLADA_OK) st = device_cpu.weights_open(&n.w, &n.m->g, &err);
    if (st != LLADA_OK) fail_msg("%s: %s", file, err.text);
    assert_string_equal(n.m->warn, "");
    n.vocab = n.m->g.n_vocab_rows;
    return n;
}

static void close_network(network *n)
{
    device_cpu.weights_close(&n->w);
    model_close(&n->m);
}

static device_ctx *open_ctx(const network *n, uint64_t cpu_mask, int threads)
{
    device_ctx *c = NULL;
    llada_err err = { 0 };
    const device_limits lim = { .max_rows = MAX_LEN,
                                .max_want = MAX_LEN,
                                .slots = SLOTS,
                                .max_pos = MAX_LEN,
                                .threads = threads,
                                .cpu_mask = cpu_mask };
    if (device_cpu.open(&c, n->w, &lim, &err) != LLADA_OK) fail_msg("%s", err.text);
    return c;
}

/* Rows at pos[0..n) of a canvas of n_all tokens, position p in slot p; scores into out by position. */
static void run_rows(const network *net, device_ctx *c, const int32_t *canvas, int n_all, const int32_t *pos, int n,
                     float *out)
{
    int32_t count[SLOTS], token[MAX_LEN];
    uint8_t group[MAX_LEN] = { 0 };
    float *scores = malloc((size_t)n * (size_t)net->vocab * sizeof *scores);
    llada_err err = { 0 };
    assert_non_null(scores);
    for (int i = 0; i < SLOTS; i++) count[i] = i;
    for (int i = 0; i < n; i++) token[i] = canvas[pos[i]];
    const pass p = { .n = n,
                     .pos = pos,
                     .token = token,
                     .slot = pos,
                     .group = group,
                     .cols = { { count, count, n_all } },
                     .n_want = n,
                     .want = count,
                     .logits = scores };
    if (device_cpu.run(c, &p, &err) != LLADA_OK) fail_msg("%s", err.text);
    for (int i = 0; i < n; i++)
        memcpy(out + (size_t)pos[i] * (size_t)net->vocab, scores + (size_t)i * (size_t)net->vocab,
               (size_t)net->vocab * sizeof *out);
    free(scores);
}

static void run_all(const network *net, device_ctx *c, const int32_t *canvas, int n, float *out)
{
    int32_t pos[MAX_LEN];
    for (int i = 0; i < n; i++) pos[i] = i;
    run_rows(net, c, canvas, n, pos, n, out);
}

static float *new_scores(const network *net)
{
    float *p = calloc(MAX_LEN * (size_t)net->vocab, sizeof *p);
    assert_non_null(p);
    return p;
}

static void random_canvas(const network *net, rng *r, int32_t *canvas)
{
    for (int i = 0; i < MAX_LEN; i++)
        canvas[i] = net->m->mask >= 0 && i % 3 == 0 ? net->m->mask : (int32_t)rng_below(r, (uint64_t)net->m->n_vocab);
}

/* ------------------------------------------------------------ golden values */

static void check_rows(const network *net, uint64_t cpu_mask, const json_t *entry)
{
    int32_t ids[MAX_LEN];
    int n = (int)json_array_size(json_object_get(entry, "ids")), checked = 0;
    const char *key;
    json_t *row, *v;
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(json_object_get(entry, "ids"), (size_t)i));
    device_ctx *c = open_ctx(net, cpu_mask, 2);
    float *out = new_scores(net);
    run_all(net, c, ids, n, out);
    json_object_foreach(json_object_get(entry, "rows"), key, row)
    {
        size_t i;
        const float *x = out + strtoul(key, NULL, 10) * (size_t)net->vocab;
        assert_int_equal(json_array_size(row), net->vocab);
        json_array_foreach(row, i, v)
        {
            if (!(fabs(x[i] - json_number_value(v)) < TOLERANCE))
                fail_msg("%s, features %llx, row %s: score of token %zu is %g, not %g", net->m->arch->name,
                         (unsigned long long)cpu_mask, key, i, (double)x[i], json_number_value(v));
        }
        checked++;
    }
    assert_int_equal(checked, 4);
    free(out);
    device_cpu.close(&c);
}

/* From no features at all upward, one more at a time. */
static void scores_of_whole_passes(void **state)
{
    json_error_t e;
    json_t *all = json_load_file(DATA, 0, &e), *entry;
    if (!all) fail_msg("%s: %s", DATA, e.text);
    uint64_t found;
    size_t n, i;
    cpu_features(&n, &found);
    assert_int_equal(json_array_size(all), N_ARCHS);
    json_array_foreach(all, i, entry)
    {
        network net = open_network(json_string_value(json_object_get(entry, "model")));
        check_rows(&net, 0, entry);
        for (size_t k = 0; k < n; k++)
            if (found >> k & 1) check_rows(&net, found & ((2ull << k) - 1), entry);
        close_network(&net);
    }
    json_decref(all);
}

/* ------------------------------------------------------------ rows by themselves */

static void same_rows(const network *net, const float *a, const float *b, const int32_t *pos, int n, const char *what)
{
    for (int i = 0; i < n; i++) {
        size_t at = (size_t)pos[i] * (size_t)net->vocab;
        if (memcmp(a + at, b + at, (size_t)net->vocab * sizeof *a) != 0)
            fail_msg("%s, %s: the row of position %d has other bits", net->m->arch->name, what, (int)pos[i]);
    }
}

/* After a full pass, any rows in any order give its bits again; so does any number of threads. */
static void rows_are_independent(void **state)
{
    for (int a = 0; a < N_ARCHS; a++) {
        network net = open_network(files[a]);
        float *full = new_scores(&net), *part = new_scores(&net);
        for (int k = 0; k < 4; k++) {
            device_ctx *c = open_ctx(&net, k == 3 ? 0 : ~0ull, 1 + k % 3);
            rng r;
            int32_t canvas[MAX_LEN], pos[MAX_LEN];
            rng_seed(&r, (uint64_t)k / 3);
            random_canvas(&net, &r, canvas);
            for (int i = 0; i < MAX_LEN; i++) pos[i] = i;
            float *out = k == 0 || k == 3 ? full : part;
            run_all(&net, c, canvas, MAX_LEN, out);
            if (out == part) same_rows(&net, full, part, pos, MAX_LEN, "other threads");
            for (int t = 0; t < 12; t++) {
                for (int i = MAX_LEN - 1; i > 0; i--) { /* shuffled */
                    int j = (int)rng_below(&r, (uint64_t)i + 1), swap = pos[i];
                    pos[i] = pos[j];
                    pos[j] = swap;
                }
                int n = t == 0 ? MAX_LEN : 1 + (int)rng_below(&r, MAX_LEN);
                memset(part, 0, MAX_LEN * (size_t)net.vocab * sizeof *part);
                run_rows(&net, c, canvas, MAX_LEN, pos, n, part);
                same_rows(&net, full, part, pos, n, "some rows");
            }
            device_cpu.close(&c);
        }
        free(full);
        free(part);
        close_network(&net);
    }
}

/* What stands behind a row of an autoregressive network does not exist for it: passes token by token, passes over
 * pieces, one pass, and one with other tokens behind all give the same bits. */
static void causal_rows_see_no_future(void **state)
{
    network net = open_network("net-llama.gguf");
    float *full = new_scores(&net), *part = new_scores(&net);
    device_ctx *c = open_ctx(&net, ~0ull, 2);
    rng r;
    int32_t canvas[MAX_LEN], pos[MAX_LEN];
    assert_true(net.m->arch->causal);
    rng_seed(&r, 5);
    random_canvas(&net, &r, canvas);
    for (int i = 0; i < MAX_LEN; i++) pos[i] = i;
    run_all(&net, c, canvas, MAX_LEN, full);
    for (int step = 1; step < 20; step += 6) {
        device_cpu.close(&c);
        c = open_ctx(&net, ~0ull, 1); /* an empty cache */
        for (int i = 0; i < MAX_LEN; i += step) {
            int n = MAX_LEN - i < step ? MAX_LEN - i : step;
            run_rows(&net, c, canvas, i + n, pos + i, n, part);
        }
        same_rows(&net, full, part, pos, MAX_LEN, "in pieces");
    }
    for (int i = 20; i < MAX_LEN; i++) canvas[i] = (canvas[i] + 1) % net.m->n_vocab;
    run_all(&net, c, canvas, MAX_LEN, part);
    same_rows(&net, full, part, pos, 20, "another future");
    size_t at = 20 * (size_t)net.vocab;
    assert_memory_not_equal(full + at, part + at, (size_t)net.vocab * sizeof *full);
    free(full);
    free(part);
    device_cpu.close(&c);
    close_network(&net);
}

/* ------------------------------------------------------------ a row that another stands in for */

/* A mask at position i in a spare slot, and the row before it, which sees that mask in place of the token: named by
 * `instead`, or by a column list of its own. */
static void look_behind(const network *net, device_ctx *c, const int32_t *canvas, int i, bool named, float *out)
{
    int32_t cols[2][MAX_LEN], all_pos[MAX_LEN];
    for (int k = 0; k < MAX_LEN; k++) all_pos[k] = cols[0][k] = cols[1][k] = k;
    const int32_t pos[] = { i, i - 1 }, token[] = { net->m->mask, canvas[i - 1] }, slot[] = { MAX_LEN, MAX_LEN + 1 };
    const int32_t want[] = { 0, 1 }, instead[] = { -1, 0 };
    const uint8_t group[] = { 0, !named };
    llada_err err = { 0 };
    cols[1][i] = MAX_LEN;
    const pass p = { .n = 2,
                     .pos = pos,
                     .token = token,
                     .slot = slot,
                     .group = group,
                     .instead = named ? instead : NULL,
                     .cols = { { cols[0], all_pos, MAX_LEN }, { cols[1], all_pos, named ? 0 : MAX_LEN } },
                     .n_want = 2,
                     .want = want,
                     .logits = out };
    if (device_cpu.run(c, &p, &err) != LLADA_OK) fail_msg("%s", err.text);
}

static void rows_stand_in(void **state)
{
    for (int a = 0; a < 3; a++) { /* those with masks */
        network net = open_network(files[a]);
        device_ctx *c = open_ctx(&net, ~0ull, 2);
        float *full = new_scores(&net), *one = new_scores(&net), *two = new_scores(&net);
        rng r;
        int32_t canvas[MAX_LEN];
        rng_seed(&r, 9);
        random_canvas(&net, &r, canvas);
        run_all(&net, c, canvas, MAX_LEN, full);
        for (int i = 1; i < MAX_LEN; i++) {
            size_t row = (size_t)net.vocab, bytes = row * sizeof *one;
            look_behind(&net, c, canvas, i, true, one);
            look_behind(&net, c, canvas, i, false, two);
            assert_memory_equal(one, two, 2 * bytes);
            if (canvas[i] == net.m->mask) /* a mask seen as the mask it is */
                assert_memory_equal(one + row, full + (size_t)(i - 1) * row, bytes);
            else
                assert_memory_not_equal(one + row, full + (size_t)(i - 1) * row, bytes);
        }
        free(full);
        free(one);
        free(two);
        device_cpu.close(&c);
        close_network(&net);
    }
}

static void wrong_stand_ins_are_refused(void **state)
{
    network net = open_network("net-dream.gguf");
    device_ctx *c = open_ctx(&net, ~0ull, 1);
    static const int32_t wrong[] = { 2, -2, 1 << 30 };
    const int32_t pos[] = { 0, 1 }, token[] = { 1, 2 };
    const uint8_t group[] = { 0, 0 };
    for (int i = 0; i < 3; i++) {
        const int32_t instead[] = { -1, wrong[i] };
        const pass p = { .n = 2,
                         .pos = pos,
                         .token = token,
                         .slot = pos,
                         .group = group,
                         .instead = instead,
                         .cols = { { pos, pos, 2 } } };
        llada_err err = { 0 };
        assert_int_equal(device_cpu.run(c, &p, &err), LLADA_BAD_ARG);
        assert_non_null(strstr(err.text, "row 1 is to see row"));
    }
    device_cpu.close(&c);
    close_network(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_of_whole_passes),      cmocka_unit_test(rows_are_independent),
        cmocka_unit_test(causal_rows_see_no_future),   cmocka_unit_test(rows_stand_in),
        cmocka_unit_test(wrong_stand_ins_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
