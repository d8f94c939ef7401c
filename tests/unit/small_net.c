/* small_net.c - synthetic networks: building them, and their forward pass in double. */
#include "small_net.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format/t32.h"

/* ------------------------------------------------------------ building */

/* Blocks of a type without an encoder, or with one that takes its time: random bytes, with half-float scales that keep values below `scale`. */
static void make_blocks(net *m, uint32_t type, uint8_t *to, size_t bytes, double scale)
{
    static const struct {
        uint32_t type;
        size_t at[2]; /* of the block's half floats */
        double most;  /* a value is at most this many times as large */
    } known[] = { { QT_Q2_K, { 80, 82 }, 45 },        { QT_Q3_K, { 108, 108 }, 128 }, { QT_IQ4_NL, { 0, 0 }, 127 },
                  { QT_IQ4_XS, { 0, 0 }, 32 * 127 },  { QT_Q4_K, { 0, 2 }, 63 * 15 }, { QT_Q5_K, { 0, 2 }, 63 * 31 },
                  { QT_Q6_K, { 208, 208 }, 128 * 32 } };
    const size_t block = (size_t)quant_get(type)->bytes;
    size_t k = 0;
    while (k < sizeof known / sizeof *known && known[k].type != type) k++;
    assert_true(k < sizeof known / sizeof *known);
    for (size_t i = 0; i < bytes; i++) to[i] = (uint8_t)(rng_next(&m->r) >> 16);
    for (size_t i = 0; i < bytes; i += block)
        for (int j = 0; j < 2; j++) {
            float d = (float)(scale / known[k].most);
            quant_get(QT_F16)->encode(to + i + known[k].at[j], &d, 1);
        }
}

static int weight(net *m, const char *name, int rows, int cols, uint32_t type, double scale, double around)
{
    size_t n = (size_t)rows * (size_t)cols, row_bytes;
    float *f = malloc(n * sizeof *f), *back = malloc(n * sizeof *back);
    assert_true(quant_row_bytes(type, (uint64_t)cols, &row_bytes));
    void *packed = malloc(row_bytes * (size_t)rows);
    double *exact = malloc(n * sizeof *exact);
    for (size_t i = 0; i < n; i++) f[i] = (float)(around + scale * (2 * rng_unit(&m->r) - 1));
    if (quant_get(type)->encode && quant_get(type)->block < 256)
        quant_get(type)->encode(packed, f, n);
    else
        make_blocks(m, type, packed, row_bytes * (size_t)rows, scale);
    quant_get(type)->decode(back, packed, n);
    for (size_t i = 0; i < n; i++) exact[i] = back[i];
    tensor t = { .name = name, .kind = T_WEIGHT, .rows = DIM_FIXED, .n_rows = rows, .cols = cols, .type = type };
    t.data = packed;
    t.row_bytes = row_bytes;
    int id = graph_tensor(&m->g, t);
    assert_in_range(id, 0, NET_TENSORS - 1);
    m->data[id] = packed;
    m->exact[id] = exact;
    free(f);
    free(back);
    return id;
}

static int matrix(net *m, const char *name, int rows, int cols)
{
    return weight(m, name, rows, cols, m->s.type, 1.7 / sqrt(cols), 0);
}

static int vector(net *m, const char *name, int cols, double around)
{
    return weight(m, name, 1, cols, m->s.type == QT_F16 ? QT_F16 : QT_F32, 0.3, around);
}

static int activation(net *m, int cols, dim_rows rows)
{
    int id = graph_tensor(&m->g, (tensor){ .name = "act", .kind = T_ACTIVATION, .rows = rows, .cols = cols });
    assert_in_range(id, 0, NET_TENSORS - 1);
    return id;
}

static op plain(op_kind kind, int layer, int out, int in, int w)
{
    return (op){ .kind = kind,
                 .layer = layer,
                 .out = out,
                 .in = in,
                 .in2 = -1,
                 .weight = w,
                 .bias = -1,
                 .residual = -1,
                 .eps = 1e-5f };
}

static void put(net *m, op o) { assert_true(graph_op(&m->g, o) >= 0); }

