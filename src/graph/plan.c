/* plan.c - where activations lie: lifetimes from the order of operators, then greedy interval colouring.  Tensors are
 * placed largest first, each at the lowest address that no tensor alive at the same time covers. */
#include <limits.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/size.h"
#include "graph/graph.h"

enum { ALIGN = 64 }; /* bytes: a cache line, and the widest vector of any CPU we run on */

typedef struct {
    tensor_id id;
    int first, last; /* operators: written, last touched */
    size_t bytes;    /* a multiple of ALIGN */
    size_t offset;
} life;

static void touch(life *l, tensor_id id, int i)
{
    if (id < 0) return;
    if (l[id].first > i) l[id].first = i;
    if (l[id].last < i) l[id].last = i;
}

static bool tensor_bytes(const tensor *t, int max_rows, int max_want, size_t *bytes)
{
    size_t rows = t->rows == DIM_ROWS ? (size_t)max_rows : t->rows == DIM_WANT ? (size_t)max_want : (size_t)t->n_rows;
    size_t n;
    if (!size_mul(rows, (size_t)t->cols, &n) || !size_mul(n, sizeof(float), &n) || !size_add(n, ALIGN - 1, &n))
        return false;
    *bytes = n / ALIGN * ALIGN;
    return true;
}

/* Largest first; among equals the earlier, so that the plan does not depend on the sort. */
static int by_size(const void *pa, const void *pb)
{
    const life *a = pa, *b = pb;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Places l beside the n already placed ones, which `order` lists by rising offset; keeps it so. */
static void place(life *l, const life **order, int n)
{
    size_t at = 0;
    int where = n;
    for (int i = 0; i < n; i++) {
        const life *p = order[i];
        if (p->last < l->first || p->first > l->last || p->bytes == 0) continue;
        if (at + l->bytes <= p->offset) break;
        if (at < p->offset + p->bytes) at = p->offset + p->bytes;
    }
    l->offset = at;
    while (where > 0 && order[where - 1]->offset > at) {
        order[where] = order[where - 1];
        where--;
    }
    order[where] = l;
}

/* Most bytes alive at one operator.  delta[i]: what begins at i less what ended before it; sums never exceed a->sum. */
static size_t most_alive(const life *l, int n, size_t *delta, int n_ops)
{
    for (int i = 0; i < n; i++) {
        delta[l[i].first] += l[i].bytes;
        delta[l[i].last + 1] -= l[i].bytes; /* wraps; the running sum below does not */
    }
    size_t now = 0, most = 0;
    for (int i = 0; i < n_ops; i++) {
        now += delta[i];
        most = now > most ? now : most;
    }
    return most;
}

/* Fills l with the activations that are used; -1 when their sizes overflow. */
static int collect(const graph *g, int max_rows, int max_want, life *l, size_t *sum)
{
    for (tensor_id id = 0; id < g->n_t; id++) l[id] = (life){ .id = id, .first = INT_MAX, .last = -1 };
    for (int i = 0; i < g->n_ops; i++) {
        const op *o = &g->ops[i];
        touch(l, o->out, i);
        touch(l, o->in, i);
        touch(l, o->in2, i);
        touch(l, o->residual, i);
    }
    int n = 0;
    for (tensor_id id = 0; id < g->n_t; id++) {
        if (g->t[id].kind != T_ACTIVATION || l[id].last < 0) continue;
        if (!tensor_bytes(&g->t[id], max_rows, max_want, &l[id].bytes) || !size_add(*sum, l[id].bytes, sum)) return -1;
        l[n++] = l[id];
    }
    return n;
}

llada_status graph_plan(const graph *g, int max_rows, int max_want, graph_arena *out, llada_err *err)
{
    *out = (graph_arena){ 0 };
    if (max_rows < 1 || max_want < 0)
        return llada_fail(err, LLADA_BAD_ARG, "a plan for %d rows and %d scored rows can't be made", max_rows,
                          max_want);
    size_t n_t = (size_t)g->n_t;
    life *l = mem_array(n_t, sizeof *l);
    const life **order = mem_array(n_t, sizeof *order);
    size_t *delta = mem_array((size_t)g->n_ops + 1, sizeof *delta);
    out->offset = mem_array(n_t, sizeof *out->offset);
    llada_status st = LLADA_OK;
    int n = -1;
    if (l && order && delta && out->offset) n = collect(g, max_rows, max_want, l, &out->sum);
    if (n < 0) {
        st = llada_fail(err, LLADA_NO_MEMORY, "no memory for a plan of %d tensors and %d rows", g->n_t, max_rows);
        graph_arena_free(out);
        goto done;
    }
    out->live = most_alive(l, n, delta, g->n_ops);
    qsort(l, (size_t)n, sizeof *l, by_size);
    for (int i = 0; i < n; i++) {
        place(&l[i], order, i);
        out->offset[l[i].id] = l[i].offset;
        if (out->bytes < l[i].offset + l[i].bytes) out->bytes = l[i].offset + l[i].bytes;
    }
done:
    mem_free(delta);
    mem_free(order);
    mem_free(l);
    return st;
}

void graph_arena_free(graph_arena *a)
{
    mem_free(a->offset);
    *a = (graph_arena){ 0 };
}
