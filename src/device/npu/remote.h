/* remote.h - what the two ends of the vendor's remote calls agree on, and what its message queue (dspqueue) is like:
 * numbers of the public header, and methods of our own library on the device. */
#ifndef DEVICE_NPU_REMOTE_H
#define DEVICE_NPU_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

/* OPEN gives a handle.  MESSAGE: in the message, out the reply.  START: in the queue's id, 64 bits; messages come by
 * the queue from here on, until STOP, and MESSAGE is refused. */
typedef enum { REMOTE_OPEN, REMOTE_CLOSE, REMOTE_MESSAGE, REMOTE_START, REMOTE_STOP } remote_method;

/* A buffer that a packet refers to.  Ours refer to none: buffers are mapped by operators of a message, and the DSP sees
 * to its caches. */
typedef struct {
    uint32_t file, bytes, offset, flags;
    uint64_t address;
} queue_buffer;

/* Results of the queue's functions; some systems add an offset to them. */
typedef enum { QUEUE_EXPIRED = 12, QUEUE_BAD_PARAMETER = 14 } queue_error;
static inline bool queue_failed_as(int result, queue_error e) { return (result & 0x3ff) == (int)e; }

#endif
