/* Whole files, and what the system says about itself.  os.c is compiled into this program under other names, so that
 * the system calls it makes can be made to fail. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/task.h"
#include "scratch.h"

/* ---------------------------------------------------------------- system calls that fail on request */

static struct {
    bool no_map;           /* mmap fails */
    size_t read_most;      /* bytes a read gives at most; 0: as many as asked for */
    int read_interrupts;   /* EINTR before each read that succeeds */
    int open_interrupts;   /* EINTR before an open */
    size_t eio_at, eof_at; /* a read from this offset fails, or finds the end; 0: never */
    const char *pipe_at;   /* just before it is opened this file becomes a pipe */
    bool no_affinity;
    int maps, reads, interrupted; /* calls seen */
} fake;

static void *fake_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
    fake.maps++;
    if (fake.no_map) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return mmap(at, len, prot, flags, fd, off);
}

static ssize_t fake_read(int fd, void *buf, size_t n)
{
    size_t at = (size_t)lseek(fd, 0, SEEK_CUR);
    fake.reads++;
    if (fake.interrupted < fake.read_interrupts) {
        fake.interrupted++;
        errno = EINTR;
        return -1;
    }
    fake.interrupted = 0;
    if (fake.eof_at && at >= fake.eof_at)
        return 0;
    if (fake.eio_at && at >= fake.eio_at) {
        errno = EIO;
        return -1;
    }
    return read(fd, buf, fake.read_most && n > fake.read_most ? fake.read_most : n);
}

static int fake_open(const char *path, int flags)
{
    if (fake.open_interrupts > 0) {
        fake.open_interrupts--;
        errno = EINTR;
        return -1;
    }
    if (fake.pipe_at && (unlink(fake.pipe_at) != 0 || mkfifo(fake.pipe_at, 0600) != 0))
        return -1;
    return open(path, flags);
}

static int fake_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    return fake.no_affinity ? -1 : sched_getaffinity(pid, size, set);
}

#define os_why tested_os_why
#define os_map tested_os_map
#define os_unmap tested_os_unmap
#define os_map_lost tested_os_map_lost
#define os_seconds tested_os_seconds
#define os_page_size tested_os_page_size
#define os_cores tested_os_cores
#define mmap fake_mmap
#define read fake_read
#define open fake_open
#define sched_getaffinity fake_getaffinity
#include "../../src/base/os.c"
#undef mmap
#undef read
#undef open
#undef sched_getaffinity

/* ---------------------------------------------------------------- tests */

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static scratch box;

static int reset(void **state)
{
    memset(&fake, 0, sizeof fake);
    return 0;
}

/* The lowest free descriptor: higher than before when one leaked. */
static int next_fd(void)
{
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}

static void test_map_good(void **state)
{
    static uint8_t data[100000];
    static const size_t sizes[] = { 0, 1, 4095, 4096, 4097, sizeof data };
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 31 >> 3);
    for (size_t i = 0; i < 2 * COUNT(sizes); i++) {
        size_t n = sizes[i / 2];
        bool use = i % 2;
        const char *path = scratch_write(&box, "good", data, n);
        int fd = next_fd();
        os_file f;
        llada_err err = { .text = "" };
        assert_int_equal(os_map(&f, path, use, &err), LLADA_OK);
        assert_int_equal(f.len, n);
        assert_int_equal(f.mapped, use && n > 0);
        assert_non_null(f.data);
        assert_memory_equal(f.data, data, n);
        assert_false(os_map_lost(&f, path));
        assert_int_equal(next_fd(), fd);
        os_unmap(&f);
        assert_null(f.data);
        os_unmap(&f);
    }
    assert_true(fake.maps == 5 && fake.reads == 5); /* an empty file needs neither */
}

