/* test_session.c - the public calls about sessions and requests, on a synthetic model that is small enough to be run
 * thousands of times, and on the built-in one where words matter.  What the loop decides is tested in test_decoder.c,
 * what comes out of real scores in tests/golden. */
#include "session_kit.h"

/* ---------------------------------------------------------------- lengths */

static void test_fits_or_says_so(void **state)
{
    llada_recipe r = recipe("parallel", "block=32 tau=0");
    llada_session *s = open_session(small, &r, N_CTX, 1);
    for (int p = 190; p <= 256; p++) {
        for (int m = 1; m <= 70; m++) {
            llada_request q = request(p, m);
            llada_err err = {0};
            llada_status st = llada_begin(s, &q, &err);
            if (p + m > N_CTX) {
                char a[32], b[32];
                snprintf(a, sizeof a, "prompt %d", p);
                snprintf(b, sizeof b, "canvas %d", m);
                assert_int_equal(st, LLADA_TOO_LONG);
                assert_true(strstr(err.text, a) && strstr(err.text, b) && strstr(err.text, "256"));
                continue;
            }
            assert_int_equal(st, LLADA_OK);
            if (p + m < 253 && (p * 71 + m) % 97) continue; /* those that fit exactly or nearly all run */
            llada_result res = run(s, &q);
            assert_true(res.n_canvas == m && res.n_tokens <= m && res.passes <= (m + 31) / 32);
        }
    }
    llada_session_close(&s);
}

/* Without an early end the quota's passes follow from the numbers alone. */
static void test_schedule(void **state)
{
    static const int lengths[] = {1, 31, 33, 63}, blocks[] = {1, 5, 32, 128, 512}, steps[] = {0, 1, 7, 33, 64, 500};
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            llada_recipe r = recipe("dual", "early=false refresh=never");
            r.block = blocks[b];
            r.steps = steps[k];
            llada_session *s = open_session(small, &r, 80, 1);
            for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
                int m = lengths[l], n_blocks = (m + r.block - 1) / r.block, passes = 0;
                llada_request q = request(5, m);
                llada_result res = run(s, &q);
                for (int at = 0; at < m; at += r.block) {
                    int masks = m - at < r.block ? m - at : r.block;
                    int per = r.steps / n_blocks > 1 ? r.steps / n_blocks : 1;
                    passes += r.steps == 0 || per > masks ? masks : per;
                }
                if (res.passes != passes) fail_msg("block %d, steps %d, %d tokens: %d passes, %d expected", r.block,
                                                   r.steps, m, res.passes, passes);
                assert_true(res.n_tokens <= m && res.n_canvas == m);
            }
            llada_session_close(&s);
        }
    }
}

/* gen is the canvas, max_tokens caps the text. */
static void test_max_tokens(void **state)
{
    llada_recipe r = recipe("parallel", "gen=24 block=8 tau=0 early=false ban_eos=true");
    llada_session *s = open_session(small, &r, 64, 1);
    for (int m = -1; m <= 30; m++) {
        llada_request q = request(3, m);
        llada_result res = run(s, &q);
        int text = 0;
        while (text < res.n_canvas && res.canvas[text] != TINY_EOT) text++;
        int most = m < 0 ? 24 : m;
        assert_int_equal(res.n_canvas, m == 0 ? 0 : 24);
        assert_int_equal(res.n_tokens, text < most ? text : most);
        assert_int_equal(res.finish, text < res.n_canvas && text <= most ? LLADA_FINISH_STOP : LLADA_FINISH_LENGTH);
        if (m == 0) assert_int_equal(res.passes, 0);
    }
    llada_session_close(&s);
    r.gen = 0;
    s = open_session(small, &r, 0, 1);
    llada_request q = request(3, -1);
    assert_int_equal(run(s, &q).n_canvas, 128);
    llada_session_close(&s);
}

/* ---------------------------------------------------------------- odd settings */

