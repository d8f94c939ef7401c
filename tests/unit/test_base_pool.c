/* The thread pool.  pool.c is compiled into this program under other names, so that threads and locks can be
 * refused. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* ---------------------------------------------------------------- system calls that fail on request */

/* The call of this number fails, counting from 1; 0: none. */
static struct {
    int create, mutex, cond, attr;
    int cores; /* what os_cores says; 0: the truth */
} fake;

static bool fails(int *in)
{
    return *in > 0 && --*in == 0;
}

static int fake_create(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    return fails(&fake.create) ? EAGAIN : pthread_create(id, attr, fn, arg);
}

static int fake_mutex(pthread_mutex_t *m, const pthread_mutexattr_t *attr)
{
    return fails(&fake.mutex) ? ENOMEM : pthread_mutex_init(m, attr);
}

static int fake_cond(pthread_cond_t *c, const pthread_condattr_t *attr)
{
    return fails(&fake.cond) ? ENOMEM : pthread_cond_init(c, attr);
}

static int fake_attr(pthread_attr_t *a)
{
    return fails(&fake.attr) ? ENOMEM : pthread_attr_init(a);
}

#include "base/os.h"

static int fake_cores(void)
{
    return fake.cores ? fake.cores : os_cores();
}

#define pool_open tested_pool_open
#define pool_threads tested_pool_threads
#define pool_run tested_pool_run
#define pool_close tested_pool_close
#define pthread_create fake_create
#define pthread_mutex_init fake_mutex
#define pthread_cond_init fake_cond
#define pthread_attr_init fake_attr
#define os_cores fake_cores
#include "../../src/base/pool.c"
#undef pthread_create
#undef pthread_mutex_init
#undef pthread_cond_init
#undef pthread_attr_init
#undef os_cores

/* ---------------------------------------------------------------- tests */

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static int reset(void **state)
{
    memset(&fake, 0, sizeof fake);
    return 0;
}

/* Every row of every deal belongs to exactly one part, whole groups stay together, and no part is more than one group
 * larger than another. */
static void test_share(void **state)
{
    static const int totals[] = { 0, 1, 2, 3, 7, 8, 31, 32, 33, 127, 128, 1000, 126464 };
    static const int units[] = { 1, 2, 3, 4, 8, 16, 32, 1000 };
    for (size_t a = 0; a < COUNT(totals) * COUNT(units) * 40; a++) {
        int n = (int)(a % 40) + 1, unit = units[a / 40 % COUNT(units)], total = totals[a / 40 / COUNT(units)];
        int next = 0, least = total + unit, most = 0;
        for (int t = 0; t < n; t++) {
            int lo, hi;
            pool_share(total, unit, t, n, &lo, &hi);
            assert_int_equal(lo, next);
            assert_true(hi >= lo && hi <= total);
            assert_true(lo % unit == 0 || lo == total);
            int groups = (hi - lo + unit - 1) / unit;
            least = groups < least ? groups : least;
            most = groups > most ? groups : most;
            next = hi;
        }
        assert_int_equal(next, total);
        assert_true(most - least <= 1);
    }
    int lo, hi;
    pool_share(INT32_MAX, 32, 2, 3, &lo, &hi);
    assert_int_equal(hi, INT32_MAX);
    assert_int_equal(lo, 1431655744); /* 44739242 groups of 32 */
}

typedef struct {
    int rounds[MAX_THREADS]; /* plain: a data race shows in the thread checker */
    int n, calls, bad;
    pthread_t main;
} tally;

static void count_part(void *user, int t, int n)
{
    tally *y = user;
    if (t < 0 || t >= n || n != y->n || (t == 0) != (pthread_equal(pthread_self(), y->main) != 0))
        y->bad = 1;
    else
        y->rounds[t]++;
}

/* Runs `rounds` rounds and checks after each that every part ran once and is visible here. */
static void run_rounds(pool *p, int rounds)
{
    tally y = { .n = pool_threads(p), .main = pthread_self() };
    uint64_t before = mem_count();
    for (int r = 1; r <= rounds; r++) {
        pool_run(p, count_part, &y);
        for (int t = 0; t < y.n; t++)
            assert_int_equal(y.rounds[t], r);
    }
    assert_int_equal(y.bad, 0);
    assert_int_equal(mem_count(), before);
}