static void product(net *m, int layer, int out, int in, int w, int bias, int residual)
{
    op o = plain(OP_MATMUL, layer, out, in, w);
    o.bias = bias;
    o.residual = residual;
    put(m, o);
}

static void head_norm(net *m, int layer, int x, int w)
{
    op o = plain(OP_RMSNORM, layer, x, x, w);
    o.width = m->s.hd;
    put(m, o);
}

static void rotate(net *m, int layer, int x, int heads)
{
    op o = plain(OP_ROPE, layer, x, x, -1);
    o.width = m->s.hd;
    o.heads = heads;
    o.rope = m->s.rope;
    put(m, o);
}

static void swiglu(net *m, int layer, int gate, int up)
{
    op o = plain(OP_SWIGLU, layer, gate, gate, -1);
    o.in2 = up;
    put(m, o);
}

/* y += attention(norm(x)); y may not be x. */
static void attention(net *m, int n, int y, int x)
{
    const net_shape *s = &m->s;
    net_layer *l = &m->l[n];
    const int qd = s->heads * s->hd, kd = s->kv_heads * s->hd;
    int h = activation(m, s->d, DIM_ROWS), q = activation(m, qd, DIM_ROWS), k = activation(m, kd, DIM_ROWS);
    int v = activation(m, kd, DIM_ROWS), a = activation(m, qd, DIM_ROWS);

    put(m, plain(OP_RMSNORM, n, h, x, l->norm1 = vector(m, "norm1", s->d, 1)));
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
    put(m, kv);
    op at = plain(OP_ATTENTION, n, a, q, -1);
    at.width = s->hd;
    at.heads = s->heads;
    at.kv_heads = s->kv_heads;
    at.causal = s->causal;
    put(m, at);
    product(m, n, y, a, l->o = matrix(m, "o", s->d, qd), -1, x);
}

static void experts(net *m, int layer, int out, int in, int route, int w, int residual)
{
    op o = plain(OP_EXPERTS, layer, out, in, w);
    o.in2 = route;
    o.residual = residual;
    o.experts = m->s.experts;
    o.used = m->s.used;
    put(m, o);
}

/* y += feed-forward(norm(y)), the residual in place. */
static void feed_forward(net *m, int n, int y)
{
    const net_shape *s = &m->s;
    net_layer *l = &m->l[n];
    const int wide = s->experts ? s->ff * s->used : s->ff, all = s->experts ? s->experts : 1;
    int h = activation(m, s->d, DIM_ROWS), gate = activation(m, wide, DIM_ROWS), up = activation(m, wide, DIM_ROWS);

    put(m, plain(OP_RMSNORM, n, h, y, l->norm2 = vector(m, "norm2", s->d, 1)));
    l->gate = matrix(m, "gate", all * s->ff, s->d);
    l->up = matrix(m, "up", all * s->ff, s->d);
    l->down = matrix(m, "down", all * s->d, s->ff);
    if (!s->experts) {
        product(m, n, gate, h, l->gate, -1, -1);
        product(m, n, up, h, l->up, -1, -1);
        swiglu(m, n, gate, up);
        product(m, n, y, gate, l->down, -1, y);
        return;
    }
    int scores = activation(m, s->experts, DIM_ROWS), route = activation(m, 2 * s->used, DIM_ROWS);
    product(m, n, scores, h, l->route = matrix(m, "route", s->experts, s->d), -1, -1);
    op o = plain(OP_ROUTE, n, route, scores, -1);
    o.experts = s->experts;
    o.used = s->used;
    put(m, o);
    experts(m, n, gate, h, route, l->gate, -1);
    experts(m, n, up, h, route, l->up, -1);
    swiglu(m, n, gate, up);
    experts(m, n, y, gate, route, l->down, y);
}

