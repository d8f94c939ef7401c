/* test_memory.c - models within a budget: the same tokens and scores as without one, for every recipe, architecture,
 * number of threads and budget, of one file, packed or not, and of sets; several sessions; cancelling; budgets that
 * cannot work; storage that fails; memory that fails. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "llada.h"
#include "scratch.h"
#include "tiny_gguf.h"
#include "tools.h"

#define FIXTURES LLADA_SOURCE_DIR "/tests/fixtures/"

enum { PROMPT = 7, GEN = 16, CTX = 32, BIG = 1 << 30 };

static const int32_t prompt[PROMPT] = {3, 7, 11, 5, 9, 2, 8};

/* ---------------------------------------------------------------- files */

static scratch dir;

/* A fixture's bytes in a folder of the test's own, in memory where there is such a folder: reads are as small as the
 * fixtures, and a busy disk would make each wait. */
static const char *copy_of(const char *name, const char *as)
{
    static char bytes[1 << 20], path[2][600];
    static int turn;
    char from[600];
    snprintf(from, sizeof from, FIXTURES "%s", name);
    FILE *f = fopen(from, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_non_null(scratch_write(&dir, as, bytes, n));
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s", dir.path);
    return path[turn];
}

static int setup(void **state)
{
    strcpy(dir.dir, "/dev/shm/llada-test-XXXXXX");
    return mkdtemp(dir.dir) || scratch_open(&dir) ? 0 : -1;
}

static int teardown(void **state)
{
    scratch_close(&dir);
    return 0;
}

/* ---------------------------------------------------------------- storage that fails */

enum { FINE, ERROR, SHORT, INTERRUPTED, HANG };
static atomic_int reads, fail_from, fail_to, how; /* reads number fail_from .. fail_to - 1 fail so */
static atomic_bool hung; /* a read does not end; rows of the embedding are too short for that */

/* The library's reads come here: the program's own definition is found first. */
ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    int k = atomic_fetch_add(&reads, 1);
    if (k >= atomic_load(&fail_from) && k < atomic_load(&fail_to)) {
        if (how == ERROR || how == INTERRUPTED) {
            errno = how == ERROR ? EIO : EINTR;
            return -1;
        }
        if (how == SHORT && n > 4096) n = 4096;
        const struct timespec moment = {.tv_nsec = 1000000};
        const bool hangs = how == HANG && n > 2 * 4096;
        if (hangs) hung = true;
        while (hangs && how == HANG) nanosleep(&moment, NULL);
    }
    return syscall(SYS_pread64, fd, to, n, at);
}

static void fail_reads(int kind, int from, int to)
{
    atomic_store(&how, kind);
    atomic_store(&reads, 0);
    atomic_store(&hung, false);
    atomic_store(&fail_from, from);
    atomic_store(&fail_to, to);
}

/* ---------------------------------------------------------------- runs */

static llada_model *open_model(const char *path, uint64_t budget)
{
    llada_model *m = NULL;
    llada_model_opts o;
    llada_err err;
    llada_model_opts_defaults(&o);
    o.mem_budget = budget;
    if (llada_model_open(&m, path, &o, &err))
        fail_msg("%s within %llu: %s", path, (unsigned long long)budget, err.text);
    return m;
}

static llada_status try_session(llada_session **s, const llada_model *m, const char *recipe, const char *exec,
                                int threads, llada_err *err)
{
    llada_recipe r;
    llada_session_opts o;
    llada_session_opts_defaults(&o);
    o.ctx = CTX;
    o.threads = threads;
    assert_int_equal(llada_recipe_named(&r, recipe, err), LLADA_OK);
    r.gen = GEN;
    if (exec) {
        assert_int_equal(llada_recipe_set(&r, "exec", exec, err), LLADA_OK);
        assert_int_equal(llada_recipe_set(&r, "lag", "2", err), LLADA_OK);
    }
    *s = NULL;
    return llada_session_open(s, m, &r, &o, err);
}

typedef struct {
    int n;
    int32_t token[GEN];
    double conf[GEN];
} answer;

static llada_status try_answer(llada_session *s, answer *a, llada_err *err)
{
    llada_request q;
    llada_result res = {.size = sizeof res};
    llada_request_defaults(&q);
    q.prompt = prompt;
    q.n_prompt = PROMPT;
    q.max_tokens = GEN;
    llada_status st = llada_generate(s, &q, &res, err);
    if (st) return st;
    a->n = res.n_canvas;
    memcpy(a->token, res.canvas, (size_t)res.n_canvas * sizeof *a->token);
    memcpy(a->conf, res.confidence, (size_t)res.n_canvas * sizeof *a->conf);
    return LLADA_OK;
}

