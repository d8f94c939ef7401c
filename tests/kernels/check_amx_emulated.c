/* check_amx_emulated.c - products in integers for AMX on any machine with AVX2. */
#if defined(__x86_64__)
#include "emulate_amx.h"
#endif
#define EMULATED_SOURCE "../../src/device/cpu/x86/qmm_amx.c"
#define EMULATED_QMM    qmm_amx
#include "emulated_qmm.h"

#if defined(__x86_64__)
/* What few rows are handed to is checked by a program of its own. */
void qmm_avx512vnni(float *c, const kern_qrows *x, size_t ldx, int m, const kern_qpanel *w, int k, const quant_grid *g,
                    bool add)
{
    qmm_ref(c, x, ldx, m, w, k, g, add);
}
#endif