net *net_make(const net_shape *s)
{
    net *m = calloc(1, sizeof *m);
    llada_err err = { 0 };
    m->s = *s;
    rng_seed(&m->r, 7);
    assert_int_equal(graph_init(&m->g, 64, NET_TENSORS, &err), LLADA_OK);
    m->g.n_layer = NET_LAYERS;
    m->g.n_embd = s->d;
    m->g.head_dim = s->hd;
    m->g.n_head = s->heads;
    m->g.n_kv_head = s->kv_heads;
    m->g.n_vocab_rows = s->vocab;
    m->g.rope_base = 500;
    for (int i = 0; i < s->hd / 2; i++) m->factors[i] = 1 + 0.1f * (float)i;
    m->g.rope_factors = s->factors ? m->factors : NULL;
    int x = activation(m, s->d, DIM_ROWS);
    put(m, plain(OP_EMBED, -1, x, -1, m->embed = weight(m, "embed", s->vocab, s->d, s->type, 1, 0)));
    for (int l = 0; l < NET_LAYERS; l++) {
        int y = activation(m, s->d, DIM_ROWS);
        m->l[l] = (net_layer){ .bq = -1, .bk = -1, .bv = -1, .qn = -1, .kn = -1, .route = -1 };
        attention(m, l, y, x);
        feed_forward(m, l, y);
        x = y;
    }
    int w = activation(m, s->d, DIM_WANT), f = activation(m, s->d, DIM_WANT);
    put(m, plain(OP_GATHER, -1, w, x, -1));
    put(m, plain(OP_RMSNORM, -1, f, w, m->norm = vector(m, "norm", s->d, 1)));
    put(m, plain(OP_SCORE, -1, -1, f, m->head = matrix(m, "head", s->vocab, s->d)));
    if (graph_check(&m->g, &err)) fail_msg("%s: %s", s->what, err.text);
    return m;
}

static void pack_weight(net *m, const op *o)
{
    tensor *t = &m->g.t[o->weight];
    t32_shape s;
    if (o->kind != OP_MATMUL && o->kind != OP_SCORE && o->kind != OP_EXPERTS) return;
    if (t->layout == LAYOUT_T32 || (o->kind == OP_EXPERTS && t->n_rows / o->experts % T32_ROWS != 0)) return;
    assert_true(t32_shape_of(&s, t->type, (uint64_t)t->n_rows, (uint64_t)t->cols));
    void *to = malloc(s.bytes);
    assert_non_null(to);
    t32_pack(&s, to, t->data, 0, s.stripes);
    free(m->data[o->weight]);
    t->data = m->data[o->weight] = to;
    t->row_bytes = 0;
    t->layout = LAYOUT_T32;
}

void net_pack(net *m)
{
    llada_err err = { 0 };
    for (int i = 0; i < m->g.n_ops; i++) pack_weight(m, &m->g.ops[i]);
    if (graph_check(&m->g, &err)) fail_msg("%s: %s", m->s.what, err.text);
}

void net_free(net *m)
{
    for (int i = 0; i < NET_TENSORS; i++) {
        free(m->data[i]);
        free(m->exact[i]);
    }
    graph_free(&m->g);
    free(m);
}

/* ------------------------------------------------------------ in double */

net_kv *net_kv_make(const net *m)
{
    net_kv *e = calloc(1, sizeof *e);
    size_t n = (size_t)NET_SLOTS * (size_t)(m->s.kv_heads * m->s.hd);
    for (int l = 0; l < NET_LAYERS; l++) {
        e->k[l] = calloc(n, sizeof(double));
        e->v[l] = calloc(n, sizeof(double));
    }
    return e;
}

void net_kv_free(net_kv *e)
{
    for (int l = 0; l < NET_LAYERS; l++) {
        free(e->k[l]);
        free(e->v[l]);
    }
    free(e);
}

static const double *w_of(const net *m, int id) { return id >= 0 ? m->exact[id] : NULL; }

static void x_norm(double *out, const double *x, const double *w, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += x[i] * x[i];
    s = 1 / sqrt(s / n + 1e-5f);
    for (int i = 0; i < n; i++) out[i] = x[i] * s * w[i];
}

/* Products with weights on grids take x as 8-bit integers, 32 values to a scale, the one of eight that fits best
 * (device/cpu/kern.h). */