static void same(const answer *a, const answer *b, const char *what, uint64_t budget)
{
    if (a->n != b->n || memcmp(a->token, b->token, (size_t)a->n * sizeof *a->token) ||
        memcmp(a->conf, b->conf, (size_t)a->n * sizeof *a->conf))
        fail_msg("%s: another answer within %llu bytes", what, (unsigned long long)budget);
}

/* An answer with a fresh session. */
static answer answer_of(const llada_model *m, const char *recipe, const char *exec, int threads)
{
    llada_session *s;
    llada_err err;
    answer a = {.n = 0};
    if (try_session(&s, m, recipe, exec, threads, &err) || try_answer(s, &a, &err))
        fail_msg("%s: %s", recipe, err.text);
    llada_session_close(&s);
    return a;
}

/* The smallest budget for a session of this recipe, as the refusal names it; it must be just that. */
static uint64_t smallest(const char *path, const char *recipe, const char *exec, int threads)
{
    llada_session *s;
    llada_err err;
    uint64_t least = 0;
    llada_model_opts o;
    llada_model *m = NULL;
    llada_model_opts_defaults(&o);
    o.mem_budget = 1;
    assert_int_equal(llada_model_open(&m, path, &o, &err), LLADA_BAD_ARG); /* not even the model alone */
    assert_null(m);
    for (int tries = 0; tries < 3; tries++) { /* of the model alone; then of the session; of its second path */
        const char *number = strstr(err.text, "smallest that can is ");
        assert_non_null(number);
        least = strtoull(number + strlen("smallest that can is "), NULL, 10);
        m = open_model(path, least);
        llada_status st = try_session(&s, m, recipe, exec, threads, &err);
        llada_session_close(&s);
        llada_model_close(&m);
        if (st == LLADA_OK) break;
        assert_int_equal(st, LLADA_BAD_ARG);
    }
    o.mem_budget = least - 1;
    llada_status st = llada_model_open(&m, path, &o, &err);
    if (st == LLADA_OK) st = try_session(&s, m, recipe, exec, threads, &err);
    assert_int_equal(st, LLADA_BAD_ARG);
    llada_model_close(&m);
    return least;
}

/* ---------------------------------------------------------------- the same tokens */

static void check_memory(const llada_model *m, bool streams)
{
    llada_memory u = {.size = sizeof u};
    llada_model_memory(m, &u);
    assert_true(u.total <= u.budget && u.passes > 0);
    assert_int_equal(u.slots > 0, u.streamed > 0);
    assert_true(!streams || u.slots > 0);
    if (u.slots > 0) assert_true(u.bytes_read > 0 && u.transfer_seconds > 0);
}

/* Without a budget, with the smallest, with one a little larger, with room for everything. */
static void compare_file(const char *path, const char *recipe, const char *exec, const int *threads)
{
    llada_model *whole = open_model(path, 0);
    answer want = answer_of(whole, recipe, exec, 1);
    llada_model_close(&whole);
    int most = 1;
    for (const int *t = threads; *t; t++) most = *t;
    uint64_t least = smallest(path, recipe, exec, most);
    const uint64_t budgets[] = {least, least + 30000, BIG};
    for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
        llada_model *m = open_model(path, budgets[b]);
        for (const int *t = threads; *t; t++) {
            answer got = answer_of(m, recipe, exec, *t);
            same(&want, &got, recipe, budgets[b]);
        }
        check_memory(m, b == 0);
        llada_model_close(&m);
    }
}

static void compare(const char *name, const char *recipe, const char *exec, const int *threads)
{
    compare_file(copy_of(name, name), recipe, exec, threads);
}

static const int few[] = {2, 0}, many[] = {1, 2, 3, 4, 8, 0};

static void test_recipes(void **state)
{
    static const char *const names[] = {"vanilla", "prefix", "dual", "parallel", "speculate", "llada-v1"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) compare("net-llada.gguf", names[i], NULL, few);
    compare("net-llada.gguf", "llada", NULL, many);
}

static void test_networks(void **state)
{
    compare("net-dream.gguf", "dream", NULL, few);
    compare("net-llama.gguf", "ar", NULL, few);
    compare("net-llada-moe.gguf", "parallel", NULL, few);
    compare("net-llada-moe.gguf", "llada", NULL, few);
}