/* What can't be opened is told apart, names the path, and leaves nothing behind. */
static void test_map_refused(void **state)
{
    static const struct {
        const char *name, *says;
    } t[] = {
        { "nothing", "there is no such file or folder" },
        { "plain/below", "a part of the path is not a folder" },
        { "folder", "is a folder" },
        { "pipe", "is a pipe" },
        { "socket", "is a socket" },
        { "loop", "too many symbolic links" },
        { "secret", "permission denied" },
        { "/dev/zero", "is a device" },
    };
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    scratch_write(&box, "plain", "x", 1);
    assert_int_equal(mkdir(scratch_path(&box, "folder"), 0755), 0);
    assert_int_equal(mkfifo(scratch_path(&box, "pipe"), 0644), 0);
    assert_int_equal(symlink("loop", scratch_path(&box, "loop")), 0);
    assert_int_equal(chmod(scratch_write(&box, "secret", "x", 1), 0), 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%.60s", scratch_path(&box, "socket"));
    int sock = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(sock, (struct sockaddr *)&a, sizeof a), 0);
    close(sock);

    bool root = geteuid() == 0;
    int fd = next_fd();
    for (size_t i = 0; i < 2 * COUNT(t); i++) {
        const char *name = t[i / 2].name, *path = name[0] == '/' ? name : scratch_path(&box, name);
        os_file f;
        llada_err err;
        if (root)
            assert_int_equal(seteuid(65534), 0); /* root may read everything */
        llada_status s = os_map(&f, path, i % 2, &err);
        if (root)
            assert_int_equal(seteuid(0), 0);
        assert_int_equal(s, LLADA_IO);
        if (!strstr(err.text, t[i / 2].says) || !strstr(err.text, path))
            fail_msg("%s: \"%s\"", name, err.text);
        assert_true(f.data == NULL && f.len == 0 && !f.mapped);
        os_unmap(&f);
        assert_int_equal(os_map(&f, path, i % 2, NULL) != LLADA_OK, !(root && strcmp(name, "secret") == 0));
        os_unmap(&f);
    }
    assert_int_equal(next_fd(), fd);
}

static void test_map_bad_names(void **state)
{
    char name[300];
    os_file f;
    llada_err err;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(os_map(&f, scratch_path(&box, name), true, &err), LLADA_IO);
    assert_non_null(strstr(err.text, "the name is too long"));
    assert_int_equal(os_map(&f, "", true, &err), LLADA_BAD_ARG);
    assert_int_equal(os_map(&f, NULL, true, &err), LLADA_BAD_ARG);
    os_unmap(&f);
}

/* The name is a file when it is looked at, and a pipe when it is opened: refused, not waited on. */
static void test_map_pipe_at_last_moment(void **state)
{
    char path[sizeof box.path];
    os_file f;
    llada_err err;
    strcpy(path, scratch_write(&box, "becomes-pipe", "x", 1));
    int fd = next_fd();
    fake.pipe_at = path;
    alarm(30); /* a kill, should it wait after all */
    assert_int_equal(os_map(&f, path, true, &err), LLADA_IO);
    alarm(0);
    assert_non_null(strstr(err.text, "is a pipe"));
    assert_int_equal(next_fd(), fd);
}

static void test_map_reads_instead(void **state)
{
    const char *path = scratch_write(&box, "text", "a mapping is refused", 20);
    os_file f;
    fake.no_map = true;
    fake.open_interrupts = 2;
    fake.read_interrupts = 3;
    fake.read_most = 7;
    assert_int_equal(os_map(&f, path, true, NULL), LLADA_OK);
    assert_false(f.mapped);
    assert_int_equal(f.len, 20);
    assert_memory_equal(f.data, "a mapping is refused", 20);
    assert_int_equal(fake.maps, 1);
    assert_int_equal(fake.reads, 3 * 4);
    os_unmap(&f);
}

static void test_map_read_faults(void **state)
{
    const char *path = scratch_write(&box, "text", "0123456789", 10);
    int fd = next_fd();
    os_file f;
    llada_err err;
    fake.read_most = 4;
    fake.eio_at = 8;
    assert_int_equal(os_map(&f, path, false, &err), LLADA_IO);
    assert_non_null(strstr(err.text, "input/output error"));
    fake.eio_at = 0;
    fake.eof_at = 4;
    assert_int_equal(os_map(&f, path, false, &err), LLADA_IO);
    assert_non_null(strstr(err.text, "became shorter while it was read: 4 of 10 bytes"));
    fake.eof_at = 0;
    mem_fail_at(1);
    assert_int_equal(os_map(&f, path, false, &err), LLADA_NO_MEMORY);
    assert_null(f.data);
    assert_int_equal(os_map(&f, path, false, &err), LLADA_OK);
    assert_int_equal(next_fd(), fd);
    os_unmap(&f);
}

