/* npu_faulty.h - a transport that passes on to another and lets something go wrong at a message of choice. */
#ifndef TESTS_UNIT_NPU_FAULTY_H
#define TESTS_UNIT_NPU_FAULTY_H

#include "device/npu/transport.h"

typedef enum {
    FAULT_NONE,
    FAULT_NO_BUFFER, /* the k-th buffer that is asked for is refused */
    FAULT_MAP,       /* the reply says that a buffer could not be mapped */
    FAULT_TIMEOUT,   /* no reply, while the DSP did its work */
    FAULT_DEATH,     /* no reply, and half-written memory */
    FAULT_OLD_REPLY, /* the reply to the message before */
    FAULT_STALE,     /* the reply is right, what the DSP wrote did not arrive */
    FAULT_WRONG,     /* values changed on their way */
    FAULT_NAN,       /* infinity among the results */
    FAULT_GARBAGE,   /* a reply of random bytes */
    FAULT_MANY_ROWS, /* wrong for 5 rows and more, with a checksum to match */
    FAULT_COUNT
} fault_kind;

extern const char *const fault_words[FAULT_COUNT];

/* Owns the inner transport.  at: which message (which buffer), from 1; 0: never. */
npu_transport *npu_faulty(npu_transport *inner, fault_kind kind, int at);
int npu_faulty_calls(const npu_transport *t);                   /* messages so far */
void npu_faulty_set(npu_transport *t, fault_kind kind, int at); /* counted from now */

#endif
