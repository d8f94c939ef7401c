/* plan.h - how a product is cut to fit VTCM and to keep the machine's units busy at the same time.  Compiled for both
 * sides: the DSP cuts by it, the host asks it whether a model can run.
 *
 * A product takes its weights stripe by stripe of 32 outputs, some stripes at a time: a chunk.  While one chunk comes
 * by DMA, vector threads expand the one before it to halves, HMX multiplies the one before that, and the results of a
 * fourth go out.  Each place between two stages is there twice. */
#ifndef DSP_PLAN_H
#define DSP_PLAN_H

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

#endif