static void test_map_lost(void **state)
{
    char path[sizeof box.path], other[sizeof box.path];
    os_file f, heap, none = { 0 };
    strcpy(path, scratch_write(&box, "shrinks", "0123456789", 10));
    assert_int_equal(os_map(&f, path, true, NULL), LLADA_OK);
    assert_int_equal(os_map(&heap, path, false, NULL), LLADA_OK);
    assert_int_equal(truncate(path, 20), 0);
    assert_false(os_map_lost(&f, path));
    assert_int_equal(truncate(path, 9), 0);
    assert_true(os_map_lost(&f, path));
    assert_false(os_map_lost(&heap, path));
    assert_false(os_map_lost(&none, path));
    assert_int_equal(truncate(path, 10), 0);

    strcpy(other, scratch_write(&box, "other", "1", 1));
    assert_int_equal(rename(other, path), 0);
    assert_false(os_map_lost(&f, path)); /* replaced by a shorter one: the mapped file lives on */
    assert_int_equal(unlink(path), 0);
    assert_false(os_map_lost(&f, path));
    os_unmap(&f);
    os_unmap(&heap);
}

static void test_machine(void **state)
{
    size_t page = os_page_size();
    assert_true(page >= 4096 && (page & (page - 1)) == 0);
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(os_cores(), CPU_COUNT(&all));
    int first = 0;
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(os_cores(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    fake.no_affinity = true;
    assert_true(os_cores() >= 1);

    double t = os_seconds();
    struct timespec ms = { 0, 1000000 };
    nanosleep(&ms, NULL);
    double dt = os_seconds() - t;
    assert_true(dt >= 0.001 && dt < 30);
}

/* Two words, changed in turn by two threads that each sleep until the other has done so. */
typedef struct {
    _Atomic uint32_t ball, back;
} game;

enum { TURNS = 1000 };

static void until(_Atomic uint32_t *word, uint32_t value)
{
    uint32_t now;
    while ((now = atomic_load(word)) != value)
        os_sleep_on(word, now);
}

static void return_balls(void *user)
{
    game *g = user;
    for (uint32_t i = 1; i <= TURNS; i++) {
        until(&g->ball, i);
        atomic_store(&g->back, i);
        os_wake(&g->back);
    }
}

static void test_sleep(void **state)
{
    game g = { 0 };
    task *other = NULL;
    llada_err err;
    os_sleep_on(&g.ball, 1); /* the word is another: no sleep */
    assert_int_equal(task_open(&other, &err), LLADA_OK);
    task_start(other, return_balls, &g);
    for (uint32_t i = 1; i <= TURNS; i++) {
        atomic_store(&g.ball, i);
        os_wake(&g.ball);
        until(&g.back, i);
    }
    task_close(&other);
}

static void test_why(void **state)
{
    assert_string_equal(os_why(ENOSPC), "the disk is full");
    assert_string_equal(os_why(0), "the system refused");
    assert_string_equal(os_why(-5), "the system refused");
    assert_string_equal(os_why(99999), "the system refused");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_map_good, reset),
        cmocka_unit_test_setup(test_map_refused, reset),
        cmocka_unit_test_setup(test_map_bad_names, reset),
        cmocka_unit_test_setup(test_map_pipe_at_last_moment, reset),
        cmocka_unit_test_setup(test_map_reads_instead, reset),
        cmocka_unit_test_setup(test_map_read_faults, reset),
        cmocka_unit_test_setup(test_map_lost, reset),
        cmocka_unit_test_setup(test_machine, reset),
        cmocka_unit_test_setup(test_sleep, reset),
        cmocka_unit_test_setup(test_why, reset),
    };
    if (!scratch_open(&box))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_close(&box);
    return failed;
}
