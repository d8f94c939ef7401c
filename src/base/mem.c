/* mem.c - the allocator of mem.h.  A block is preceded by one word that holds the address to free, so that blocks from
 * two sources look alike:
 *   small  posix_memalign with 64 bytes in front, cleared by hand; the block ends where the system's block ends, which
 *          lets a memory checker see the first byte past it
 *   large  calloc, which takes fresh pages from the system: already zero, and not touched until used */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

enum { ALIGN = 64, LARGE = 1 << 20 };

_Static_assert(_Alignof(max_align_t) >= sizeof(void *), "the word in front of a block must fit");

static atomic_uint_fast64_t n_allocs;
static atomic_uint_fast64_t fail_in; /* allocations until the one that fails, counting it; 0: none */

uint64_t mem_count(void)
{
    return atomic_load_explicit(&n_allocs, memory_order_relaxed);
}

void mem_fail_at(uint64_t k)
{
    atomic_store(&fail_in, k);
}

/* Counts down; true for exactly one caller. */
static bool must_fail(void)
{
    uint_fast64_t k = atomic_load_explicit(&fail_in, memory_order_relaxed);
    while (k != 0 && !atomic_compare_exchange_weak(&fail_in, &k, k - 1))
        ;
    return k == 1;
}

static void *take_small(size_t total)
{
    void *raw = NULL;
    if (posix_memalign(&raw, ALIGN, total) != 0)
        return NULL;
    memset(raw, 0, total);
    return raw;
}

void *mem_new(size_t bytes)
{
    size_t total;
    /* at least one byte: a pointer one past its block looks to a leak checker like no pointer at all */
    if (must_fail() || !size_add(bytes ? bytes : 1, ALIGN, &total) || total > PTRDIFF_MAX)
        return NULL;
    char *raw = bytes < LARGE ? take_small(total) : calloc(1, total);
    if (!raw)
        return NULL;
    /* 64 from posix_memalign; from calloc at least its own alignment, which has room for the word */
    size_t off = ALIGN - (uintptr_t)raw % ALIGN;
    memcpy(raw + off - sizeof raw, &raw, sizeof raw);
    atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed);
    return raw + off;
}

void *mem_array(size_t n, size_t each)
{
    size_t bytes;
    return size_mul(n, each, &bytes) ? mem_new(bytes) : NULL;
}

void *mem_grow(void *p, size_t old_bytes, size_t new_bytes)
{
    void *q = mem_new(new_bytes);
    if (!q || !p)
        return q;
    memcpy(q, p, old_bytes < new_bytes ? old_bytes : new_bytes);
    mem_free(p);
    return q;
}

char *mem_strdup(const char *s, size_t len)
{
    size_t bytes;
    char *d = size_add(len, 1, &bytes) ? mem_new(bytes) : NULL;
    if (d && len)
        memcpy(d, s, len);
    return d;
}

void mem_free(void *p)
{
    if (!p)
        return;
    void *raw;
    memcpy(&raw, (char *)p - sizeof raw, sizeof raw);
    free(raw);
}
