/* score.c - one row of scores judged.  Rows are as wide as the vocabulary (126,464 ids for LLaDA-8B) and there are
 * many, so each is read few times: once for the largest score, once for the sum of exponentials, and once more for
 * noise when sampling.  Banned ids cut the row into spans, which keeps the inner loops free of tests for them. */
#include "graph/score.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/rng.h"

/* Below the largest score by more than this an exponential is left out of sums: 2^31 of them would add 6e-13 of a sum
 * that is at least 1 (exp(-49) = 5e-22 each, times at most 49 in the entropy). */
static const double NEGLIGIBLE = -49.0;

/* Ids [lo, hi) without a banned one inside. */
typedef struct {
    const score_how *how;
    int i;      /* next ban */
    int lo, hi; /* the span */
    int end;    /* of the row */
} spans;

static spans spans_of(const score_how *how, int end) { return (spans){ .how = how, .end = end, .lo = 0, .hi = -1 }; }

static bool next_span(spans *s)
{
    s->lo = s->hi + 1;
    for (; s->i < s->how->n_ban && s->how->ban[s->i] < s->end; s->i++) {
        if (s->how->ban[s->i] > s->lo) {
            s->hi = s->how->ban[s->i++];
            return true;
        }
        if (s->how->ban[s->i] == s->lo) s->lo++;
    }
    s->hi = s->end;
    return s->lo < s->end;
}

static bool banned(const score_how *how, int32_t id)
{
    for (int i = 0; i < how->n_ban; i++) {
        if (how->ban[i] == id) return true;
    }
    return false;
}

/* ------------------------------------------------------------ the choice and its probability */

enum { LANES = 16 };

/* Largest of x[0..n), n > 0, and whether every value is a number below +infinity.  Independent lanes let a compiler use
 * vectors without re-ordering anything that matters. */
static float largest(const float *x, int n, bool *fine)
{
    float m[LANES];
    int wrong[LANES] = { 0 }, i = 0;
    for (int j = 0; j < LANES; j++) m[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            float v = x[i + j];
            wrong[j] |= !(v <= FLT_MAX);
            m[j] = v > m[j] ? v : m[j];
        }
    }
    for (; i < n; i++) {
        wrong[0] |= !(x[i] <= FLT_MAX);
        m[0] = x[i] > m[0] ? x[i] : m[0];
    }
    for (int j = 1; j < LANES; j++) {
        wrong[0] |= wrong[j];
        m[0] = m[j] > m[0] ? m[j] : m[0];
    }
    *fine = *fine && !wrong[0];
    return m[0];
}

typedef struct {
    double sum;    /* of e = exp(x - max) */
    double moment; /* of e * (x - max); never positive */
} mass;

/* Sums of one span.  Short runs are added up on their own first, so that the error grows with the length of a run and
 * not with that of the row. */
static void add_mass(mass *total, const float *x, int n, double max)
{
    enum { RUN = 256 };
    for (int i = 0; i < n; i += RUN) {
        int hi = n - i < RUN ? n : i + RUN;
        double sum = 0, moment = 0;
        for (int j = i; j < hi; j++) {
            double d = (double)x[j] - max;
            if (d < NEGLIGIBLE) continue;
            double e = exp(d);
            sum += e;
            moment += e * d;
        }
        total->sum += sum;
        total->moment += moment;
    }
}

/* Keeps the SCORE_TOP largest; equal scores keep their order, which is that of ids. */
static void add_top(score *out, float *best, const float *x, int lo, int hi)
{
    for (int i = lo; i < hi; i++) {
        if (!(x[i] > best[SCORE_TOP - 1])) continue;
        int k = SCORE_TOP - 1;
        for (; k > 0 && x[i] > best[k - 1]; k--) {
            best[k] = best[k - 1];
            out->top[k] = out->top[k - 1];
        }
        best[k] = x[i];
        out->top[k] = i;
    }
}

/* ------------------------------------------------------------ sampling */

/* The ids that may be drawn: scores above `cut`, and the first `ties` of those equal to it. */
typedef struct {
    float cut;
    int ties;
} nucleus;

