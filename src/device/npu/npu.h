/* npu.h - the NPU device: the layers of a pass run on the DSP, what lies before and behind them (embedding, scores) on
 * the CPU device, which also takes over when the DSP fails.  Both read and write one store of keys and values, so
 * nothing has to be copied or computed again when that happens. */
#ifndef DEVICE_NPU_NPU_H
#define DEVICE_NPU_NPU_H

#include "device/device.h"
#include "device/npu/transport.h"

extern const device device_npu;

/* Like device_npu.weights_open, over a transport of the caller's choice.  An NPU that is missing, refuses or fails its
 * self-test is no error: the CPU serves, and npu_note says why. */
llada_status npu_weights_open(device_weights **out, const graph *g, const npu_settings *s, llada_err *err);
/* The same over an open transport, which it owns from here on, whatever the result.  NULL: `why` there is none. */
llada_status npu_weights_open_on(device_weights **out, const graph *g, npu_transport **t, const char *why,
                                 llada_err *err);

/* One sentence on what serves: the NPU, or why the CPU. */
void npu_note(const device_weights *w, char *buf, size_t cap);
bool npu_serves(const device_weights *w);

/* Messages sent, maps and unmaps done by them since the weights were opened: for tests of the swapping. */
typedef struct {
    uint64_t messages, maps, unmaps;
} npu_counts;
npu_counts npu_counted(const device_weights *w);

#endif
