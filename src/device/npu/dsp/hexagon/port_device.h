/* port_device.h - the machine as the device flavour has it. */
#ifndef DSP_PORT_DEVICE_H
#define DSP_PORT_DEVICE_H

#include "device/npu/dsp/port.h"

enum { VTCM_BYTES = 8 << 20 };

typedef struct {
    const void *next;
    uint32_t control;
    const void *src;
    void *dst;
} __attribute__((aligned(64))) dma_descriptor;

struct port {
    dma_descriptor dma;
    unsigned context; /* of VTCM and HMX; 0: none */
    uint8_t *vtcm;
    uint32_t used;
    uint64_t mapped;
};

int port_open(port *m); /* 0: VTCM and HMX are ours */
void port_close(port *m);

#endif
