/* arena.c - many small allocations, freed together: a list of chunks, the first of which is filled from the front. */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum { ARENA_ALIGN = 16, CHUNK_MIN = 256 };

typedef struct chunk {
    struct chunk *next; /* owned */
    size_t used, cap;   /* bytes of data */
    size_t unused;      /* keeps data at a multiple of ARENA_ALIGN */
    char data[];
} chunk;

_Static_assert(sizeof(chunk) % ARENA_ALIGN == 0, "data of a chunk must stay aligned");

struct arena {
    size_t chunk_bytes;
    chunk *first; /* owned; the only one with room to give */
};

arena *arena_new(size_t chunk_bytes)
{
    arena *a = mem_new(sizeof *a);
    if (a)
        a->chunk_bytes = chunk_bytes < CHUNK_MIN ? CHUNK_MIN : chunk_bytes;
    return a;
}

static chunk *chunk_new(size_t cap)
{
    size_t bytes;
    chunk *c = size_add(sizeof *c, cap, &bytes) ? mem_new(bytes) : NULL;
    if (c)
        c->cap = cap;
    return c;
}

/* The chunk that gives the next `need` bytes.  A request that does not fit and is larger than a quarter of a chunk
 * gets a chunk of its own behind the first, so that what is left in the first is not lost. */
static chunk *chunk_for(arena *a, size_t need)
{
    chunk *c = a->first;
    if (c && c->cap - c->used >= need)
        return c;
    bool own = need > a->chunk_bytes / 4;
    c = chunk_new(own ? need : a->chunk_bytes);
    if (!c)
        return NULL;
    if (own && a->first) {
        c->next = a->first->next;
        a->first->next = c;
    } else {
        c->next = a->first;
        a->first = c;
    }
    return c;
}

void *arena_alloc(arena *a, size_t bytes)
{
    size_t need;
    if (!size_add(bytes, ARENA_ALIGN - 1, &need))
        return NULL;
    need -= need % ARENA_ALIGN;
    if (need == 0)
        need = ARENA_ALIGN; /* distinct pointers for requests of 0 */
    chunk *c = chunk_for(a, need);
    if (!c)
        return NULL;
    void *p = c->data + c->used;
    c->used += need;
    return p;
}

char *arena_strdup(arena *a, const char *s, size_t len)
{
    size_t bytes;
    char *d = size_add(len, 1, &bytes) ? arena_alloc(a, bytes) : NULL;
    if (d && len)
        memcpy(d, s, len);
    return d;
}

void arena_free(arena *a)
{
    if (!a)
        return;
    for (chunk *c = a->first, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    mem_free(a);
}
