/* test_session_scores.c - the public calls that give numbers: scores, likelihood, and numbers that are none. */
#include "session_kit.h"

/* ---------------------------------------------------------------- numbers that are none */

static void nan_in_layer_1(tiny_gguf *t)
{
    float v = NAN;
    memcpy(tiny_find_tensor(t, "blk.1.ffn_down.weight")->data + 4 * 7, &v, sizeof v);
}

static void inf_in_head(tiny_gguf *t)
{
    float v = INFINITY;
    memcpy(tiny_find_tensor(t, "output.weight")->data + 4 * 7, &v, sizeof v);
}

static void test_numeric(void **state)
{
    static const struct {
        void (*change)(tiny_gguf *);
        const char *says;
    } cases[] = {{nan_in_layer_1, "layer 1"}, {inf_in_head, "scores"}};
    static const char *const names[] = {"vanilla", "llada"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tiny_opts o = small_opts();
        o.n_layer = 2;
        llada_model *m = NULL;
        llada_err err;
        if (llada_model_open(&m, write_model("nan.gguf", &o, cases[i].change), NULL, &err)) die("nan", &err);
        for (size_t n = 0; n < 2; n++) {
            llada_recipe r = recipe(names[n], "block=8");
            llada_session *s = open_session(m, &r, 64, 1);
            llada_request q = request(4, 8);
            llada_result res;
            double p;
            assert_int_equal(llada_generate(s, &q, &res, &err), LLADA_NUMERIC);
            if (!strstr(err.text, cases[i].says) || !strstr(err.text, "pass 1")) fail_msg("says: %s", err.text);
            assert_int_equal(llada_likelihood(s, some_ids, 3, some_ids, 2, 2, 0, 1, &p, &err), LLADA_NUMERIC);
            llada_session_close(&s);
        }
        llada_model_close(&m);
    }
}

/* ---------------------------------------------------------------- scores and likelihood */

/* ln p of `id` in a row of scores. */
static double log_p(const double *row, int id)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < TINY_VOCAB; i++) max = row[i] > max ? row[i] : max;
    for (int i = 0; i < TINY_VOCAB; i++) sum += exp(row[i] - max);
    return row[id] - max - log(sum);
}

/* The scores at `at` of the given tokens; guided: with the first n_prompt masked in a second pass. */
static void scores_at(llada_session *s, const int32_t *ids, int n, int at, int n_prompt, double cfg, double *row)
{
    static float cond[64 * TINY_VOCAB], un[64 * TINY_VOCAB];
    int32_t masked[64];
    llada_err err;
    if (llada_logits(s, ids, n, cond, &err)) die("logits", &err);
    for (int i = 0; i < n; i++) masked[i] = i < n_prompt ? TINY_MASK : ids[i];
    if (llada_logits(s, masked, n, un, &err)) die("logits", &err);
    for (int v = 0; v < TINY_VOCAB; v++) {
        double c = cond[at * TINY_VOCAB + v], u = un[at * TINY_VOCAB + v];
        row[v] = cfg > 0 ? u + (cfg + 1) * (c - u) : c;
    }
}

static void test_likelihood_one(void **state)
{
    llada_recipe r = recipe("parallel", "");
    llada_session *s = open_session(small, &r, 64, 1);
    llada_err err;
    double got, row[TINY_VOCAB];
    for (int p = 0; p < 12; p += 3) {
        for (int c = 0; c < 2; c++) {
            double cfg = c * 1.5;
            int32_t ids[16], id = 20 + 13 * p;
            memcpy(ids, some_ids, (size_t)p * sizeof *ids);
            ids[p] = TINY_MASK;
            scores_at(s, ids, p + 1, p, p, cfg, row);
            assert_int_equal(llada_likelihood(s, some_ids, p, &id, 1, 4, cfg, 7, &got, &err), LLADA_OK);
            if (fabs(got - log_p(row, id)) > 1e-5) fail_msg("%.9g, %.9g expected", got, log_p(row, id));
        }
    }
    assert_int_equal(llada_likelihood(s, some_ids, 3, some_ids, 0, 4, 0, 7, &got, &err), LLADA_BAD_ARG);
    assert_int_equal(llada_likelihood(s, some_ids, 3, some_ids, 2, 0, 0, 7, &got, &err), LLADA_BAD_ARG);
    assert_int_equal(llada_likelihood(s, some_ids, 3, some_ids, 2, 4, NAN, 7, &got, &err), LLADA_BAD_ARG);
    assert_int_equal(llada_likelihood(s, some_ids, 60, some_ids, 5, 4, 0, 7, &got, &err), LLADA_TOO_LONG);
    assert_int_equal(llada_likelihood(s, some_ids, 3, NULL, 2, 4, 0, 7, &got, &err), LLADA_BAD_ARG);
    int32_t bad = TINY_VOCAB;
    assert_int_equal(llada_likelihood(s, some_ids, 3, &bad, 1, 4, 0, 7, &got, &err), LLADA_BAD_ARG);
    llada_session_close(&s);
}