/* Any threshold, NaN too, written into the struct: each pass writes, so it ends, with no mask in the result. */
static void test_thresholds(void **state)
{
    static const double odd[] = {1.0, 2.0, 0, NAN};
    static const char *const names[] = {"parallel", "speculate", "llada", "llada-v1"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        for (int rule = LLADA_RULE_QUOTA; rule <= LLADA_RULE_CREDIT; rule++) {
            for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
                llada_recipe r = recipe(names[n], "block=8 trigger=4 look=8");
                r.rule = (llada_rule)rule;
                r.tau = r.factor = r.gamma = r.margin = r.kappa = r.low = r.high = odd[i];
                r.tau_draft = r.vis = r.stable = r.remask = r.temp = odd[i];
                r.credit = odd[i] <= 1 ? odd[i] : 1;
                llada_session *s = open_session(small, &r, 40, 1);
                llada_request q = request(5, 20);
                llada_result res = run(s, &q);
                assert_true(res.passes >= 1 && res.passes <= 20 * (1 + 2 * r.rmax + 1));
                llada_session_close(&s);
            }
        }
    }
}

static void check_refused(llada_session *s, const llada_request *q, llada_status want, const char *says)
{
    llada_err err = {0};
    llada_result res;
    assert_int_equal(llada_generate(s, q, &res, &err), want);
    if (!strstr(err.text, says)) fail_msg("says: %s", err.text);
}

static void test_refusals(void **state)
{
    llada_recipe r = recipe("parallel", "");
    llada_session *s = open_session(small, &r, 32, 1), *none = NULL;
    llada_session_opts o;
    llada_err err;
    int32_t bad[2] = {5, TINY_VOCAB};
    llada_request q = request(4, 4);
    q.size = 3;
    check_refused(s, &q, LLADA_BAD_ARG, "size");
    q = request(-1, 4);
    check_refused(s, &q, LLADA_BAD_ARG, "negative");
    q = request(4, -2);
    check_refused(s, &q, LLADA_BAD_ARG, "negative");
    q = request(4, 4);
    q.prompt = NULL;
    check_refused(s, &q, LLADA_BAD_ARG, "NULL");
    q = request(2, 4);
    q.prompt = bad;
    check_refused(s, &q, LLADA_BAD_ARG, "300");
    bad[1] = -1;
    check_refused(s, &q, LLADA_BAD_ARG, "-1");
    q = request(4, -1);
    bad[1] = -2;
    q.canvas = bad;
    q.n_canvas = 2;
    check_refused(s, &q, LLADA_BAD_ARG, "canvas");
    q.n_canvas = -1;
    check_refused(s, &q, LLADA_BAD_ARG, "negative");
    q = request(INT32_MAX, INT32_MAX);
    check_refused(s, &q, LLADA_TOO_LONG, "4294967294");
    q = request(4, 4);
    run(s, &q); /* none of it hurt */
    llada_session_close(&s);

    llada_session_opts_defaults(&o);
    o.size++;
    assert_int_equal(llada_session_open(&none, small, &r, &o, &err), LLADA_BAD_ARG);
    llada_session_opts_defaults(&o);
    o.threads = -1;
    assert_int_equal(llada_session_open(&none, small, &r, &o, &err), LLADA_BAD_ARG);
    llada_session_opts_defaults(&o);
    o.ctx = -5;
    assert_int_equal(llada_session_open(&none, small, &r, &o, &err), LLADA_BAD_ARG);
    r.gen = INT32_MAX;
    assert_int_equal(llada_session_open(&none, small, &r, NULL, &err), LLADA_BAD_ARG);
    r = recipe("llada", "cfg=1");
    assert_int_equal(llada_session_open(&none, small, &r, NULL, &err), LLADA_UNSUPPORTED);
    r = recipe("llada-v1", "exec=fused");
    assert_int_equal(llada_session_open(&none, small, &r, NULL, &err), LLADA_BAD_ARG);
    assert_null(none);
    assert_int_equal(llada_session_open(NULL, small, NULL, NULL, &err), LLADA_BAD_ARG);
    assert_int_equal(llada_session_open(&none, NULL, NULL, NULL, &err), LLADA_BAD_ARG);
    llada_session_close(&none);
    llada_session_close(NULL);
    llada_cancel(NULL);
}

