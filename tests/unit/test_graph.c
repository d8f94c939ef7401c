/* test_graph.c - graphs: what the check refuses; plans never put two tensors alive at once into the same bytes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "graph/graph.h"

/* ------------------------------------------------------------ checking */

static const float some_data[64];

/* Tensors and operators of `good`, by name. */
enum {
    TABLE, X, NORM_W, H, WQ, WK, WV, Q, K, V, A, WO, BIAS, HEAD, WANTED, SCORED, W_ROUTER, ROUTER, CHOICE, W_UP, UP, W_DOWN,
    N_TENSORS
};
enum {
    EMBED, NORM, MM_Q, MM_K, MM_V, ROPE_Q, ROPE_K, STORE, ATTEND, MM_O, GATE, MM_R, ROUTE, EXP_UP, EXP_DOWN, GATHER, SCORE, N_OPS
};

static tensor weight(int rows, int cols)
{
    return (tensor){ .name = "w", .kind = T_WEIGHT, .n_rows = rows, .cols = cols, .data = some_data, .row_bytes = 4 };
}

static tensor activation(dim_rows rows, int cols)
{
    return (tensor){ .name = "a", .kind = T_ACTIVATION, .rows = rows, .cols = cols };
}

/* One layer: 2 heads of 4 values, 1 head of keys, 11 rows of vocabulary. */
static void good(graph *g)
{
    assert_int_equal(graph_init(g, N_OPS, N_TENSORS, NULL), LLADA_OK);
    g->n_layer = 1, g->n_embd = 8, g->head_dim = 4, g->n_head = 2, g->n_kv_head = 1, g->n_vocab_rows = 11,
    g->rope_base = 1e4;
    const tensor t[N_TENSORS] = { [TABLE] = weight(11, 8),
                                  [X] = activation(DIM_ROWS, 8),
                                  [NORM_W] = weight(1, 8),
                                  [H] = activation(DIM_ROWS, 8),
                                  [WQ] = weight(8, 8),
                                  [WK] = weight(4, 8),
                                  [WV] = weight(4, 8),
                                  [Q] = activation(DIM_ROWS, 8),
                                  [K] = activation(DIM_ROWS, 4),
                                  [V] = activation(DIM_ROWS, 4),
                                  [A] = activation(DIM_ROWS, 8),
                                  [WO] = weight(8, 8),
                                  [BIAS] = weight(1, 8),
                                  [HEAD] = weight(11, 8),
                                  [WANTED] = activation(DIM_WANT, 8),
                                  [SCORED] = activation(DIM_WANT, 8),
                                  [W_ROUTER] = weight(3, 8), /* 3 experts, 2 of them serve a row; 5 values wide */
                                  [ROUTER] = activation(DIM_ROWS, 3),
                                  [CHOICE] = activation(DIM_ROWS, 4),
                                  [W_UP] = weight(15, 8),
                                  [UP] = activation(DIM_ROWS, 10),
                                  [W_DOWN] = weight(24, 5) };
    for (int i = 0; i < N_TENSORS; i++) assert_int_equal(graph_tensor(g, t[i]), i);
    const op none = { .layer = 0, .out = -1, .in = -1, .in2 = -1, .weight = -1, .bias = -1, .residual = -1 };
    op o[N_OPS];
    for (int i = 0; i < N_OPS; i++) o[i] = none;
    o[EMBED].kind = OP_EMBED, o[EMBED].out = X, o[EMBED].weight = TABLE, o[EMBED].layer = -1;
    o[NORM].kind = OP_RMSNORM, o[NORM].in = X, o[NORM].out = H, o[NORM].weight = NORM_W, o[NORM].eps = 1e-5f;
    for (int i = 0; i < 3; i++)
        o[MM_Q + i].kind = OP_MATMUL, o[MM_Q + i].in = H, o[MM_Q + i].out = Q + i, o[MM_Q + i].weight = WQ + i;
    o[ROPE_Q].kind = o[ROPE_K].kind = OP_ROPE, o[ROPE_Q].width = o[ROPE_K].width = 4;
    o[ROPE_Q].in = o[ROPE_Q].out = Q, o[ROPE_Q].heads = 2;
    o[ROPE_K].in = o[ROPE_K].out = K, o[ROPE_K].heads = 1;
    o[STORE].kind = OP_KV, o[STORE].in = K, o[STORE].in2 = V;
    o[ATTEND].kind = OP_ATTENTION, o[ATTEND].in = Q, o[ATTEND].out = A;
    o[ATTEND].width = 4, o[ATTEND].heads = 2, o[ATTEND].kv_heads = 1;
    o[MM_O].kind = OP_MATMUL, o[MM_O].in = A, o[MM_O].out = X, o[MM_O].weight = WO, o[MM_O].bias = BIAS,
    o[MM_O].residual = X;
    o[GATE].kind = OP_SWIGLU, o[GATE].in = H, o[GATE].in2 = X, o[GATE].out = H;
    o[MM_R].kind = OP_MATMUL, o[MM_R].in = H, o[MM_R].out = ROUTER, o[MM_R].weight = W_ROUTER;
    o[ROUTE].kind = OP_ROUTE, o[ROUTE].in = ROUTER, o[ROUTE].out = CHOICE;
    o[EXP_UP].kind = o[EXP_DOWN].kind = OP_EXPERTS, o[EXP_UP].in2 = o[EXP_DOWN].in2 = CHOICE;
    for (int i = ROUTE; i <= EXP_DOWN; i++) o[i].experts = 3, o[i].used = 2;
    o[EXP_UP].in = H, o[EXP_UP].out = UP, o[EXP_UP].weight = W_UP;
    o[EXP_DOWN].in = UP, o[EXP_DOWN].out = o[EXP_DOWN].residual = X, o[EXP_DOWN].weight = W_DOWN;
    o[GATHER].kind = OP_GATHER, o[GATHER].in = X, o[GATHER].out = WANTED, o[GATHER].layer = -1;
    o[SCORE].kind = OP_SCORE, o[SCORE].in = WANTED, o[SCORE].weight = HEAD, o[SCORE].layer = -1;
    for (int i = 0; i < N_OPS; i++) assert_int_equal(graph_op(g, o[i]), i);
}

