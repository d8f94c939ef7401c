/* os_reader.c - see os_reader.h.  One call reads megabytes, which the kernel cuts into as many requests as the device
 * takes at a time: the queue is deep without a ring of our own (docs/decisions.md). */
#include "base/os_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

struct os_reader {
    int fd;
    bool direct;
    char *path; /* owned */
};

static int open_file(const char *path, int flags)
{
    int fd;
    do
        fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Some file systems take the flag and refuse the reads. */
static bool direct_works(int fd)
{
    void *raw = mem_new(2 * OS_READ_ALIGN);
    char *room = raw ? (char *)raw + OS_READ_ALIGN - (uintptr_t)raw % OS_READ_ALIGN : NULL;
    bool works = raw && pread(fd, room, OS_READ_ALIGN, 0) >= 0;
    mem_free(raw);
    return works;
}

llada_status os_reader_open(os_reader **out, const char *path, const os_file *same, llada_err *err)
{
    struct stat st;
    os_reader *r = mem_new(sizeof *r);
    if (r) r->path = mem_strdup(path, strlen(path));
    if (!r || !r->path) {
        mem_free(r);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory to read %s", path);
    }
    r->fd = open_file(path, O_DIRECT);
    r->direct = r->fd >= 0 && direct_works(r->fd);
    if (!r->direct) {
        if (r->fd >= 0) close(r->fd);
        r->fd = open_file(path, 0);
    }
    llada_status s = LLADA_OK;
    if (r->fd < 0 || fstat(r->fd, &st) != 0)
        s = llada_fail(err, LLADA_IO, "cannot open %s: %s (error %d)", path, os_why(errno), errno);
    else if (same && (st.st_dev != same->dev || st.st_ino != same->ino))
        s = llada_fail(err, LLADA_IO, "%s is not the file it was when it was opened", path);
    if (s) os_reader_close(&r);
    *out = r;
    return s;
}

void os_reader_close(os_reader **rp)
{
    os_reader *r = rp ? *rp : NULL;
    if (!r) return;
    if (r->fd >= 0) close(r->fd);
    mem_free(r->path);
    mem_free(r);
    *rp = NULL;
}

bool os_reader_direct(const os_reader *r) { return r->direct; }

llada_status os_reader_read(os_reader *r, void *room, uint64_t at, size_t bytes, llada_err *err)
{
    const uint64_t begin = at - at % OS_READ_ALIGN;
    const size_t want = os_reader_room(at, bytes), need = (size_t)(at - begin) + bytes;
    size_t got = 0, before = 0;

    while (got < need) {
        ssize_t n = pread(r->fd, (char *)room + got, want - got, (off_t)(begin + got));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return llada_fail(err, LLADA_IO, "%s (error %d)", os_why(errno), errno);
        size_t now = got + (size_t)n;
        /* a read that was cut goes on where it may begin; the end of the file is where it is cut twice */
        if (now < need && (n == 0 || now == before))
            return llada_fail(err, LLADA_IO, "the file ends at byte %llu, %zu bytes are missing",
                              (unsigned long long)(begin + now), need - now);
        before = now;
        got = now < need ? now - now % OS_READ_ALIGN : now;
    }
    if (!r->direct) (void)posix_fadvise(r->fd, (off_t)begin, (off_t)want, POSIX_FADV_DONTNEED);
    return LLADA_OK;
}
