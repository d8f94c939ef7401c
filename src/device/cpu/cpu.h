/* cpu.h - the inside of the CPU device: what a context holds, and the parts of a pass that have files of their own. */
#ifndef DEVICE_CPU_CPU_H
#define DEVICE_CPU_CPU_H

#include "base/pool.h"
#include "device/cpu/kern.h"
#include "device/keeper.h"

enum {
    MM_ROWS = 512,   /* rows of x a panel of weights is used for before the next is decoded */
    SCORE_ROWS = 32, /* rows of scores kept at a time */
    Q_KC = 512       /* values of k in a panel of levels: a multiple of every block; 16 KiB stay in the first cache */
};

struct device_weights {
    const graph *g;    /* borrowed, until weights_close */
    const float **vec; /* owned; per tensor: norms and biases as floats (borrowed from the file, or within store) */
    float *store;      /* owned: those that had to be decoded */
    int vocab;         /* rows of the embedding */
    keeper *held;      /* owned: matrices within a budget; NULL: they are used where they lie */
};

/* One thread's own memory. */
typedef struct {
    float *panel;       /* [nb][panel_ld] decoded weights */
    float *sums;        /* [nb or QCOLS][sums_ld] */
    kern_qpanel qpanel; /* [Q_KC] by QCOLS levels */
    uint8_t *qlevel;    /* [QCOLS][Q_KC] levels that are yet to be woven ... */
    float *qrow;        /* [2][QCOLS][Q_KC / QSUB] ... and their scales and lows */
    float *att;         /* [slots + 1] scores of one query head */
    int32_t *cols;      /* [slots + 1] slots a row sees */
} cpu_scratch;

struct device_ctx {
    const device_weights *w; /* borrowed, until close */
    const graph *g;          /* w->g */
    device_limits lim;
    kern_table k;
    pool *pool;       /* owned */
    graph_arena plan; /* owned */
    uint8_t *arena;   /* owned: activations */
    void *kv;         /* [layer][K, V][slots][kv_stride] floats or halves; lim.kv_of's, borrowed until close, ... */
    void *own_kv;     /* ... or this, owned */
    size_t kv_stride; /* values between slots: a row and a little, so that heads don't fall on the same cache sets */
    float *rope;      /* owned: [max_pos][head_dim]: half cosines, half sines */
    cpu_scratch *scratch;     /* owned: [threads] */
    void *scratch_mem;        /* owned: what they point into */
    size_t panel_ld, sums_ld; /* sums_ld: MM_ROWS or fewer */
    kern_qrows qx;            /* owned: the rows of a product in integers; NULL: no weight is on a grid */
    float *logits;            /* owned: [SCORE_ROWS or fewer][n_vocab_rows] */
    uint32_t *stamp;          /* owned: [slots], the pass that last wrote the slot */
    uint32_t pass_no;
    bool *last;               /* owned: per operator: its output ends a layer */
    float *gathered, *served; /* owned: rows of one expert: its input, its result; NULL: the graph has no experts */
    int32_t *served_rows;     /* owned: which rows they are, and as the how-manieth of each: [2][max_rows] */
    size_t bytes, joined;     /* joined: of these, what w->held has counted */
};

/* Runs fn over the pool's threads, or on the caller alone when the work (multiply-adds, about) is too little to
 * share. */
void cpu_share(const device_ctx *c, double work, pool_fn fn, void *user);

/* out[m][n] = x[m][k] w^T, rows packed. */
void cpu_matmul(const device_ctx *c, float *out, const float *x, int m, const tensor *w);
/* The same in two steps.  Rows are made ready once for any number of products with weights of which cpu_in_integers
 * says the same (until then no others are made). */
bool cpu_in_integers(const tensor *w);
void cpu_ready_rows(const device_ctx *c, const float *x, int m, const tensor *w);
/* With some rows of a matrix, w (+ bias) (+ residual): out, bias and residual begin where its first row's results
 * belong, in rows of ld values; out may be the residual. */
void cpu_matmul_rows(const device_ctx *c, float *out, size_t ld, const float *x, int m, const tensor *w,
                     const float *bias, const float *residual);

/* Stores K and V rows of a pass in their slots of a layer. */
void cpu_store_kv(const device_ctx *c, const pass *p, int layer, const float *k, const float *v);
/* out[n][heads * width] from queries of the same shape. */
void cpu_attention(const device_ctx *c, const pass *p, const op *o, float *out, const float *q);

/* Experts (experts.c): the choice of each of n rows, and the products with those of the chosen ones that w holds, the
 * matrices from expert `first` on. */
void cpu_route(const device_ctx *c, int n, const op *o, float *out, const float *in);
void cpu_experts(const device_ctx *c, int n, const op *o, const tensor *w, int first, float *out, const float *in,
                 const float *route, const float *residual);
/* Values of a row that the buffers for one expert must hold; 0: the graph has none. */
void cpu_experts_size(const graph *g, size_t *in, size_t *out);

/* The device's entry points that have files of their own. */
llada_status cpu_run(device_ctx *c, const pass *p, llada_err *err);

#endif
