/* ring.h - the memory that a loopback's two processes share for messages: one at a time, each side waits by futex. */
#ifndef DEVICE_NPU_RING_H
#define DEVICE_NPU_RING_H

#include "device/npu/message.h"

typedef struct {
    uint32_t asked;    /* counts up with each message; the DSP waits on it */
    uint32_t answered; /* becomes `asked` when the reply is there; the host waits on it */
    uint32_t quit;
    uint32_t bytes; /* of the message */
    npu_reply reply;
    uint32_t message[NPU_MAX_MESSAGE / 4];
} npu_ring;

#endif
