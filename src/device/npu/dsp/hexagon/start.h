/* start.h - calls of the system that a Linux program makes, for the emulated flavour. */
#ifndef DSP_START_H
#define DSP_START_H

#include <stdint.h>

enum {
    SYS_OPENAT = 56,
    SYS_CLOSE = 57,
    SYS_EXIT_GROUP = 94,
    SYS_FUTEX = 98,
    SYS_GETTID = 178,
    SYS_MUNMAP = 215,
    SYS_MMAP = 222
};

/* Number in r6, arguments in r0 to r5; an error is a small negative number. */
static inline long system_call(long n, long a, long b, long c, long d, long e, long f)
{
    register long r0 __asm__("r0") = a;
    register long r1 __asm__("r1") = b;
    register long r2 __asm__("r2") = c;
    register long r3 __asm__("r3") = d;
    register long r4 __asm__("r4") = e;
    register long r5 __asm__("r5") = f;
    register long r6 __asm__("r6") = n;
    __asm__ volatile("trap0(#1)" : "+r"(r0) : "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5), "r"(r6) : "memory");
    return r0;
}

static inline int is_error(long r) { return (unsigned long)r > 0xfffff000ul; }

#endif
