/* test_cpu_device.c - the CPU device on small synthetic graphs, against a plain loop in double, and its promises about
 * bits: cached or fresh, alone or among others, on any number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "device/cpu/features.h"
#include "device/device.h"
#include "format/quant.h"

enum { MAX_T = 64, LAYERS = 2, ROWS = 12, SLOTS = 20, MAX_POS = 40 };

/* ------------------------------------------------------------ a small model */

typedef struct {
    const char *what;
    int heads, kv_heads, hd, d, ff, vocab;
    bool qk_norm, bias;
    rope_style rope;
    uint32_t type; /* of the matrices */
} shape;

static const shape shapes[] = {
    { "odd, pairs", 4, 2, 10, 37, 45, 53, false, false, ROPE_PAIRS, QT_F32 },
    { "odd, halves, bias, qk-norm", 4, 2, 14, 61, 77, 101, true, true, ROPE_HALVES, QT_F32 },
    { "one head a key head", 3, 3, 6, 33, 31, 47, true, false, ROPE_HALVES, QT_F32 },
    { "wide", 2, 1, 16, 1100, 40, 60, false, true, ROPE_PAIRS, QT_F32 },
    { "f16", 4, 2, 16, 64, 96, 65, false, true, ROPE_PAIRS, QT_F16 },
    { "bf16", 4, 2, 16, 64, 96, 65, false, true, ROPE_PAIRS, QT_BF16 },
    { "q8_0", 4, 2, 16, 64, 96, 65, false, true, ROPE_PAIRS, QT_Q8_0 },
    { "q4_0", 4, 2, 16, 64, 96, 65, true, false, ROPE_HALVES, QT_Q4_0 },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

typedef struct {
    int norm1, q, k, v, o, bq, bk, bv, qn, kn, norm2, gate, up, down;
} layer_ids;

typedef struct {
    shape s;
    graph g;
    rng r;
    void *data[MAX_T];    /* packed weights */
    double *exact[MAX_T]; /* the same, decoded */
    layer_ids l[LAYERS];
    int embed, norm, head;
} small;

static int weight(small *m, const char *name, int rows, int cols, uint32_t type, double scale, double around)
{
    size_t n = (size_t)rows * (size_t)cols, row_bytes;
    float *f = malloc(n * sizeof *f), *back = malloc(n * sizeof *back);
    assert_true(quant_row_bytes(type, (uint64_t)cols, &row_bytes));
    void *packed = malloc(row_bytes * (size_t)rows);
    double *exact = malloc(n * sizeof *exact);
    for (size_t i = 0; i < n; i++)
        f[i] = (float)(around + scale * (2 * rng_unit(&m->r) - 1));
    quant_get(type)->encode(packed, f, n);
    quant_get(type)->decode(back, packed, n);
    for (size_t i = 0; i < n; i++)
        exact[i] = back[i];
    tensor t = { .name = name, .kind = T_WEIGHT, .rows = DIM_FIXED, .n_rows = rows, .cols = cols, .type = type };
    t.data = packed;
    t.row_bytes = row_bytes;
    int id = graph_tensor(&m->g, t);
    assert_in_range(id, 0, MAX_T - 1);
    m->data[id] = packed;
    m->exact[id] = exact;
    free(f);
    free(back);
    return id;
}

static int matrix(small *m, const char *name, int rows, int cols)
{
    return weight(m, name, rows, cols, m->s.type, 1.7 / sqrt(cols), 0);
}

static int vector(small *m, const char *name, int cols, double around)
{
    return weight(m, name, 1, cols, m->s.type == QT_F16 ? QT_F16 : QT_F32, 0.3, around);
}

static int activation(small *m, int cols, dim_rows rows)
{
    return graph_tensor(&m->g, (tensor){ .name = "act", .kind = T_ACTIVATION, .rows = rows, .cols = cols });
}

static op plain(op_kind kind, int layer, int out, int in, int w)
{
    return (op){ .kind = kind, .layer = layer, .out = out, .in = in, .in2 = -1, .weight = w, .bias = -1, .residual = -1,
                 .eps = 1e-5f };
}

static void product(small *m, int layer, int out, int in, int w, int bias, int residual)
{
    op o = plain(OP_MATMUL, layer, out, in, w);
    o.bias = bias;
    o.residual = residual;
    assert_true(graph_op(&m->g, o) >= 0);
}

static void head_norm(small *m, int layer, int x, int w)
{
    op o = plain(OP_RMSNORM, layer, x, x, w);
    o.width = m->s.hd;
    graph_op(&m->g, o);
}

static void rotate(small *m, int layer, int x, int heads)
{
    op o = plain(OP_ROPE, layer, x, x, -1);
    o.width = m->s.hd;
    o.heads = heads;
    o.rope = m->s.rope;
    graph_op(&m->g, o);
}

static int build_layer(small *m, int n, int x)
{
    const shape *s = &m->s;
    layer_ids *l = &m->l[n];
    const int qd = s->heads * s->hd, kd = s->kv_heads * s->hd;
    int h = activation(m, s->d, DIM_ROWS), q = activation(m, qd, DIM_ROWS), k = activation(m, kd, DIM_ROWS);
    int v = activation(m, kd, DIM_ROWS), a = activation(m, qd, DIM_ROWS), y = activation(m, s->d, DIM_ROWS);
    int gate = activation(m, s->ff, DIM_ROWS), up = activation(m, s->ff, DIM_ROWS);

    *l = (layer_ids){ .bq = -1, .bk = -1, .bv = -1 };
    graph_op(&m->g, plain(OP_RMSNORM, n, h, x, l->norm1 = vector(m, "norm1", s->d, 1)));
    if (s->bias) {
        l->bq = vector(m, "bq", qd, 0);
        l->bk = vector(m, "bk", kd, 0);
        l->bv = vector(m, "bv", kd, 0);
    }
    product(m, n, q, h, l->q = matrix(m, "q", qd, s->d), l->bq, -1);
    product(m, n, k, h, l->k = matrix(m, "k", kd, s->d), l->bk, -1);
    product(m, n, v, h, l->v = matrix(m, "v", kd, s->d), l->bv, -1);
    if (s->qk_norm) {
        head_norm(m, n, q, l->qn = vector(m, "qn", s->hd, 1));
        head_norm(m, n, k, l->kn = vector(m, "kn", s->hd, 1));
    }
    rotate(m, n, q, s->heads);
    rotate(m, n, k, s->kv_heads);
    op kv = plain(OP_KV, n, -1, k, -1);
    kv.in2 = v;
    graph_op(&m->g, kv);
    op at = plain(OP_ATTENTION, n, a, q, -1);
    at.width = s->hd;
    at.heads = s->heads;
    at.kv_heads = s->kv_heads;
    graph_op(&m->g, at);
    product(m, n, y, a, l->o = matrix(m, "o", s->d, qd), -1, x);
    graph_op(&m->g, plain(OP_RMSNORM, n, h, y, l->norm2 = vector(m, "norm2", s->d, 1)));
    product(m, n, gate, h, l->gate = matrix(m, "gate", s->ff, s->d), -1, -1);
    product(m, n, up, h, l->up = matrix(m, "up", s->ff, s->d), -1, -1);
    op sw = plain(OP_SWIGLU, n, gate, gate, -1);
    sw.in2 = up;
    graph_op(&m->g, sw);
    product(m, n, y, gate, l->down = matrix(m, "down", s->d, s->ff), -1, y); /* the residual in place */
    return y;
}

static small *make(const shape *s)
{
    small *m = calloc(1, sizeof *m);
    llada_err err;
    m->s = *s;
    rng_seed(&m->r, 7);
    assert_int_equal(graph_init(&m->g, 64, MAX_T, &err), LLADA_OK);
    m->g.n_layer = LAYERS;
    m->g.n_embd = s->d;
    m->g.head_dim = s->hd;
    m->g.n_head = s->heads;
    m->g.n_kv_head = s->kv_heads;
    m->g.n_vocab_rows = s->vocab;
    m->g.rope_base = 500;
    int x = activation(m, s->d, DIM_ROWS);
    graph_op(&m->g, plain(OP_EMBED, -1, x, -1, m->embed = weight(m, "embed", s->vocab, s->d, s->type, 1, 0)));
    for (int l = 0; l < LAYERS; l++)
        x = build_layer(m, l, x);
    int w = activation(m, s->d, DIM_WANT), f = activation(m, s->d, DIM_WANT);
    graph_op(&m->g, plain(OP_GATHER, -1, w, x, -1));
    graph_op(&m->g, plain(OP_RMSNORM, -1, f, w, m->norm = vector(m, "norm", s->d, 1)));
    graph_op(&m->g, plain(OP_SCORE, -1, -1, f, m->head = matrix(m, "head", s->vocab, s->d)));
    llada_status st = graph_check(&m->g, &err);
    if (st)
        fail_msg("%s: %s", s->what, err.text);
    return m;
}

static void unmake(small *m)
{
    for (int i = 0; i < MAX_T; i++) {
        free(m->data[i]);
        free(m->exact[i]);
    }
    graph_free(&m->g);
    free(m);
}

/* ------------------------------------------------------------ the same in double */

typedef struct {
    double *k[LAYERS], *v[LAYERS]; /* [SLOTS][kv_heads * hd] */
} exact_kv;

static exact_kv *exact_open(const small *m)
{
    exact_kv *e = calloc(1, sizeof *e);
    for (int l = 0; l < LAYERS; l++) {
        e->k[l] = calloc((size_t)SLOTS * (size_t)(m->s.kv_heads * m->s.hd), sizeof(double));
        e->v[l] = calloc((size_t)SLOTS * (size_t)(m->s.kv_heads * m->s.hd), sizeof(double));
    }
    return e;
}

static void exact_close(exact_kv *e)
{
    for (int l = 0; l < LAYERS; l++) {
        free(e->k[l]);
        free(e->v[l]);
    }
    free(e);
}

static void x_norm(double *out, const double *x, const double *w, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += x[i] * x[i];
    s = 1 / sqrt(s / n + 1e-5f);
    for (int i = 0; i < n; i++)
        out[i] = x[i] * s * w[i];
}

static void x_mul(double *out, const double *x, const double *w, const double *bias, int n, int k)
{
    for (int j = 0; j < n; j++) {
        double s = bias ? bias[j] : 0;
        for (int i = 0; i < k; i++)
            s += x[i] * w[j * k + i];
        out[j] = s;
    }
}

static void x_head(const small *m, double *x, int heads, const double *norm, int pos)
{
    const int hd = m->s.hd, half = hd / 2;
    for (int h = 0; h < heads; h++, x += hd) {
        if (norm)
            x_norm(x, x, norm, hd);
        for (int i = 0; i < half; i++) {
            int ia = m->s.rope == ROPE_PAIRS ? 2 * i : i, ib = m->s.rope == ROPE_PAIRS ? 2 * i + 1 : i + half;
            double ang = pos * pow(m->g.rope_base, -2.0 * i / hd), a = x[ia], b = x[ib];
            x[ia] = a * cos(ang) - b * sin(ang);
            x[ib] = b * cos(ang) + a * sin(ang);
        }
    }
}

static void x_attend(const small *m, const exact_kv *e, const pass *p, int r, int l, double *out, const double *q)
{
    const int hd = m->s.hd, kd = m->s.kv_heads * hd, per = m->s.heads / m->s.kv_heads;
    const pass_cols *c = &p->cols[p->group[r]];
    for (int h = 0; h < m->s.heads; h++) {
        double sum = 0, acc[64] = { 0 };
        for (int i = -1; i < c->n; i++) { /* -1: the row itself */
            if (i >= 0 && c->pos[i] == p->pos[r])
                continue;
            size_t at = (size_t)(i < 0 ? p->slot[r] : c->slot[i]) * (size_t)kd + (size_t)(h / per * hd);
            double s = 0;
            for (int j = 0; j < hd; j++)
                s += q[h * hd + j] * e->k[l][at + (size_t)j];
            s = exp(s / sqrt(hd));
            sum += s;
            for (int j = 0; j < hd; j++)
                acc[j] += s * e->v[l][at + (size_t)j];
        }
        for (int j = 0; j < hd; j++)
            out[h * hd + j] = acc[j] / sum;
    }
}

static const double *w_of(const small *m, int id) { return id > 0 ? m->exact[id] : NULL; }

static void exact_run(const small *m, exact_kv *e, const pass *p, double *logits)
{
    const shape *s = &m->s;
    const int qd = s->heads * s->hd, kd = s->kv_heads * s->hd, d = s->d;
    double *x = calloc((size_t)(p->n * d), 8), *q = calloc((size_t)(p->n * qd), 8);
    double *h = calloc((size_t)d, 8), *a = calloc((size_t)qd, 8), *g = calloc((size_t)s->ff, 8), *u = calloc((size_t)s->ff, 8);

    for (int r = 0; r < p->n; r++)
        memcpy(x + r * d, m->exact[m->embed] + p->token[r] * d, (size_t)d * 8);
    for (int l = 0; l < LAYERS; l++) {
        const layer_ids *w = &m->l[l];
        for (int r = 0; r < p->n; r++) {
            double *k = e->k[l] + p->slot[r] * kd, *v = e->v[l] + p->slot[r] * kd;
            x_norm(h, x + r * d, m->exact[w->norm1], d);
            x_mul(q + r * qd, h, m->exact[w->q], w_of(m, w->bq), qd, d);
            x_mul(k, h, m->exact[w->k], w_of(m, w->bk), kd, d);
            x_mul(v, h, m->exact[w->v], w_of(m, w->bv), kd, d);
            x_head(m, q + r * qd, s->heads, s->qk_norm ? m->exact[w->qn] : NULL, p->pos[r]);
            x_head(m, k, s->kv_heads, s->qk_norm ? m->exact[w->kn] : NULL, p->pos[r]);
        }
        for (int r = 0; r < p->n; r++) {
            x_attend(m, e, p, r, l, a, q + r * qd);
            x_mul(h, a, m->exact[w->o], NULL, d, qd);
            for (int i = 0; i < d; i++)
                x[r * d + i] += h[i];
            x_norm(h, x + r * d, m->exact[w->norm2], d);
            x_mul(g, h, m->exact[w->gate], NULL, s->ff, d);
            x_mul(u, h, m->exact[w->up], NULL, s->ff, d);
            for (int i = 0; i < s->ff; i++)
                g[i] = g[i] / (1 + exp(-g[i])) * u[i];
            x_mul(h, g, m->exact[w->down], NULL, d, s->ff);
            for (int i = 0; i < d; i++)
                x[r * d + i] += h[i];
        }
    }
    for (int i = 0; i < p->n_want; i++) {
        x_norm(h, x + p->want[i] * d, m->exact[m->norm], d);
        x_mul(logits + i * s->vocab, h, m->exact[m->head], NULL, s->vocab, d);
    }
    free(x), free(q), free(h), free(a), free(g), free(u);
}

/* ------------------------------------------------------------ passes */

/* A pass over some positions; slot = position unless said otherwise.  Columns of both groups: all of 0..t-1. */
typedef struct {
    int32_t pos[ROWS], token[ROWS], slot[ROWS], want[ROWS], col[SLOTS];
    uint8_t group[ROWS];
    pass p;
} request;

static int32_t token_at(int pos, int vocab) { return (int32_t)((pos * 29 + 5) % vocab); }

static void ask_for(request *q, const small *m, const int *pos, int n, int t)
{
    *q = (request){ .p = { .n = n, .n_want = n } };
    for (int i = 0; i < n; i++) {
        q->pos[i] = q->slot[i] = pos[i];
        q->token[i] = token_at(pos[i], m->s.vocab);
        q->want[i] = i;
    }
    for (int i = 0; i < SLOTS; i++)
        q->col[i] = i;
    q->p.pos = q->pos;
    q->p.token = q->token;
    q->p.slot = q->slot;
    q->p.group = q->group;
    q->p.want = q->want;
    for (int g = 0; g < PASS_GROUPS; g++)
        q->p.cols[g] = (pass_cols){ q->col, q->col, t };
}

static const int all_pos[ROWS] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };

