/* message.h - what host and DSP say to each other: one message a pass, one reply.  Used by both sides, so every field
 * has a fixed width and nothing but the sizes below is taken for granted: the receiver checks a message as if a
 * stranger had written it.
 *
 *     npu_head | npu_buffer[n_buffers] | npu_tensor[n_tensors] | npu_op[n_ops]
 *
 * A buffer is memory that both sides see, named by a number that the transport gave it.  A tensor is a rectangle in a
 * buffer.  An operator names tensors by their place in the message. */
#ifndef DEVICE_NPU_MESSAGE_H
#define DEVICE_NPU_MESSAGE_H

#include <stdint.h>

enum {
    NPU_MAGIC = 0x4c4c6d31, /* "1mLL" in memory: little-endian on both sides */
    NPU_VERSION = 1,
    NPU_MAX_MESSAGE = 65536, /* the vendor's queue takes no more */
    NPU_MAX_BUFFERS = 64,
    NPU_MAX_TENSORS = 1024,
    NPU_MAX_OPS = 1024,
    NPU_MAX_SIDE = 1 << 20, /* rows or columns of a tensor */
    NPU_MAX_HEAD = 256,     /* values of an attention head */
    NPU_MAX_EXPERTS = 2048, /* whose numbers half floats have */
    NPU_GROUPS = 2,         /* lists of columns a pass has, as in device.h */
    NPU_SUMS = 2,           /* checksums in a reply */
    NPU_LINE = 128          /* bytes of a cache line: buffers, rows and cache operations begin and end on one */
};

typedef enum {
    NPU_OK,
    NPU_BAD_MESSAGE, /* the message contradicts itself or its buffers */
    NPU_NO_ADDRESS,  /* mapping would exceed the address budget */
    NPU_MAP_FAILED,  /* the system refused a buffer */
    NPU_NO_VTCM,     /* an operator does not fit the tightly coupled memory */
    NPU_NOT_MAPPED,  /* an operator touches a buffer that is not mapped */
    NPU_BROKEN_RULE  /* strict emulation: the kernel broke a rule of the machine; detail says which */
} npu_status;

/* The rules of the machine that strict emulation enforces. */
typedef enum {
    NPU_RULE_NONE,
    NPU_RULE_ALIGN,  /* an operand of HMX, DMA or a cache operation is not aligned as it must be */
    NPU_RULE_VTCM,   /* an operand lies outside VTCM, or runs past its end */
    NPU_RULE_RANGE,  /* more than 32 tiles, or none, in one instruction */
    NPU_RULE_LOCK,   /* HMX used by a thread without its lock, or the lock taken by one with a vector context */
    NPU_RULE_DMA,    /* bytes used while the DMA that brings them is under way, or too many under way */
    NPU_RULE_BUFFER, /* outside a buffer, or a load from one that only DMA may read */
    NPU_RULE_STATE,  /* accumulators used before they were cleared, or no scales set */
    NPU_RULE_COUNT
} npu_rule;

enum { NPU_BUFFER_DMA = 1 }; /* read by DMA alone, never through the cache: packed weights */

/* head.flags */
enum {
    NPU_HOST_WROTE_KV = 1, /* the host wrote keys or values since the last message */
    NPU_FEW_ROWS = 2       /* products of few rows may be made in integers (dsp/plan.h says which) */
};

typedef struct {
    uint32_t magic, version;
    uint32_t bytes; /* of the whole message */
    uint32_t seq;   /* the reply repeats it */
    uint32_t flags;
    uint32_t n_buffers, n_tensors, n_ops;
    uint32_t n_rows;             /* of the pass; 0: no pass, only maps and unmaps */
    uint32_t n_cols[NPU_GROUPS]; /* columns of each group */
    uint32_t slots, positions;   /* row numbers below are checked against these */
    int32_t rows;                /* NPU_I32 tensor of one row: pos[n_rows], slot[n_rows], group[n_rows],
                                    instead[n_rows], then of each group slot[n_cols], pos[n_cols] */
    uint32_t zero[2];
} npu_head;

typedef struct {
    uint32_t id;    /* the transport's */
    uint32_t bytes; /* a multiple of NPU_LINE */
    uint32_t flags;
    uint32_t zero;
} npu_buffer;

