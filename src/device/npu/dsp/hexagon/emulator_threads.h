/* emulator_threads.h - threads of the emulator's program. */
#ifndef DSP_EMULATOR_THREADS_H
#define DSP_EMULATOR_THREADS_H

#include "device/npu/dsp/emulate.h"

emulate_threads emulator_threads(void);

#endif