static device_limits limits(int threads, uint64_t mask)
{
    return (device_limits){ .max_rows = ROWS, .max_want = ROWS, .slots = SLOTS, .max_pos = MAX_POS, .threads = threads,
                            .cpu_mask = mask };
}

typedef struct {
    device_weights *w;
    device_ctx *c;
} opened;

static opened start(const small *m, device_limits lim)
{
    opened o = { 0 };
    llada_err err = { 0 };
    if (device_cpu.weights_open(&o.w, &m->g, &err) || device_cpu.open(&o.c, o.w, &lim, &err))
        fail_msg("%s: %s", m->s.what, err.text);
    return o;
}

static void stop(opened *o)
{
    device_cpu.close(&o->c);
    device_cpu.weights_close(&o->w);
    assert_null(o->c);
    assert_null(o->w);
}

/* Logits of a pass, [n_want][vocab]; owned by the caller. */
static float *run(const opened *o, const small *m, request *q)
{
    llada_err err = { 0 };
    q->p.logits = calloc((size_t)ROWS * (size_t)m->s.vocab, sizeof(float));
    if (device_cpu.run(o->c, &q->p, &err))
        fail_msg("%s: %s", m->s.what, err.text);
    return q->p.logits;
}

static float *run_all(const opened *o, const small *m)
{
    request q;
    ask_for(&q, m, all_pos, ROWS, ROWS);
    return run(o, m, &q);
}