typedef enum { NPU_F16, NPU_F32, NPU_I32, NPU_T32_F16, NPU_T32_Q8_0, NPU_T32_Q4_0, NPU_TYPES } npu_type;

typedef struct {
    uint32_t buffer;     /* number in this message */
    uint32_t offset;     /* bytes */
    uint32_t type;       /* npu_type */
    uint32_t rows, cols; /* T32: outputs, inputs of a matrix */
    uint32_t stride;     /* values from row to row; T32: 0, tiles lie densely */
} npu_tensor;

typedef enum {
    NPU_OP_MAP,       /* buffer: the DSP may touch it from here on; nothing when it is mapped already */
    NPU_OP_UNMAP,     /* buffer: and no longer */
    NPU_OP_INPUT,     /* in: the host wrote it */
    NPU_OP_OUTPUT,    /* in: the host will read it; its checksum is reply.sum[0] */
    NPU_OP_SUM_KV,    /* keys, values: checksum of the rows that this pass stored is reply.sum[1] */
    NPU_OP_RMSNORM,   /* out, in, weight (F32, 1 row); width: values a group, 0: the row; eps */
    NPU_OP_MATMUL,    /* out, in, weight (T32); bias (F32, 1 row) and residual (F16) if not -1 */
    NPU_OP_ROPE,      /* in (in place), weight (F32 [positions][width]: cosines, then sines); width, heads; HALVES */
    NPU_OP_KV,        /* in, in2: rows stored in the slots of keys, values */
    NPU_OP_ATTENTION, /* out, in, keys, values; width, heads, kv_heads; CAUSAL */
    NPU_OP_SWIGLU,    /* out, in, in2 */
    NPU_OP_ROUTE,     /* out (numbers, then probabilities), in; kv_heads: experts that serve a row, of `heads` */
    NPU_OP_EXPERTS,   /* out, in, in2 (of ROUTE), weight (T32: all experts', whole stripes each), residual if not -1:
                         as OP_EXPERTS (graph.h); heads, kv_heads as in ROUTE.  Room: keys for an expert's rows, values
                         for their products, with a residual bias (F32) for sums */
    NPU_OP_KINDS
} npu_op_kind;

enum { NPU_HALVES = 1, NPU_CAUSAL = 2 }; /* npu_op.flags */

typedef struct {
    uint32_t kind;
    int32_t out, in, in2, weight, bias, residual, keys, values; /* tensors; -1: none */
    uint32_t width, heads, kv_heads;
    uint32_t flags;
    uint32_t eps;    /* bits of a float */
    uint32_t buffer; /* MAP, UNMAP */
    uint32_t zero;
} npu_op;

typedef struct {
    uint32_t magic, seq;
    uint32_t status; /* npu_status */
    uint32_t op;     /* the operator that failed */
    uint32_t detail; /* npu_rule, or what the check found */
    uint32_t sum[NPU_SUMS];
    uint32_t mapped;       /* KiB mapped after the message */
    uint32_t maps, unmaps; /* done by this message */
    uint32_t zero[6];
} npu_reply;

/* A checksum that notices values that are old, missing or in the wrong place: Fletcher's two sums over 16-bit values.
 * Begin with 0, 0; the result is npu_sum_end. */
typedef struct {
    uint32_t a, b;
} npu_sum;

static inline void npu_sum_add(npu_sum *s, const uint16_t *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        s->a += x[i];
        s->b += s->a;
    }
}

static inline uint32_t npu_sum_end(const npu_sum *s) { return s->a ^ (s->b << 16 | s->b >> 16); }

/* Bytes of a 32 x 32 tile as it is packed; 0 for types that are no tiles. */
static inline uint32_t npu_tile_bytes(uint32_t type)
{
    return type == NPU_T32_F16 ? 2048 : type == NPU_T32_Q8_0 ? 1088 : type == NPU_T32_Q4_0 ? 576 : 0;
}

/* Values from row to row of an activation of so many columns: whole cache lines, which are zero behind the columns. */
static inline uint32_t npu_stride(uint32_t cols) { return (cols + 63) / 64 * 64; }

#endif