static void test_rounds(void **state)
{
    static const struct {
        int threads, cores, rounds; /* cores: decides between spinning and sleeping */
    } t[] = {
        { 1, 0, 1000 }, { 2, 0, 1000 }, { 2, 1, 1000 }, { 3, 4, 300 }, { 8, 0, 1000 }, { 8, 8, 200 }, { 8, 1, 1000 },
    };
    for (size_t i = 0; i < COUNT(t); i++) {
        pool *p = NULL;
        fake.cores = t[i].cores;
        assert_int_equal(pool_open(&p, t[i].threads, NULL), LLADA_OK);
        assert_int_equal(pool_threads(p), t[i].threads);
        run_rounds(p, t[i].rounds);
        pool_close(&p);
        assert_null(p);
    }
}

/* Workers that have gone to sleep come back, also to be told to stop. */
static void test_sleepers(void **state)
{
    const struct timespec nap = { 0, 3000000 };
    pool *p = NULL;
    assert_int_equal(pool_open(&p, 4, NULL), LLADA_OK);
    for (int i = 0; i < 20; i++) {
        nanosleep(&nap, NULL);
        run_rounds(p, 2);
    }
    nanosleep(&nap, NULL);
    pool_close(&p);
}

static void slow_part(void *user, int t, int n)
{
    const struct timespec nap = { 0, 2000000 };
    if (t == n - 1)
        nanosleep(&nap, NULL);
    ((int *)user)[t]++;
}

/* The caller sleeps too when a part takes long. */
static void test_slow_part(void **state)
{
    int rounds[3] = { 0 };
    pool *p = NULL;
    assert_int_equal(pool_open(&p, 3, NULL), LLADA_OK);
    for (int i = 1; i <= 10; i++) {
        pool_run(p, slow_part, rounds);
        for (int t = 0; t < 3; t++)
            assert_int_equal(rounds[t], i);
    }
    pool_close(&p);
}

static void test_arguments(void **state)
{
    static const int bad[] = { 0, -1, INT32_MIN };
    pool *p = NULL;
    llada_err err;
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(pool_open(&p, bad[i], &err), LLADA_BAD_ARG);
        assert_null(p);
    }
    assert_non_null(strstr(err.text, "-2147483648"));
    pool_close(&p);
    pool_close(NULL);
    fake.create = 3; /* the limit is 256; how many really start is not the point */
    assert_int_equal(pool_open(&p, INT32_MAX, NULL), LLADA_OK);
    assert_int_equal(pool_threads(p), 3);
    pool_close(&p);
    assert_int_equal(pool_open(&p, 100000, NULL), LLADA_OK);
    assert_true(pool_threads(p) <= 256);
    run_rounds(p, 3);
    pool_close(&p);
}

/* The k-th thread can't be created: k threads remain with the caller, and they work. */
static void test_fewer_threads(void **state)
{
    for (int k = 1; k <= 5; k++) {
        pool *p = NULL;
        fake.create = k;
        assert_int_equal(pool_open(&p, 6, NULL), LLADA_OK);
        assert_int_equal(pool_threads(p), k);
        run_rounds(p, 20);
        pool_close(&p);
    }
    pool *p = NULL;
    fake.attr = 1;
    assert_int_equal(pool_open(&p, 6, NULL), LLADA_OK);
    assert_int_equal(pool_threads(p), 1);
    run_rounds(p, 3);
    pool_close(&p);
}

static void test_no_memory(void **state)
{
    pool *p = NULL;
    llada_err err;
    uint64_t k = 0;
    llada_status s;
    do {
        mem_fail_at(++k);
        s = pool_open(&p, 4, &err);
        assert_true(s == LLADA_OK || (s == LLADA_NO_MEMORY && p == NULL));
    } while (s != LLADA_OK && k < 100);
    mem_fail_at(0);
    assert_int_equal(k, 2);
    run_rounds(p, 3);
    pool_close(&p);

    fake.mutex = 1;
    assert_int_equal(pool_open(&p, 4, &err), LLADA_NO_MEMORY);
    for (int i = 1; i <= 2; i++) {
        fake.cond = i;
        assert_int_equal(pool_open(&p, 4, &err), LLADA_NO_MEMORY);
        assert_null(p);
    }
}

