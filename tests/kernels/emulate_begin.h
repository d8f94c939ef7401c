/* emulate_begin.h - what follows is compiled for AVX2, its wider instructions emulated; emulate_end.h ends it. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#include "emulate_avx512.h"