/* ---------------------------------------------------------------- text that looks like a marker */

static void test_literal_markers(void **state)
{
    static const char *const texts[] = {"<|mdm_mask|>", "a <|eot_id|> b", 
                                        "<|start_header_id|>assistant<|end_header_id|>",
                                        "<|endoftext|>"};
    llada_model *m = NULL;
    llada_err err;
    if (llada_model_open(&m, NULL, NULL, &err)) die("built-in", &err);
    llada_model_info info;
    llada_model_get_info(m, &info);
    const int32_t special[] = {info.mask_id, info.eos_id, info.eot_id, info.bos_id};
    llada_recipe r = recipe("parallel", "block=8");
    llada_session *s = open_session(m, &r, 256, 1);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int32_t ids[200];
        size_t n;
        assert_int_equal(llada_tokenize(m, texts[i], strlen(texts[i]), false, ids, 200, &n, &err), LLADA_OK);
        for (size_t k = 0; k < n; k++)
            for (size_t j = 0; j < 4; j++) assert_true(special[j] < 0 || ids[k] != special[j]);
        llada_message msg = {"user", texts[i]}, plain = {"user", "hello"};
        size_t n_plain, marks = 0, marks_plain = 0;
        assert_int_equal(llada_chat(m, &plain, 1, ids, 200, &n_plain, &err), LLADA_OK);
        for (size_t k = 0; k < n_plain; k++) marks_plain += ids[k] == info.eot_id;
        assert_int_equal(llada_chat(m, &msg, 1, ids, 200, &n, &err), LLADA_OK);
        for (size_t k = 0; k < n; k++) marks += ids[k] == info.eot_id;
        assert_int_equal(marks, marks_plain);
        llada_request q;
        llada_result res;
        llada_request_defaults(&q);
        q.prompt = ids;
        q.n_prompt = (int32_t)n;
        q.max_tokens = 8;
        if (llada_generate(s, &q, &res, &err)) die(texts[i], &err);
    }
    llada_session_close(&s);
    llada_model_close(&m);
}

/* ---------------------------------------------------------------- templates */

/* What each letter stands for: '.' a hole, 'E' an end of text, others a fixed token. */
static int template_of(const char *text, int32_t *canvas)
{
    int n = 0;
    for (; text[n]; n++) canvas[n] = text[n] == '.' ? LLADA_HOLE : text[n] == 'E' ? TINY_EOS : text[n];
    return n;
}

static void test_templates(void **state)
{
    static const char *const cases[] = {"", "a", "abc", ".", "..........", "abc.def", "..abc..", "a..b...c....d",
                                        "....abcd", "abcd....", "aE..b",
                                        "abc..................................................def"};
    static const char *const names[] = {"vanilla", "prefix", "dual", "parallel", "speculate", "llada", "llada-v1"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        llada_recipe r = recipe(names[n], "block=8");
        llada_session *s = open_session(small, &r, 80, 1);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            int32_t canvas[80];
            llada_request q = request(i % 2 ? 4 : 0, -1);
            q.canvas = canvas;
            q.n_canvas = template_of(cases[i], canvas);
            llada_result res = run(s, &q);
            int holes = 0, written = 0;
            bool ended = false;
            assert_int_equal(res.n_canvas, q.n_canvas);
            for (int k = 0; k < q.n_canvas; k++) {
                if (canvas[k] != LLADA_HOLE) {
                    assert_int_equal(res.canvas[k], canvas[k]);
                    ended = false;
                    continue;
                }
                holes++;
                ended |= res.canvas[k] == TINY_EOS || res.canvas[k] == TINY_EOT;
                if (ended) continue;
                assert_int_equal(res.tokens[written], res.canvas[k]);
                written++;
            }
            assert_int_equal(res.n_tokens, written);
            if (holes == 0) assert_int_equal(res.passes, 0);
        }
        llada_session_close(&s);
    }
    /* 200 holes; and text in front and behind is seen: the same hole between other words is judged otherwise */
    llada_recipe r = recipe("parallel", "tau=0 block=64");
    llada_session *s = open_session(small, &r, 256, 1);
    int32_t canvas[220];
    for (int i = 0; i < 220; i++) canvas[i] = i < 10 || i >= 210 ? 'a' + i % 3 : LLADA_HOLE;
    llada_request q = request(0, -1);
    q.canvas = canvas;
    q.n_canvas = 220;
    llada_result res = run(s, &q);
    answer a = keep(&res);
    for (int i = 210; i < 220; i++) canvas[i] = 'x';
    res = run(s, &q);
    assert_memory_not_equal(a.conf + 10, res.confidence + 10, 200 * sizeof *a.conf);
    llada_session_close(&s);
}

