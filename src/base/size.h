/* size.h - the only place where sizes that come from a file or a request are multiplied or added. */
#ifndef BASE_SIZE_H
#define BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* False on overflow; *r is then undefined. */
static inline bool size_mul(size_t a, size_t b, size_t *r) { return !MUL_OVERFLOWS(a, b, r); }
static inline bool size_add(size_t a, size_t b, size_t *r) { return !ADD_OVERFLOWS(a, b, r); }

#endif
