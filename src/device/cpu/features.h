/* features.h - which instruction sets this machine has.  Bit i of a mask stands for the i-th name; the order is
 * fixed for each architecture, so that a mask written down stays true:
 *   x86-64: "avx2" (AVX2, FMA and F16C), "avx512" (F, BW, VL, DQ), "avxvnni", "avx512vnni",
 *           "amx" (TILE, INT8), "avx512vbmi": each only where the system saves the registers
 *   arm64:  "neon", "dotprod" (sdot), "i8mm" (smmla)
 *   others: none */
#ifndef DEVICE_CPU_FEATURES_H
#define DEVICE_CPU_FEATURES_H

#include <stddef.h>
#include <stdint.h>

enum {
    CPU_AVX2 = 1,
    CPU_AVX512 = 2,
    CPU_AVXVNNI = 4,
    CPU_AVX512VNNI = 8,
    CPU_AMX = 16,
    CPU_AVX512VBMI = 32
};                                                    /* x86-64 */
enum { CPU_NEON = 1, CPU_DOTPROD = 2, CPU_I8MM = 4 }; /* arm64 */

/* Names of this architecture (static; *n of them) and in *found (may be NULL) the bits this machine has. */
const char *const *cpu_features(size_t *n, uint64_t *found);

#endif
