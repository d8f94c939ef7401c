/* check_avx512_emulated.c - the AVX-512 kernels on any machine with AVX2: their sources are compiled here over emulated
 * instructions (which also takes the place of the library's own, as the linker finds these first), and checked as
 * check_kernels.c checks all others. */
#if defined(__x86_64__)

#include "emulate_begin.h"

#include "../../src/device/cpu/x86/mm_avx512.c"
#include "../../src/device/cpu/x86/row_avx512.c"
#include "../../src/device/cpu/x86/unpack_avx512.c"
#define dots dots_avx512
#define mix  mix_avx512
#define COLS COLS_avx512
#include "../../src/device/cpu/x86/attn_avx512.c"
#undef dots
#undef mix
#define put put_avx512
#include "../../src/device/cpu/x86/tiles_avx512vbmi.c"
#undef put
#include "emulate_end.h"

#define CHECK_TABLES_ONLY
#include "check_kernels.c"

int main(int argc, char **argv)
{
    static kern_table t[2];
    size_t n;
    uint64_t found;

    cpu_features(&n, &found);
    if (!(found & CPU_AVX2)) {
        printf("no AVX2 to emulate AVX-512 with: nothing checked\n");
        return 0;
    }
    kern_fill(&t[0], CPU_AVX2);
    t[1] = t[0];
    kern_init_x86(&t[1], CPU_AVX2 | CPU_AVX512 | CPU_AVX512VBMI);
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