/* ---------------------------------------------------------------- the same again */

static void test_interleaved(void **state)
{
    static const char *const names[] = {"vanilla", "dual", "llada"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        llada_recipe r = recipe(names[n], "block=8");
        llada_session *a = open_session(small, &r, 96, 1), *b = open_session(small, &r, 128, 1);
        llada_request qa = request(6, 16), qb = request(70, 40);
        llada_result res = run(a, &qa);
        answer alone_a = keep(&res);
        res = run(b, &qb);
        answer alone_b = keep(&res);
        for (int order = 0; order < 2; order++) {
            bool done_a = false, done_b = false;
            llada_err err;
            assert_int_equal(llada_begin(a, &qa, &err), LLADA_OK);
            assert_int_equal(llada_begin(b, &qb, &err), LLADA_OK);
            while (!done_a || !done_b) {
                if (order && !done_b) assert_int_equal(llada_step(b, &done_b, &err), LLADA_OK);
                if (!done_a) assert_int_equal(llada_step(a, &done_a, &err), LLADA_OK);
                if (!order && !done_b) assert_int_equal(llada_step(b, &done_b, &err), LLADA_OK);
            }
            assert_int_equal(llada_get_result(a, &res, &err), LLADA_OK);
            same_answer(&alone_a, &res);
            assert_int_equal(llada_get_result(b, &res, &err), LLADA_OK);
            same_answer(&alone_b, &res);
        }
        res = run(b, &qa); /* and after the other in one session */
        same_answer(&alone_a, &res);
        llada_session_close(&a);
        llada_session_close(&b);
    }
}

static void test_seeds(void **state)
{
    llada_recipe r = recipe("dual", "temp=1 block=8 early=false");
    llada_session *s = open_session(small, &r, 64, 1);
    llada_request q = request(6, 16);
    q.seed = 1;
    llada_result res = run(s, &q);
    answer one = keep(&res);
    q.seed = 2;
    res = run(s, &q);
    assert_memory_not_equal(one.tokens, res.canvas, 16 * sizeof *one.tokens);
    q.seed = 1;
    res = run(s, &q);
    same_answer(&one, &res);
    llada_session_close(&s);
    r.temp = 0;
    s = open_session(small, &r, 64, 1);
    res = run(s, &q);
    one = keep(&res);
    q.seed = 2;
    res = run(s, &q);
    same_answer(&one, &res);
    llada_session_close(&s);
    /* random remasking draws as well */
    r = recipe("dual", "remasking=random block=16 early=false");
    s = open_session(small, &r, 64, 1);
    res = run(s, &q);
    one = keep(&res);
    q.seed = 3;
    res = run(s, &q);
    assert_memory_not_equal(one.conf, res.confidence, 16 * sizeof *one.conf);
    q.seed = 2;
    res = run(s, &q);
    same_answer(&one, &res);
    llada_session_close(&s);
}

/* ---------------------------------------------------------------- steps, cancelling, events */

