/* rule.c - the commit rules.  Sources: quota: LLaDA (arXiv 2502.09992); threshold and factor: Fast-dLLM (2505.22618);
 * entropy: EB-Sampler (2505.24857); klass: KLASS (2511.05664); hierarchical: dInfer (2510.08666); credit:
 * CreditDecoding (2510.06133); margin: Dream's top-k margin.  Where a paper leaves a quantity open, what is computed
 * here is said at the function. */
#include "decode/rule.h"

#include <math.h>

double rule_grid(double p) { return nearbyint(p * 4096) / 4096; } /* half to even */

void rule_forget(rule_memory *m)
{
    m->top[0] = -1;
    m->hits = 0;
    m->token = -1;
    m->credit = 0;
}

int rule_quota(int m, int s, int i) { return i >= s ? m : m / s + (i < m % s); }

/* NaN is below every number. */
static bool below(double a, double b) { return a < b || (isnan(a) && !isnan(b)); }

/* Sorts indices by falling value, ties by index (which is by position).  Insertion sort: a block is short and
 * confidences change little from pass to pass. */
static void sort_falling(const double *value, int *order, int n)
{
    for (int i = 0; i < n; i++) {
        int at = i;
        double v = value[i];
        while (at > 0 && below(value[order[at - 1]], v)) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
}

typedef struct {
    const llada_recipe *r;
    const cand *c;
    int n;
    const int *order;    /* by falling value */
    double *value;       /* the key, or what the rule ranks by */
    int *pick;
} picking;

static int take_first(const picking *p, int k)
{
    if (k > p->n) k = p->n;
    for (int i = 0; i < k; i++) p->pick[i] = p->order[i];
    return k;
}

static int pick_threshold(const picking *p, double threshold)
{
    int k = 0;
    while (k < p->n && p->value[p->order[k]] >= threshold) k++;
    return take_first(p, k);
}

/* Once the order is known the values have done their work, and may become marks: those over 0 are taken. */
static int take_marked(const picking *p)
{
    int k = 0;
    for (int i = 0; i < p->n; i++)
        if (p->value[p->order[i]] > 0) p->pick[k++] = p->order[i];
    return k;
}

/* Text depends mostly on what stands before it: behind a mask that stays a mask, `ahead` is asked for. */
static int pick_ahead(const picking *p, double threshold)
{
    bool gap = false;
    for (int i = 0; i < p->n; i++) { /* in order of position */
        double need = gap && p->r->ahead > threshold ? p->r->ahead : threshold;
        bool taken = p->value[i] >= need;
        p->value[i] = taken;
        gap |= !taken;
    }
    return take_marked(p);
}

/* Largest n with (n + 1)(1 - c_n) < factor, c falling, without a gap. */
static int pick_factor(const picking *p)
{
    int k = 0;
    while (k < p->n && (k + 2) * (1 - p->c[p->order[k]].key) < p->r->factor) k++;
    return take_first(p, k);
}

/* Values are negated entropies: rising entropy; accept while the sum without its largest member (members rise: the last
 * one) stays within gamma. */
static int pick_entropy(const picking *p)
{
    double sum = 0;
    int k = 0;
    for (; k < p->n; k++) {
        int i = p->order[k];
        if (k > 0 && (p->c[i].late || !(sum <= p->r->gamma))) break;
        sum -= p->value[i];
    }
    return take_first(p, k);
}

/* KL(now || before) over the pass before's most probable ids, all others together as one more outcome: never more than
 * the divergence over all ids. */
static double divergence(const rule_memory *m, const score *s)
{
    double kl = 0, rest_old = 1, rest_new = 1;
    for (int j = 0; j < SCORE_TOP && m->top[j] >= 0; j++) {
        double a = m->top_p[j], b = s->probe_p[j];
        rest_old -= a;
        rest_new -= b;
        if (b > 0) kl += b * log(b / fmax(a, 1e-12));
    }
    if (rest_new > 1e-12) kl += rest_new * log(rest_new / fmax(rest_old, 1e-12));
    return kl;
}

/* Confident over tau, and twice in a row within kappa of the pass before. */
static int pick_klass(const picking *p, double threshold, rule_memory *const *mem)
{
    int k = 0;
    for (int i = 0; i < p->n; i++) {
        rule_memory *m = mem[i];
        const score *s = p->c[i].s;
        bool near = m->top[0] >= 0 && divergence(m, s) < p->r->kappa;
        m->hits = near ? m->hits + 1 : 0;
        for (int j = 0; j < SCORE_TOP; j++) {
            m->top[j] = s->top[j];
            m->top_p[j] = s->top_p[j];
        }
    }
    for (int i = 0; i < p->n; i++) {
        int j = p->order[i];
        if (p->c[j].key >= threshold && mem[j]->hits >= 2) p->pick[k++] = j;
    }
    return k;
}

/* Each run of neighbouring masks commits all its members over `high`, or its best one if that is over `low`. */
static int pick_hierarchical(const picking *p)
{
    for (int a = 0, b; a < p->n; a = b) {
        int best = a, over = 0;
        for (b = a; b < p->n && (b == a || p->c[b].pos == p->c[b - 1].pos + 1); b++) {
            bool high = p->c[b].key >= p->r->high;
            if (below(p->c[best].key, p->c[b].key)) best = b;
            p->value[b] = high;
            over += high;
        }
        if (!over && p->c[best].key >= p->r->low) p->value[best] = 1;
    }
    return take_marked(p);
}

/* The average of the confidences a token had in the passes so far is credited to its score: p e^a / (p e^a + 1 - p). */
static void add_credit(const llada_recipe *r, const cand *c, int n, rule_memory *const *mem, double *value)
{
    for (int i = 0; i < n; i++) {
        rule_memory *m = mem[i];
        if (m->token != c[i].token) m->credit = 0;
        m->token = c[i].token;
        double e = exp(m->credit);
        value[i] = c[i].key * e / (c[i].key * e + 1 - c[i].key);
        m->credit = r->credit * m->credit + (1 - r->credit) * c[i].key;
    }
}

/* What the rule ranks by. */
static double rank_of(const llada_recipe *r, const cand *c)
{
    if (r->rule != LLADA_RULE_ENTROPY && r->rule != LLADA_RULE_MARGIN) return c->key;
    if (c->late) return -INFINITY;
    double v = r->rule == LLADA_RULE_ENTROPY ? -c->s->entropy : c->s->top_p[0] - c->s->top_p[1];
    return recipe_windowed(r) ? rule_grid(v) : v;
}

int rule_pick(const llada_recipe *r, double threshold, int quota, const cand *c, int n, rule_memory *const *mem,
              int *order, double *value, int *pick)
{
    for (int i = 0; i < n; i++) value[i] = rank_of(r, &c[i]);
    if (r->rule == LLADA_RULE_CREDIT) add_credit(r, c, n, mem, value);
    sort_falling(value, order, n);
    picking p = {r, c, n, order, value, pick};
    int k = 0;
    switch (r->rule) {
    case LLADA_RULE_QUOTA:
    case LLADA_RULE_DREAM: k = take_first(&p, quota); break;
    case LLADA_RULE_AR: k = take_first(&p, 1); break;
    case LLADA_RULE_FACTOR: k = pick_factor(&p); break;
    case LLADA_RULE_ENTROPY: k = pick_entropy(&p); break;
    case LLADA_RULE_MARGIN: k = pick_threshold(&p, r->margin); break;
    case LLADA_RULE_KLASS: k = pick_klass(&p, threshold, mem); break;
    case LLADA_RULE_HIERARCHICAL: k = pick_hierarchical(&p); break;
    case LLADA_RULE_THRESHOLD:
    case LLADA_RULE_CREDIT: k = r->ahead > 0 ? pick_ahead(&p, threshold) : pick_threshold(&p, threshold); break;
    }
    return k ? k : take_first(&p, 1);
}
