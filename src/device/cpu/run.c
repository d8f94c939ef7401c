/* run.c - one pass on the CPU: the request is checked first, then operators run in order.  Allocates nothing. */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/part.h"

/* ------------------------------------------------------------ checks */

static llada_status rows_ok(device_ctx *c, const pass *p, llada_err *err)
{
    for (int r = 0; r < p->n; r++) {
        if (p->pos[r] < 0 || p->pos[r] >= c->lim.max_pos)
            return llada_fail(err, LLADA_BAD_ARG, "row %d is at position %d of %d", r, (int)p->pos[r], c->lim.max_pos);
        if (p->token[r] < 0 || p->token[r] >= c->w->vocab)
            return llada_fail(err, LLADA_BAD_ARG, "row %d has token %d of %d", r, (int)p->token[r], c->w->vocab);
        if (p->slot[r] < 0 || p->slot[r] >= c->lim.slots)
            return llada_fail(err, LLADA_BAD_ARG, "row %d writes slot %d of %d", r, (int)p->slot[r], c->lim.slots);
        if (p->group[r] >= PASS_GROUPS)
            return llada_fail(err, LLADA_BAD_ARG, "row %d is in group %d of %d", r, p->group[r], PASS_GROUPS);
        if (p->instead && (p->instead[r] < -1 || p->instead[r] >= p->n))
            return llada_fail(err, LLADA_BAD_ARG, "row %d is to see row %d of %d", r, (int)p->instead[r], p->n);
        if (c->stamp[p->slot[r]] == c->pass_no)
            return llada_fail(err, LLADA_BAD_ARG, "two rows write slot %d, row %d is the second", (int)p->slot[r], r);
        c->stamp[p->slot[r]] = c->pass_no;
    }
    return LLADA_OK;
}

static llada_status cols_ok(const device_ctx *c, const pass_cols *g, int number, llada_err *err)
{
    if (g->n < 0 || g->n > c->lim.slots)
        return llada_fail(err, LLADA_BAD_ARG, "group %d lists %d columns of %d slots", number, g->n, c->lim.slots);
    for (int i = 0; i < g->n; i++) {
        if (g->slot[i] < 0 || g->slot[i] >= c->lim.slots)
            return llada_fail(err, LLADA_BAD_ARG, "column %d of group %d is slot %d of %d", i, number, (int)g->slot[i],
                              c->lim.slots);
        if (i > 0 && g->pos[i] <= g->pos[i - 1])
            return llada_fail(err, LLADA_BAD_ARG, "column %d of group %d is at position %d, behind %d", i, number,
                              (int)g->pos[i], (int)g->pos[i - 1]);
    }
    return LLADA_OK;
}

llada_status cpu_check(device_ctx *c, const pass *p, llada_err *err)
{
    llada_status st;

    if (p->n < 1 || p->n > c->lim.max_rows)
        return llada_fail(err, LLADA_BAD_ARG, "a pass of %d rows, the context takes 1 to %d", p->n, c->lim.max_rows);
    if (p->n_want < 0 || p->n_want > c->lim.max_want)
        return llada_fail(err, LLADA_BAD_ARG, "%d scored rows, the context takes 0 to %d", p->n_want, c->lim.max_want);
    if (p->n_want > 0 && p->out && (!p->how || !p->ask))
        return llada_fail(err, LLADA_BAD_ARG, "%d rows are to be scored, but not how", p->n_want);
    if (++c->pass_no == 0) { /* after 2^32 passes */
        memset(c->stamp, 0, (size_t)c->lim.slots * sizeof *c->stamp);
        c->pass_no = 1;
    }
    if ((st = rows_ok(c, p, err)) != LLADA_OK) return st;
    for (int g = 0; g < PASS_GROUPS; g++)
        if ((st = cols_ok(c, &p->cols[g], g, err)) != LLADA_OK) return st;
    for (int i = 0; i < p->n_want; i++)
        if (p->want[i] < 0 || p->want[i] >= p->n)
            return llada_fail(err, LLADA_BAD_ARG, "row %d of %d is to be scored", (int)p->want[i], p->n);
    return LLADA_OK;
}

