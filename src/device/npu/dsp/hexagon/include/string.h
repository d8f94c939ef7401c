/* string.h - the few functions of <string.h> that the DSP code uses; there is no C library on its side.  runtime.c has
 * them. */
#ifndef DSP_STRING_H
#define DSP_STRING_H

#include <stddef.h>

void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int c, size_t n);

/* -fno-builtin makes a call of every copy; one of four bytes, as between a float and its bits, is a move. */
#define memcpy(to, from, n) __builtin_memcpy(to, from, n)

#endif