static void assert_near(const small *m, const float *got, const double *want, int rows, double bound)
{
    for (int i = 0; i < rows * m->s.vocab; i++)
        if (!(fabs(got[i] - want[i]) <= bound))
            fail_msg("%s: row %d score %d is %.9g, should be %.9g", m->s.what, i / m->s.vocab, i % m->s.vocab, got[i], want[i]);
}

static void assert_same(const small *m, const float *a, int row_a, const float *b, int row_b, int rows)
{
    const size_t v = (size_t)m->s.vocab;
    assert_memory_equal(a + (size_t)row_a * v, b + (size_t)row_b * v, (size_t)rows * v * sizeof(float));
}

/* Every set of CPU features: none, then one more each time. */
static uint64_t masks[8];
static int n_masks;

static int find_masks(void **state)
{
    size_t n;
    uint64_t found;
    cpu_features(&n, &found);
    for (size_t i = 0; i <= n; i++)
        if (i == 0 || (found >> (i - 1) & 1))
            masks[n_masks++] = ((uint64_t)1 << i) - 1;
    return 0;
}

/* ------------------------------------------------------------ tests */

static void matches_reference(void **state)
{
    for (int i = 0; i < N_SHAPES; i++) {
        small *m = make(&shapes[i]);
        exact_kv *e = exact_open(m);
        double *want = calloc((size_t)(ROWS * m->s.vocab), sizeof *want);
        request q;
        ask_for(&q, m, all_pos, ROWS, ROWS);
        exact_run(m, e, &q.p, want);
        for (int k = 0; k < n_masks; k++) {
            opened o = start(m, limits(2, masks[k]));
            float *got = run_all(&o, m);
            assert_near(m, got, want, ROWS, 2e-5);
            free(got);
            stop(&o);
        }
        free(want);
        exact_close(e);
        unmake(m);
    }
}

