/* transport.h - how messages and buffers reach the DSP code.  The bytes of a message are the same on every transport.
 *
 *   inproc    the DSP code in this process, on the strict emulation (transport_inproc.c)
 *   loopback  the DSP code as a Hexagon program in an emulator, by shared memory (transport_loopback.c)
 *   fastrpc   the device, by the vendor's library (transport_fastrpc.c) */
#ifndef DEVICE_NPU_TRANSPORT_H
#define DEVICE_NPU_TRANSPORT_H

#include <stdbool.h>

#include "base/err.h"
#include "device/npu/message.h"

/* Memory that both sides see. */
typedef struct {
    uint32_t id; /* what npu_buffer.id says */
    uint8_t *at; /* NULL: none */
    uint32_t bytes;
    void *own; /* the transport's */
} npu_shared;

typedef struct {
    const char *transport; /* "inproc", "loopback:PROGRAM", "fastrpc", "fastrpc:LIBRARY"; NULL: fastrpc.  Borrowed
                              until open returns */
    uint64_t budget;       /* most bytes mapped at a time; 0: what the transport finds */
    uint32_t vtcm;         /* emulations: bytes of VTCM; 0: 8 MiB */
    uint32_t contexts;     /* emulations: vector contexts, 8 at most; 0: 4 */
    double patience;       /* seconds until a call is given up; 0: 10 (emulations: 120) */
    bool few_rows;         /* products of few rows in integers: a row's bits then depend on how many share its pass */
} npu_settings;

#define NPU_EMULATED "emulated: its speed says nothing of a device"

typedef struct npu_transport npu_transport;

typedef struct {
    const char *name;
    void (*close)(npu_transport **t);
    /* The DSP touches nothing more from here on, and is not spoken to again; buffers stay until they are given back. */
    void (*stop)(npu_transport *t);
    llada_status (*take)(npu_transport *t, uint32_t bytes, npu_shared *out, llada_err *err);
    void (*give)(npu_transport *t, npu_shared *b);
    /* Sends a message and waits for its reply.  An error: there was none; the DSP is not to be spoken to again. */
    llada_status (*call)(npu_transport *t, const void *message, uint32_t bytes, npu_reply *reply, llada_err *err);
} npu_transport_calls;

/* Each transport's own record begins with this. */
struct npu_transport {
    const npu_transport_calls *calls;
    uint64_t budget;  /* most bytes mapped at a time */
    uint32_t vtcm;    /* bytes that operators can count on */
    bool few_rows;    /* as in the settings */
    char machine[64]; /* for people: "Hexagon v75", or NPU_EMULATED */
};

llada_status npu_inproc_open(npu_transport **out, const npu_settings *s, llada_err *err);
/* program: the DSP code for the emulator, as the preset `hexagon` builds it. */
llada_status npu_loopback_open(npu_transport **out, const char *program, const npu_settings *s, llada_err *err);
/* library: the vendor's, or one that stands in for it. */
llada_status npu_fastrpc_open(npu_transport **out, const char *library, const npu_settings *s, llada_err *err);

/* By the name in the settings.  LLADA_BAD_ARG: there is no such transport; else it can't be used here. */
llada_status npu_transport_open(npu_transport **out, const npu_settings *s, llada_err *err);

#endif
