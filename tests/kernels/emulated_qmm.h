/* emulated_qmm.h - a program that checks one form of the products in integers over emulated instructions, as
 * check_kernels.c checks those that this machine has.  The file that includes it names the source and the kernel. */
#if defined(__x86_64__)

#include "emulate_begin.h"
#include EMULATED_SOURCE
#include "emulate_end.h"

#define CHECK_TABLES_ONLY
#include "check_kernels.c"

#define PUT(kernel) KERN_PUT(t[1].qmm, kernel) /* its own name, not EMULATED_QMM */

int main(int argc, char **argv)
{
    static kern_table t[2];
    size_t n;
    uint64_t found;

    cpu_features(&n, &found);
    if (!(found & CPU_AVX2)) {
        printf("no AVX2 to emulate other instructions with: nothing checked\n");
        return 0;
    }
    kern_fill(&t[0], CPU_AVX2);
    t[1] = t[0];
    PUT(EMULATED_QMM);
    return check_tables(t, 1, 2, argc > 1 ? strtoull(argv[1], NULL, 0) : 1);
}

#else

#include <stdio.h>

int main(void)
{
    printf("not an x86-64 machine: nothing to emulate\n");
    return 0;
}

#endif
