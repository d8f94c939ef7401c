/* residency.c - see residency.h.  A first choice by what a byte of memory saves, spread evenly over the pass where the
 * saving is the same; then small changes as long as the modelled pass gets shorter.  Why spread: between two parts that
 * stay, the transfers have the time of one computation; a half that stays in one piece would leave them idle first and
 * late afterwards. */
#include "graph/residency.h"

#include <stdlib.h>

#include "base/mem.h"

enum {
    MAX_SLOTS = 16,
    WARM = 4, MEASURED = 4,    /* passes that fill the pipeline, and passes that count */
    CAPS = 8,                  /* slot sizes that are tried */
    NEAR = 12,                 /* exchanges between parts so far apart are tried when there are many */
    FEW = 40,                  /* ... and between all, and of two for one, when there are at most so many */
    STEPS = 500 * 1000         /* parts looked at in all trials with one slot size: about 2 ms */
};
#define SAME 0.02      /* densities that differ by less are one class */
#define GOOD 1.003     /* a plan this near the bound is not searched further */
#define TIE 1e-7       /* of two plans of equal time, the one that reads less */

typedef struct {
    const residency_part *p;
    int n, slots;
    size_t budget;
    bool *held, *best;
    int *order;         /* parts by falling density */
    double bound;       /* no pass is shorter */
    double best_cost;
    long steps;         /* left to search with */
} search;

double residency_seconds(const residency_part *p, int n, const bool *held, int slots)
{
    double freed[MAX_SLOTS] = { 0 }, now = 0, reader = 0, began = 0;
    int at = 0;
    if (slots < 1 || slots > MAX_SLOTS) slots = slots < 1 ? 1 : MAX_SLOTS;
    for (int k = 0; k < WARM + MEASURED; k++) {
        if (k == WARM) began = now;
        for (int i = 0; i < n; i++) {
            if (!held[i]) {
                reader = (reader > freed[at] ? reader : freed[at]) + p[i].read;
                now = now > reader ? now : reader;
            }
            now += p[i].compute;
            if (held[i]) continue;
            freed[at] = now;
            at = at + 1 < slots ? at + 1 : 0;
        }
    }
    return (now - began) / MEASURED;
}

/* Memory of a choice; the slot is as large as the largest part that streams. */
static size_t memory_of(const residency_part *p, int n, const bool *held, int slots)
{
    size_t sum = 0, slot = 0;
    for (int i = 0; i < n; i++) {
        if (held[i]) sum += p[i].bytes;
        else if (p[i].bytes > slot) slot = p[i].bytes;
    }
    return sum + (size_t)slots * slot;
}

static double cost_of(search *s)
{
    double read = 0;
    s->steps -= (long)s->n * (WARM + MEASURED);
    for (int i = 0; i < s->n; i++)
        if (!s->held[i]) read += s->p[i].read;
    return residency_seconds(s->p, s->n, s->held, s->slots) + TIE * read;
}

static bool fits(const search *s) { return memory_of(s->p, s->n, s->held, s->slots) <= s->budget; }

/* ------------------------------------------------------------ the first choice */

static double density(const residency_part *p) { return p->read / (double)(p->bytes ? p->bytes : 1); }

/* Holds what it can of a class of parts of about the same density: the same share everywhere in the pass. */
static size_t spread(search *s, const int *class, int n, size_t room)
{
    size_t sum = 0;
    double share, due = 0;
    for (int k = 0; k < n; k++) sum += s->held[class[k]] ? 0 : s->p[class[k]].bytes;
    share = sum > room ? (double)room / (double)sum : 1;
    for (int k = 0; k < n; k++) {
        size_t bytes = s->p[class[k]].bytes;
        if (s->held[class[k]]) continue;
        due += share * (double)bytes;
        if (bytes > room || due < (double)bytes * (share < 1 ? 0.5 : 0)) continue;
        s->held[class[k]] = true;
        due -= (double)bytes;
        room -= bytes;
    }
    return room;
}

