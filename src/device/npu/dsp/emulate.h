/* emulate.h - the strict emulation of port.h: who provides its memory, and how much there is. */
#ifndef DSP_EMULATE_H
#define DSP_EMULATE_H

#include "device/npu/dsp/port.h"

/* Threads of the process that the emulation runs in; `user` is passed along. */
typedef struct {
    void *user;
    bool (*start)(void *user, uint32_t number, void (*run)(void *), void *arg);
    void (*join)(void *user, uint32_t number);
    void (*sleep)(void *user, _Atomic uint32_t *word, uint32_t value);
    void (*wake)(void *user, _Atomic uint32_t *word);
    uintptr_t (*self)(void *user); /* who calls; never 0 */
} emulate_threads;

/* Where buffers and memory come from: the process that the emulation runs in. */
typedef struct {
    void *user;
    uint8_t *(*attach)(void *user, uint32_t id, uint32_t bytes); /* what the host sees; NULL: refused */
    void (*detach)(void *user, uint32_t id, uint8_t *at, uint32_t bytes);
    void *(*take)(void *user, uint32_t bytes); /* private memory, aligned to a cache line; NULL: none */
    void (*give)(void *user, void *p, uint32_t bytes);
    emulate_threads threads;
} emulate_world;

typedef struct {
    uint8_t *dst;
    const uint8_t *src;
    uint32_t n;
    uintptr_t by; /* the thread that started it */
} emulate_dma;

typedef struct {
    port *m;
    void (*run)(void *);
    void *arg;
    uintptr_t self; /* 0: none */
    bool vectors;   /* holds a vector context */
} emulate_thread;

struct port {
    emulate_world world;
    uint8_t *vtcm; /* owned by whoever set the port up; aligned to TILE_BYTES */
    uint32_t vtcm_bytes, vtcm_used;
    uint64_t budget; /* bytes of address space for buffers */
    uint64_t mapped;
    _Atomic uint32_t busy; /* guards what follows up to `locked_by`: 0 free, 1 held, 2 held and waited for */
    emulate_dma dma[MAX_DMA];
    uint32_t n_dma;
    emulate_thread thread[MAX_THREADS + 1]; /* the last: the one that messages come on */
    uintptr_t locked_by;                    /* holds the HMX lock; 0: nobody */
    bool scaled;
    bool counting;                                   /* the accumulators were cleared, and not stored since */
    float acc[TILE_VALUES], scale[TILE], bias[TILE]; /* acc: [row][column] */
    _Atomic uint32_t fault;
};

void emulate_init(port *m, const emulate_world *world, void *vtcm, uint32_t vtcm_bytes, uint64_t budget);

#endif
