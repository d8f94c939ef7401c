/* small_net.h - synthetic networks for device tests: a graph of two layers with random weights, the same forward pass
 * as plain loops in double, and passes over a few positions.  A device is tested through them without a model file. */
#ifndef TESTS_UNIT_SMALL_NET_H
#define TESTS_UNIT_SMALL_NET_H

#include "base/rng.h"
#include "device/device.h"

enum { NET_TENSORS = 64, NET_LAYERS = 2, NET_ROWS = 12, NET_SLOTS = 20, NET_POS = 40, NET_WIDEST = 1100 };

typedef struct {
    const char *what;
    int heads, kv_heads, hd, d, ff, vocab;
    bool qk_norm, bias, causal;
    bool factors;         /* rotation with a factor for each angle */
    int experts, used;    /* 0: a plain feed-forward part */
    rope_style rope;
    uint32_t type;        /* quant_type of the matrices; norms and biases are F32, or F16 with F16 */
} net_shape;

typedef struct {
    int norm1, q, k, v, o, bq, bk, bv, qn, kn, norm2, route, gate, up, down; /* graph tensors; -1: none */
} net_layer;

typedef struct {
    net_shape s;
    graph g;
    rng r;
    float factors[32];
    void *data[NET_TENSORS];    /* owned: packed weights */
    double *exact[NET_TENSORS]; /* owned: the same, decoded */
    net_layer l[NET_LAYERS];
    int embed, norm, head;
} net;

/* Fails the test on any defect. */
net *net_make(const net_shape *s);
void net_free(net *m);
/* Brings the weights of matrix products into T32 layout; experts only where theirs begin with a stripe. */
void net_pack(net *m);

/* The forward pass in double, with its own K,V store. */
typedef struct {
    double *k[NET_LAYERS], *v[NET_LAYERS]; /* [NET_SLOTS][kv_heads * hd] */
} net_kv;

net_kv *net_kv_make(const net *m);
void net_kv_free(net_kv *e);
void net_exact(const net *m, net_kv *e, const pass *p, double *logits); /* [n_want][vocab] */

/* A pass over some positions; slot = position unless changed.  Columns of both groups: positions 0..t-1. */
typedef struct {
    int32_t pos[NET_ROWS], token[NET_ROWS], slot[NET_ROWS], want[NET_ROWS], instead[NET_ROWS], col[NET_SLOTS];
    uint8_t group[NET_ROWS];
    pass p;
} net_pass;

extern const int net_all[NET_ROWS]; /* 0, 1, 2, ... */

int32_t net_token(const net *m, int pos);
void net_ask(net_pass *q, const net *m, const int *pos, int n, int t);

#endif