static void x_round(double *out, const double *x)
{
    double most = 0, least = INFINITY;
    for (int i = 0; i < 32; i++) most = fmax(most, fabs(x[i]));
    for (int steps = 127; steps > 119; steps--) {
        const double d = most > 0 ? most / steps : 1;
        double to[32], error = 0;
        for (int i = 0; i < 32; i++) {
            to[i] = d * rint(x[i] / d);
            error += (x[i] - to[i]) * (x[i] - to[i]);
        }
        if (!(error < least * (1 - 1e-9))) continue;
        least = error;
        memcpy(out, to, sizeof to);
    }
}

static void x_mul(const net *m, double *out, const double *x0, const double *w, const double *bias, int n, int k)
{
    double x[NET_WIDEST];
    memcpy(x, x0, (size_t)k * sizeof *x);
    for (int i = 0; quant_get(m->s.type)->levels && i < k; i += 32) x_round(x + i, x0 + i);
    for (int j = 0; j < n; j++) {
        double s = bias ? bias[j] : 0;
        for (int i = 0; i < k; i++) s += x[i] * w[j * k + i];
        out[j] = s;
    }
}

static void x_head(const net *m, double *x, int heads, const double *norm, int pos)
{
    const int hd = m->s.hd, half = hd / 2;
    for (int h = 0; h < heads; h++, x += hd) {
        if (norm) x_norm(x, x, norm, hd);
        for (int i = 0; i < half; i++) {
            bool pairs = m->s.rope == ROPE_PAIRS;
            int ia = pairs ? 2 * i : i, ib = pairs ? 2 * i + 1 : i + half;
            double ang = pos * pow(m->g.rope_base, -2.0 * i / hd), a = x[ia], b = x[ib];
            if (m->s.factors) ang /= m->factors[i];
            x[ia] = a * cos(ang) - b * sin(ang);
            x[ib] = b * cos(ang) + a * sin(ang);
        }
    }
}

/* The slots row r sees, in any order. */
static int x_columns(const net *m, const pass *p, int r, int *slots)
{
    const pass_cols *c = &p->cols[p->group[r]];
    int other = p->instead ? p->instead[r] : -1, n = 0;
    slots[n++] = p->slot[r];
    for (int i = 0; i < c->n; i++) {
        if (c->pos[i] == p->pos[r] || (m->s.causal && c->pos[i] > p->pos[r])) continue;
        slots[n++] = other >= 0 && c->pos[i] == p->pos[other] ? p->slot[other] : c->slot[i];
    }
    return n;
}

static void x_attend(const net *m, const net_kv *e, const pass *p, int r, int l, double *out, const double *q)
{
    const int hd = m->s.hd, kd = m->s.kv_heads * hd, per = m->s.heads / m->s.kv_heads;
    int slots[NET_SLOTS + 1], n = x_columns(m, p, r, slots);
    for (int h = 0; h < m->s.heads; h++) {
        double sum = 0, acc[64] = { 0 };
        for (int c = 0; c < n; c++) {
            const double *k = e->k[l] + slots[c] * kd + h / per * hd, *v = e->v[l] + slots[c] * kd + h / per * hd;
            double s = 0;
            for (int j = 0; j < hd; j++) s += q[h * hd + j] * k[j];
            s = exp(s / sqrt(hd));
            sum += s;
            for (int j = 0; j < hd; j++) acc[j] += s * v[j];
        }
        for (int j = 0; j < hd; j++) out[h * hd + j] = acc[j] / sum;
    }
}

/* x += weight * (the feed-forward part number e of h). */
static void x_feed(const net *m, const net_layer *w, int e, double weight_, double *x, const double *h)
{
    const int d = m->s.d, ff = m->s.ff;
    double *g = calloc((size_t)ff, 8), *u = calloc((size_t)ff, 8), *y = calloc((size_t)d, 8);
    x_mul(m, g, h, m->exact[w->gate] + e * ff * d, NULL, ff, d);
    x_mul(m, u, h, m->exact[w->up] + e * ff * d, NULL, ff, d);
    for (int i = 0; i < ff; i++) g[i] = g[i] / (1 + exp(-g[i])) * u[i];
    x_mul(m, y, g, m->exact[w->down] + e * d * ff, NULL, d, ff);
    for (int i = 0; i < d; i++) x[i] += weight_ * y[i];
    free(g), free(u), free(y);
}

