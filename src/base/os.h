/* os.h - every call to the operating system: files and maps, clock, cores, memory, sleeping, atomic replacement
 * of a file. */
#ifndef BASE_OS_H
#define BASE_OS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"

/* A whole file in memory: mapped, or read when mapping is not wanted or refused.  The mapping is private and read-only.
 * FIFOs, folders and devices are refused with a sentence. */
typedef struct {
    const uint8_t *data; /* owned by the record, until os_unmap */
    size_t len;
    bool mapped;         /* false: data is heap memory */
    uint64_t dev, ino;   /* which file on disk it is */
} os_file;

llada_status os_map(os_file *f, const char *path, bool use_mmap, llada_err *err);
void os_unmap(os_file *f); /* idempotent */
/* These bytes of f are not needed soon: a mapped file's pages may leave memory, and come back at the next touch. */
void os_forget(const os_file *f, const void *p, size_t n);

/* f's pages will be touched here and there: a touch brings in its own page only. */
void os_sparse(const os_file *f);
/* Asks that heap memory be made of large pages where it is not touched yet: up to 2 MB more may then be taken. */
void os_large_pages(void *p, size_t n);
/* The pages of heap memory that lie wholly in p[0..n) go back to the system; they read as zero afterwards. */
void os_give_back(void *p, size_t n);

/* A file truncated while it is mapped raises SIGBUS at the next touch.  os_map_lost re-checks the size on disk of the
 * mapped file: true when it is now shorter than `len`.  A file that was removed or replaced meanwhile lives on in the
 * mapping and is not lost. */
bool os_map_lost(const os_file *f, const char *path);

double os_seconds(void);     /* monotonic */
size_t os_page_size(void);
int os_cores(void);          /* cores this process may run on */
void os_cpu_caps(uint64_t caps[2]); /* what the system says the processor can do: AT_HWCAP, AT_HWCAP2 */
bool os_allow_tiles(void);   /* asks that this process may use AMX tiles; false: refused, or an older system */
uint64_t os_free_memory(void); /* bytes that can be taken without swapping; a cgroup limit counts; 0: unknown */
uint64_t os_free_memory_in(const char *root); /* the same with the folders proc and sys below root: for tests */
const char *os_why(int code); /* an errno value in words, for the end of a sentence */

/* Sleeps while *word is `value`, or not as long: whoever waits looks again.  os_wake wakes all who sleep on it. */
void os_sleep_on(_Atomic uint32_t *word, uint32_t value);
void os_wake(_Atomic uint32_t *word);

/* Writing a file that is either wholly there or not at all: a file without a name, or a temporary one beside it; fsync,
 * rename.  What writers that were killed left beside the same file is removed. */
typedef struct {
    FILE *f;
    char *path, *tmp; /* owned */
    bool named;       /* tmp is there */
} os_new_file;

llada_status os_create(os_new_file *n, const char *path, llada_err *err);
llada_status os_commit(os_new_file *n, llada_err *err); /* flush, fsync, rename; on failure the old file stays */
void os_discard(os_new_file *n);                        /* removes the temporary file; idempotent, fine after commit */

#endif
