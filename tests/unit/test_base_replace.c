/* Replacing a file: whatever fails, and whenever the program is killed, the old file or the new one is there, whole.
 * os_replace.c is compiled into this program under other names, so that its system calls can be made to fail. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "scratch.h"

/* ---------------------------------------------------------------- system calls that fail on request */

/* Each an errno value; 0: the call works. */
static struct {
    int open, fdopen, fflush, fsync, fclose, rename, linkat;
    bool tmpfile;        /* files without a name can be had; the tests of names go without */
    int open_exists;     /* names that another program takes just before */
    char taken[512];     /* the last of them */
    int fsync_interrupts;
    int fsyncs;          /* calls that worked */
} fake;

static int fails(int code)
{
    errno = code;
    return code ? -1 : 0;
}

static int fake_open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    if ((flags & O_TMPFILE) == O_TMPFILE) {
        if (!fake.tmpfile) return fails(EOPNOTSUPP);
        return open(path, flags, 0666);
    }
    if (flags & O_CREAT && fake.open_exists > 0) {
        fake.open_exists--;
        snprintf(fake.taken, sizeof fake.taken, "%s", path);
        FILE *f = fopen(path, "w");
        fputs("theirs", f);
        fclose(f);
    }
    return fails(flags & O_CREAT ? fake.open : 0) ? -1 : open(path, flags, mode);
}

static FILE *fake_fdopen(int fd, const char *mode)
{
    return fails(fake.fdopen) ? NULL : fdopen(fd, mode);
}

static int fake_fflush(FILE *f)
{
    return fails(fake.fflush) ? EOF : fflush(f);
}

static int fake_fsync(int fd)
{
    if (fake.fsync_interrupts > 0) {
        fake.fsync_interrupts--;
        return fails(EINTR);
    }
    if (fails(fake.fsync))
        return -1;
    fake.fsyncs++;
    return fsync(fd);
}

/* As close does on a network file system: the descriptor is gone, and the data too. */
static int fake_fclose(FILE *f)
{
    int r = fclose(f);
    return fails(fake.fclose) ? EOF : r;
}

static int fake_rename(const char *from, const char *to)
{
    return fails(fake.rename) ? -1 : rename(from, to);
}

static int fake_linkat(int a, const char *from, int b, const char *to, int flags)
{
    return fails(fake.linkat) ? -1 : linkat(a, from, b, to, flags);
}

#define os_create tested_os_create
#define os_commit tested_os_commit
#define os_discard tested_os_discard
#define open fake_open
#define fdopen fake_fdopen
#define fflush fake_fflush
#define fsync fake_fsync
#define fclose fake_fclose
#define rename fake_rename
#define linkat fake_linkat
#include "../../src/base/os_replace.c"
#undef open
#undef fdopen
#undef fflush
#undef fsync
#undef fclose
#undef rename
#undef linkat

/* ---------------------------------------------------------------- helpers */

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static scratch box;
static char target[512]; /* the file that is replaced; "old" before each test */

static int setup(void **state)
{
    memset(&fake, 0, sizeof fake);
    if (!scratch_open(&box) || !scratch_write(&box, "target", "old", 3))
        return -1;
    strcpy(target, box.path);
    return 0;
}

static int teardown(void **state)
{
    scratch_close(&box);
    return 0;
}

static bool holds(const char *path, const char *text)
{
    char buf[64] = "";
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    size_t n = fread(buf, 1, sizeof buf - 1, f);
    fclose(f);
    return n == strlen(text) && memcmp(buf, text, n) == 0;
}

