/* compiler.h - every compiler extension the project uses, behind a name.  Nothing else may use one. */
#ifndef BASE_COMPILER_H
#define BASE_COMPILER_H

#if defined(__GNUC__)
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define ADD_OVERFLOWS(a, b, r) __builtin_add_overflow(a, b, r)
#define MUL_OVERFLOWS(a, b, r) __builtin_mul_overflow(a, b, r)
#define RESTRICT __restrict__
#else
#error "a GNU-compatible compiler (gcc or clang) is needed"
#endif

#endif
