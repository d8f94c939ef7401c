/* part.h - the CPU device for other devices: parts of its passes, for what they leave to it.  Says nothing of what its
 * contexts look like, since other devices have theirs under the same name. */
#ifndef DEVICE_CPU_PART_H
#define DEVICE_CPU_PART_H

#include "device/device.h"

/* All checks of a pass. */
llada_status cpu_check(device_ctx *c, const pass *p, llada_err *err);
/* Operators [first, end) of a pass that was checked. */
llada_status cpu_run_ops(device_ctx *c, const pass *p, int first, int end, llada_err *err);
/* Where an activation lies while operators that touch it are still to run: rows packed, floats. */
float *cpu_activation(const device_ctx *c, tensor_id id);
/* [max_pos][head_dim] floats: of each position half cosines, half sines. */
const float *cpu_rope_table(const device_ctx *c);

#endif
