/* test_stream.c - the transfer thread on its own: the right bytes in the right order over passes with any number of
 * rounds, passes that are given up or cancelled, slots that are all full, reads that fail. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "device/stream.h"
#include "scratch.h"

enum { PARTS = 12, FILE_BYTES = 300000, SLOT = 32768, PASSES = 60 };

static atomic_int reads, failing;
static atomic_bool hang;    /* the storage does not answer ... */
static atomic_bool hanging; /* ... and a read has noticed */

/* The library's reads come here: the program's own definition is found first. */
ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    const struct timespec moment = { .tv_nsec = 1000000 };
    atomic_fetch_add(&reads, 1);
    while (atomic_load(&hang)) {
        atomic_store(&hanging, true);
        nanosleep(&moment, NULL);
    }
    if (atomic_load(&failing)) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, to, n, at);
}

static scratch dir;
static uint8_t bytes[FILE_BYTES];
static os_reader *reader;
static stream_part parts[PARTS];
static uint8_t *raw, *room;

static int setup(void **state)
{
    rng r;
    rng_seed(&r, 5);
    strcpy(dir.dir, "/dev/shm/llada-test-XXXXXX");
    if (!mkdtemp(dir.dir) && !scratch_open(&dir)) return -1;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)rng_below(&r, 256);
    const char *path = scratch_write(&dir, "parts", bytes, sizeof bytes);
    if (!path || os_reader_open(&reader, path, NULL, NULL)) return -1;
    for (int i = 0; i < PARTS; i++) {
        parts[i] = (stream_part){ "blk.0.some.weight", reader, rng_below(&r, FILE_BYTES - SLOT), 0 };
        parts[i].bytes = 1 + rng_below(&r, SLOT - OS_READ_ALIGN);
    }
    parts[PARTS - 1].at = FILE_BYTES - parts[PARTS - 1].bytes; /* the end of the file is no whole piece */
    raw = mem_new(STREAM_MAX_SLOTS * SLOT + OS_READ_ALIGN);
    room = raw + OS_READ_ALIGN - (uintptr_t)raw % OS_READ_ALIGN;
    return 0;
}

static int teardown(void **state)
{
    os_reader_close(&reader);
    mem_free(raw);
    scratch_close(&dir);
    return 0;
}

static void take(stream *s, int i)
{
    const uint8_t *data;
    llada_err err;
    if (stream_take(s, i, NULL, &data, &err)) fail_msg("part %d: %s", i, err.text);
    assert_memory_equal(data, bytes + parts[i].at, parts[i].bytes);
    stream_give(s);
}

/* A pass that stops before its part number `stop`, counted over all rounds. */
static void run_pass(stream *s, int again, int end, int rounds, int stop)
{
    int taken = 0;
    stream_begin(s, rounds);
    for (int i = 0; i < again; i++)
        if (taken++ < stop) take(s, i);
    for (int r = 0; r < rounds; r++)
        for (int i = again; i < end; i++)
            if (taken++ < stop) take(s, i);
    for (int i = end; i < PARTS; i++)
        if (taken++ < stop) take(s, i);
}

static void test_passes(void **state)
{
    static const int groups[][2] = { { 9, 12 }, { 0, 0 }, { 4, 7 }, { 0, 3 }, { 11, 12 }, { 0, 12 } };
    rng r;
    rng_seed(&r, 6);
    for (int ahead = 0; ahead < 2; ahead++) {
        stream *s;
        assert_int_equal(stream_open(&s, ahead, NULL), LLADA_OK);
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
            int again = groups[g][0], end = groups[g][1];
            stream_set(s, parts, PARTS, again, end, room, 2 + (int)rng_below(&r, 4), SLOT);
            for (int k = 0; k < PASSES; k++) {
                int rounds = end > again ? (int)rng_below(&r, 4) : 1;
                run_pass(s, again, end, rounds, rng_below(&r, 5) ? 1000 : (int)rng_below(&r, PARTS));
            }
        }
        stream_stats t;
        stream_get_stats(s, &t);
        assert_true(t.parts > 500 && t.bytes > t.parts);
        stream_close(&s);
    }
}

