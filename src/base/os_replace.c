/* os_replace.c - a file that is either wholly there or not at all: written without a name where the file system can
 * (O_TMPFILE), else beside its place under a hidden one; made durable, then renamed over the old one.
 *
 * A kill leaves nothing, or where names are needed (and in the moment between naming and renaming) a file
 * `.NAME.XXXXXX`, which the next writer of NAME removes.  Files still being written are told from those by a lock. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"

enum { RANDOM_CHARS = 6, TRIES = 64, NAME_KEPT = 200 }; /* NAME_KEPT: file systems allow 255 bytes a name */

static llada_status refuse(llada_err *err, const char *path, int code)
{
    return llada_fail(err, LLADA_IO, "cannot write %s: %s (error %d)", path, os_why(code), code);
}

/* Bytes of the folder in front of a name, its '/' included; 0: the current folder. */
static size_t folder_len(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* A rename would put a file in the place of whatever is there; /dev/null must survive being named as output. */
static llada_status check_place(const char *path, llada_err *err)
{
    struct stat st;
    if (!path || !path[0])
        return llada_fail(err, LLADA_BAD_ARG, "the name of the file to write is empty");
    if (!path[folder_len(path)])
        return llada_fail(err, LLADA_IO, "cannot write %s: it names a folder", path);
    if (stat(path, &st) != 0)
        return errno == ENOENT ? LLADA_OK : refuse(err, path, errno);
    if (S_ISREG(st.st_mode))
        return LLADA_OK;
    return llada_fail(err, LLADA_IO, "cannot write %s: it is %s, not a regular file", path,
                      S_ISDIR(st.st_mode) ? "a folder" : "a device or a pipe");
}

/* FOLDER/.NAME.XXXXXX, the X still to be filled; owned by the caller. */
static char *temp_name(const char *path)
{
    size_t dir = folder_len(path), name = strlen(path + dir), keep = name < NAME_KEPT ? name : NAME_KEPT;
    char *t = mem_new(dir + keep + RANDOM_CHARS + 3);
    if (!t)
        return NULL;
    memcpy(t, path, dir);
    t[dir] = '.';
    memcpy(t + dir + 1, path + dir, keep);
    t[dir + 1 + keep] = '.';
    memset(t + dir + 2 + keep, 'X', RANDOM_CHARS);
    return t;
}

static const char name_chars[] = "abcdefghijklmnopqrstuvwxyz0123456789";

/* ---------------------------------------------------------------- what killed writers left */

/* tmp: as temp_name made it.  A file of that form that nobody has locked is nobody's. */
static void remove_stale(const char *tmp)
{
    size_t dir = folder_len(tmp), fixed = strlen(tmp + dir) - RANDOM_CHARS;
    char *path = mem_strdup(tmp, strlen(tmp)), *folder = mem_strdup(dir ? tmp : ".", dir ? dir : 1);
    DIR *d = path && folder ? opendir(folder) : NULL;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (strlen(e->d_name) != fixed + RANDOM_CHARS || memcmp(e->d_name, tmp + dir, fixed) != 0 ||
            strspn(e->d_name + fixed, name_chars) != RANDOM_CHARS)
            continue;
        memcpy(path + dir, e->d_name, fixed + RANDOM_CHARS);
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        struct stat st;
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlink(path);
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
    mem_free(path);
    mem_free(folder);
}

/* ---------------------------------------------------------------- creating */

/* A file without a name in the folder of tmp; -1: not here. */
static int create_unnamed(const char *tmp)
{
    size_t dir = folder_len(tmp);
    char *folder = mem_strdup(dir ? tmp : ".", dir ? dir : 1);
    /* it will get its name through its descriptor's entry there */
    int fd = folder && access("/proc/self/fd", X_OK) == 0
                 ? open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666)
                 : -1;
    mem_free(folder);
    return fd;
}

/* Sets the random part of tmp.  Unlikely to meet another writer's name is enough: the system decides. */
static void next_name(char *tmp, uint64_t *r)
{
    char *x = tmp + strlen(tmp) - RANDOM_CHARS;
    uint64_t v = *r = rng_mix(*r);
    for (int k = 0; k < RANDOM_CHARS; k++, v /= sizeof name_chars - 1)
        x[k] = name_chars[v % (sizeof name_chars - 1)];
}

static uint64_t first_random(const char *tmp)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return rng_mix((uint64_t)t.tv_nsec ^ (uint64_t)t.tv_sec << 32 ^ (uint64_t)getpid() << 16 ^ (uintptr_t)tmp);
}

/* Creates the temporary file; a descriptor, or -1 with errno.  mkstemp is not used: it gives mode 0600 whatever the
 * umask, and the umask can't be asked for without changing it for all threads. */