/* Rows computed again over the K,V of the first pass give its bits; so does any one alone. */
static void cached_equals_fresh(void **state)
{
    static const struct {
        int n, pos[ROWS];
    } sets[] = { { 1, { 0 } }, { 1, { 7 } }, { 2, { 3, 11 } }, { 3, { 1, 2, 5 } }, { 5, { 0, 4, 8, 9, 10 } },
                 { 6, { 6, 7, 8, 9, 10, 11 } } };
    for (int i = 0; i < N_SHAPES; i++)
        for (int k = 0; k < 2 * n_masks; k++) {
            small *m = make(&shapes[i]);
            device_limits lim = limits(1 + k % 3, masks[k / 2]);
            lim.kv_f16 = k % 2;
            opened o = start(m, lim);
            float *fresh = run_all(&o, m);
            for (size_t j = 0; j < sizeof sets / sizeof *sets; j++) {
                request q;
                ask_for(&q, m, sets[j].pos, sets[j].n, ROWS);
                float *again = run(&o, m, &q);
                for (int r = 0; r < sets[j].n; r++)
                    assert_same(m, again, r, fresh, sets[j].pos[r], 1);
                free(again);
            }
            free(fresh);
            stop(&o);
            unmake(m);
        }
}

static void same_bits_for_any_threads(void **state)
{
    for (int i = 0; i < N_SHAPES; i++)
        for (int k = 0; k < n_masks; k++) {
            small *m = make(&shapes[i]);
            opened one = start(m, limits(1, masks[k]));
            float *want = run_all(&one, m);
            for (int t = 2; t <= 8; t += i < 2 ? 1 : 3) {
                opened o = start(m, limits(t, masks[k]));
                assert_in_range(device_cpu.threads(o.c), 1, t);
                float *got = run_all(&o, m);
                assert_same(m, got, 0, want, 0, ROWS);
                free(got);
                stop(&o);
            }
            free(want);
            stop(&one);
            unmake(m);
        }
}