/* Each defect changes one field of the good graph. */
static const struct defect {
    const char *what;
    size_t field; /* of the op, or of the tensor when `in_tensor` */
    int index;
    int64_t value;
    bool in_tensor;
    const char *says;
} defects[] = {
#define OP(i, f, v, says)                                                                                              \
    {                                                                                                                  \
#i "." #f " = " #v, offsetof(op, f), i, v, false, says                                                         \
    }
#define TENSOR(i, f, v, says)                                                                                          \
    {                                                                                                                  \
#i "." #f " = " #v, offsetof(tensor, f), i, v, true, says                                                      \
    }
    OP(EMBED, out, TABLE, "only activations"),
    OP(EMBED, out, N_TENSORS, "no such tensor"),
    OP(EMBED, weight, WK, NULL), /* any number of rows */
    OP(EMBED, weight, X, "a weight with data"),
    OP(EMBED, layer, 1, "no such layer"),
    OP(EMBED, layer, -2, "no such layer"),
    OP(EMBED, in, X, "does not take"),
    OP(NORM, in, Q, "read before"),
    OP(NORM, in, -1, "no such tensor"),
    OP(NORM, in, TABLE, "an activation is wanted"),
    OP(NORM, out, K, "does not change the shape"),
    OP(NORM, weight, WK, "1 x 8 is wanted"),
    OP(NORM, width, 3, "do not divide"),
    OP(NORM, width, -4, "do not divide"),
    OP(NORM, width, 4, "1 x 4 is wanted"),
    OP(NORM, bias, BIAS, "does not take"),
    OP(MM_Q, out, H, "over its own input"),
    OP(MM_Q, out, K, "8 x 8 where 4 x 8"),
    OP(MM_Q, out, WANTED, "differ in rows"),
    OP(MM_Q, weight, WK, "4 x 8 where 8 x 8"),
    OP(MM_K, bias, BIAS, "1 x 8 where 1 x 4"),
    OP(MM_O, bias, WO, "8 x 8 where 1 x 8"),
    OP(MM_O, residual, K, "another shape"),
    OP(MM_O, residual, WANTED, "read before"),
    OP(MM_O, in2, X, "does not take"),
    OP(ROPE_Q, out, H, "in place"),
    OP(ROPE_Q, heads, 3, "do not make up"),
    OP(ROPE_Q, heads, 0, "do not make up"),
    OP(ROPE_Q, width, 3, "even width"),
    OP(ROPE_Q, width, 0, "even width"),
    OP(STORE, in, Q, "keys are not"),
    OP(STORE, in2, Q, "values are not"),
    OP(STORE, layer, -1, "belong to a layer"),
    OP(ATTEND, out, V, "does not change the shape"),
    OP(ATTEND, heads, 1, "differ from those"),
    OP(ATTEND, kv_heads, 2, "differ from those"),
    OP(ATTEND, width, 8, "differ from those"),
    OP(ATTEND, layer, -1, "before the layer's keys"),
    OP(ATTEND, kind, OP_KV, "does not take"),
    OP(GATE, in2, K, "differ in shape"),
    OP(GATE, out, V, "differ in shape"),
    OP(GATE, kind, OP_EXPERTS + 1, "no such operator"),
    OP(GATE, kind, -1, "no such operator"),
    OP(ROUTE, in, H, "not one value per row and expert"),
    OP(ROUTE, in, UP, "read before"),
    OP(ROUTE, out, ROUTER, "over what it is made from"),
    OP(ROUTE, out, UP, "not a number and a probability"),
    OP(ROUTE, experts, 0, "experts that can't be"),
    OP(ROUTE, experts, 1 << 20, "experts that can't be"),
    OP(ROUTE, used, 0, "experts that can't be"),
    OP(ROUTE, used, 4, "experts that can't be"),
    OP(ROUTE, used, 1, "not a number and a probability"),
    OP(ROUTE, weight, W_UP, "does not take"),
    OP(EXP_UP, in2, ROUTER, "not a number and a probability"),
    OP(EXP_UP, in2, -1, "no such tensor"),
    OP(EXP_UP, out, H, "over its own input"),
    OP(EXP_UP, out, ROUTER, "do not divide the row"),
    OP(EXP_UP, out, A, "15 x 8 where 12 x 8"),
    OP(EXP_UP, out, WANTED, "rows of the pass"),
    OP(EXP_UP, weight, W_DOWN, "24 x 5 where 15 x 8"),
    OP(EXP_UP, experts, 2, "15 x 8 where 10 x 8"),
    OP(EXP_UP, residual, UP, "15 x 8 where 30 x 4"),
    OP(EXP_UP, bias, BIAS, "does not take"),
    OP(EXP_DOWN, in, ROUTER, "do not divide the row"),
    OP(EXP_DOWN, in, A, "24 x 5 where 24 x 4"),
    OP(EXP_DOWN, residual, K, "another shape"),
    OP(EXP_DOWN, residual, WANTED, "read before"),
    OP(EXP_DOWN, weight, W_UP, "15 x 8 where 24 x 5"),
    OP(EXP_DOWN, experts, 4, "24 x 5 where 32 x 5"),
    OP(GATHER, in, V, "same width"),
    OP(GATHER, out, H, "goes from rows"),
    OP(SCORE, in, X, "only wanted rows"),
    OP(SCORE, in, SCORED, "read before"),
    OP(SCORE, weight, WQ, "8 x 8 where 11 x 8"),
    OP(SCORE, out, SCORED, "does not take"),
    TENSOR(X, cols, 7, "11 x 8 where 11 x 7"),
    TENSOR(X, cols, 0, "no values"),
    TENSOR(X, kind, T_NONE, "only activations"),
    TENSOR(TABLE, n_rows, 0, "0 x 8"),
    TENSOR(TABLE, row_bytes, 0, "a weight with data"),
    TENSOR(TABLE, rows, DIM_ROWS, "a weight with data"),
    TENSOR(HEAD, n_rows, 12, "12 x 8 where 11 x 8"),
    TENSOR(WANTED, rows, DIM_ROWS, "goes from rows"),
#undef OP
#undef TENSOR
};

