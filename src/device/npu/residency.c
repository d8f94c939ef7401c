/* residency.c - which buffers stay mapped.  A pass uses the groups of weights in one order, over and over.  Under such
 * a scan the best that can go is what will be used last from here: groups early in the order come to stay, and the rest
 * share what is left.  (Letting go of what was used longest ago would miss every time.) */
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

/* How many turns pass before v is used, r's turn being now. */
static int distance(const device_weights *w, const npu_region *r, const npu_region *v)
{
    if (v->turn < 0) return w->n_groups + 1; /* another context's */
    const int now = r->turn < 0 ? 0 : r->turn;
    return (v->turn - now + w->n_groups) % w->n_groups;
}

npu_region *npu_victim(const device_weights *w, const npu_region *r, const npu_region *const *keep, int n_keep)
{
    npu_region *best = NULL;
    if (npu_mapped_bytes(w) + r->s.bytes <= w->t->budget) return NULL;
    for (npu_region *v = w->all; v; v = v->next) {
        if (!v->mapped || v == r || kept(v, keep, n_keep)) continue;
        if (!best || distance(w, r, v) > distance(w, r, best)) best = v;
    }
    return best;
}