/* A shadow row at a committed position sees what an ordinary mask there would see, and nobody sees it. */
static void shadow_rows(void **state)
{
    const int at[2] = { 3, 5 }, mask = 1;
    small *m = make(&shapes[1]);
    opened o = start(m, limits(2, ~(uint64_t)0));
    float *fresh = run_all(&o, m);
    request q, shadow;

    ask_for(&shadow, m, at, 2, ROWS); /* row 0: shadow of position 3 in slot 15; row 1: an ordinary row */
    shadow.slot[0] = 15;
    shadow.token[0] = mask;
    float *with = run(&o, m, &shadow);
    assert_same(m, with, 1, fresh, 5, 1);

    exact_kv *e = exact_open(m);
    double *want = calloc((size_t)(ROWS * m->s.vocab), sizeof *want);
    ask_for(&q, m, all_pos, ROWS, ROWS);
    exact_run(m, e, &q.p, want);
    exact_run(m, e, &shadow.p, want);
    assert_near(m, with, want, 2, 2e-5);

    ask_for(&q, m, at, 1, ROWS); /* the mask put there for real */
    q.token[0] = mask;
    float *real = run(&o, m, &q);
    assert_same(m, real, 0, with, 0, 1);
    free(real), free(with), free(fresh), free(want);
    exact_close(e);
    stop(&o);
    unmake(m);
}

