/* queue.h - messages that come by the vendor's queue: one thread takes them one after the other, runs each, and sends
 * its reply.  Used by the device flavour, and by the library that stands in for the vendor's in tests. */
#ifndef DSP_QUEUE_H
#define DSP_QUEUE_H

#include "device/npu/dsp/dsp.h"

typedef struct {
    dsp *d;               /* borrowed; the thread's, while there is one */
    struct dspqueue *end; /* the DSP's end; NULL: not open */
    _Atomic bool ends;
    uint8_t packet[NPU_MAX_MESSAGE];
} queue;

/* id: the host's.  0, or what the system said; -1: it has no queue, or gave no thread. */
int queue_open(queue *q, dsp *d, uint64_t id);
void queue_close(queue *q); /* after the message at hand; idempotent */

#endif
