/* os.c - calls to the operating system: whole files, clock, cores, sleeping on a word.  Its neighbours are os_memory.c
 * (free memory) and os_replace.c (atomic replacement of a file). */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

enum { READ_MOST = 1 << 30 }; /* bytes a read call; Linux stops short of 2 GiB anyway */

/* Own words instead of strerror: that one is neither thread-safe nor in one language. */
const char *os_why(int code)
{
    static const struct {
        int code;
        const char *words;
    } known[] = {
        { ENOENT, "there is no such file or folder" },
        { EACCES, "permission denied" },
        { EPERM, "not permitted" },
        { EISDIR, "it is a folder" },
        { ENOTDIR, "a part of the path is not a folder" },
        { ENAMETOOLONG, "the name is too long" },
        { ELOOP, "too many symbolic links" },
        { ENOSPC, "the disk is full" },
        { EDQUOT, "the disk quota is used up" },
        { EFBIG, "the file would be larger than allowed" },
        { EROFS, "the file system is read-only" },
        { EIO, "the device reported an input/output error" },
        { EMFILE, "this process has too many open files" },
        { ENFILE, "the system has too many open files" },
        { ENOMEM, "out of memory" },
        { EOVERFLOW, "the file is too large for this system" },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].code == code)
            return known[i].words;
    }
    return "the system refused";
}

static llada_status refuse(llada_err *err, const char *what, const char *path, int code)
{
    return llada_fail(err, LLADA_IO, "cannot %s %s: %s (error %d)", what, path, os_why(code), code);
}

static llada_status check_kind(const struct stat *st, const char *path, llada_err *err)
{
    if (S_ISREG(st->st_mode)) {
        if (st->st_size < 0 || (uintmax_t)st->st_size > PTRDIFF_MAX / 2)
            return llada_fail(err, LLADA_IO, "%s says it has %lld bytes, more than can be held", path,
                              (long long)st->st_size);
        return LLADA_OK;
    }
    const char *kind = S_ISDIR(st->st_mode)    ? "a folder"
                       : S_ISFIFO(st->st_mode) ? "a pipe"
                       : S_ISSOCK(st->st_mode) ? "a socket"
                                               : "a device";
    return llada_fail(err, LLADA_IO, "%s is %s, a regular file is needed", path, kind);
}

/* Opens a regular file.  The kind is looked at before opening, because opening a pipe or a device can already have an
 * effect, and again afterwards, because the name may have changed hands; O_NONBLOCK keeps that gap from blocking. */
static llada_status open_regular(int *fd, struct stat *st, const char *path, llada_err *err)
{
    if (!path || !*path)
        return llada_fail(err, LLADA_BAD_ARG, "the file name is empty");
    if (stat(path, st) != 0)
        return refuse(err, "open", path, errno);
    llada_status s = check_kind(st, path, err);
    if (s != LLADA_OK)
        return s;
    int d;
    do
        d = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (d < 0 && errno == EINTR);
    if (d < 0)
        return refuse(err, "open", path, errno);
    if (fstat(d, st) != 0)
        s = refuse(err, "open", path, errno);
    else
        s = check_kind(st, path, err);
    if (s != LLADA_OK)
        close(d);
    else
        *fd = d;
    return s;
}

static llada_status read_all(os_file *f, int fd, const char *path, llada_err *err)
{
    uint8_t *buf = mem_new(f->len);
    if (!buf)
        return llada_fail(err, LLADA_NO_MEMORY, "no memory to read %s (%zu bytes)", path, f->len);
    size_t got = 0;
    while (got < f->len) {
        size_t want = f->len - got < READ_MOST ? f->len - got : READ_MOST;
        ssize_t n = read(fd, buf + got, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int code = errno;
            mem_free(buf);
            if (n < 0)
                return refuse(err, "read", path, code);
            return llada_fail(err, LLADA_IO, "%s became shorter while it was read: %zu of %zu bytes", path, got,
                              f->len);
        }
        got += (size_t)n;
    }
    f->data = buf;
    return LLADA_OK;
}

llada_status os_map(os_file *f, const char *path, bool use_mmap, llada_err *err)
{
    static const uint8_t nothing[1]; /* an empty file can't be mapped; its data is still not NULL */
    struct stat st;
    int fd = -1;
    memset(f, 0, sizeof *f);
    llada_status s = open_regular(&fd, &st, path, err);
    if (s != LLADA_OK)
        return s;
    os_file new = { .data = nothing, .len = (size_t)st.st_size, .dev = st.st_dev, .ino = st.st_ino };
    if (use_mmap && new.len) {
        void *p = mmap(NULL, new.len, PROT_READ, MAP_PRIVATE, fd, 0);
        new.mapped = p != MAP_FAILED;
        new.data = new.mapped ? p : NULL;
    }
    if (!new.mapped && new.len)
        s = read_all(&new, fd, path, err);
    close(fd); /* a mapping outlives its descriptor */
    if (s == LLADA_OK)
        *f = new;
    return s;
}

void os_forget(const os_file *f, const void *p, size_t n)
{
    /* whole pages only; heap memory would be zeroed, so only what can be read again from the file */
    size_t page = os_page_size(), at = (size_t)((const uint8_t *)p - f->data);
    size_t begin = (at + page - 1) / page * page, end = (at + n) / page * page;
    if (f->mapped && begin < end) (void)madvise((void *)(uintptr_t)(f->data + begin), end - begin, MADV_DONTNEED);
}

void os_sparse(const os_file *f)
{
    if (f->mapped) (void)madvise((void *)(uintptr_t)f->data, f->len, MADV_RANDOM);
}

void os_large_pages(void *p, size_t n)
{
    uintptr_t page = os_page_size(), begin = ((uintptr_t)p + page - 1) / page * page,
              end = ((uintptr_t)p + n) / page * page;
    if (begin < end) (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}

void os_give_back(void *p, size_t n)
{
    uintptr_t page = os_page_size(), begin = ((uintptr_t)p + page - 1) / page * page,
              end = ((uintptr_t)p + n) / page * page;
    if (begin < end) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void os_unmap(os_file *f)
{
    if (f->mapped)
        munmap((void *)(uintptr_t)f->data, f->len);
    else if (f->len)
        mem_free((void *)(uintptr_t)f->data);
    memset(f, 0, sizeof *f);
}

bool os_map_lost(const os_file *f, const char *path)
{
    struct stat st;
    if (!f->mapped || stat(path, &st) != 0 || st.st_dev != f->dev || st.st_ino != f->ino)
        return false;
    return (uintmax_t)st.st_size < f->len;
}

double os_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

size_t os_page_size(void)
{
    long n = sysconf(_SC_PAGESIZE);
    return n > 0 ? (size_t)n : 4096;
}

int os_cores(void)
{
    cpu_set_t set[8]; /* 8192 cores; the kernel refuses a set smaller than its own */
    memset(set, 0, sizeof set);
    int n = sched_getaffinity(0, sizeof set, set) == 0 ? CPU_COUNT_S(sizeof set, set) : 0;
    if (n < 1)
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n;
}

void os_cpu_caps(uint64_t caps[2])
{
    caps[0] = getauxval(AT_HWCAP);
    caps[1] = getauxval(AT_HWCAP2);
}

bool os_allow_tiles(void)
{
#if defined(__x86_64__)
    enum { REQUEST = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM and the state's number, Linux 5.16 */
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
    return false;
#endif
}

void os_sleep_on(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void os_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