/* Two contexts on one set of slots. */
static void test_two_paths(void **state)
{
    compare("net-llada.gguf", "llada", "async", few);
    compare("net-llada.gguf", "llada", "fused", few);
}

/* Files in the layout that is computed with: parts are whole stripes. */
static void test_packed(void **state)
{
    static const char *const names[] = {"net-llada.gguf", "net-dream.gguf", "net-llada-moe.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char out[600];
        llada_err err;
        snprintf(out, sizeof out, "%s/packed.gguf", dir.dir);
        const tools_pack_opts one = {.threads = 1};
        if (tools_pack(copy_of(names[i], names[i]), out, &one, &err)) fail_msg("%s", err.text);
        compare_file(out, i == 1 ? "dream" : "llada", NULL, few);
        compare_file(out, "parallel", NULL, few);
    }
}

/* Several files, each read by a reader of its own; any of them names the set. */
static void test_split(void **state)
{
    static const uint32_t types[] = {QT_F16, QT_Q4_0};
    for (int k = 0; k < 4; k++) {
        tiny_opts o = tiny_defaults();
        o.type = types[k / 2];
        tiny_gguf *t = tiny_llada(&o);
        if (k % 2) tiny_pack(t);
        for (int i = 0; i < 3; i++) {
            char name[64];
            tiny_gguf *shard = tiny_shard(t, i, 3);
            snprintf(name, sizeof name, "set%d-%05d-of-00003.gguf", k, i + 1);
            tiny_save(shard, scratch_path(&dir, name));
            tiny_free(shard);
        }
        tiny_free(t); /* dir.path is the last one's */
        compare_file(dir.path, "llada", k == 3 ? "async" : NULL, few);
    }
}

/* The small model, under every recipe that suits it. */
static void test_small_model(void **state)
{
    const char *path = LLADA_SOURCE_DIR "/models/tiny-llada-q8_0.gguf";
    size_t n;
    const char *const *names = llada_recipe_names(&n);
    llada_model *whole = open_model(path, 0), *within = open_model(path, 5000000);
    for (size_t i = 0; i <= n; i++) {
        const char *name = i < n ? names[i] : "llada", *exec = i < n ? NULL : "async";
        if (!strcmp(name, "dream") || !strcmp(name, "ar")) continue; /* another network's */
        answer want = answer_of(whole, name, exec, 2), got = answer_of(within, name, exec, 2);
        same(&want, &got, name, 5000000);
    }
    check_memory(within, true);
    llada_model_close(&whole);
    llada_model_close(&within);
}

/* A quantised model with more parts, and its scores bit by bit. */
static void test_scores(void **state)
{
    static float want[PROMPT * 1216], got[PROMPT * 1216];
    const char *path = LLADA_SOURCE_DIR "/models/tiny-llada-q8_0.gguf";
    llada_err err;
    for (uint64_t budget = 0; budget <= 10000000; budget += 5000000) {
        llada_model *m = open_model(path, budget);
        llada_session *s;
        if (try_session(&s, m, "parallel", NULL, 2, &err)) fail_msg("%s", err.text);
        for (int twice = 0; twice < 2; twice++)
            if (llada_logits(s, prompt, PROMPT, budget ? got : want, &err)) fail_msg("%s", err.text);
        if (budget) assert_memory_equal(want, got, sizeof want);
        llada_session_close(&s);
        llada_model_close(&m);
    }
}

/* ---------------------------------------------------------------- several sessions */

typedef struct {
    llada_session *s;
    answer want;
    int wrong;
} worker;

static void *work(void *user)
{
    worker *w = user;
    for (int i = 0; i < 6; i++) {
        answer got = {.n = 0};
        if (try_answer(w->s, &got, NULL) || got.n != w->want.n ||
            memcmp(got.token, w->want.token, (size_t)got.n * sizeof *got.token))
            w->wrong++;
    }
    return NULL;
}

