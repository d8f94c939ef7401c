/* check_avxvnni_emulated.c - products in integers for AVX-VNNI on any machine with AVX2. */
#define EMULATED_SOURCE "../../src/device/cpu/x86/qmm_avxvnni.c"
#define EMULATED_QMM    qmm_avxvnni
#include "emulated_qmm.h"