/* Not more is read than there are slots, however long nobody takes anything; and not past what is known. */
static void test_back_pressure(void **state)
{
    stream *s;
    const struct timespec moment = { .tv_nsec = 20000000 };
    assert_int_equal(stream_open(&s, true, NULL), LLADA_OK);
    atomic_store(&reads, 0);
    stream_set(s, parts, PARTS, PARTS, PARTS, room, 3, SLOT);
    while (atomic_load(&reads) < 3) nanosleep(&moment, NULL);
    nanosleep(&moment, NULL);
    assert_int_equal(atomic_load(&reads), 3);
    run_pass(s, PARTS, PARTS, 1, 1000);
    nanosleep(&moment, NULL);
    assert_in_range(atomic_load(&reads), PARTS, PARTS + 3);
    atomic_store(&reads, 0);
    stream_set(s, parts, PARTS, 2, PARTS, room, 8, SLOT); /* the third part is in a group whose rounds are not known */
    while (atomic_load(&reads) < 2) nanosleep(&moment, NULL);
    nanosleep(&moment, NULL);
    assert_int_equal(atomic_load(&reads), 2);
    stream_close(&s);
}

/* A part out of order is refused; so is nothing else afterwards. */
static void test_order(void **state)
{
    stream *s;
    const uint8_t *data;
    assert_int_equal(stream_open(&s, true, NULL), LLADA_OK);
    stream_set(s, parts, PARTS, 0, 0, room, 2, SLOT);
    stream_begin(s, 1);
    assert_int_equal(stream_take(s, 3, NULL, &data, NULL), LLADA_BAD_ARG);
    run_pass(s, 0, 0, 1, 1000);
    stream_close(&s);
}

/* Storage fails: the pass says where, and when it is well again so is the next pass.  Closing in between is fine. */
static void test_failure(void **state)
{
    for (int stop = 0; stop < PARTS; stop++) {
        stream *s;
        llada_err err = { 0 };
        const uint8_t *data;
        assert_int_equal(stream_open(&s, true, NULL), LLADA_OK);
        stream_set(s, parts, PARTS, 0, 0, room, 2, SLOT);
        run_pass(s, 0, 0, 1, stop);
        atomic_store(&failing, 1);
        stream_begin(s, 1);
        llada_status st = LLADA_OK;
        for (int i = 0; i < PARTS && !st; i++) {
            st = stream_take(s, i, NULL, &data, &err);
            if (!st) stream_give(s);
        }
        assert_int_equal(st, LLADA_IO);
        assert_non_null(strstr(err.text, "blk.0.some.weight can't be read at byte "));
        atomic_store(&failing, 0);
        if (stop % 2) run_pass(s, 0, 0, 1, 1000);
        stream_close(&s);
    }
}

static atomic_bool stop;

/* Cancels once the storage hangs. */
static void *cancel(void *user)
{
    const struct timespec moment = { .tv_nsec = 5000000 };
    while (!atomic_load(&hanging)) nanosleep(&moment, NULL);
    nanosleep(&moment, NULL);
    atomic_store(&stop, true);
    return NULL;
}

/* A wait for storage that does not answer ends when the pass is cancelled; when it answers again so does the next pass.
 * Were the wait not ended, the test would not end either. */
static void test_cancel(void **state)
{
    stream *s;
    pthread_t t;
    const uint8_t *data;
    for (int warm = 0; warm < 2; warm++) { /* with nothing in the slots, and with some parts */
        atomic_store(&stop, false);
        atomic_store(&hang, !warm);
        assert_int_equal(stream_open(&s, true, NULL), LLADA_OK);
        stream_set(s, parts, PARTS, 0, 0, room, 3, SLOT);
        if (warm) run_pass(s, 0, 0, 1, 1000);
        atomic_store(&hanging, false);
        atomic_store(&hang, true);
        pthread_create(&t, NULL, cancel, NULL);
        llada_status st = LLADA_OK;
        stream_begin(s, 1);
        for (int i = 0; i < PARTS && !st; i++) {
            st = stream_take(s, i, &stop, &data, NULL);
            if (!st) stream_give(s);
        }
        assert_int_equal(st, LLADA_CANCELLED);
        assert_true(atomic_load(&hang));
        pthread_join(t, NULL);
        atomic_store(&hang, false);
        run_pass(s, 0, 0, 1, 1000);
        stream_close(&s);
    }
}

static void test_no_memory(void **state)
{
    for (uint64_t k = 1; k <= 3; k++) {
        stream *s = NULL;
        mem_fail_at(k);
        assert_int_equal(stream_open(&s, true, NULL), LLADA_NO_MEMORY);
        mem_fail_at(0);
        assert_null(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passes),  cmocka_unit_test(test_back_pressure), cmocka_unit_test(test_order),
        cmocka_unit_test(test_failure), cmocka_unit_test(test_cancel),        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