static void test_sessions(void **state)
{
    const char *path = copy_of("net-llada.gguf", "net.gguf");
    llada_err err;
    llada_model *whole = open_model(path, 0);
    answer want = answer_of(whole, "speculate", NULL, 1);
    llada_model_close(&whole);
    uint64_t least = smallest(path, "speculate", NULL, 1);
    llada_model *m = open_model(path, least * 2);
    worker w[2] = {{.want = want}, {.want = want}};
    pthread_t t[2];
    llada_session *third = NULL;
    for (int i = 0; i < 2; i++)
        if (try_session(&w[i].s, m, "speculate", NULL, 1, &err)) fail_msg("%s", err.text);
    int more = 0;
    llada_session *extra[8] = {NULL};
    while (more < 8 && try_session(&extra[more], m, "speculate", NULL, 1, &err) == LLADA_OK) more++;
    assert_true(more < 8); /* at some number there is no room, and those that are open go on */
    assert_non_null(strstr(err.text, "smallest that can is"));
    for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, work, &w[i]);
    if (more > 0) llada_session_close(&extra[--more]); /* plans change while passes run */
    (void)try_session(&third, m, "speculate", NULL, 2, &err);
    llada_session_close(&third);
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w[i].wrong, 0);
        llada_session_close(&w[i].s);
    }
    while (more > 0) llada_session_close(&extra[--more]);
    llada_model_close(&m);
}

/* ---------------------------------------------------------------- cancelling */

/* Cancels when the storage has hung for a moment. */
static void *cancel(void *user)
{
    const struct timespec moment = {.tv_nsec = 5000000};
    while (!hung) nanosleep(&moment, NULL);
    nanosleep(&moment, NULL);
    llada_cancel(user);
    return NULL;
}

/* The storage stops answering within a pass: cancelling ends the call all the same (or the test never ends), and when
 * it answers again the next answer is right. */
static void test_cancel(void **state)
{
    const char *path = LLADA_SOURCE_DIR "/models/tiny-llada-q8_0.gguf";
    llada_err err;
    for (int k = 0; k < 6; k++) {
        const char *exec = k % 2 ? "async" : NULL;
        answer got, want;
        llada_session *s;
        pthread_t t;
        llada_model *m = open_model(path, 5000000);
        if (try_session(&s, m, "llada", exec, 2, &err) || try_answer(s, &want, &err)) fail_msg("%s", err.text);
        fail_reads(HANG, k * 3, INT_MAX);
        pthread_create(&t, NULL, cancel, s);
        assert_int_equal(try_answer(s, &got, &err), LLADA_CANCELLED);
        assert_int_equal(how, HANG);
        pthread_join(t, NULL);
        fail_reads(FINE, 0, 0);
        if (try_answer(s, &got, &err)) fail_msg("%s", err.text);
        same(&want, &got, "after a cancel", 0);
        llada_session_close(&s);
        llada_model_close(&m);
    }
}

/* ---------------------------------------------------------------- faults */

static void test_refused(void **state)
{
    llada_model *m = NULL;
    llada_model_opts o;
    llada_err err;
    llada_model_opts_defaults(&o);
    o.mem_budget = 1 << 30;
    assert_int_equal(llada_model_open(&m, NULL, &o, &err), LLADA_UNSUPPORTED); /* built in */
    assert_null(m);
}

/* Every read fails once, in every way: opening or answering says so, naming tensor and byte, and the next answer is
 * right; cut and interrupted reads are nothing to speak of. */
static void test_reads(void **state)
{
    const char *path = copy_of("net-llada.gguf", "net.gguf");
    llada_err err;
    llada_model *whole = open_model(path, 0);
    answer want = answer_of(whole, "parallel", NULL, 1), got = {.n = 0};
    llada_model_close(&whole);
    uint64_t budget = smallest(path, "parallel", NULL, 2) + 9000;
    int said = 0;
    for (int kind = ERROR; kind <= INTERRUPTED; kind++) {
        for (int k = 0; k < 90; k += kind == ERROR ? 1 : 9) {
            llada_model *m = NULL;
            llada_session *s = NULL;
            llada_model_opts o;
            llada_model_opts_defaults(&o);
            o.mem_budget = budget;
            fail_reads(kind, k, k + 1);
            llada_status st = llada_model_open(&m, path, &o, &err);
            if (!st) st = try_session(&s, m, "parallel", NULL, 2, &err);
            if (!st) st = try_answer(s, &got, &err);
            if (kind != ERROR) assert_int_equal(st, LLADA_OK);
            if (st) {
                assert_int_equal(st, LLADA_IO);
                assert_non_null(strstr(err.text, "input/output error"));
                assert_non_null(strstr(err.text, ".weight can't be read at byte "));
                said++;
            }
            fail_reads(FINE, 0, 0);
            if (s) {
                if (try_answer(s, &got, &err)) fail_msg("read %d, kind %d: %s", k, kind, err.text);
                same(&want, &got, "after a read that failed", budget);
            }
            llada_session_close(&s);
            llada_model_close(&m);
        }
    }
    assert_true(said > 20);
}