static void set_field(void *record, size_t field, int64_t value, bool in_tensor)
{
    bool wide = in_tensor && (field == offsetof(tensor, cols) || field == offsetof(tensor, n_rows) ||
                              field == offsetof(tensor, row_bytes));
    int narrow = (int)value;
    memcpy((char *)record + field, wide ? (const void *)&value : (const void *)&narrow,
           wide ? sizeof value : sizeof narrow);
}

static void refuses_bad_shapes(void **state)
{
    llada_err err;
    graph g;
    good(&g);
    assert_int_equal(graph_check(&g, &err), LLADA_OK);
    graph_free(&g);
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++) {
        const struct defect *d = &defects[i];
        good(&g);
        set_field(d->in_tensor ? (void *)&g.t[d->index] : (void *)&g.ops[d->index], d->field, d->value, d->in_tensor);
        llada_status st = graph_check(&g, &err);
        if ((st == LLADA_OK) != !d->says || (d->says && (st != LLADA_BAD_MODEL || !strstr(err.text, d->says))))
            fail_msg("%s: status %d, \"%s\"", d->what, st, st ? err.text : "");
        graph_free(&g);
    }
}

static void refuses_bad_numbers(void **state)
{
    llada_err err;
    graph g;
    const float eps[] = { 0, -1, (float)NAN, (float)INFINITY };
    const double base[] = { 0, -1, (double)NAN, (double)INFINITY };
    for (int i = 0; i < 4; i++) {
        good(&g);
        g.ops[NORM].eps = eps[i];
        assert_int_equal(graph_check(&g, &err), LLADA_BAD_MODEL);
        assert_non_null(strstr(err.text, "eps"));
        g.ops[NORM].eps = 1e-6f;
        g.rope_base = base[i];
        assert_int_equal(graph_check(&g, &err), LLADA_BAD_MODEL);
        assert_non_null(strstr(err.text, "base of the rotation"));
        graph_free(&g);
    }
    int *const counts[] = { &g.n_head, &g.n_kv_head, &g.head_dim, &g.n_layer };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        good(&g);
        *counts[i] = -1;
        assert_int_equal(graph_check(&g, &err), LLADA_BAD_MODEL);
        graph_free(&g);
    }
}

