/* inside.h - the NPU device's own records, shared by its files:
 *
 *   npu.c      opening and closing     pack.c      weights to tiles in shared buffers
 *   step.c     one pass as a message   residency.c which buffers are mapped, when there is not room for all
 *   layout.c   activations and tensors of a context          selftest.c  known answers */
#ifndef DEVICE_NPU_INSIDE_H
#define DEVICE_NPU_INSIDE_H

#include <stdatomic.h>

#include "base/monitor.h"
#include "device/cpu/part.h"
#include "device/npu/npu.h"

enum { NPU_MAX_GROUPS = 48 }; /* buffers of weights: a message has room for them and a context's own */

/* A shared buffer and what is known of it. */
typedef struct npu_region {
    npu_shared s;
    uint32_t flags;
    bool mapped;
    int turn;                /* weights: their place in the order of a pass; -1: a context's own */
    struct npu_region *next; /* all that may be mapped */
} npu_region;

/* Where a weight lies; region NULL: not on the DSP. */
typedef struct {
    npu_region *region;
    uint32_t offset, type;
} npu_place;

struct device_weights {
    const graph *g;
    graph shared;        /* g, but for matrices that the CPU can read where the NPU does; its tensors are owned */
    device_weights *cpu; /* owned: the CPU device's, of g or of shared */
    npu_transport *t;    /* owned; NULL: never came to be */
    monitor *lock;       /* owned: one message at a time */
    atomic_bool down;    /* the DSP is not used (any more) */
    int first, end;      /* operators of the graph that the DSP runs */
    npu_region vectors;  /* norms and biases, floats */
    npu_region groups[NPU_MAX_GROUPS]; /* matrices, some layers each */
    int n_groups, layers_per_group;
    npu_place *place; /* owned; [g->n_t] */
    npu_region *all;  /* list */
    uint32_t seq;
    npu_counts counts;
    char note[256];
};

/* One operator of a pass, as it will stand in the message, and the group of weights it needs (-1: none). */
typedef struct {
    npu_op op;
    int group;
} npu_planned;

struct device_ctx {
    device_weights *w; /* borrowed */
    device_ctx *cpu;   /* owned */
    device_ctx *main;  /* the context whose store this one uses: it runs on the CPU alone; NULL: it has its own */
    device_limits lim;
    bool on_npu;         /* else the CPU runs all of its passes */
    npu_region work, kv; /* activations, rows, rotations; keys and values */
    size_t kv_stride;
    npu_tensor *t;       /* owned; `rows` of activations are set for each pass */
    npu_region **region; /* owned; of each tensor */
    bool *is_rows;       /* owned; a row for each row of the pass */
    int n_t, rows_tensor;
    npu_planned *ops; /* owned */
    int n_ops;
    uint32_t in_offset, out_offset;  /* in work: what the CPU hands over, what it gets back */
    uint32_t width;                  /* values of these rows */
    tensor_id hidden_in, hidden_out; /* the same as tensors of the graph */
    uint8_t *message;                /* owned; NPU_MAX_MESSAGE */
    atomic_bool host_wrote_kv;
    size_t bytes;
};

/* pack.c.  LLADA_UNSUPPORTED: not a graph that the DSP can run. */
llada_status npu_pack(device_weights *w, llada_err *err);
void npu_unpack(device_weights *w); /* gives the buffers back */
/* Fills w->shared: matrices that lost nothing on the way into tiles are there once for both devices. */
llada_status npu_share(device_weights *w, llada_err *err);
llada_status npu_region_take(device_weights *w, npu_region *r, uint64_t bytes, uint32_t flags, int turn,
                             llada_err *err);
void npu_region_give(device_weights *w, npu_region *r); /* idempotent */

/* layout.c */
llada_status npu_lay_out(device_ctx *c, llada_err *err);

/* residency.c: the next buffer to unmap before r can be mapped beside those that stay.  NULL when r fits (or nothing more
 * can go). */
npu_region *npu_victim(const device_weights *w, const npu_region *r, const npu_region *const *keep, int n_keep);
uint64_t npu_mapped_bytes(const device_weights *w);

/* step.c: the layers of a pass on the DSP.  Any failure leaves a sentence; the caller holds the lock. */
llada_status npu_step(device_ctx *c, const pass *p, llada_err *err);
/* Tells the DSP to let go of a context's buffers. */
llada_status npu_forget(device_ctx *c, llada_err *err);

/* selftest.c */
llada_status npu_selftest(device_weights *w, llada_err *err);

/* Sends a message that lies ready; checks magic, sequence number and status of the reply. */
llada_status npu_call(device_weights *w, uint8_t *message, npu_reply *reply, llada_err *err);

#endif