/* Files and folders in the box. */
static int entries(void)
{
    int n = 0;
    DIR *d = opendir(box.dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

static int next_fd(void)
{
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}

/* Creates, writes `text`, commits. */
static llada_status replace(const char *path, const char *text, llada_err *err)
{
    os_new_file n;
    llada_status s = os_create(&n, path, err);
    if (s != LLADA_OK)
        return s;
    fputs(text, n.f);
    s = os_commit(&n, err);
    assert_true(n.f == NULL && n.path == NULL && n.tmp == NULL);
    os_discard(&n);
    return s;
}

/* ---------------------------------------------------------------- tests */

static void test_replaces(void **state)
{
    int fd = next_fd();
    os_new_file n;
    assert_int_equal(os_create(&n, target, NULL), LLADA_OK);
    fputs("new", n.f);
    fflush(n.f);
    assert_true(holds(target, "old")); /* until the commit */
    assert_true(holds(n.tmp, "new"));
    assert_int_equal(entries(), 2);
    assert_int_equal(fcntl(fileno(n.f), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(os_commit(&n, NULL), LLADA_OK);
    assert_true(holds(target, "new"));
    assert_int_equal(fake.fsyncs, 2); /* file and folder */
    os_discard(&n);
    os_discard(&n);
    assert_int_equal(entries(), 1);

    assert_int_equal(replace(scratch_path(&box, "fresh"), "", NULL), LLADA_OK);
    assert_true(holds(scratch_path(&box, "fresh"), ""));
    assert_int_equal(next_fd(), fd);
}

static void test_discards(void **state)
{
    os_new_file n;
    assert_int_equal(os_create(&n, target, NULL), LLADA_OK);
    fputs("new", n.f);
    os_discard(&n);
    os_discard(&n);
    assert_true(holds(target, "old"));
    assert_int_equal(entries(), 1);
    llada_err err;
    assert_int_equal(os_commit(&n, &err), LLADA_BAD_ARG);
    assert_int_equal(entries(), 1);
}

static void test_can_seek_and_read(void **state)
{
    os_new_file n;
    char buf[8] = "";
    assert_int_equal(os_create(&n, target, NULL), LLADA_OK);
    fputs("xxxx", n.f);
    rewind(n.f);
    fputs("ab", n.f);
    rewind(n.f);
    assert_int_equal(fread(buf, 1, 7, n.f), 4);
    assert_string_equal(buf, "abxx");
    assert_int_equal(os_commit(&n, NULL), LLADA_OK);
    assert_true(holds(target, "abxx"));
}

static void test_mode_follows_umask(void **state)
{
    static const mode_t masks[] = { 0, 022, 027, 077 };
    struct stat st;
    for (size_t i = 0; i < COUNT(masks); i++) {
        mode_t before = umask(masks[i]);
        llada_status s = replace(target, "new", NULL);
        umask(before);
        assert_int_equal(s, LLADA_OK);
        assert_int_equal(stat(target, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0666 & ~masks[i]);
    }
}

static void test_current_folder(void **state)
{
    char home[4096];
    os_new_file n;
    assert_non_null(getcwd(home, sizeof home));
    assert_int_equal(chdir(box.dir), 0);
    llada_status s = os_create(&n, "target", NULL);
    bool hidden = s == LLADA_OK && strncmp(n.tmp, ".target.", 8) == 0 && strlen(n.tmp) == 14;
    llada_status c = s == LLADA_OK ? os_commit(&n, NULL) : s;
    assert_int_equal(chdir(home), 0);
    assert_int_equal(c, LLADA_OK);
    assert_true(hidden);
    assert_int_equal(fake.fsyncs, 2);
    assert_true(holds(target, ""));
}

static void test_long_names(void **state)
{
    char name[257];
    llada_err err;
    memset(name, 'n', 256);
    name[256] = 0;
    assert_int_equal(replace(scratch_path(&box, name), "new", &err), LLADA_IO);
    assert_non_null(strstr(err.text, "the name is too long"));
    assert_int_equal(entries(), 1);
    name[255] = 0;
    assert_int_equal(replace(scratch_path(&box, name), "new", &err), LLADA_OK);
    assert_true(holds(box.path, "new"));
}

/* Places that are refused before anything is written. */
static void test_bad_places(void **state)
{
    static const struct {
        const char *name, *says;
    } t[] = {
        { "folder", "it is a folder" },
        { "folder/", "it names a folder" },
        { "pipe", "a device or a pipe" },
        { "null", "a device or a pipe" }, /* by a link */
        { "missing/file", "there is no such file or folder" },
        { "target/file", "a part of the path is not a folder" },
        { "locked/file", "permission denied" },
        { "/dev/null", "a device or a pipe" },
    };
    assert_int_equal(mkdir(scratch_path(&box, "folder"), 0777), 0);
    assert_int_equal(mkdir(scratch_path(&box, "locked"), 0555), 0);
    assert_int_equal(mkfifo(scratch_path(&box, "pipe"), 0666), 0);
    assert_int_equal(symlink("/dev/null", scratch_path(&box, "null")), 0);
    bool root = geteuid() == 0;
    int before = entries(), fd = next_fd();
    for (size_t i = 0; i < COUNT(t); i++) {
        const char *path = t[i].name[0] == '/' ? t[i].name : scratch_path(&box, t[i].name);
        llada_err err;
        if (root)
            assert_int_equal(seteuid(65534), 0); /* root may write everywhere */
        llada_status s = replace(path, "new", &err);
        if (root)
            assert_int_equal(seteuid(0), 0);
        assert_int_equal(s, LLADA_IO);
        if (!strstr(err.text, t[i].says) || !strstr(err.text, path))
            fail_msg("%s: \"%s\"", t[i].name, err.text);
    }
    assert_int_equal(replace("", "new", NULL), LLADA_BAD_ARG);
    assert_int_equal(replace(NULL, "new", NULL), LLADA_BAD_ARG);
    assert_int_equal(entries(), before);
    assert_int_equal(next_fd(), fd);
}

/* Each call in turn fails: a sentence, the old file, nothing left behind. */
static void test_faults(void **state)
{
    static const struct {
        int *call, code;
        const char *says;
    } t[] = {
        { &fake.open, ENOSPC, "the disk is full" },   { &fake.open, EMFILE, "too many open files" },
        { &fake.fdopen, ENOMEM, "out of memory" },    { &fake.fflush, ENOSPC, "the disk is full" },
        { &fake.fflush, EDQUOT, "quota is used up" }, { &fake.fsync, EIO, "input/output error" },
        { &fake.fsync, ENOSPC, "the disk is full" },  { &fake.fclose, EDQUOT, "quota is used up" },
        { &fake.rename, EROFS, "read-only" },         { &fake.rename, EXDEV, "the system refused (error 18)" },
    };
    int fd = next_fd();
    for (size_t i = 0; i < COUNT(t); i++) {
        llada_err err;
        *t[i].call = t[i].code;
        assert_int_equal(replace(target, "new", &err), LLADA_IO);
        *t[i].call = 0;
        if (!strstr(err.text, t[i].says) || !strstr(err.text, target))
            fail_msg("%s: \"%s\"", t[i].says, err.text);
        assert_true(holds(target, "old"));
        assert_int_equal(entries(), 1);
        assert_int_equal(next_fd(), fd);
    }
    assert_int_equal(replace(target, "new", NULL), LLADA_OK);
}

static void test_harmless_faults(void **state)
{
    fake.open_exists = 5;
    fake.fsync_interrupts = 3;
    assert_int_equal(replace(target, "1", NULL), LLADA_OK);
    assert_true(holds(target, "1"));
    assert_int_equal(entries(), 1 + 5);
    assert_true(holds(fake.taken, "theirs"));
    fake.fsync = EINVAL; /* a file system without fsync */
    assert_int_equal(replace(target, "2", NULL), LLADA_OK);
    assert_true(holds(target, "2"));
    fake.fsync = 0;
    fake.open_exists = 1000;
    assert_int_equal(replace(target, "3", NULL), LLADA_IO);
    assert_true(holds(target, "2"));
}

/* The two names that os_create makes are needed; those for the folder (stale files, sync) are not. */
static void test_no_memory(void **state)
{
    for (uint64_t k = 1; k <= 6; k++) {
        mem_fail_at(k);
        assert_int_equal(replace(target, "new", NULL), k < 3 ? LLADA_NO_MEMORY : LLADA_OK);
        mem_fail_at(0);
        assert_true(holds(target, k < 3 ? "old" : "new"));
        assert_int_equal(entries(), 1);
    }
}

/* Where files need no name until they are whole, none is seen; the mode is as always; faults leave nothing. */
static void test_without_a_name(void **state)
{
    static const struct {
        int *call, code;
    } t[] = { { &fake.fflush, ENOSPC }, { &fake.fsync, EIO }, { &fake.linkat, ENOSPC }, { &fake.fclose, EDQUOT },
              { &fake.rename, EROFS } };
    os_new_file n;
    int fd = next_fd();
    fake.tmpfile = true;
    assert_int_equal(os_create(&n, target, NULL), LLADA_OK);
    if (n.named) { /* not on this file system */
        os_discard(&n);
        return;
    }
    fputs("new", n.f);
    fflush(n.f);
    assert_int_equal(entries(), 1);
    assert_true(holds(target, "old"));
    assert_int_equal(os_commit(&n, NULL), LLADA_OK);
    assert_true(holds(target, "new"));
    assert_int_equal(entries(), 1);
    for (size_t i = 0; i < COUNT(t); i++) {
        *t[i].call = t[i].code;
        assert_int_equal(replace(target, "newer", NULL), LLADA_IO);
        *t[i].call = 0;
        assert_true(holds(target, "new"));
        assert_int_equal(entries(), 1);
    }
    assert_int_equal(os_create(&n, scratch_path(&box, "fresh"), NULL), LLADA_OK);
    os_discard(&n);
    assert_int_equal(entries(), 1);
    assert_int_equal(next_fd(), fd);
    test_mode_follows_umask(state);
}

/* What killed writers left goes away; what others are writing, and what only looks alike, stays. */
static void test_stale_files(void **state)
{
    static const char *const alike[] = { ".target.abcde", ".target.abcdefg", ".target.ABCDEF", ".target2.abcdef",
                                         "target.abcdef", ".other.abcdef" };
    os_new_file n;
    scratch_write(&box, ".target.abc123", "left", 4);
    scratch_write(&box, ".target.zzzzzz", "left", 4);
    for (size_t i = 0; i < COUNT(alike); i++) scratch_write(&box, alike[i], "x", 1);
    assert_int_equal(symlink(target, scratch_path(&box, ".target.linked")), 0);
    int before = entries();
    assert_int_equal(os_create(&n, target, NULL), LLADA_OK); /* named, and locked */
    assert_int_equal(entries(), before - 2 + 1);
    assert_int_equal(replace(target, "second", NULL), LLADA_OK);
    assert_int_equal(entries(), before - 2 + 1);
    assert_int_equal(os_commit(&n, NULL), LLADA_OK);
    assert_true(holds(target, ""));
    assert_int_equal(entries(), before - 2);
}

/* A real limit on the size of files stands for a full disk; `widen`: there is room again before the commit. */
static llada_status write_past_limit(size_t bytes, bool buffered, bool widen, llada_err *err)
{
    struct rlimit before, small;
    os_new_file n;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 5000;
    llada_status s = os_create(&n, target, err);
    if (s != LLADA_OK)
        return s;
    if (buffered)
        setvbuf(n.f, NULL, _IOFBF, 1 << 16);
    setrlimit(RLIMIT_FSIZE, &small);
    for (size_t i = 0; i < bytes; i++)
        fputc('n', n.f);
    if (widen)
        setrlimit(RLIMIT_FSIZE, &before);
    s = os_commit(&n, err);
    setrlimit(RLIMIT_FSIZE, &before);
    return s;
}

static void test_disk_full(void **state)
{
    llada_err err;
    int fd = next_fd();
    signal(SIGXFSZ, SIG_IGN);
    for (int buffered = 0; buffered < 2; buffered++) {
        assert_int_equal(write_past_limit(20000, buffered, false, &err), LLADA_IO);
        assert_non_null(strstr(err.text, target));
        assert_true(holds(target, "old"));
    }
    assert_non_null(strstr(err.text, "larger than allowed"));
    /* a write that failed is remembered, even if all later ones work */
    assert_int_equal(write_past_limit(20000, false, true, &err), LLADA_IO);
    assert_non_null(strstr(err.text, "a write to it failed"));
    assert_true(holds(target, "old"));
    assert_int_equal(entries(), 1);
    assert_int_equal(write_past_limit(5000, false, false, &err), LLADA_OK);
    signal(SIGXFSZ, SIG_DFL);
    struct stat st;
    assert_int_equal(stat(target, &st), 0);
    assert_int_equal(st.st_size, 5000);
    assert_int_equal(next_fd(), fd);
}

/* ---------------------------------------------------------------- killed at any moment */

enum { KILLS = 30, WHOLE = 50000 };

/* Replaces the file for ever: version v is WHOLE bytes of value v. */
static void replace_for_ever(void)
{
    static char data[WHOLE];
    for (int v = 1;; v = v % 100 + 1) {
        os_new_file n;
        memset(data, v, sizeof data);
        if (os_create(&n, target, NULL) != LLADA_OK || fwrite(data, 1, sizeof data, n.f) != sizeof data ||
            os_commit(&n, NULL) != LLADA_OK)
            _exit(1);
    }
}

static bool whole(void)
{
    static char data[WHOLE + 1];
    FILE *f = fopen(target, "rb");
    size_t n = f ? fread(data, 1, sizeof data, f) : 0;
    if (f)
        fclose(f);
    return n == WHOLE && data[0] > 0 && memcmp(data, data + 1, WHOLE - 1) == 0;
}

static void kill_writers(void)
{
    int replaced = 0;
    for (int i = 0; i < KILLS || (replaced == 0 && i < 30 * KILLS); i++) {
        /* 0.5 to 7 ms; longer and longer on a machine so slow that none was long enough */
        struct timespec pause = { 0, (500000 + i % KILLS * 230000) * (1 + i / KILLS) };
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            replace_for_ever();
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status)); /* it did not end by itself, with an error */
        bool old = replaced == 0 && holds(target, "old");
        assert_true(old || whole());
        replaced += !old;
    }
    assert_true(replaced > 0);
    assert_int_equal(replace(target, "last", NULL), LLADA_OK);
    assert_int_equal(entries(), 1);
}

static void test_killed(void **state) { kill_writers(); }

static void test_killed_without_a_name(void **state)
{
    fake.tmpfile = true;
    kill_writers();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_replaces, setup, teardown),
        cmocka_unit_test_setup_teardown(test_discards, setup, teardown),
        cmocka_unit_test_setup_teardown(test_can_seek_and_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mode_follows_umask, setup, teardown),
        cmocka_unit_test_setup_teardown(test_current_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_places, setup, teardown),
        cmocka_unit_test_setup_teardown(test_faults, setup, teardown),
        cmocka_unit_test_setup_teardown(test_harmless_faults, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_disk_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_without_a_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stale_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed_without_a_name, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
