/* scratch.h - for tests that need files: a folder of their own that disappears with them. */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
    char dir[64];
    char path[512]; /* of the last scratch_path */
} scratch;

/* False when no folder can be made. */
static inline bool scratch_open(scratch *s)
{
    strcpy(s->dir, "/tmp/llada-test-XXXXXX");
    return mkdtemp(s->dir) != NULL && chmod(s->dir, 0755) == 0;
}

/* Borrowed, until the next call. */
static inline const char *scratch_path(scratch *s, const char *name)
{
    snprintf(s->path, sizeof s->path, "%s/%s", s->dir, name);
    return s->path;
}

/* Writes a file, with the folders it lies in.  Returns its path (as scratch_path), NULL when that failed. */
static inline const char *scratch_write(scratch *s, const char *name, const void *data, size_t len)
{
    scratch_path(s, name);
    for (char *p = s->path + strlen(s->dir) + 1; (p = strchr(p, '/')) != NULL; *p++ = '/') {
        *p = 0;
        mkdir(s->path, 0755);
    }
    FILE *f = fopen(s->path, "wb");
    if (!f)
        return NULL;
    bool good = fwrite(data, 1, len, f) == len;
    return fclose(f) == 0 && good ? s->path : NULL;
}

static inline int scratch_remove(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static inline void scratch_close(scratch *s)
{
    nftw(s->dir, scratch_remove, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