static void test_steps(void **state)
{
    llada_recipe r = recipe("llada", "block=8");
    llada_session *s = open_session(small, &r, 64, 1);
    llada_request q = request(6, 16);
    llada_result res;
    llada_err err;
    bool done = true;
    assert_int_equal(llada_get_result(s, &res, &err), LLADA_BAD_ARG); /* nothing was begun */
    assert_int_equal(llada_step(s, &done, &err), LLADA_BAD_ARG);
    assert_false(done);
    res = run(s, &q);
    answer whole = keep(&res);
    int steps = 0;
    int32_t prompt[6]; /* begin copies it */
    memcpy(prompt, some_ids, sizeof prompt);
    q.prompt = prompt;
    assert_int_equal(llada_begin(s, &q, &err), LLADA_OK);
    memset(prompt, 0, sizeof prompt);
    while (!done) {
        assert_int_equal(llada_get_result(s, &res, &err), LLADA_BAD_ARG);
        assert_non_null(strstr(err.text, "not ended"));
        assert_int_equal(llada_logits(s, some_ids, 2, NULL, &err), LLADA_BAD_ARG);
        assert_int_equal(llada_step(s, &done, &err), LLADA_OK);
        assert_true(++steps < 1000);
    }
    assert_int_equal(llada_get_result(s, &res, &err), LLADA_OK);
    same_answer(&whole, &res);
    assert_int_equal(llada_step(s, &done, &err), LLADA_BAD_ARG);
    q.prompt = some_ids;
    assert_int_equal(llada_begin(s, &q, &err), LLADA_OK); /* given up for another */
    assert_int_equal(llada_step(s, &done, &err), LLADA_OK);
    res = run(s, &q);
    same_answer(&whole, &res);
    assert_int_equal(llada_step(NULL, &done, &err), LLADA_BAD_ARG);
    assert_int_equal(llada_begin(s, NULL, &err), LLADA_BAD_ARG);
    assert_int_equal(llada_generate(s, &q, NULL, &err), LLADA_BAD_ARG);
    llada_session_close(&s);
}

typedef struct {
    llada_session *s;
    int stop_at, n;
    llada_event_kind at_kind;
    bool cancel; /* by llada_cancel instead of the return value */
} stopper;

static bool stop_there(const llada_event *ev, void *user)
{
    stopper *p = user;
    p->n++;
    if (p->n != p->stop_at) return true;
    p->at_kind = ev->kind;
    if (p->cancel) llada_cancel(p->s);
    return p->cancel;
}

/* Stopped at the k-th event for every k: cancelled, no further event; the next request is as if nothing had been. */
static void test_stop(void **state)
{
    static const char *const settings[] = {"block=4 exec=serial", "block=4 exec=async", "block=4 exec=fused"};
    unsigned kinds = 0;
    for (int e = 0; e < 3; e++) {
        llada_recipe r = recipe("llada", settings[e]);
        r.vis = r.stable = r.remask = 0.01; /* so that all kinds of events happen */
        r.tau_draft = 0.02;
        llada_session *s = open_session(small, &r, 32, 2);
        llada_request q = request(6, 12);
        llada_result res = run(s, &q);
        answer whole = keep(&res);
        for (int k = 1; k < 10000; k++) {
            stopper p = {.s = s, .stop_at = k};
            llada_err err;
            q.on_event = stop_there;
            q.user = &p;
            llada_status st = llada_generate(s, &q, &res, &err);
            if (p.n < k) { /* it has fewer events */
                assert_int_equal(st, LLADA_OK);
                break;
            }
            assert_int_equal(st, LLADA_CANCELLED);
            assert_int_equal(p.n, k);
            kinds |= 1u << p.at_kind;
            if (k % 5) continue;
            q.on_event = NULL;
            res = run(s, &q);
            same_answer(&whole, &res);
        }
        llada_session_close(&s);
    }
    const llada_event_kind seen[] = {LLADA_EV_PASS, LLADA_EV_COMMIT, LLADA_EV_SETTLE, LLADA_EV_MERGE,
                                     LLADA_EV_BLOCK, LLADA_EV_TAIL,  LLADA_EV_DONE};
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) assert_true(kinds & 1u << seen[i]);
}