typedef struct {
    int open_signals[4];
    size_t stack[4];
} surroundings;

static void look_around(void *user, int t, int n)
{
    surroundings *s = user;
    sigset_t mask;
    pthread_attr_t attr;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    static const int usual[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM, SIGCHLD, SIGWINCH };
    for (size_t i = 0; i < COUNT(usual); i++)
        s->open_signals[t] += !sigismember(&mask, usual[i]);
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        pthread_attr_getstacksize(&attr, &s->stack[t]);
        pthread_attr_destroy(&attr);
    }
}

/* Workers take no signals, the caller keeps its own mask; stacks are small, so that 256 of them cost little. */
static void test_surroundings(void **state)
{
    surroundings s = { .open_signals = { 0 } };
    sigset_t before, after;
    pool *p = NULL;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(pool_open(&p, 4, NULL), LLADA_OK);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    pool_run(p, look_around, &s);
    pool_close(&p);
    for (int sig = 1; sig < 32; sig++)
        assert_int_equal(sigismember(&before, sig), sigismember(&after, sig));
    assert_true(s.open_signals[0] > 0);
    for (int t = 1; t < 4; t++) {
        assert_int_equal(s.open_signals[t], 0);
        assert_true(s.stack[t] >= 256 * 1024 && s.stack[t] <= 1024 * 1024);
    }
}

enum { ROWS = 133, COLS = 257 };

typedef struct {
    float in[ROWS][COLS], out[ROWS];
} sums;

static void sum_rows(void *user, int t, int n)
{
    sums *s = user;
    int lo, hi;
    pool_share(ROWS, 4, t, n, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        float x = 0;
        for (int c = 0; c < COLS; c++)
            x += s->in[r][c];
        s->out[r] = x;
    }
}

/* The same bits for any number of threads, on every run. */
static void test_same_bits(void **state)
{
    static sums s;
    float first[ROWS];
    for (int i = 0; i < ROWS * COLS; i++)
        s.in[i / COLS][i % COLS] = 1.0f / (float)(i * 37 % 1009 + 1) - 0.001f * (float)(i % 17);
    sum_rows(&s, 0, 1);
    memcpy(first, s.out, sizeof first);
    for (int n = 1; n <= 8; n++) {
        pool *p = NULL;
        assert_int_equal(pool_open(&p, n, NULL), LLADA_OK);
        for (int run = 0; run < 10; run++) {
            memset(s.out, 0, sizeof s.out);
            pool_run(p, sum_rows, &s);
            assert_memory_equal(s.out, first, sizeof first);
        }
        pool_close(&p);
    }
}

static void *use_pool(void *arg)
{
    pool *p = arg;
    int rounds[3] = { 0 };
    for (int i = 0; i < 50; i++)
        pool_run(p, slow_part, rounds);
    return (void *)(intptr_t)(rounds[0] + rounds[1] + rounds[2]);
}

/* Two pools at once, each used by a thread that did not open it. */
static void test_two_pools(void **state)
{
    pool *p[2] = { NULL, NULL };
    pthread_t id[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pool_open(&p[i], 3, NULL), LLADA_OK);
        assert_int_equal(pthread_create(&id[i], NULL, use_pool, p[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        void *sum;
        assert_int_equal(pthread_join(id[i], &sum), 0);
        assert_int_equal((intptr_t)sum, 150);
        pool_close(&p[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_share, reset),         cmocka_unit_test_setup(test_rounds, reset),
        cmocka_unit_test_setup(test_sleepers, reset),      cmocka_unit_test_setup(test_slow_part, reset),
        cmocka_unit_test_setup(test_arguments, reset),     cmocka_unit_test_setup(test_fewer_threads, reset),
        cmocka_unit_test_setup(test_no_memory, reset),     cmocka_unit_test_setup(test_surroundings, reset),
        cmocka_unit_test_setup(test_same_bits, reset),     cmocka_unit_test_setup(test_two_pools, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