static void scores_once(void **state)
{
    llada_err err;
    graph g;
    good(&g);
    g.n_ops--;
    assert_int_equal(graph_check(&g, &err), LLADA_BAD_MODEL);
    assert_non_null(strstr(err.text, "scores no rows"));
    graph_free(&g);
    good(&g);
    g.ops[GATHER] = g.ops[SCORE];
    g.ops[GATE] = (op){
        .kind = OP_GATHER, .layer = -1, .in = X, .out = WANTED, .in2 = -1, .weight = -1, .bias = -1, .residual = -1
    };
    assert_int_equal(graph_check(&g, &err), LLADA_BAD_MODEL);
    assert_non_null(strstr(err.text, "scored twice"));
    graph_free(&g);
}

static void capacity_is_kept(void **state)
{
    graph g;
    llada_err err;
    assert_int_equal(graph_init(&g, 1, 2, &err), LLADA_OK);
    assert_int_equal(graph_tensor(&g, weight(1, 1)), 0);
    assert_int_equal(graph_tensor(&g, weight(1, 1)), 1);
    assert_int_equal(graph_tensor(&g, weight(1, 1)), -1);
    assert_int_equal(graph_op(&g, (op){ .kind = OP_KV }), 0);
    assert_int_equal(graph_op(&g, (op){ .kind = OP_KV }), -1);
    graph_free(&g);
    graph_free(&g);
    assert_int_equal(graph_init(&g, 0, 1, &err), LLADA_BAD_ARG);
}

/* ------------------------------------------------------------ planning */

enum { MAX_T = 40, MAX_OPS = 60 };

static int below(rng *r, int n) { return (int)rng_below(r, (uint64_t)n); }

/* Operators that read and write tensors at random: a plan looks at nothing else. */
static void random_graph(graph *g, rng *r)
{
    int n_t = 1 + below(r, MAX_T), n_ops = 1 + below(r, MAX_OPS);
    assert_int_equal(graph_init(g, MAX_OPS, MAX_T, NULL), LLADA_OK);
    for (int i = 0; i < n_t; i++) {
        tensor t = activation((dim_rows)below(r, 3), 1 + below(r, 200));
        t.n_rows = 1 + below(r, 30);
        if (below(r, 8) == 0) t.kind = T_WEIGHT;
        graph_tensor(g, t);
    }
    for (int i = 0; i < n_ops; i++) {
        op o = { .kind = OP_MATMUL, .weight = -1, .bias = -1 };
        tensor_id *const ids[] = { &o.out, &o.in, &o.in2, &o.residual };
        for (int k = 0; k < 4; k++) *ids[k] = below(r, n_t + 1) - 1;
        graph_op(g, o);
    }
}

typedef struct {
    int first, last;
    size_t bytes;
} span;

static span life_of(const graph *g, tensor_id id, int rows, int want)
{
    const tensor *t = &g->t[id];
    size_t n = t->rows == DIM_ROWS ? (size_t)rows : t->rows == DIM_WANT ? (size_t)want : (size_t)t->n_rows;
    span s = { -1, -1, (n * (size_t)t->cols * 4 + 63) / 64 * 64 };
    for (int i = 0; i < g->n_ops; i++) {
        const op *o = &g->ops[i];
        if (o->out != id && o->in != id && o->in2 != id && o->residual != id) continue;
        s.first = s.first < 0 ? i : s.first;
        s.last = i;
    }
    if (t->kind != T_ACTIVATION) s.first = -1;
    return s;
}

