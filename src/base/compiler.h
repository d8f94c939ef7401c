/* compiler.h - every compiler extension the project uses, behind a name.  Nothing else may use one. */
#ifndef BASE_COMPILER_H
#define BASE_COMPILER_H

#if defined(__GNUC__)
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define ADD_OVERFLOWS(a, b, r) __builtin_add_overflow(a, b, r)
#define MUL_OVERFLOWS(a, b, r) __builtin_mul_overflow(a, b, r)
#define RESTRICT __restrict__
#define ALWAYS_INLINE inline __attribute__((always_inline)) /* kernels whose tile sizes must become constants */
#define PREFETCH(p) __builtin_prefetch(p, 0, 2) /* into the second cache: will be read once, soon */
#if defined(__x86_64__)
#define KEEP_ORDER(v) __asm__("" : "+x"(v)) /* sums of vectors stay in the order written: other orders spill */
#define READ_XCR0(lo, hi) __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0)) /* registers the system saves */
#define TILE_CONFIG(c) __asm__ volatile("ldtilecfg %0" : : "m"(c) : "memory") /* what was written is read by tiles */
#endif

/* One turn of a spin loop: tells the core to let its twin run. */
#if defined(__x86_64__) || defined(__i386__)
#define CPU_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__) || defined(__arm__)
#define CPU_RELAX() __asm__ __volatile__("yield")
#else
#define CPU_RELAX() ((void)0)
#endif
#else
#error "a GNU-compatible compiler (gcc or clang) is needed"
#endif

#endif