static void test_cancel_inside(void **state)
{
    llada_recipe r = recipe("vanilla", "block=8");
    llada_session *s = open_session(small, &r, 64, 1);
    stopper p = {.s = s, .stop_at = 4, .cancel = true};
    llada_request q = request(6, 40);
    llada_result res;
    llada_err err;
    q.on_event = stop_there;
    q.user = &p;
    assert_int_equal(llada_generate(s, &q, &res, &err), LLADA_CANCELLED);
    assert_non_null(strstr(err.text, "2 passes")); /* pass, commit, settle, pass: and no third one */
    assert_int_equal(err.status, LLADA_CANCELLED);
    q.on_event = NULL;
    run(s, &q);
    llada_session_close(&s);
}

typedef struct {
    llada_session *s;
    int32_t seen; /* passes so far, written by the running thread */
    pthread_mutex_t lock;
    pthread_cond_t moved;
} watched;

static bool tell(const llada_event *ev, void *user)
{
    watched *w = user;
    pthread_mutex_lock(&w->lock);
    if (ev->kind == LLADA_EV_PASS) w->seen = ev->step;
    pthread_cond_signal(&w->moved);
    pthread_mutex_unlock(&w->lock);
    return true;
}

static void *cancel_soon(void *user)
{
    watched *w = user;
    pthread_mutex_lock(&w->lock);
    while (w->seen < 2) pthread_cond_wait(&w->moved, &w->lock);
    pthread_mutex_unlock(&w->lock);
    llada_cancel(w->s);
    return NULL;
}

static void test_cancel_from_thread(void **state)
{
    llada_recipe r = recipe("vanilla", "gen=240 block=240");
    watched w = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    w.s = open_session(small, &r, 250, 1);
    llada_request q = request(6, -1);
    llada_result res;
    llada_err err;
    pthread_t t;
    q.on_event = tell;
    q.user = &w;
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, &w), 0);
    assert_int_equal(llada_generate(w.s, &q, &res, &err), LLADA_CANCELLED);
    pthread_join(t, NULL);
    assert_true(w.seen >= 2 && w.seen < 240);
    llada_session_close(&w.s);
}

enum { RECENT = 8 }; /* passes; a job is merged sooner */

typedef struct {
    int last_step, passes, blocks, done, tail;
    int ran[LLADA_EXEC_FUSED + 1];
    double seconds, job_began, pass_began[RECENT], pass_end[RECENT];
    llada_event_kind last;
} order;

/* Passes and jobs have run when they are told; each kind follows itself; a fused job has the times of a pass. */
static void times_of_run(order *o, const llada_event *ev)
{
    bool pass = ev->kind == LLADA_EV_PASS, job = ev->kind == LLADA_EV_MERGE;
    if (!pass && !job) {
        assert_true(ev->began == 0 && ev->took == 0 && ev->ran == LLADA_EXEC_AUTO);
        return;
    }
    assert_true(ev->rows > 0 && ev->began >= 0 && ev->took >= 0);
    assert_true(ev->began + ev->took <= ev->seconds + 1e-9); /* as sums of doubles go */
    if (pass) {
        assert_true(ev->began + 1e-9 >= o->pass_end[o->passes % RECENT]);
        o->pass_began[(o->passes + 1) % RECENT] = ev->began;
        o->pass_end[(o->passes + 1) % RECENT] = ev->began + ev->took;
        return;
    }
    assert_true(ev->began >= o->job_began);
    o->job_began = ev->began;
    o->ran[ev->ran]++;
    bool rode = false, apart = true; /* apart: between two passes */
    for (int i = 0; i < RECENT; i++) {
        bool meets = ev->began < o->pass_end[i] && o->pass_began[i] < ev->began + ev->took;
        rode |= ev->began == o->pass_began[i];
        apart &= !meets;
    }
    if (ev->ran == LLADA_EXEC_FUSED) assert_true(rode);
    if (ev->ran == LLADA_EXEC_SERIAL) assert_true(apart);
}