/* Three tokens: all seven maskings worked out, and the estimate must lie within five of its standard errors. */
static void test_likelihood_three(void **state)
{
    enum { P = 5, SAMPLES = 300 };
    llada_recipe r = recipe("parallel", "");
    llada_session *s = open_session(small, &r, 32, 1);
    const int32_t answer_ids[3] = {40, 90, 7};
    double mean = 0, var = 0, got, again, row[TINY_VOCAB];
    llada_err err;
    for (int size = 1; size <= 3; size++) {
        double sum = 0, sq = 0;
        int n = 0;
        for (int set = 1; set < 8; set++) {
            int32_t ids[P + 3];
            if ((set & 1) + (set >> 1 & 1) + (set >> 2) != size) continue;
            memcpy(ids, some_ids, P * sizeof *ids);
            for (int i = 0; i < 3; i++) ids[P + i] = set >> i & 1 ? TINY_MASK : answer_ids[i];
            double v = 0;
            for (int i = 0; i < 3; i++) {
                if (!(set >> i & 1)) continue;
                scores_at(s, ids, P + 3, P + i, P, 0, row);
                v += log_p(row, answer_ids[i]);
            }
            v *= 3.0 / size;
            sum += v;
            sq += v * v;
            n++;
        }
        mean += sum / n / 3;
        var += (sq / n - sum / n * (sum / n)) / 9 / (SAMPLES / 3.0);
    }
    assert_int_equal(llada_likelihood(s, some_ids, P, answer_ids, 3, SAMPLES, 0, 5, &got, &err), LLADA_OK);
    if (fabs(got - mean) > 5 * sqrt(var) + 1e-5) fail_msg("%.6g, %.6g +- %.2g expected", got, mean, sqrt(var));
    assert_true(var > 0);
    assert_int_equal(llada_likelihood(s, some_ids, P, answer_ids, 3, SAMPLES, 0, 5, &again, &err), LLADA_OK);
    assert_true(again == got);
    assert_int_equal(llada_likelihood(s, some_ids, P, answer_ids, 3, SAMPLES, 0, 6, &again, &err), LLADA_OK);
    assert_true(again != got);
    llada_session_close(&s);
}

static void test_logits(void **state)
{
    llada_recipe r = recipe("llada", "block=8");
    llada_session *s = open_session(small, &r, 32, 1);
    static float one[32 * TINY_VOCAB], two[32 * TINY_VOCAB];
    llada_err err;
    int32_t bad[2] = {4, -1};
    assert_int_equal(llada_logits(s, some_ids, 0, one, &err), LLADA_BAD_ARG);
    assert_int_equal(llada_logits(s, some_ids, 33, one, &err), LLADA_TOO_LONG);
    assert_int_equal(llada_logits(s, bad, 2, one, &err), LLADA_BAD_ARG);
    assert_int_equal(llada_logits(s, some_ids, 32, one, &err), LLADA_OK);
    llada_request q = request(4, 8);
    llada_result res = run(s, &q); /* leaves K,V behind, which must not matter */
    answer a = keep(&res);
    assert_int_equal(llada_logits(s, some_ids, 32, two, &err), LLADA_OK);
    assert_memory_equal(one, two, sizeof one);
    res = run(s, &q);
    same_answer(&a, &res);
    bool done;
    assert_int_equal(llada_begin(s, &q, &err), LLADA_OK);
    assert_int_equal(llada_step(s, &done, &err), LLADA_OK);
    assert_int_equal(llada_logits(s, some_ids, 3, two, &err), LLADA_BAD_ARG); /* a request is running */
    llada_session_close(&s);
    /* padding rows of the head are not handed out, and change nothing */
    tiny_opts o = small_opts();
    o.pad_rows = 20;
    llada_model *m = NULL;
    if (llada_model_open(&m, write_model("pad.gguf", &o, NULL), NULL, &err)) die("pad", &err);
    s = open_session(m, &r, 32, 1);
    memset(two, 0, sizeof two);
    assert_int_equal(llada_logits(s, some_ids, 31, two, &err), LLADA_OK);
    for (int i = 0; i < 31 * TINY_VOCAB; i++) assert_true(two[i] != 0 && isfinite(two[i]));
    assert_true(two[31 * TINY_VOCAB] == 0);
    llada_session_close(&s);
    llada_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numeric),
        cmocka_unit_test(test_likelihood_one),
        cmocka_unit_test(test_likelihood_three),
        cmocka_unit_test(test_logits),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
