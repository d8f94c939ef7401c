/* os_memory.c - how much memory can still be taken: what the kernel calls available, less when a control group that
 * this process is in allows less.  Both versions of control groups are read; formats: proc(5), cgroups(7), and in the
 * kernel's admin-guide cgroup-v2.rst and cgroup-v1/memory.rst. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"

enum { PATH_MOST = 4096, TEXT_MOST = 8192 };

/* The files of one version of control groups. */
typedef struct {
    const char *top;                 /* where the tree is mounted */
    const char *limit, *used, *idle; /* idle: file cache in memory.stat that is given up first */
} cgroup_files;

static const cgroup_files cgroup_v1 = { "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                        "total_inactive_file " };
static const cgroup_files cgroup_v2 = { "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file " };

/* Reads the front of a small text file into buf[cap]; false when it can't be read. */
static bool read_text(char *buf, size_t cap, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t got = 0;
    while (got < cap - 1) {
        ssize_t n = read(fd, buf + got, cap - 1 - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    close(fd);
    buf[got] = 0;
    return got > 0;
}

/* The text behind `key` at the start of a line; NULL when no line begins so. */
static const char *line_value(const char *text, const char *key)
{
    size_t n = strlen(key);
    while (text) {
        if (strncmp(text, key, n) == 0)
            return text + n;
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    return NULL;
}

/* A number in front of *r; false for words such as "max" and for numbers past 64 bits. */
static bool read_number(const char *s, uint64_t *r)
{
    while (*s == ' ')
        s++;
    if (*s < '0' || *s > '9')
        return false;
    errno = 0;
    *r = strtoull(s, NULL, 10);
    return errno == 0;
}

static bool file_number(const char *folder, const char *name, uint64_t *r)
{
    char path[PATH_MOST + 64], text[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return read_text(text, sizeof text, path) && read_number(text, r);
}

/* Bytes left in one group; UINT64_MAX when it sets no limit. */
static uint64_t group_left(const cgroup_files *c, const char *folder)
{
    uint64_t limit, used = 0, idle = 0;
    char path[PATH_MOST + 64], text[TEXT_MOST];
    if (!file_number(folder, c->limit, &limit) || !file_number(folder, c->used, &used))
        return UINT64_MAX;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    const char *v = read_text(text, sizeof text, path) ? line_value(text, c->idle) : NULL;
    if (v && read_number(v, &idle))
        used -= idle < used ? idle : used;
    return limit > used ? limit - used : 1; /* 0 would say: unknown */
}

/* The least that is left in a group and those around it.  `name` begins with '/' and ends at a line end; inside a
 * container it may lead nowhere, then only the top, which is the container's own group, is there to be read. */
static uint64_t tree_left(const cgroup_files *c, const char *root, const char *name)
{
    char folder[PATH_MOST];
    size_t len = strcspn(name, "\n");
    int top = snprintf(folder, sizeof folder, "%s%s", root, c->top);
    if (top < 0 || (size_t)top + len >= sizeof folder)
        return UINT64_MAX;
    memcpy(folder + top, name, len);
    folder[(size_t)top + len] = 0;
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t left = group_left(c, folder);
        least = left < least ? left : least;
        char *slash = strrchr(folder, '/');
        if (!slash || slash < folder + top)
            return least;
        *slash = 0;
    }
}

/* Lines of /proc/self/cgroup: "0::/name" in version 2, "4:memory:/name" or "4:a,memory:/name" in version 1. */
static uint64_t cgroup_left(const char *root)
{
    char path[PATH_MOST], text[TEXT_MOST];
    uint64_t least = UINT64_MAX;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!read_text(text, sizeof text, path))
        return least;
    for (char *line = text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end)
            *end++ = 0;
        char *kinds = strchr(line, ':'), *name = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!name)
            continue;
        *name++ = ',';
        *kinds = ',';
        const cgroup_files *c = name - kinds == 2                     ? &cgroup_v2
                                : strstr(kinds, ",memory,") != NULL   ? &cgroup_v1
                                                                      : NULL;
        uint64_t left = c ? tree_left(c, root, name) : UINT64_MAX;
        least = left < least ? left : least;
    }
    return least;
}

uint64_t os_free_memory_in(const char *root)
{
    char path[PATH_MOST], text[TEXT_MOST];
    uint64_t kib = 0;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    const char *v = read_text(text, sizeof text, path) ? line_value(text, "MemAvailable:") : NULL;
    uint64_t whole = v && read_number(v, &kib) && kib < UINT64_MAX / 1024 ? kib * 1024 : UINT64_MAX;
    uint64_t group = cgroup_left(root), least = group < whole ? group : whole;
    return least == UINT64_MAX ? 0 : least;
}

uint64_t os_free_memory(void)
{
    return os_free_memory_in("");
}