static bool in_order(const llada_event *ev, void *user)
{
    order *o = user;
    assert_int_equal(ev->size, sizeof *ev);
    assert_int_equal(o->done, 0);
    assert_true(ev->seconds >= o->seconds);
    times_of_run(o, ev);
    assert_true(ev->step >= o->last_step);
    o->seconds = ev->seconds;
    if (ev->kind == LLADA_EV_PASS) {
        assert_true(ev->step > o->last_step && !o->tail);
        assert_int_equal(ev->refresh, ev->row_pos == NULL);
        assert_int_equal(ev->rows, ev->n_row_pos + ev->n_shadow_pos);
        if (o->passes++ == 0) assert_true(ev->refresh && ev->step == 1);
        for (int i = 1; ev->row_pos && i < ev->n_row_pos; i++) assert_true(ev->row_pos[i] > ev->row_pos[i - 1]);
    }
    if (ev->kind == LLADA_EV_COMMIT || ev->kind == LLADA_EV_DRAFT || ev->kind == LLADA_EV_CONFIRM)
        assert_true(o->passes > 0 && !o->tail);
    if (ev->kind == LLADA_EV_BLOCK) assert_int_equal(ev->pos, o->blocks++);
    if (ev->kind == LLADA_EV_TAIL) o->tail++;
    if (o->tail) assert_true(ev->kind == LLADA_EV_TAIL || ev->kind == LLADA_EV_SETTLE || ev->kind == LLADA_EV_DONE);
    if (ev->kind == LLADA_EV_DONE) o->done++;
    o->last_step = ev->step;
    o->last = ev->kind;
    return true;
}

static void test_order(void **state)
{
    static const char *const names[] = {"vanilla", "dual", "parallel", "speculate", "llada", "llada-v1"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        llada_recipe r = recipe(names[i], "block=8");
        r.tau_draft = 0.02;
        llada_session *s = open_session(small, &r, 64, 1);
        order o = {0};
        llada_request q = request(6, 21);
        q.on_event = in_order;
        q.user = &o;
        llada_result res = run(s, &q);
        assert_true(o.done == 1 && o.tail == 1 && o.last == LLADA_EV_DONE && o.passes == res.passes && o.blocks == 3);
        assert_true(res.seconds >= o.seconds);
        llada_session_close(&s);
    }
}

/* Where jobs run is told as it was: in passes or on the worker while there are passes, by themselves in the end. */
static void test_times(void **state)
{
    for (int exec = LLADA_EXEC_SERIAL; exec <= LLADA_EXEC_FUSED; exec++) {
        llada_recipe r = recipe("llada-v1", "block=8");
        r.lag = 2;
        r.exec = (llada_exec)exec;
        llada_session *s = open_session(small, &r, 64, 1);
        order o = {0};
        llada_request q = request(6, 21);
        q.on_event = in_order;
        q.user = &o;
        llada_result res = run(s, &q);
        int jobs = 0;
        for (int i = 0; i <= LLADA_EXEC_FUSED; i++) jobs += o.ran[i];
        assert_int_equal(jobs, res.jobs);
        assert_true(o.ran[exec] > 0);
        for (int i = 0; i <= LLADA_EXEC_FUSED; i++) assert_true(i == exec || i == LLADA_EXEC_SERIAL || o.ran[i] == 0);
        llada_session_close(&s);
    }
}

/* ---------------------------------------------------------------- memory */

static void test_no_allocation(void **state)
{
    size_t n;
    int ran = 0;
    const char *const *names = llada_recipe_names(&n);
    for (size_t i = 0; i < n; i++) {
        for (int exec = LLADA_EXEC_AUTO; exec <= LLADA_EXEC_FUSED; exec++) {
            llada_recipe r = recipe(names[i], "block=8");
            if (r.dppr && r.lag < 2) r.lag = 2;
            if (exec > LLADA_EXEC_AUTO && !r.dppr) continue;
            r.exec = (llada_exec)exec;
            llada_session *s = NULL;
            llada_session_opts o;
            llada_err err;
            llada_session_opts_defaults(&o);
            o.ctx = 64;
            o.threads = 2;
            llada_status st = llada_session_open(&s, small, &r, &o, &err);
            if (st == LLADA_UNSUPPORTED) continue; /* of another kind of model */
            if (st) die(names[i], &err);
            uint64_t before = mem_count();
            llada_request q = request(7, 25);
            run(s, &q);
            if (mem_count() != before) fail_msg("%s, exec %d: %d allocations while decoding", names[i], exec,
                                                (int)(mem_count() - before));
            ran++;
            llada_session_close(&s);
        }
    }
    assert_true(ran >= 13);
}

