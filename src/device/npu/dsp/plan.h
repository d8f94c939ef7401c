/* plan.h - how a product is cut to fit VTCM and to keep the machine's units busy at the same time, and which are made
 * in integers.  Compiled for both sides: the DSP cuts by it, the host asks it whether a model can run.
 *
 * A product takes its weights stripe by stripe of 32 outputs, some stripes at a time: a chunk.  While one chunk comes
 * by DMA, vector threads expand the one before it to halves, HMX multiplies the one before that, and the results of a
 * fourth go out.  Each place between two stages is there twice. */
#ifndef DSP_PLAN_H
#define DSP_PLAN_H

#include <stdbool.h>

#include "device/npu/message.h"

typedef struct {
    uint32_t row_tiles, stripes, k_tiles; /* tiles of 32 rows, of 32 outputs, of 32 inputs */
    uint32_t type;                        /* npu_type of the weights */
} plan_shape;

typedef struct {
    uint32_t row_tiles; /* that share one reading of the weights; 0: the product does not fit */
    uint32_t readings;  /* of all weights */
    uint32_t chunk;     /* stripes */
    uint32_t workers;   /* beside the message's thread */
    uint64_t ps;        /* by the model below; of use only to compare ways to cut */
} plan_cut;

/* Stages between DMA and HMX: weights that come as halves are not expanded. */
static inline uint32_t plan_lag(uint32_t type) { return type == NPU_T32_F16 ? 0 : 1; }

/* VTCM that a cut takes, aligning included. */
uint64_t plan_bytes(const plan_shape *s, uint32_t row_tiles, uint32_t chunk);

/* What a cut costs by the model, with so many workers. */
uint64_t plan_ps(const plan_shape *s, uint32_t row_tiles, uint32_t chunk, uint32_t workers);

/* The cheapest cut for so many bytes of VTCM and up to so many workers (7 at most). */
plan_cut plan_product(const plan_shape *s, uint32_t vtcm, uint32_t workers);

/* ------------------------------------------------------------ few rows */

enum { PLAN_FEW_ROWS = 4, PLAN_FEW_K = 16384 }; /* rows, and values of one, that there is room for as integers */

/* A model, not a measurement: picoseconds a tile of 32 x 32 weights takes, by figures that were published of a v75.
 * DMA brings 60 GB/s; a thread's vector unit does 33 GFLOPS, which is one instruction on 64 halves in 1940 ps when a
 * product and a sum take two, and threads share the tiles; HMX does 12 TFLOPS and counts 32 rows, however many are
 * there.  What overlaps costs as much as the slowest of it.  Instructions were counted in hexagon/lanes_hvx.c. */
enum {
    PLAN_THREADS = 4,
    PLAN_VECTOR_PS = 1940 / PLAN_THREADS,
    PLAN_HMX_PS = 2 * 32 * 32 * 32 / 12,
    PLAN_EXPAND_Q8_0 = 82, /* instructions: a tile becomes halves */
    PLAN_EXPAND_Q4_0 = 86,
    PLAN_WEAVE_Q8_0 = 28, /* a tile becomes operands of integer products */
    PLAN_WEAVE_Q4_0 = 32,
    PLAN_INTEGER_ROW = 18 /* and is multiplied with a row */
};

static inline uint32_t plan_slower(uint32_t a, uint32_t b) { return a > b ? a : b; }

static inline uint32_t plan_hmx_ps(uint32_t type)
{
    const uint32_t vectors = type == NPU_T32_Q4_0 ? PLAN_EXPAND_Q4_0 : PLAN_EXPAND_Q8_0;
    const uint32_t dma = npu_tile_bytes(type) * 1000 / 60;
    return plan_slower(dma, plan_slower(vectors * PLAN_VECTOR_PS, PLAN_HMX_PS));
}

static inline uint32_t plan_integer_ps(uint32_t rows, uint32_t type)
{
    const uint32_t weave = type == NPU_T32_Q4_0 ? PLAN_WEAVE_Q4_0 : PLAN_WEAVE_Q8_0;
    const uint32_t dma = npu_tile_bytes(type) * 1000 / 60;
    return plan_slower(dma, (weave + rows * PLAN_INTEGER_ROW) * PLAN_VECTOR_PS);
}

/* A product of so many rows is made in integers, where that is allowed. */
static inline bool plan_in_integers(uint32_t rows, uint32_t k_tiles, uint32_t type)
{
    if (type != NPU_T32_Q8_0 && type != NPU_T32_Q4_0) return false;
    return rows <= PLAN_FEW_ROWS && k_tiles <= PLAN_FEW_K / 32 && plan_integer_ps(rows, type) < plan_hmx_ps(type);
}

#endif