/* Order-preserving integer of a float that is not NaN; both zeros give the same. */
static uint32_t key_of(float f)
{
    uint32_t u;
    f += 0.0f;
    memcpy(&u, &f, sizeof u);
    return u >> 31 ? ~u : u | 0x80000000u;
}

static float float_of(uint32_t key)
{
    uint32_t u = key >> 31 ? key & 0x7fffffffu : ~key;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Keys are looked at in three digits, highest first. */
enum { LEVELS = 3, BINS = 1 << 11 };
static const int digit_shift[LEVELS] = { 21, 10, 0 }, digit_bits[LEVELS] = { 11, 11, 10 };

/* Tempered mass and number of the scores whose key begins with a prefix, by the key's next digit. */
typedef struct {
    double mass[BINS];
    int count[BINS];
} histogram;

static void fill(histogram *h, const float *x, const score_how *how, double temp, int n, double max, uint32_t prefix,
                 int level)
{
    int shift = digit_shift[level];
    uint32_t digit = (1u << digit_bits[level]) - 1, above = level == 0 ? 0 : ~0u << digit_shift[level - 1];
    memset(h, 0, sizeof *h);
    for (spans s = spans_of(how, n); next_span(&s);) {
        for (int i = s.lo; i < s.hi; i++) {
            uint32_t key = key_of(x[i]);
            if ((key & above) != prefix) continue;
            uint32_t bin = key >> shift & digit;
            h->mass[bin] += exp(((double)x[i] - max) / temp);
            h->count[bin]++;
        }
    }
}

/* The smallest set of highest scores whose tempered mass reaches top_p, or of top_k ids if that is smaller.  Either way
 * it is the first ids in falling order of score (ties: lower id), so a descent through the digits of the keys finds
 * the last of them: no sorting, no memory beyond the stack. */
static nucleus find_nucleus(const float *x, const score_how *how, double temp, int n, double max)
{
    histogram h;
    double want = INFINITY, have = 0; /* mass */
    int want_n = how->top_k > 0 ? how->top_k : INT_MAX, have_n = 0;
    uint32_t prefix = 0;
    int bin = 0;
    for (int level = 0; level < LEVELS; level++) {
        fill(&h, x, how, temp, n, max, prefix, level);
        if (level == 0 && how->top_p < 1) {
            want = 0;
            for (int b = BINS - 1; b >= 0; b--) want += h.mass[b];
            want *= how->top_p;
        }
        int last = -1; /* lowest bin so far that holds anything: the end, too, where rounding leaves the sum short */
        for (bin = BINS - 1; bin >= 0; bin--) {
            if (h.count[bin] == 0) continue;
            if (last >= 0) {
                have += h.mass[last];
                have_n += h.count[last];
            }
            last = bin;
            if (have + h.mass[bin] >= want || have_n >= want_n - h.count[bin]) break;
        }
        bin = last;
        prefix |= (uint32_t)bin << digit_shift[level];
    }
    int ties = h.count[bin]; /* all of one score now */
    double each = h.mass[bin] / ties, by_mass = each > 0 ? ceil((want - have) / each) : ties;
    if (by_mass < ties) ties = by_mass < 1 ? 1 : (int)by_mass;
    if (want_n - have_n < ties) ties = want_n - have_n;
    return (nucleus){ float_of(prefix), ties };
}

/* The arg-max of score/T plus Gumbel noise -ln(-ln u), which draws from the softmax of score/T.  Every id below n takes
 * one number from the stream, so that a ban list does not change the noise of the others. */
static int32_t draw(const float *x, const score_how *how, int n, double max, uint64_t seed, nucleus set)
{
    rng r;
    rng_seed(&r, seed);
    int32_t token = -1;
    double best = -INFINITY;
    int id = 0;
    for (spans s = spans_of(how, n); next_span(&s);) {
        for (; id < s.lo; id++) rng_unit(&r);
        for (; id < s.hi; id++) {
            double u = rng_unit(&r);
            if (x[id] < set.cut || (x[id] == set.cut && set.ties-- <= 0)) continue;
            double tempered = ((double)x[id] - max) / how->temp;
            /* -ln(-ln u) <= -ln(1 - u) <= u / (1 - u): most ids can be told apart from a winner without logarithms. */
            if ((best - tempered) * (1 - u) > u || !(tempered > -INFINITY)) continue;
            double noisy = tempered - log(-log(u));
            if (token < 0 || noisy > best) {
                best = noisy;
                token = id;
            }
        }
    }
    return token;
}

/* ------------------------------------------------------------ Dream's measures */

static const double DREAM_EPSILON = 1e-10; /* in the logarithm, as published */

typedef struct {
    double sum, second; /* of e = exp((x - max) / temp) within the nucleus; the largest is 1 */
    double terms;       /* sum of p log(p + epsilon), when `of` was given */
} sureness;

/* of: the sum that makes probabilities; 0: not known yet. */
static sureness measure(const float *x, const score_how *how, double temp, int n, double max, nucleus set, double of)
{
    sureness s = { 0 };
    bool first = true;
    for (spans sp = spans_of(how, n); next_span(&sp);) {
        for (int i = sp.lo; i < sp.hi; i++) {
            if (x[i] < set.cut || (x[i] == set.cut && set.ties-- <= 0)) continue;
            double d = ((double)x[i] - max) / temp;
            if (d < NEGLIGIBLE) continue;
            double e = exp(d);
            s.sum += e;
            if (x[i] == max && first)
                first = false;
            else if (e > s.second)
                s.second = e;
            if (of > 0) s.terms += e / of * log(e / of + DREAM_EPSILON);
        }
    }
    return s;
}

static double rank_of(const float *x, const score_how *how, double temp, int n, double max, nucleus set, int32_t token)
{
    sureness s = measure(x, how, temp, n, max, set, 0);
    if (how->rank == RANK_P) return exp(((double)x[token] - max) / temp) / s.sum;
    if (how->rank == RANK_MARGIN) return (1 - s.second) / s.sum;
    return measure(x, how, temp, n, max, set, s.sum).terms;
}

/* ------------------------------------------------------------ the whole */

void score_row(score *out, const float *logits, int n, const score_how *how, const score_ask *ask)
{
    int end = n < how->n_vocab ? n : how->n_vocab;
    *out = (score){ .token = -1 };
    for (int i = 0; i < SCORE_TOP; i++) out->top[i] = -1;

    float max = -INFINITY;
    bool fine = true;
    for (spans s = spans_of(how, end); next_span(&s);) {
        float m = largest(logits + s.lo, s.hi - s.lo, &fine);
        if (!(m > max)) continue;
        max = m;
        out->token = s.lo;
        while (logits[out->token] != m) out->token++;
    }
    if (!fine || out->token < 0) {
        out->token = -1;
        out->bad = true;
        return;
    }

    mass all = { 0 };
    float best[SCORE_TOP];
    for (int i = 0; i < SCORE_TOP; i++) best[i] = -INFINITY;
    for (spans s = spans_of(how, end); next_span(&s);) {
        add_mass(&all, logits + s.lo, s.hi - s.lo, max);
        if (how->want_top) add_top(out, best, logits, s.lo, s.hi);
    }
    bool sample = how->temp > 0 && !ask->plain, cut = how->top_p < 1 || how->top_k > 0;
    double temp = how->temp > 0 ? how->temp : 1;
    nucleus set = { -INFINITY, INT_MAX };
    if (cut && (sample || how->rank != RANK_NONE)) set = find_nucleus(logits, how, temp, end, max);
    if (sample) out->token = draw(logits, how, end, max, ask->seed, set);
    if (how->rank != RANK_NONE) out->rank = rank_of(logits, how, temp, end, max, set, out->token);
    out->p = exp((double)logits[out->token] - max) / all.sum;
    out->lse = max + log(all.sum);
    for (int i = 0; how->want_top && i < SCORE_TOP && out->top[i] >= 0; i++)
        out->top_p[i] = exp((double)best[i] - max) / all.sum;
    if (how->want_top) out->entropy = fmax(0, log(all.sum) - all.moment / all.sum);
    for (int i = 0; i < ask->n_probe && i < SCORE_PROBES; i++) {
        int32_t id = ask->probe[i];
        if (id >= 0 && id < end && !banned(how, id)) out->probe_p[i] = exp((double)logits[id] - max) / all.sum;
    }
}
