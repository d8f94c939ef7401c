/* graph.h - a denoising pass as data: a list of operators over tensors with known shapes and lifetimes.  model/ builds
 * the graph once per file, device/ runs it for any number of rows, and the planner gives activations their addresses.
 *
 * A tensor's rows are symbolic: ROWS (one per row of the pass), WANT (one per scored row) or fixed. */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef enum {
    OP_EMBED,    /* out[ROWS][d] = weight[token] */
    OP_RMSNORM,  /* out = in / sqrt(mean(in^2) + eps) * weight; over groups of `width` values (QK-norm), else the row */
    OP_MATMUL,   /* out[r][n] = sum_k in[r][k] weight[n][k]  (+ bias[n]) (+ residual[r][n]); out may be residual */
    OP_ROPE,     /* in place: rotates each head of `width` values by its row's position */
    OP_KV,       /* stores in (K) and in2 (V) of each row into its slot of this layer's cache */
    OP_ATTENTION,/* out[r][head] = softmax(q.k / sqrt(width)) v over the slots the row sees (causal: none behind it) */
    OP_SWIGLU,   /* out = silu(in) * in2; out may be in or in2 */
    OP_GATHER,   /* out[WANT] = in[wanted rows] */
    OP_SCORE,    /* scores of in[WANT] under weight [vocab][d]: reduced to a `score` each, logits kept only if asked */
    OP_ROUTE,    /* out[r] = the numbers of the `used` experts most probable under softmax(in[r]), falling (ties: the
                    lower number), then their probabilities: 2 * used values */
    OP_EXPERTS   /* the matrix product of each row with each expert that in2 (of OP_ROUTE) names for it; weight holds
                    the experts' matrices [n][k], one behind the other.  Without a residual, in [ROWS][k]:
                    out[r][i * n ...] = W(expert i) in[r].  With one, in [ROWS][used * k]: out[r] = residual[r] + the
                    sum, by rising number of the expert, of its probability times W(expert i) in[r][i * k ...]; out may
                    be residual */
} op_kind;

typedef enum { ROPE_PAIRS, ROPE_HALVES } rope_style; /* adjacent pairs (2i, 2i+1), or (i, i + width/2) */

typedef enum {
    T_WEIGHT,     /* long-lived, from the file */
    T_ACTIVATION, /* short-lived: lives from the operator that writes it to the last that reads it */
    T_NONE
} tensor_kind;
typedef enum { DIM_FIXED, DIM_ROWS, DIM_WANT } dim_rows;
typedef enum {
    LAYOUT_ROWS, /* rows one behind the other, as in GGUF files */
    LAYOUT_T32   /* tiles (format/t32.h): only for MATMUL, SCORE, and EXPERTS if each of them begins with a stripe */
} tensor_layout;

typedef struct {
    const char *name;  /* borrowed: a constant, or the file's */
    tensor_kind kind;
    dim_rows rows;
    int64_t n_rows;    /* when DIM_FIXED: weight rows (outputs) */
    int64_t cols;      /* values a row */
    uint32_t type;     /* weights: quant_type; activations: F32 */
    const void *data;  /* weights: borrowed from the file */
    size_t row_bytes;      /* 0 in LAYOUT_T32: a row's bytes lie apart */
    tensor_layout layout;  /* weights */
} tensor;

typedef int tensor_id; /* index into graph.t; -1: none */

typedef struct {
    op_kind kind;
    int layer;                          /* -1 outside layers */
    tensor_id out, in, in2, weight, bias, residual; /* -1 where the kind has no such tensor; ROPE: out is in */
    int width, heads, kv_heads;         /* ROPE, ATTENTION, RMSNORM groups */
    rope_style rope;
    float eps;
    bool causal;                        /* ATTENTION */
    int experts, used;                  /* ROUTE, EXPERTS: how many there are, how many serve a row */
} op;

typedef struct {
    op *ops;
    int n_ops, cap_ops;
    tensor *t;
    int n_t, cap_t;
    int n_layer, n_embd, head_dim, n_head, n_kv_head;
    int n_vocab_rows; /* rows of the head, padding included */
    double rope_base;
    const void *rope_factors; /* [head_dim / 2] floats, unaligned, borrowed from the file: angle i is divided by the
                                 i-th; NULL: by 1 */
} graph;

/* Addresses of activations within one arena, for passes up to a given size. */
typedef struct {
    size_t *offset;    /* owned; per tensor; bytes into the arena, multiples of 64 */
    size_t bytes;      /* of the arena */
    size_t sum, live;  /* all activations added up; the most alive at once (a lower bound of bytes) */
} graph_arena;

llada_status graph_init(graph *g, int cap_ops, int cap_t, llada_err *err);
void graph_free(graph *g);
/* Both return an index, or -1 when the capacity given to graph_init is used up (a defect of the caller). */
tensor_id graph_tensor(graph *g, tensor t);
int graph_op(graph *g, op o);

/* Checks every operator's shapes and tensors, so that a device need not: LLADA_BAD_MODEL names operator and tensor. */
llada_status graph_check(const graph *g, llada_err *err);

/* Gives every activation its address for passes of up to max_rows rows and max_want scored rows: a tensor lives from
 * the operator that first writes it to the last that touches it, and tensors whose lives overlap never share bytes
 * (greedy interval colouring, largest first). */
llada_status graph_plan(const graph *g, int max_rows, int max_want, graph_arena *out, llada_err *err);
void graph_arena_free(graph_arena *a);

#endif