/* Rows of two groups see their own lists; positions outside a list are put in at their place. */
static void groups_and_places(void **state)
{
    static const int pos[6] = { 0, 2, 4, 6, 8, 9 };
    static const int32_t slot1[3] = { 17, 2, 5 }, pos1[3] = { 2, 4, 7 };
    for (int k = 0; k < n_masks; k++) {
        small *m = make(&shapes[0]);
        opened o = start(m, limits(2, masks[k]));
        exact_kv *e = exact_open(m);
        double *want = calloc((size_t)(ROWS * m->s.vocab), sizeof *want);
        request q;
        free(run_all(&o, m));
        ask_for(&q, m, all_pos, ROWS, ROWS);
        exact_run(m, e, &q.p, want);
        ask_for(&q, m, pos, 6, 7); /* group 0: columns 0..6, so 8 and 9 come behind */
        for (int i = 0; i < 6; i++)
            q.slot[i] = 12 + i; /* 17: also a column of group 1, written by this pass */
        q.group[0] = q.group[2] = q.group[3] = q.group[4] = 1;
        q.p.cols[1] = (pass_cols){ slot1, pos1, 3 };
        exact_run(m, e, &q.p, want);
        float *got = run(&o, m, &q);
        assert_near(m, got, want, 6, 2e-5);
        free(got);
        q.p.cols[0].n = q.p.cols[1].n = 0; /* nothing but itself */
        exact_run(m, e, &q.p, want);
        got = run(&o, m, &q);
        assert_near(m, got, want, 6, 2e-5);
        free(got), free(want);
        exact_close(e);
        stop(&o);
        unmake(m);
    }
}

static void half_kv_is_close(void **state)
{
    small *m = make(&shapes[1]);
    device_limits lim = limits(2, ~(uint64_t)0);
    opened full = start(m, lim);
    lim.kv_f16 = true;
    opened half = start(m, lim);
    float *a = run_all(&full, m), *b = run_all(&half, m);
    double worst = 0;
    for (int i = 0; i < ROWS * m->s.vocab; i++)
        worst = fmax(worst, fabs(a[i] - b[i]));
    assert_true(worst > 0 && worst < 5e-3);
    assert_true(device_cpu.bytes(half.c) < device_cpu.bytes(full.c));
    free(a), free(b);
    stop(&full), stop(&half);
    unmake(m);
}

/* A context on another's K,V store reads what that wrote and writes what that reads. */
static void shared_kv(void **state)
{
    const int at[3] = { 2, 5, 9 };
    small *m = make(&shapes[0]);
    opened a = start(m, limits(2, ~(uint64_t)0));
    device_limits lim = limits(1, ~(uint64_t)0);
    device_ctx *b = NULL;
    llada_err err = { 0 };
    request q;

    lim.max_rows = lim.max_want = 3;
    lim.kv_of = a.c;
    assert_int_equal(device_cpu.open(&b, a.w, &lim, &err), LLADA_OK);
    assert_true(device_cpu.bytes(b) < device_cpu.bytes(a.c));
    opened other = { a.w, b };
    float *fresh = run_all(&a, m);
    ask_for(&q, m, at, 3, ROWS);
    float *got = run(&other, m, &q);
    for (int i = 0; i < 3; i++)
        assert_same(m, got, i, fresh, at[i], 1);
    free(got);
    ask_for(&q, m, at, 3, ROWS);
    q.token[1] = 1;
    free(run(&other, m, &q));
    ask_for(&q, m, at, 1, ROWS);
    got = run(&a, m, &q); /* position 5 is another token now */
    assert_memory_not_equal(got, fresh + 2 * m->s.vocab, (size_t)m->s.vocab * sizeof(float));
    device_cpu.close(&b);
    lim.kv_f16 = true;
    assert_int_equal(device_cpu.open(&b, a.w, &lim, &err), LLADA_BAD_ARG);
    lim.kv_f16 = false;
    lim.slots--;
    assert_int_equal(device_cpu.open(&b, a.w, &lim, &err), LLADA_BAD_ARG);
    free(got), free(fresh);
    stop(&a);
    unmake(m);
}