/* Fails each allocation of opening a session in turn. */
static void fail_each_session(const char *name, const char *settings, int threads)
{
    llada_recipe r = recipe(name, settings);
    llada_session_opts o;
    llada_session_opts_defaults(&o);
    o.ctx = 32;
    o.threads = threads;
    for (uint64_t k = 1; k < 1000; k++) {
        llada_session *s = NULL;
        llada_err err = {0};
        mem_fail_at(k);
        llada_status st = llada_session_open(&s, small, &r, &o, &err);
        mem_fail_at(0);
        if (st == LLADA_OK && k > 20) { /* fewer allocations than k */
            llada_session_close(&s);
            return;
        }
        assert_int_equal(st, LLADA_NO_MEMORY);
        assert_null(s);
        assert_true(err.text[0] && err.status == LLADA_NO_MEMORY);
    }
    fail();
}

static void test_no_memory(void **state)
{
    fail_each_session("parallel", "", 1);
    fail_each_session("dual", "cfg=1", 1);
    fail_each_session("llada", "exec=fused", 1);
    fail_each_session("llada", "exec=async", 2);
    llada_recipe r = recipe("llada", "");
    llada_session *s = open_session(small, &r, 32, 2); /* the next call works */
    llada_request q = request(4, 8);
    run(s, &q);
    llada_session_close(&s);
    for (uint64_t k = 1;; k++) {
        llada_model *m = NULL;
        llada_err err = {0};
        assert_true(k < 5000);
        mem_fail_at(k);
        llada_status st = llada_model_open(&m, scratch_path(&files, "small.gguf"), NULL, &err);
        mem_fail_at(0);
        if (st == LLADA_OK) {
            llada_model_close(&m);
            break;
        }
        assert_int_equal(st, LLADA_NO_MEMORY);
        assert_null(m);
        assert_true(err.text[0]);
    }
}

/* ---------------------------------------------------------------- threads */

typedef struct {
    int n_prompt;
    answer a[3];
    int bad;
} worker;

static void *work(void *user)
{
    worker *w = user;
    llada_recipe r;
    llada_session *s = NULL;
    llada_session_opts o;
    llada_session_opts_defaults(&o);
    o.ctx = 64;
    o.threads = 1;
    w->bad = llada_recipe_named(&r, "llada", NULL) || llada_session_open(&s, small, &r, &o, NULL);
    for (int i = 0; i < 3 && !w->bad; i++) {
        llada_request q = request(w->n_prompt, 24);
        llada_result res;
        w->bad = llada_generate(s, &q, &res, NULL);
        if (!w->bad) w->a[i] = keep(&res);
    }
    llada_session_close(&s);
    return NULL;
}

static void test_shared_model(void **state)
{
    static worker w[2] = {{.n_prompt = 5}, {.n_prompt = 30}};
    pthread_t t[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < 2; i++) {
        llada_recipe r = recipe("llada", "");
        llada_session *s = open_session(small, &r, 64, 1);
        llada_request q = request(w[i].n_prompt, 24);
        llada_result res = run(s, &q);
        assert_int_equal(w[i].bad, 0);
        for (int k = 0; k < 3; k++) same_answer(&w[i].a[k], &res);
        llada_session_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits_or_says_so),
        cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_max_tokens),
        cmocka_unit_test(test_thresholds),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_literal_markers),
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_cancel_inside),
        cmocka_unit_test(test_cancel_from_thread),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_shared_model),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
