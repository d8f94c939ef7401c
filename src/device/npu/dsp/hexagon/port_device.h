/* port_device.h - the machine as the device flavour has it. */
#ifndef DSP_PORT_DEVICE_H
#define DSP_PORT_DEVICE_H

#include "device/npu/dsp/port.h"

enum { VTCM_BYTES = 8 << 20, STACK_BYTES = 16 << 10 };

typedef struct {
    const void *next;
    uint32_t control;
    const void *src;
    void *dst;
} __attribute__((aligned(64))) dma_descriptor;

typedef struct {
    uint8_t stack[STACK_BYTES] __attribute__((aligned(128)));
    unsigned id; /* the system's */
    bool vectors;
    void (*run)(void *);
    void *arg;
    _Atomic uint32_t state; /* 0: begins; 1: runs; 2: got no vector context */
} device_thread;

struct port {
    dma_descriptor dma;
    device_thread thread[MAX_THREADS + 1]; /* the last: the one that messages come on, by a queue */
    unsigned context;                      /* of VTCM and HMX; 0: none */
    uint8_t *vtcm;
    uint32_t used;
    uint64_t mapped;
};

int port_open(port *m); /* 0: VTCM and HMX are ours */
void port_close(port *m);

#endif