static int create_named(char *tmp)
{
    uint64_t r = first_random(tmp);
    for (int i = 0; i < TRIES; i++) {
        struct stat st;
        next_name(tmp, &r);
        int fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST && errno != EINTR)
            return fd;
        if (fd < 0)
            continue;
        /* where locks are not to be had, another writer may take this file for one that was left */
        (void)flock(fd, LOCK_EX | LOCK_NB);
        if (fstat(fd, &st) == 0 && st.st_nlink > 0)
            return fd;
        close(fd); /* removed by one that looked for stale files, in the moment before the lock */
    }
    return -1;
}

/* Gives the file of fd the name tmp, the random part of which is made anew; 0 or errno. */
static int give_name(int fd, char *tmp)
{
    char entry[48];
    uint64_t r = first_random(tmp);
    snprintf(entry, sizeof entry, "/proc/self/fd/%d", fd);
    for (int i = 0; i < TRIES; i++) {
        next_name(tmp, &r);
        if (linkat(AT_FDCWD, entry, AT_FDCWD, tmp, AT_SYMLINK_FOLLOW) == 0)
            return 0;
        if (errno != EEXIST && errno != EINTR)
            return errno;
    }
    return EEXIST;
}

llada_status os_create(os_new_file *n, const char *path, llada_err *err)
{
    memset(n, 0, sizeof *n);
    llada_status s = check_place(path, err);
    if (s != LLADA_OK)
        return s;
    char *tmp = temp_name(path);
    n->path = mem_strdup(path, strlen(path));
    if (!tmp || !n->path) {
        mem_free(tmp);
        os_discard(n);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for the name of %s", path);
    }
    remove_stale(tmp);
    int fd = create_unnamed(tmp);
    n->named = fd < 0;
    if (n->named)
        fd = create_named(tmp);
    else
        (void)flock(fd, LOCK_EX | LOCK_NB); /* nobody can have it: it has no name yet */
    if (fd < 0) {
        int code = errno;
        mem_free(tmp);
        n->named = false;
        os_discard(n);
        return refuse(err, path, code);
    }
    n->tmp = tmp; /* from here on os_discard removes it */
    n->f = fdopen(fd, "w+b");
    if (n->f)
        return LLADA_OK;
    int code = errno;
    close(fd);
    os_discard(n);
    return refuse(err, path, code);
}

/* Some file systems have no fsync; that is not the file's fault. */
static bool sync_fails(int fd)
{
    int r;
    do
        r = fsync(fd);
    while (r != 0 && errno == EINTR);
    return r != 0 && errno != EINVAL && errno != ENOSYS && errno != ENOTSUP;
}

/* Makes the rename durable.  Best effort: the new file is already in place, there is no old one to go back to. */
static void sync_folder(const char *path)
{
    size_t len = folder_len(path);
    char *dir = mem_strdup(len ? path : ".", len ? len : 1);
    int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)sync_fails(fd);
        close(fd);
    }
    mem_free(dir);
}

/* Flush, sync, name, close, each of which may be where a full disk shows.  0, errno, or -1: a write failed before. */
static int finish(os_new_file *n)
{
    int code = 0;
    if (fflush(n->f) != 0 || sync_fails(fileno(n->f)))
        code = errno;
    else if (ferror(n->f))
        code = -1;
    int lock = dup(fileno(n->f)); /* the lock holds until the name is gone */
    if (code == 0 && !n->named) {
        code = give_name(fileno(n->f), n->tmp);
        n->named = code == 0;
    }
    if (fclose(n->f) != 0 && code == 0)
        code = errno;
    n->f = NULL;
    if (code == 0 && rename(n->tmp, n->path) != 0)
        code = errno;
    if (lock >= 0)
        close(lock);
    return code;
}

llada_status os_commit(os_new_file *n, llada_err *err)
{
    if (!n->f)
        return llada_fail(err, LLADA_BAD_ARG, "there is no new file to commit");
    llada_status s = LLADA_OK;
    int code = finish(n);
    if (code == -1)
        s = llada_fail(err, LLADA_IO, "cannot write %s: a write to it failed", n->path);
    else if (code != 0)
        s = refuse(err, n->path, code);
    if (s == LLADA_OK) {
        sync_folder(n->path);
        n->named = false; /* its name is gone: nothing to remove */
    }
    os_discard(n);
    return s;
}

void os_discard(os_new_file *n)
{
    if (n->f)
        fclose(n->f);
    if (n->named)
        unlink(n->tmp);
    mem_free(n->tmp);
    mem_free(n->path);
    memset(n, 0, sizeof *n);
}
