/* residency.c - which buffers stay mapped.  A pass uses the groups of weights in one order, over and over, and maps one
 * where it is needed, so what counts is how often.  The one to go is the one that will be used last from here: mostly
 * that which was used last.  Of equal buffers no other choice maps less, not even with a set that never changes
 * (docs/decisions.md, 29).  A buffer too small to make room alone goes only when no other does. */
#include "device/npu/inside.h"

uint64_t npu_mapped_bytes(const device_weights *w)
{
    uint64_t n = 0;
    for (const npu_region *r = w->all; r; r = r->next)
        if (r->mapped) n += r->s.bytes;
    return n;
}

static bool kept(const npu_region *r, const npu_region *const *keep, int n_keep)
{
    for (int i = 0; i < n_keep; i++)
        if (keep[i] == r) return true;
    return false;
}

/* How gladly v is let go for r, whose turn is now: another context's first; then what makes room alone; then the more
 * turns pass before v is used. */
static int gladly(const device_weights *w, const npu_region *r, const npu_region *v)
{
    const int now = r->turn < 0 ? 0 : r->turn, n = w->n_groups;
    const bool alone = npu_mapped_bytes(w) + r->s.bytes - v->s.bytes <= w->t->budget;
    if (v->turn < 0) return 2 * n;
    return (v->turn - now + n) % n + (alone ? n : 0);
}

npu_region *npu_victim(const device_weights *w, const npu_region *r, const npu_region *const *keep, int n_keep)
{
    npu_region *best = NULL;
    if (npu_mapped_bytes(w) + r->s.bytes <= w->t->budget) return NULL;
    for (npu_region *v = w->all; v; v = v->next) {
        if (!v->mapped || v == r || kept(v, keep, n_keep)) continue;
        if (!best || gladly(w, r, v) > gladly(w, r, best)) best = v;
    }
    return best;
}