static void check_plan(const graph *g, const graph_arena *a, int rows, int want)
{
    span s[MAX_T];
    size_t sum = 0, live = 0;
    for (int i = 0; i < g->n_t; i++) {
        s[i] = life_of(g, i, rows, want);
        if (s[i].first < 0) continue;
        sum += s[i].bytes;
        assert_int_equal(a->offset[i] % 64, 0);
        assert_true(a->offset[i] + s[i].bytes <= a->bytes);
        for (int k = 0; k < i; k++) {
            if (s[k].first < 0 || s[k].last < s[i].first || s[k].first > s[i].last) continue;
            if (a->offset[k] + s[k].bytes > a->offset[i] && a->offset[i] + s[i].bytes > a->offset[k])
                fail_msg("tensors %d and %d share bytes", k, i);
        }
    }
    for (int i = 0; i < g->n_ops; i++) {
        size_t now = 0;
        for (int k = 0; k < g->n_t; k++) now += s[k].first >= 0 && s[k].first <= i && s[k].last >= i ? s[k].bytes : 0;
        live = now > live ? now : live;
    }
    assert_int_equal(a->sum, sum);
    assert_int_equal(a->live, live);
    assert_true(a->bytes >= live);
    assert_true(a->bytes <= sum);
}

static void plans_do_not_overlap(void **state)
{
    rng r;
    rng_seed(&r, 20);
    size_t bytes = 0, live = 0;
    for (int n = 0; n < 1000; n++) {
        graph g;
        graph_arena a;
        random_graph(&g, &r);
        int rows = 1 + below(&r, 64), want = below(&r, 64);
        assert_int_equal(graph_plan(&g, rows, want, &a, NULL), LLADA_OK);
        check_plan(&g, &a, rows, want);
        bytes += a.bytes, live += a.live;
        graph_arena_free(&a);
        graph_free(&g);
    }
    assert_true(bytes < live + live / 10); /* and little is lost to gaps */
}

/* A chain needs two buffers, however long it is. */
static void chains_share(void **state)
{
    graph g;
    graph_arena a;
    assert_int_equal(graph_init(&g, 100, 101, NULL), LLADA_OK);
    for (int i = 0; i <= 100; i++) graph_tensor(&g, activation(DIM_ROWS, 16));
    for (int i = 0; i < 100; i++)
        graph_op(&g,
                 (op){ .kind = OP_SWIGLU, .in = i, .out = i + 1, .in2 = -1, .weight = -1, .bias = -1, .residual = -1 });
    assert_int_equal(graph_plan(&g, 7, 0, &a, NULL), LLADA_OK);
    assert_int_equal(a.bytes, 2 * 7 * 16 * 4);
    assert_int_equal(a.sum, 101 * 7 * 16 * 4);
    graph_arena_free(&a);
    graph_arena_free(&a);
    graph_free(&g);
}

static void plans_refuse(void **state)
{
    graph g;
    graph_arena a;
    llada_err err;
    good(&g);
    assert_int_equal(graph_plan(&g, 0, 0, &a, &err), LLADA_BAD_ARG);
    assert_int_equal(graph_plan(&g, 1, -1, &a, &err), LLADA_BAD_ARG);
    g.t[X].cols = INT64_MAX / 2;
    assert_int_equal(graph_plan(&g, 100, 1, &a, &err), LLADA_NO_MEMORY);
    assert_null(a.offset);
    graph_free(&g);
}

static void out_of_memory(void **state)
{
    graph g;
    graph_arena a;
    llada_err err;
    for (uint64_t k = 1; k <= 2; k++) {
        mem_fail_at(k);
        assert_int_equal(graph_init(&g, 4, 4, &err), LLADA_NO_MEMORY);
    }
    good(&g);
    for (uint64_t k = 1; k <= 2; k++) {
        mem_fail_at(k);
        assert_int_equal(graph_check(&g, &err), LLADA_NO_MEMORY);
    }
    for (uint64_t k = 1; k <= 4; k++) {
        mem_fail_at(k);
        assert_int_equal(graph_plan(&g, 4, 4, &a, &err), LLADA_NO_MEMORY);
        assert_null(a.offset);
    }
    mem_fail_at(0);
    assert_int_equal(graph_plan(&g, 4, 4, &a, &err), LLADA_OK);
    graph_arena_free(&a);
    graph_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_bad_shapes), cmocka_unit_test(refuses_bad_numbers),  cmocka_unit_test(scores_once),
        cmocka_unit_test(capacity_is_kept),   cmocka_unit_test(plans_do_not_overlap), cmocka_unit_test(chains_share),
        cmocka_unit_test(plans_refuse),       cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