/* A file cut short while it is used. */
static void test_truncated(void **state)
{
    llada_err err;
    llada_session *s;
    answer want = {.n = 0}, got = {.n = 0};
    const char *path = copy_of("net-llada.gguf", "cut.gguf");
    llada_model *m = open_model(path, smallest(path, "parallel", NULL, 1));
    if (try_session(&s, m, "parallel", NULL, 1, &err) || try_answer(s, &want, &err)) fail_msg("%s", err.text);
    assert_int_equal(truncate(path, 40000), 0);
    assert_int_equal(try_answer(s, &got, &err), LLADA_IO);
    if (!strstr(err.text, "cut short")) fail_msg("%s", err.text);
    copy_of("net-llada.gguf", "cut.gguf");
    if (try_answer(s, &got, &err)) fail_msg("%s", err.text);
    same(&want, &got, "after the file came back", 0);
    llada_session_close(&s);
    llada_model_close(&m);
}

/* Another file under the name is not read. */
static void test_replaced(void **state)
{
    llada_err err;
    llada_session *s;
    answer want = {.n = 0}, got = {.n = 0};
    const char *path = copy_of("net-llada.gguf", "model.gguf"), *other = copy_of("net-dream.gguf", "other.gguf");
    llada_model *m = open_model(path, smallest(path, "parallel", NULL, 1));
    if (try_session(&s, m, "parallel", NULL, 1, &err) || try_answer(s, &want, &err)) fail_msg("%s", err.text);
    assert_int_equal(rename(other, path), 0);
    if (try_answer(s, &got, &err)) fail_msg("%s", err.text);
    same(&want, &got, "after another file took the name", 0);
    llada_session_close(&s);
    llada_model_close(&m);
}

/* The k-th allocation fails, for every k: a status, no leak (a leak checker looks), and the next try works. */
static void test_no_memory(void **state)
{
    const char *path = copy_of("net-llada.gguf", "net.gguf");
    uint64_t budget = smallest(path, "parallel", NULL, 2) + 9000;
    llada_model_opts o;
    llada_model_opts_defaults(&o);
    o.mem_budget = budget;
    bool done = false;
    int k = 0;
    while (!done) {
        llada_model *m = NULL;
        llada_session *s = NULL;
        llada_err err;
        answer a = {.n = 0};
        mem_fail_at((uint64_t)++k);
        llada_status st = llada_model_open(&m, path, &o, &err);
        if (!st) st = try_session(&s, m, "parallel", NULL, 2, &err);
        mem_fail_at(0);
        if (st && st != LLADA_NO_MEMORY) fail_msg("allocation %d: %s", k, err.text);
        done = k > 2000 || (st == LLADA_OK && k > 60); /* the pool does with fewer threads, so some failures are none */
        if (m && !s && try_session(&s, m, "parallel", NULL, 2, &err)) fail_msg("allocation %d, again: %s", k, err.text);
        if (s && k % 16 == 0 && try_answer(s, &a, &err)) fail_msg("allocation %d, answer: %s", k, err.text);
        llada_session_close(&s);
        llada_model_close(&m);
    }
    print_message("%d allocations\n", k);
    assert_in_range(k, 60, 2000);
}

/* Answers allocate nothing. */
static void test_allocates_nothing(void **state)
{
    const char *path = copy_of("net-llada.gguf", "net.gguf");
    llada_model *m = open_model(path, smallest(path, "llada", NULL, 2) + 9000);
    llada_session *s;
    llada_err err;
    answer a = {.n = 0};
    if (try_session(&s, m, "llada", NULL, 2, &err)) fail_msg("%s", err.text);
    uint64_t before = mem_count();
    for (int i = 0; i < 3; i++) assert_int_equal(try_answer(s, &a, &err), LLADA_OK);
    assert_int_equal(mem_count(), before);
    llada_session_close(&s);
    llada_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recipes),  cmocka_unit_test(test_networks),  cmocka_unit_test(test_two_paths),
        cmocka_unit_test(test_packed),   cmocka_unit_test(test_split),     cmocka_unit_test(test_small_model),
        cmocka_unit_test(test_cancel),   cmocka_unit_test(test_scores),    cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_reads),     cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_replaced), cmocka_unit_test(test_no_memory), cmocka_unit_test(test_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
