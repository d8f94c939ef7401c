/* tools_info.h - the part of tools.h's memory count that needs the model's record. */
#ifndef TOOLS_INFO_H
#define TOOLS_INFO_H

#include "device/device.h"
#include "model/model.h"
#include "tools.h"

llada_status info_session_bytes(const model *m, const llada_recipe *r, int ctx, bool kv_f16, tools_memory *out,
                                llada_err *err);

llada_status info_memory_plan(const model *m, const llada_recipe *r, int ctx, bool kv_f16, const device_memory *mem,
                              tools_plan *out, llada_err *err);

#endif