/* Scores with and without logits are those of score_row; neither is needed; and a pass allocates nothing. */
static void scores_and_logits(void **state)
{
    small *m = make(&shapes[0]);
    opened o = start(m, limits(3, ~(uint64_t)0));
    score_how how = { .n_vocab = 50, .want_top = true };
    score_ask ask[ROWS] = { 0 };
    score a[ROWS], b[ROWS];
    llada_err err;
    request q;

    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    ask_for(&q, m, all_pos, ROWS, ROWS);
    q.p.n_want = 3;
    q.want[0] = 11, q.want[1] = 0, q.want[2] = 11;
    q.p.how = &how;
    q.p.ask = ask;
    q.p.out = a;
    float *logits = run(&o, m, &q);
    assert_same(m, logits, 0, logits, 2, 1);
    q.p.out = b;
    q.p.logits = NULL;
    uint64_t before = mem_count();
    assert_int_equal(device_cpu.run(o.c, &q.p, &err), LLADA_OK);
    assert_int_equal(mem_count(), before);
    for (int i = 0; i < 3; i++) {
        score s;
        score_row(&s, logits + i * m->s.vocab, m->s.vocab, &how, &ask[i]);
        assert_int_equal(a[i].token, s.token);
        assert_true(a[i].p == s.p && a[i].lse == s.lse && b[i].token == s.token && b[i].p == s.p && b[i].lse == s.lse);
    }
    q.p.out = NULL;
    assert_int_equal(device_cpu.run(o.c, &q.p, &err), LLADA_OK);
    q.p.n_want = 0;
    assert_int_equal(device_cpu.run(o.c, &q.p, &err), LLADA_OK);
    free(logits);
    stop(&o);
    unmake(m);
}

