/* host_threads.h - threads for an emulation that runs in this process. */
#ifndef DEVICE_NPU_HOST_THREADS_H
#define DEVICE_NPU_HOST_THREADS_H

#include "base/task.h"
#include "device/npu/dsp/emulate.h"

typedef struct {
    task *thread[MAX_THREADS + 1]; /* owned, until they are joined */
} host_threads;

/* h: borrowed for as long as the emulation is used; begins as zeros. */
emulate_threads host_threads_of(host_threads *h);

#endif