/* Infinity and NaN are the floats whose exponent bits are all ones. */
static bool finite_all(const float *x, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

/* ------------------------------------------------------------ operators */

enum { LANE_UNIT = 1024 }; /* values of a row that one thread takes at a time */

typedef struct {
    device_ctx *c;
    const pass *p;
    const op *o;
    bool ready; /* the operator before has made the same rows ready for such a product */
} step;

static float *act(const step *s, tensor_id id) { return cpu_activation(s->c, id); }

static int rows_of(const step *s, tensor_id id)
{
    const tensor *t = &s->c->g->t[id];
    return t->rows == DIM_ROWS ? s->p->n : t->rows == DIM_WANT ? s->p->n_want : (int)t->n_rows;
}

static size_t cols_of(const step *s, tensor_id id) { return (size_t)s->c->g->t[id].cols; }

static void embed_part(void *user, int t, int n)
{
    const step *s = user;
    const tensor *w = &s->c->g->t[s->o->weight];
    const size_t d = (size_t)w->cols;
    int lo, hi;

    pool_share(s->p->n, 1, t, n, &lo, &hi);
    for (int r = lo; r < hi; r++)
        s->c->k.unpack[w->type].fn(act(s, s->o->out) + (size_t)r * d,
                                   (const uint8_t *)w->data + (size_t)s->p->token[r] * w->row_bytes, d);
}

static void norm_part(void *user, int t, int n)
{
    const step *s = user;
    const op *o = s->o;
    const size_t cols = cols_of(s, o->in), width = o->width > 0 ? (size_t)o->width : cols;
    const float *in = act(s, o->in), *w = s->c->w->vec[o->weight];
    float *out = act(s, o->out);
    int lo, hi;

    pool_share(rows_of(s, o->in), 1, t, n, &lo, &hi);
    for (size_t i = (size_t)lo * cols; i < (size_t)hi * cols; i += width)
        s->c->k.norm.fn(out + i, in + i, w, (int)width, o->eps);
}

static void rope_part(void *user, int t, int n)
{
    const step *s = user;
    const op *o = s->o;
    kern_rope_fn *rope = s->c->k.rope[o->rope == ROPE_HALVES].fn;
    const size_t width = (size_t)o->width, cols = cols_of(s, o->in);
    int lo, hi;

    pool_share(s->p->n, 1, t, n, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        float *row = act(s, o->in) + (size_t)r * cols;
        const float *cs = s->c->rope + (size_t)s->p->pos[r] * width;
        for (size_t h = 0; h < cols; h += width) rope(row + h, cs, o->width / 2);
    }
}

static void swiglu_part(void *user, int t, int n)
{
    const step *s = user;
    const op *o = s->o;
    const int units = (int)((rows_of(s, o->out) * cols_of(s, o->out) + LANE_UNIT - 1) / LANE_UNIT);
    const size_t all = (size_t)rows_of(s, o->out) * cols_of(s, o->out);
    int lo, hi;

    pool_share(units, 1, t, n, &lo, &hi);
    size_t a = (size_t)lo * LANE_UNIT, b = (size_t)hi * LANE_UNIT < all ? (size_t)hi * LANE_UNIT : all;
    if (a < b) s->c->k.swiglu.fn(act(s, o->out) + a, act(s, o->in) + a, act(s, o->in2) + a, b - a);
}

static void gather(const step *s)
{
    const size_t d = cols_of(s, s->o->in);
    for (int i = 0; i < s->p->n_want; i++)
        memcpy(act(s, s->o->out) + (size_t)i * d, act(s, s->o->in) + (size_t)s->p->want[i] * d, d * sizeof(float));
}

static bool stopped(const pass *p) { return p->stop && atomic_load_explicit(p->stop, memory_order_relaxed); }

static llada_status say_stopped(const step *s, llada_err *err)
{
    const graph *g = s->c->g;
    return llada_fail(err, LLADA_CANCELLED, "stopped at operator %d of %d", (int)(s->o - g->ops), g->n_ops);
}

/* An operator's weight in parts, or whole where it lies: fn(s, rows of it, the number of the first, user). */
typedef void part_fn(const step *s, const tensor *w, int64_t first, void *user);

static llada_status each_part(const step *s, part_fn *fn, void *user, llada_err *err)
{
    keeper *held = s->c->w->held;
    int first, n;

    if (!held) {
        fn(s, &s->c->g->t[s->o->weight], 0, user);
        return LLADA_OK;
    }
    n = keeper_parts(held, s->o->weight, &first);
    for (int i = first; i < first + n; i++) {
        tensor rows;
        int64_t row;
        llada_status st = stopped(s->p) ? say_stopped(s, err) : keeper_take(held, i, s->p->stop, &rows, &row, err);
        if (st) return st;
        fn(s, &rows, row, user);
        keeper_give(held, i);
    }
    return LLADA_OK;
}

static llada_status embed(step *s, llada_err *err)
{
    const tensor *w = &s->c->g->t[s->o->weight];
    const size_t d = (size_t)w->cols;

    if (!s->c->w->held) {
        cpu_share(s->c, 4.0 * s->p->n * (double)d, embed_part, s);
        return LLADA_OK;
    }
    for (int r = 0; r < s->p->n; r++) {
        const void *row;
        llada_status st = keeper_row(s->c->w->held, s->o->weight, s->p->token[r], &row, err);
        if (st) return st;
        s->c->k.unpack[w->type].fn(act(s, s->o->out) + (size_t)r * d, row, d);
    }
    return LLADA_OK;
}

static void matmul(const step *s, const tensor *w, int64_t first, void *user)
{
    const op *o = s->o;
    const float *bias = o->bias >= 0 ? s->c->w->vec[o->bias] + first : NULL;
    const float *residual = o->residual >= 0 ? act(s, o->residual) + first : NULL;

    (void)user;
    cpu_matmul_rows(s->c, act(s, o->out) + first, cols_of(s, o->out), act(s, o->in), rows_of(s, o->in), w, bias,
                    residual);
}

static llada_status matmuls(const step *s, llada_err *err)
{
    const op *o = s->o;

    if (!s->ready) cpu_ready_rows(s->c, act(s, o->in), rows_of(s, o->in), &s->c->g->t[o->weight]);
    return each_part(s, matmul, NULL, err);
}

static void experts(const step *s, const tensor *w, int64_t first, void *user)
{
    const op *o = s->o;

    (void)user;
    cpu_experts(s->c, s->p->n, o, w, (int)(first / (s->c->g->t[o->weight].n_rows / o->experts)), act(s, o->out),
                act(s, o->in), act(s, o->in2), o->residual >= 0 ? act(s, o->residual) : NULL);
}

/* Rows first..first+n-1 of the scored ones; their logits are ready. */
typedef struct {
    const pass *p;
    float *to; /* [n][vocab] logits */
    int first, n, vocab;
} score_job;

static void score_part(void *user, int t, int n)
{
    const score_job *j = user;
    int lo, hi;

    pool_share(j->n, 1, t, n, &lo, &hi);
    for (int i = lo; i < hi; i++)
        score_row(&j->p->out[j->first + i], j->to + (size_t)i * (size_t)j->vocab, j->vocab, j->p->how,
                  &j->p->ask[j->first + i]);
}

static void score_matmul(const step *s, const tensor *w, int64_t first, void *user)
{
    const score_job *j = user;

    cpu_matmul_rows(s->c, j->to + first, (size_t)j->vocab, act(s, s->o->in) + (size_t)j->first * cols_of(s, s->o->in),
                    j->n, w, NULL, NULL);
}

static bool scores(const pass *p) { return p->n_want > 0 && (p->out || p->logits); }

static llada_status score_rows(const step *s, llada_err *err)
{
    const pass *p = s->p;
    const size_t vocab = (size_t)s->c->g->n_vocab_rows;

    for (int i = 0; scores(p) && i < p->n_want; i += SCORE_ROWS) {
        score_job j = { .p = p, .first = i, .vocab = (int)vocab };
        j.to = p->logits ? p->logits + (size_t)i * vocab : s->c->logits;
        j.n = p->n_want - i < SCORE_ROWS ? p->n_want - i : SCORE_ROWS;
        cpu_ready_rows(s->c, act(s, s->o->in) + (size_t)i * cols_of(s, s->o->in), j.n, &s->c->g->t[s->o->weight]);
        llada_status st = each_part(s, score_matmul, &j, err);
        if (st) return st;
        if (p->out) cpu_share(s->c, 20.0 * j.n * (double)vocab, score_part, &j);
    }
    return LLADA_OK;
}

static llada_status run_op(step *s, llada_err *err)
{
    const op *o = s->o;
    const double values = (double)s->p->n * (o->out >= 0 ? (double)cols_of(s, o->out) : 0);

    switch (o->kind) {
    case OP_EMBED: return embed(s, err);
    case OP_RMSNORM: cpu_share(s->c, 8 * values, norm_part, s); break;
    case OP_MATMUL: return matmuls(s, err);
    case OP_ROPE: cpu_share(s->c, 8 * values, rope_part, s); break;
    case OP_KV: cpu_store_kv(s->c, s->p, o->layer, act(s, o->in), act(s, o->in2)); break;
    case OP_ATTENTION: cpu_attention(s->c, s->p, o, act(s, o->out), act(s, o->in)); break;
    case OP_SWIGLU: cpu_share(s->c, 32 * values, swiglu_part, s); break;
    case OP_GATHER: gather(s); break;
    case OP_SCORE: return score_rows(s, err);
    case OP_ROUTE: cpu_route(s->c, s->p->n, o, act(s, o->out), act(s, o->in)); break;
    case OP_EXPERTS: return each_part(s, experts, NULL, err);
    }
    return LLADA_OK;
}

/* NaN and infinity are looked for where a layer ends and before the scores are made: they never reach a score. */
static llada_status finite_ok(const step *s, bool ends_layer, llada_err *err)
{
    const op *o = s->o;
    tensor_id id = o->kind == OP_SCORE ? o->in : o->kind == OP_EMBED || ends_layer ? o->out : -1;

    if (id < 0 || finite_all(act(s, id), (size_t)rows_of(s, id) * cols_of(s, id))) return LLADA_OK;
    if (o->kind == OP_EMBED || o->kind == OP_SCORE)
        return llada_fail(err, LLADA_NUMERIC, "the %s gives NaN or infinity",
                          o->kind == OP_EMBED ? "token embedding" : "norm behind the last layer");
    return llada_fail(err, LLADA_NUMERIC, "layer %d gives NaN or infinity", o->layer);
}

float *cpu_activation(const device_ctx *c, tensor_id id) { return (float *)(void *)(c->arena + c->plan.offset[id]); }

/* As queries, keys and values do, products share their input; nothing else may come between. */
static bool same_rows(const graph *g, const op *before, const op *o)
{
    return before->kind == OP_MATMUL && o->kind == OP_MATMUL && before->in == o->in &&
           cpu_in_integers(&g->t[before->weight]) == cpu_in_integers(&g->t[o->weight]);
}

llada_status cpu_run_ops(device_ctx *c, const pass *p, int first, int end, llada_err *err)
{
    llada_status st = LLADA_OK;

    for (int i = first; st == LLADA_OK && i < end; i++) {
        step s = { c, p, &c->g->ops[i], i > first && same_rows(c->g, &c->g->ops[i - 1], &c->g->ops[i]) };
        if (stopped(p)) return say_stopped(&s, err);
        if (s.o->kind == OP_SCORE && (st = finite_ok(&s, false, err)) != LLADA_OK) return st;
        if ((st = run_op(&s, err)) != LLADA_OK) return st;
        if (s.o->kind != OP_SCORE) st = finite_ok(&s, c->last[i], err);
    }
    return st;
}

llada_status cpu_run(device_ctx *c, const pass *p, llada_err *err)
{
    llada_status st = cpu_check(c, p, err);
    int rounds = scores(p) ? (p->n_want + SCORE_ROWS - 1) / SCORE_ROWS : 0;

    if (st || !c->w->held) return st ? st : cpu_run_ops(c, p, 0, c->g->n_ops, err);
    if ((st = keeper_begin(c->w->held, rounds, p->stop, err)) != LLADA_OK) return st;
    st = cpu_run_ops(c, p, 0, c->g->n_ops, err);
    keeper_end(c->w->held);
    return st;
}
