/* check_avx512vnni_emulated.c - products in integers for AVX-512 VNNI on any machine with AVX2. */
#define EMULATED_SOURCE "../../src/device/cpu/x86/qmm_avx512vnni.c"
#define EMULATED_QMM    qmm_avx512vnni
#include "emulated_qmm.h"
