/* columns.h - which columns a row of a pass sees (the rule stands in device.h): one function for every engine that
 * computes attention.  Needs nothing but C. */
#ifndef DEVICE_COLUMNS_H
#define DEVICE_COLUMNS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const int32_t *slot, *pos; /* columns by rising position */
    int n;
} pass_cols;

typedef struct {
    int32_t pos, slot;
    bool causal;
    bool instead; /* another row stands in at its position ... */
    int32_t instead_pos, instead_slot;
} pass_row;

/* The first column at or behind a position. */
static inline int columns_find(const pass_cols *g, int32_t pos)
{
    int lo = 0, hi = g->n;

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (g->pos[mid] < pos)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The slots a row sees, by position, into out (g->n + 1 places); returns how many. */
static inline int columns_of(const pass_cols *g, const pass_row *r, int32_t *out)
{
    int lo = columns_find(g, r->pos), rest = lo < g->n && g->pos[lo] == r->pos ? lo + 1 : lo, n = lo + 1;
    int at = r->instead ? columns_find(g, r->instead_pos) : g->n;

    for (int i = 0; i < lo; i++) out[i] = g->slot[i];
    out[lo] = r->slot;
    for (int i = rest; !r->causal && i < g->n; i++) out[n++] = g->slot[i];
    if (at < g->n && g->pos[at] == r->instead_pos && r->instead_pos != r->pos) {
        int to = at < lo ? at : at - rest + lo + 1;
        if (to < n) out[to] = r->instead_slot;
    }
    return n;
}

#endif