/* Holds all parts above `cap` and part `lead` (-1: none), then the densest; false when the former are too many. */
static bool first_choice(search *s, size_t cap, int lead)
{
    size_t must = 0, room;
    for (int i = 0; i < s->n; i++) {
        s->held[i] = s->p[i].bytes > cap || i == lead;
        must += s->held[i] ? s->p[i].bytes : 0;
    }
    if (must > s->budget || (s->budget - must) / (size_t)s->slots < cap) return false;
    room = s->budget - must - (size_t)s->slots * cap;
    for (int k = 0, end; k < s->n; k = end) {
        double top = density(&s->p[s->order[k]]);
        for (end = k + 1; end < s->n && density(&s->p[s->order[end]]) >= top * (1 - SAME); end++)
            ;
        room = spread(s, s->order + k, end - k, room);
    }
    return true;
}

/* ------------------------------------------------------------ small changes */

/* Takes the change when the plan fits and is shorter; else undoes it. */
static bool try_change(search *s, const int *which, int n, double *cost)
{
    for (int k = 0; k < n; k++) s->held[which[k]] = !s->held[which[k]];
    if (fits(s)) {
        double c = cost_of(s);
        if (c < *cost * (1 - 1e-9)) {
            *cost = c;
            return true;
        }
    }
    for (int k = 0; k < n; k++) s->held[which[k]] = !s->held[which[k]];
    return false;
}

/* One more exchanged beside i and j. */
static bool try_third(search *s, int i, int j, double *cost)
{
    for (int k = 0; k < s->n && s->steps > 0; k++) {
        int which[] = { i, j, k };
        if (k != i && k != j && try_change(s, which, 3, cost)) return true;
    }
    return false;
}

static bool try_around(search *s, int i, double *cost)
{
    int reach = s->n > FEW ? NEAR : s->n;
    bool better = try_change(s, &i, 1, cost);
    for (int d = 1; d < reach && s->steps > 0; d++)
        for (int side = 0; side < 2; side++) {
            int j = side ? i + d : i - d, which[] = { i, j };
            if (j < 0 || j >= s->n) continue;
            better |= try_change(s, which, 2, cost);
            if (s->n <= FEW) better |= try_third(s, i, j, cost);
        }
    return better;
}

static void improve(search *s)
{
    double cost = cost_of(s);
    bool better = true;
    while (better && cost > s->bound * GOOD && s->steps > 0) {
        better = false;
        for (int i = 0; i < s->n && s->steps > 0; i++) better |= try_around(s, i, &cost);
    }
    if (cost >= s->best_cost) return;
    s->best_cost = cost;
    for (int i = 0; i < s->n; i++) s->best[i] = s->held[i];
}

/* ------------------------------------------------------------ the plan */

typedef struct {
    double density;
    int i;
} ranked;

static int by_density(const void *pa, const void *pb)
{
    const ranked *a = pa, *b = pb;
    if (a->density != b->density) return a->density < b->density ? 1 : -1;
    return a->i - b->i;
}

static int by_number(const void *pa, const void *pb) { return *(const int *)pa - *(const int *)pb; }

/* Parts by falling density; those of a class in the order of the pass. */
static bool rank(search *s)
{
    ranked *r = mem_array((size_t)s->n, sizeof *r);
    if (!r) return false;
    for (int i = 0; i < s->n; i++) r[i] = (ranked){ density(&s->p[i]), i };
    qsort(r, (size_t)s->n, sizeof *r, by_density);
    for (int k = 0, end; k < s->n; k = end) {
        for (end = k; end < s->n && r[end].density >= r[k].density * (1 - SAME); end++) s->order[end] = r[end].i;
        qsort(s->order + k, (size_t)(end - k), sizeof *s->order, by_number);
    }
    mem_free(r);
    return true;
}

/* The next smaller size of a part below `than`; 0: none. */
static size_t smaller(const search *s, size_t than)
{
    size_t most = 0;
    for (int i = 0; i < s->n; i++)
        if (s->p[i].bytes < than && s->p[i].bytes > most) most = s->p[i].bytes;
    return most;
}