static void refuses(void **state)
{
    static const struct {
        const char *says;
        int which, value;
    } bad[] = {
        { "position 40 of 40", 'p', 40 },  { "position -1", 'p', -1 },     { "token 53 of 53", 't', 53 },
        { "token -1 of", 't', -1 },        { "slot 20 of 20", 's', 20 },   { "slot -1", 's', -1 },
        { "two rows write slot 1", 's', 1 }, { "group 2 of 2", 'g', 2 },   { "13 rows", 'n', 13 },
        { "a pass of 0 rows", 'n', 0 },    { "row 12 of 12", 'w', 12 },    { "13 scored rows", 'W', 13 },
        { "-1 scored rows", 'W', -1 },     { "slot 20 of 20", 'c', 20 },   { "slot -1 of 20", 'c', -1 },
        { "position 3, behind 3", 'P', 3 }, { "21 columns", 'C', 21 },     { "not how", 'h', 0 },
    };
    small *m = make(&shapes[0]);
    opened o = start(m, limits(1, ~(uint64_t)0));
    float *want = run_all(&o, m);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        request q;
        score out[ROWS];
        int32_t col[SLOTS], pos[SLOTS];
        llada_err err = { 0 };
        ask_for(&q, m, all_pos, ROWS, ROWS);
        memcpy(col, q.col, sizeof col);
        memcpy(pos, q.col, sizeof pos);
        q.p.cols[1] = (pass_cols){ col, pos, ROWS };
        switch (bad[i].which) {
        case 'p': q.pos[2] = bad[i].value; break;
        case 't': q.token[2] = bad[i].value; break;
        case 's': q.slot[2] = bad[i].value; break;
        case 'g': q.group[2] = (uint8_t)bad[i].value; break;
        case 'n': q.p.n = bad[i].value; break;
        case 'w': q.want[2] = bad[i].value; break;
        case 'W': q.p.n_want = bad[i].value; break;
        case 'c': col[2] = bad[i].value; break;
        case 'P': pos[4] = bad[i].value; break;
        case 'C': q.p.cols[1].n = bad[i].value; break;
        case 'h': q.p.out = out; break;
        default: fail();
        }
        assert_int_equal(device_cpu.run(o.c, &q.p, &err), LLADA_BAD_ARG);
        if (!strstr(err.text, bad[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.text, bad[i].says);
    }
    float *again = run_all(&o, m); /* and the context is as good as before */
    assert_same(m, again, 0, want, 0, ROWS);
    free(want), free(again);
    stop(&o);

    static const device_limits worse[] = {
        { .max_rows = 0, .max_want = 1, .slots = 1, .max_pos = 1, .threads = 1 },
        { .max_rows = 1, .max_want = -1, .slots = 1, .max_pos = 1, .threads = 1 },
        { .max_rows = 1, .max_want = 1, .slots = 0, .max_pos = 1, .threads = 1 },
        { .max_rows = 1, .max_want = 1, .slots = 1, .max_pos = 0, .threads = 1 },
        { .max_rows = 1, .max_want = 1, .slots = 1, .max_pos = 1, .threads = 0 },
        { .max_rows = 1, .max_want = 1, .slots = 1, .max_pos = 1, .threads = 100000 },
    };
    device_weights *w;
    llada_err err;
    assert_int_equal(device_cpu.weights_open(&w, &m->g, &err), LLADA_OK);
    for (size_t i = 0; i < sizeof worse / sizeof *worse; i++)
        assert_int_equal(device_cpu.open(&o.c, w, &worse[i], &err), LLADA_BAD_ARG);
    device_cpu.weights_close(&w);
    unmake(m);
}

/* NaN or infinity in one weight is an error that names the layer. */
static void names_the_layer(void **state)
{
    small *m = make(&shapes[1]);
    const struct {
        int id;
        float value;
        const char *says;
    } bad[] = { { m->embed, NAN, "token embedding" },   { m->l[0].k, NAN, "layer 0" },   { m->l[1].down, NAN, "layer 1" },
                { m->l[1].norm2, INFINITY, "layer 1" }, { m->l[0].bv, -INFINITY, "layer 0" }, { m->l[0].q, INFINITY, "layer 0" },
                { m->norm, NAN, "norm behind the last layer" } };
    for (int k = 0; k < n_masks; k++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            float *at = (float *)m->data[bad[i].id] + 2, old = *at;
            llada_err err = { 0 };
            request q;
            if (bad[i].id == m->embed)
                at += token_at(4, m->s.vocab) * m->s.d, old = *at;
            *at = bad[i].value;
            opened o = start(m, limits(2, masks[k]));
            ask_for(&q, m, all_pos, ROWS, ROWS);
            assert_int_equal(device_cpu.run(o.c, &q.p, &err), LLADA_NUMERIC);
            if (!strstr(err.text, bad[i].says))
                fail_msg("mask %d: \"%s\" does not say \"%s\"", (int)masks[k], err.text, bad[i].says);
            stop(&o);
            *at = old;
        }
    unmake(m);
}

/* Every allocation fails once: a status, nothing left behind (the sanitizer sees to that), and the next try works. */
static void failing_allocations(void **state)
{
    small *m = make(&shapes[4]); /* norms and biases as halves: they are decoded */
    int failures = 0;
    for (uint64_t k = 1;; k++) {
        opened o = { 0 };
        llada_err err = { 0 };
        device_limits lim = limits(2, ~(uint64_t)0);
        mem_fail_at(k);
        llada_status st = device_cpu.weights_open(&o.w, &m->g, &err);
        if (st == LLADA_OK)
            st = device_cpu.open(&o.c, o.w, &lim, &err);
        mem_fail_at(0);
        if (st == LLADA_OK) {
            stop(&o);
            break;
        }
        assert_int_equal(st, LLADA_NO_MEMORY);
        assert_true(strlen(err.text) > 0);
        assert_null(o.c);
        stop(&o);
        failures++;
    }
    assert_true(failures > 12);
    unmake(m);
}

/* Types that can't be decoded, rows of the wrong size. */
static void refuses_weights(void **state)
{
    small *m = make(&shapes[6]);
    tensor *t = &m->g.t[m->l[1].up];
    tensor keep = *t;
    device_weights *w = NULL;
    llada_err err = { 0 };

    t->type = 999;
    assert_int_equal(device_cpu.weights_open(&w, &m->g, &err), LLADA_UNSUPPORTED);
    assert_non_null(strstr(err.text, "up"));
    *t = keep;
    t->row_bytes++;
    assert_int_equal(device_cpu.weights_open(&w, &m->g, &err), LLADA_BAD_MODEL);
    *t = keep;
    assert_null(w);
    unmake(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference), cmocka_unit_test(cached_equals_fresh),
        cmocka_unit_test(same_bits_for_any_threads), cmocka_unit_test(shadow_rows),
        cmocka_unit_test(groups_and_places), cmocka_unit_test(half_kv_is_close),
        cmocka_unit_test(shared_kv),
        cmocka_unit_test(scores_and_logits), cmocka_unit_test(refuses),
        cmocka_unit_test(names_the_layer), cmocka_unit_test(failing_allocations),
        cmocka_unit_test(refuses_weights),
    };
    return cmocka_run_group_tests(tests, find_masks, NULL);
}
