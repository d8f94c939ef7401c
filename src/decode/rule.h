/* rule.h - commit rules: of the block's masks just scored, which are written now.  Each rule takes at least one. */
#ifndef DECODE_RULE_H
#define DECODE_RULE_H

#include "decode/recipe.h"
#include "graph/score.h"

typedef struct {
    int32_t pos, token;
    double key;       /* what the rule compares: the confidence, unless an option puts another value in its place */
    double p;         /* plain softmax probability of token */
    bool late;        /* an end token under ban_eos_conf: taken only when nothing else is left to take */
    const score *s;   /* borrowed, until the next pass */
} cand;

/* What klass and credit remember of a position between passes. */
typedef struct {
    int32_t top[SCORE_TOP]; /* klass: the pass before's most probable ids; top[0] < 0: none */
    double top_p[SCORE_TOP];
    int hits;               /* klass: passes in a row that agreed with the one before */
    int32_t token;          /* credit: the token the average is of; -1: none */
    double credit;
} rule_memory;

void rule_forget(rule_memory *m);

/* The window engine decides on confidences rounded to 1/4096, so that rounding noise of a kernel can't reorder them. */
double rule_grid(double p);

/* Picks among c[0..n), which are in order of position.  threshold: tau or the revision's `vis`.  quota: for the quota
 * and dream rules.  mem[i] belongs to c[i].  pick gets the indices in the order of commitment: by what the rule ranks
 * by (key, entropy, margin, credited key), ties by position, NaN last.  order and value are scratch for n.  Returns how
 * many; 0 only when n is 0. */
int rule_pick(const llada_recipe *r, double threshold, int quota, const cand *c, int n, rule_memory *const *mem,
              int *order, double *value, int *pick);

/* The quota of step i (from 0) when m masks are dealt out over s steps: m/s each, the first m mod s one more. */
int rule_quota(int m, int s, int i);

/* What rules need of a score beyond the choice. */
static inline bool rule_wants_top(const llada_recipe *r)
{
    return r->rule == LLADA_RULE_ENTROPY || r->rule == LLADA_RULE_MARGIN || r->rule == LLADA_RULE_KLASS;
}

#endif
