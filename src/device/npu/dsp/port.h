/* port.h - all that the DSP code needs from the machine it runs on.  The one place where the three flavours differ:
 *
 *   hexagon/port_device.c  the device: HMX by instruction words, DMA, HAP services
 *   emulate.c              strict emulation, in this process or in an emulator of the scalar core: HMX as plain C, and
 *                          every rule of the machine checked
 *
 * A call that breaks a rule does nothing but note the first such fault (port_fault): kernels need no checks of their
 * own, and a message ends with NPU_BROKEN_RULE. */
#ifndef DSP_PORT_H
#define DSP_PORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/npu/message.h"

enum {
    TILE = 32, /* rows and columns of a tile */
    TILE_VALUES = 1024,
    TILE_BYTES = 2048, /* of halves */
    MAX_TILES = 32,    /* of one HMX instruction: its range operand ends at 64 KiB */
    MAX_DMA = 1,       /* transfers under way */
    MAX_THREADS = 8    /* beside the one that messages come on; its number, where it is begun here */
};

/* Half floats as bits.  Element (r, c) of a tile is number r / 2 * 64 + c * 2 + (r & 1): rows lie in pairs. */
typedef uint16_t half;

typedef struct port port; /* the machine, as one session of the DSP code has it */

/* A mapped buffer: what loads and stores touch.  NULL `at`: only DMA may read it. */
typedef struct {
    uint32_t id, bytes, flags;
    uint8_t *at;
    const uint8_t *ddr; /* what DMA reads; NULL: not mapped */
} port_buffer;

/* Address space.  NPU_OK, NPU_NO_ADDRESS or NPU_MAP_FAILED. */
uint32_t port_map(port *m, uint32_t id, uint32_t bytes, uint32_t flags, port_buffer *b);
void port_unmap(port *m, port_buffer *b);
uint32_t port_mapped(const port *m); /* KiB */

/* Coherence is one-way: before reading what the host wrote, invalidate; after writing what the host will read, flush.
 * Both take whole cache lines. */
void port_invalidate(port *m, const port_buffer *b, uint32_t off, uint32_t n);
void port_flush(port *m, const port_buffer *b, uint32_t off, uint32_t n);

/* Threads.  run(arg) runs on thread `number`, MAX_THREADS at most; `vectors`: the thread holds a vector context for as
 * long as it lives.  False: there is no such thread to be had.  port_join waits until run has returned. */
bool port_thread(port *m, uint32_t number, bool vectors, void (*run)(void *), void *arg);
void port_join(port *m, uint32_t number);
/* Sleeps while *word is `value`, or not as long: whoever waits looks again.  port_wake wakes all who sleep on it. */
void port_sleep(port *m, _Atomic uint32_t *word, uint32_t value);
void port_wake(port *m, _Atomic uint32_t *word);

/* Tightly coupled memory, given out from the bottom; NULL when it is used up.  port_vtcm_free gives all of it back.
 * Both belong to the thread that messages come on, while no other is at work. */
void *port_vtcm(port *m, uint32_t bytes, uint32_t align);
void port_vtcm_free(port *m);
uint32_t port_vtcm_left(const port *m);

/* DMA from a buffer to VTCM.  The bytes are there after port_dma_wait, which waits for all that its own thread has
 * started: each thread has an engine of its own. */
void port_dma(port *m, void *dst, const port_buffer *b, uint32_t off, uint32_t n);
void port_dma_wait(port *m);

/* HMX.  The lock is held from before the first of these calls until after the last, by the thread that makes them.  A
 * thread that holds a vector context can't take it. */
void port_hmx_lock(port *m);
void port_hmx_unlock(port *m);
/* 32 words, low half scale, high half bias, one a column; then 32 words of zero.  256 bytes, aligned to as many. */
void port_hmx_scale(port *m, const uint32_t *table);
void port_hmx_clear(port *m);
/* Accumulates n pairs of consecutive tiles: activations [row][k], weights [k][column]. */
void port_hmx_mac(port *m, const half *act, const half *wgt, uint32_t n);
/* out = accumulators * scale + bias; the accumulators are gone. */
void port_hmx_store(port *m, half *out);

/* Vector code is about to use these bytes of VTCM. */
void port_touch(port *m, const void *p, uint32_t n);

uint32_t port_fault(const port *m); /* npu_rule that was broken first since port_begin */
void port_begin(port *m);           /* a message begins */

#endif
