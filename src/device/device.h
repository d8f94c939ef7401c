/* device.h - what a device must do: hold a model's weights, hold a session's K,V and scratch, and run passes.
 *
 * A pass is a set of rows.  Row r carries a token at a position and writes its fresh K,V into slot[r] of the K,V store.
 * What a row sees is its group's list of columns: slots in ascending order of position.  A row always sees its own
 * slot: where the list holds a column at the row's own position, the row's slot stands in for it; else it is put in at
 * its place.  So an ordinary row's position is in the list with its own slot, and a shadow row (a mask at the position
 * of a committed token) sees everything but that token.  A row may also name another row of the pass that stands in,
 * for it, at that row's position (the row before a shadow row, which sees the mask in place of the token).  In a causal
 * network a row sees nothing behind its own position.  A row's result depends on its columns only, not on which other
 * rows share the pass.  Nothing here knows what a mask is. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdatomic.h>

#include "device/columns.h"
#include "format/gguf.h"
#include "graph/graph.h"
#include "graph/score.h"

enum { PASS_GROUPS = 2 };

typedef struct {
    int n;                      /* rows */
    const int32_t *pos, *token, *slot; /* [n] */
    const uint8_t *group;       /* [n] index into cols */
    const int32_t *instead;     /* [n] row whose slot a row sees where its list holds a column at that row's position;
                                   -1: none.  NULL: none for all */
    pass_cols cols[PASS_GROUPS];
    int n_want;
    const int32_t *want;        /* [n_want] row numbers whose scores are wanted */
    const score_how *how;
    const score_ask *ask;       /* [n_want] */
    score *out;                 /* [n_want]; NULL: none */
    float *logits;              /* [n_want][n_vocab_rows]; NULL: not kept */
    /* Looked at between operators, between parts of weights that are kept within a budget, and while the pass waits for
     * them: true ends the pass with LLADA_CANCELLED; what its slots hold is then undefined.  NULL: never.  A device may
     * pass it over. */
    atomic_bool *stop;
} pass;

typedef struct device_weights device_weights; /* per model; shared by sessions */
typedef struct device_ctx device_ctx;         /* per session */

typedef struct {
    int max_rows, max_want; /* of one pass */
    int slots;              /* K,V store */
    int max_pos;            /* positions 0..max_pos-1 */
    int threads;
    bool kv_f16;
    uint64_t cpu_mask;
    device_ctx *kv_of; /* use that context's K,V store (same device and weights) instead of an own one; NULL: own */
    /* Use this memory, the caller's until close: half floats, [layer][K, V][slots][kv_stride]; NULL: own or kv_of's.
     * For two devices that work on one store. */
    void *kv_at;
    size_t kv_stride;
} device_limits;

/* Parts of the memory runtime that a benchmark leaves out. */
enum { WITHOUT_RESIDENCY = 1, WITHOUT_LAYOUT = 2, WITHOUT_PIPELINE = 4 };

/* For weights that must not be touched where they lie in the mapping, because memory for them is limited. */
typedef struct {
    const gguf *file;    /* borrowed, until weights_close */
    size_t budget;       /* bytes for everything: weights, contexts, and what stands beside them */
    size_t beside;       /* bytes of the latter: vocabulary, header */
    double read_rate;    /* of the storage, bytes a second; 0: unknown */
    double pass_seconds; /* that a pass computes; 0: unknown */
    unsigned without;    /* WITHOUT_ bits */
} device_memory;

/* What became of it. */
typedef struct {
    size_t budget, total, held, stream; /* bytes; total: all that is taken; stream: brought in by a pass */
    size_t slot_bytes;
    int slots, parts, held_parts;
    bool direct;                   /* past the page cache */
    uint64_t bytes;                /* brought in so far */
    double transfer, stall;        /* seconds reading, seconds passes waited for it */
    uint64_t passes;
} device_memory_use;

typedef struct device {
    const char *name;
    /* The graph is borrowed until weights_close. */
    llada_status (*weights_open)(device_weights **out, const graph *g, llada_err *err);
    void (*weights_close)(device_weights **w);
    /* Everything run needs is allocated here; run allocates nothing. */
    llada_status (*open)(device_ctx **out, device_weights *w, const device_limits *lim, llada_err *err);
    void (*close)(device_ctx **c);
    llada_status (*run)(device_ctx *c, const pass *p, llada_err *err);
    int (*threads)(const device_ctx *c);
    size_t (*bytes)(const device_ctx *c);   /* memory held by the context */
    /* weights_open within a budget.  Contexts count: opening one makes a new plan, and is refused with the smallest
     * budget that would do.  Passes of several contexts take turns when weights stream.  NULL: the device can't. */
    llada_status (*weights_within)(device_weights **out, const graph *g, const device_memory *mem, llada_err *err);
    void (*memory)(const device_weights *w, device_memory_use *out); /* NULL where weights_within is */
} device;

extern const device device_cpu;

#endif
