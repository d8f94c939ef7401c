/* mem.h - all memory of the library comes from here: zeroed, aligned to 64 bytes, counted, and able to fail on request.
 * The counter proves that a decoding step allocates nothing; the failing hook lets a test make the k-th allocation fail
 * for every k.  Both are the library's only mutable globals, and they are atomic. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

void *mem_new(size_t bytes);            /* zeroed; NULL when out of memory; mem_new(0) gives a valid pointer */
void *mem_array(size_t n, size_t each); /* zeroed; NULL also when n * each overflows */
void *mem_grow(void *p, size_t old_bytes, size_t new_bytes); /* like realloc; the new part is zeroed; NULL keeps p */
char *mem_strdup(const char *s, size_t len);                 /* len bytes and a NUL */
void mem_free(void *p);                 /* NULL-safe */

uint64_t mem_count(void);               /* allocations since the program began */
void mem_fail_at(uint64_t k);           /* tests: the k-th allocation from now fails (1 = the next), once; 0: none */

/* Arena: many small allocations, freed together. */
typedef struct arena arena;
arena *arena_new(size_t chunk);                 /* chunk: bytes taken from mem_new at a time */
void *arena_alloc(arena *a, size_t bytes);      /* zeroed, aligned to 16 */
char *arena_strdup(arena *a, const char *s, size_t len);
void arena_free(arena *a);                      /* NULL-safe */

#endif
