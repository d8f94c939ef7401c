/* plan.h - how a product is cut to fit VTCM.  Compiled for both sides: the host asks it whether a model can run. */
#ifndef DSP_PLAN_H
#define DSP_PLAN_H

#include "device/npu/message.h"

/* Bytes that do not depend on the rows: the table of scales, the result tile, two packed stripes, one as halves; and
 * what aligning them may lose. */
static inline uint64_t plan_fixed_bytes(uint32_t k_tiles, uint32_t type)
{
    const uint64_t stripe = (uint64_t)k_tiles * npu_tile_bytes(type), wide = (uint64_t)k_tiles * 2048;
    return 256 + 2048 + 2 * (stripe + NPU_LINE) + (type == NPU_T32_F16 ? 0 : wide) + 4096;
}

/* Tiles of rows that share one reading of the weights: as many as fit, since every further reading costs as much as
 * the first.  0: the product does not fit at all. */
static inline uint32_t plan_row_tiles(uint32_t vtcm_bytes, uint32_t k_tiles, uint32_t type)
{
    const uint64_t fixed = plan_fixed_bytes(k_tiles, type), tile = (uint64_t)k_tiles * 2048;
    return fixed >= vtcm_bytes ? 0 : (uint32_t)((vtcm_bytes - fixed) / tile);
}

#endif
