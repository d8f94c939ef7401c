/* score.h - what is kept of one row of scores (logits): the choice and its plain softmax confidence, and the few
 * numbers that commit rules and revision ask for.  Everything accumulates in float64; ties go to the lowest id. */
#ifndef GRAPH_SCORE_H
#define GRAPH_SCORE_H

#include <stdbool.h>
#include <stdint.h>

enum { SCORE_TOP = 8, SCORE_PROBES = SCORE_TOP + 1 };

/* Dream's measures of how sure a row is, all under the softmax of the tempered scores cut to top_p and top_k:
 * probability of the choice; of the best less that of the second; sum of p log(p + 1e-10). */
typedef enum { RANK_NONE, RANK_P, RANK_MARGIN, RANK_ENTROPY } score_rank;

/* How rows are judged; the same for all rows of a pass.  Banned ids count as minus infinity, also in the softmax. */
typedef struct {
    const int32_t *ban; /* borrowed; ascending; may name ids past the vocabulary */
    int n_ban;
    int n_vocab;        /* ids from here on (padding rows of the head) are banned as well */
    double temp;        /* 0: arg-max; else Gumbel noise is added at this temperature before it */
    double top_p;       /* sampling and rank only: 1 = off */
    int top_k;          /* sampling and rank only: 0 = off */
    bool want_top;      /* fill top/top_p, entropy */
    score_rank rank;    /* fill rank */
} score_how;

typedef struct {
    uint64_t seed;                /* of this row's noise */
    int32_t probe[SCORE_PROBES];  /* ids whose probability is wanted */
    int n_probe;
    bool plain;                   /* no noise for this row: the arg-max, also when sampling */
} score_ask;

typedef struct {
    int32_t token;                /* the choice */
    bool bad;                     /* NaN or infinity in the scores, or nothing left to choose */
    double p;                     /* its plain softmax probability */
    double lse;                   /* log of the sum of exp(score) */
    double entropy;               /* nats; want_top only */
    int32_t top[SCORE_TOP];       /* most probable ids, falling; -1 past the end; want_top only */
    double top_p[SCORE_TOP];
    double probe_p[SCORE_PROBES];
    double rank;                  /* see score_how; 0 with RANK_NONE */
} score;

/* Judges logits[0..n). */
void score_row(score *out, const float *logits, int n, const score_how *how, const score_ask *ask);

#endif