size_t residency_least(const residency_part *p, int n, int slots)
{
    size_t all = 0, least, slot = 0;
    for (int i = 0; i < n; i++) {
        all += p[i].bytes;
        slot = p[i].bytes > slot ? p[i].bytes : slot;
    }
    least = all;
    /* each size as the slot's: larger parts are held */
    for (int k = 0; k < n; k++) {
        size_t need = (size_t)slots * p[k].bytes;
        for (int i = 0; i < n; i++) need += p[i].bytes > p[k].bytes ? p[i].bytes : 0;
        least = need < least ? need : least;
    }
    return least;
}

void residency_restate(residency *r, const residency_part *p, int slots)
{
    *r = (residency){ .held = r->held, .n = r->n };
    for (int i = 0; i < r->n; i++) {
        r->n_held += r->held[i];
        r->compute += p[i].compute;
        if (r->held[i]) {
            r->held_bytes += p[i].bytes;
            continue;
        }
        r->read += p[i].read;
        r->stream_bytes += p[i].bytes;
        if (p[i].bytes > r->slot_bytes) r->slot_bytes = p[i].bytes;
    }
    r->slots = r->n_held < r->n ? slots : 0;
    r->bytes = r->held_bytes + (size_t)r->slots * r->slot_bytes;
    r->seconds = residency_seconds(p, r->n, r->held, slots);
}

/* All is computed, and what streams is read: at least what is left when the densest stay, the last of them in part,
 * beside slots of the smallest size. */
static void find_bound(search *s)
{
    double compute = 0, read = 0;
    size_t smallest = SIZE_MAX, room;
    for (int i = 0; i < s->n; i++) {
        compute += s->p[i].compute;
        read += s->p[i].read;
        smallest = s->p[i].bytes < smallest ? s->p[i].bytes : smallest;
    }
    room = s->budget - (smallest < s->budget / (size_t)s->slots ? smallest * (size_t)s->slots : s->budget);
    for (int k = 0; k < s->n && room > 0; k++) {
        const residency_part *p = &s->p[s->order[k]];
        size_t bytes = p->bytes < room ? p->bytes : room;
        read -= density(p) * (double)bytes;
        room -= bytes;
    }
    s->bound = read > compute ? read : compute;
}

static void choose(search *s)
{
    size_t cap = SIZE_MAX, all = 0;
    for (int i = 0; i < s->n; i++) all += s->p[i].bytes;
    if (all <= s->budget) {
        for (int i = 0; i < s->n; i++) s->best[i] = true;
        return;
    }
    s->best_cost = 1e300;
    find_bound(s);
    for (int k = 0; k < CAPS && (cap = smaller(s, cap)) > 0;) {
        s->steps = STEPS;
        if (!first_choice(s, cap, -1)) continue; /* too large for this budget: not one of those tried */
        improve(s);
        /* few parts: also from other beginnings, to end in other valleys */
        for (int lead = 0; lead < s->n && s->n <= FEW; lead++)
            if (first_choice(s, cap, lead)) improve(s);
        k++;
    }
}

llada_status residency_plan(residency *out, const residency_part *p, int n, size_t budget, int slots, llada_err *err)
{
    *out = (residency){ 0 };
    if (slots < 2 || slots > MAX_SLOTS)
        return llada_fail(err, LLADA_BAD_ARG, "%d staging slots; there can be 2 to %d", slots, MAX_SLOTS);
    size_t least = residency_least(p, n, slots);
    if (budget < least)
        return llada_fail(err, LLADA_BAD_ARG, "the weights can't be run in %zu bytes; the smallest that can is %zu",
                          budget, least);
    search s = { .p = p, .n = n, .slots = slots, .budget = budget };
    s.held = mem_array((size_t)n, sizeof *s.held);
    s.best = mem_array((size_t)n, sizeof *s.best);
    s.order = mem_array((size_t)n, sizeof *s.order);
    llada_status st = LLADA_OK;
    if (!s.held || !s.best || !s.order || !rank(&s)) {
        mem_free(s.best);
        st = llada_fail(err, LLADA_NO_MEMORY, "no memory for a plan of %d parts of the weights", n);
    } else {
        choose(&s);
        out->held = s.best;
        out->n = n;
        residency_restate(out, p, slots);
    }
    mem_free(s.held);
    mem_free(s.order);
    return st;
}

void residency_free(residency *r)
{
    mem_free(r->held);
    *r = (residency){ 0 };
}
