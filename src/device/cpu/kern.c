/* kern.c - fills the kernel table: plain C first, then upward through the instruction sets that are found and
 * allowed. */
#include "device/cpu/kern.h"

void kern_fill(kern_table *t, uint64_t mask)
{
    size_t n;
    uint64_t found;

    cpu_features(&n, &found);
    *t = (kern_table){ 0 };
    kern_init_ref(t);
#if defined(__x86_64__)
    kern_init_x86(t, found & mask);
#elif defined(__aarch64__)
    kern_init_arm(t, found & mask);
#endif
}