static void x_experts(const net *m, const net_layer *w, double *x, const double *h)
{
    const int n = m->s.experts;
    double p[64], sum = 0;
    bool taken[64] = { false };
    x_mul(m, p, h, m->exact[w->route], NULL, n, m->s.d);
    for (int e = 0; e < n; e++) sum += p[e] = exp(p[e]);
    for (int i = 0; i < m->s.used; i++) {
        int best = -1;
        for (int e = 0; e < n; e++)
            if (!taken[e] && (best < 0 || p[e] > p[best])) best = e;
        taken[best] = true;
        x_feed(m, w, best, p[best] / sum, x, h);
    }
}

void net_exact(const net *m, net_kv *e, const pass *p, double *logits)
{
    const net_shape *s = &m->s;
    const int qd = s->heads * s->hd, kd = s->kv_heads * s->hd, d = s->d;
    double *x = calloc((size_t)(p->n * d), 8), *q = calloc((size_t)(p->n * qd), 8);
    double *h = calloc((size_t)d, 8), *a = calloc((size_t)qd, 8);

    for (int r = 0; r < p->n; r++) memcpy(x + r * d, m->exact[m->embed] + p->token[r] * d, (size_t)d * 8);
    for (int l = 0; l < NET_LAYERS; l++) {
        const net_layer *w = &m->l[l];
        for (int r = 0; r < p->n; r++) {
            double *k = e->k[l] + p->slot[r] * kd, *v = e->v[l] + p->slot[r] * kd;
            x_norm(h, x + r * d, m->exact[w->norm1], d);
            x_mul(m, q + r * qd, h, m->exact[w->q], w_of(m, w->bq), qd, d);
            x_mul(m, k, h, m->exact[w->k], w_of(m, w->bk), kd, d);
            x_mul(m, v, h, m->exact[w->v], w_of(m, w->bv), kd, d);
            x_head(m, q + r * qd, s->heads, w_of(m, w->qn), p->pos[r]);
            x_head(m, k, s->kv_heads, w_of(m, w->kn), p->pos[r]);
        }
        for (int r = 0; r < p->n; r++) {
            x_attend(m, e, p, r, l, a, q + r * qd);
            x_mul(m, h, a, m->exact[w->o], NULL, d, qd);
            for (int i = 0; i < d; i++) x[r * d + i] += h[i];
            x_norm(h, x + r * d, m->exact[w->norm2], d);
            if (s->experts)
                x_experts(m, w, x + r * d, h);
            else
                x_feed(m, w, 0, 1, x + r * d, h);
        }
    }
    for (int i = 0; i < p->n_want; i++) {
        x_norm(h, x + p->want[i] * d, m->exact[m->norm], d);
        x_mul(m, logits + i * s->vocab, h, m->exact[m->head], NULL, s->vocab, d);
    }
    free(x), free(q), free(h), free(a);
}

/* ------------------------------------------------------------ passes */

const int net_all[NET_ROWS] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };

int32_t net_token(const net *m, int pos) { return (int32_t)((pos * 29 + 5) % m->s.vocab); }

void net_ask(net_pass *q, const net *m, const int *pos, int n, int t)
{
    *q = (net_pass){ .p = { .n = n, .n_want = n } };
    for (int i = 0; i < n; i++) {
        q->pos[i] = q->slot[i] = pos[i];
        q->token[i] = net_token(m, pos[i]);
        q->want[i] = i;
        q->instead[i] = -1;
    }
    for (int i = 0; i < NET_SLOTS; i++) q->col[i] = i;
    q->p.pos = q->pos;
    q->p.token = q->token;
    q->p.slot = q->slot;
    q->p.group = q->group;
    q->p.instead = q->instead;
    q->p.want = q->want;
    for (int g = 0; g < PASS_GROUPS; g++) q->p.cols[g] = (pass_cols){ q->col, q->col, t };
}
