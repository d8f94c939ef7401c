/* eval_sum.c - sums, intervals and paired differences of answers. */
#include "eval.h"

#include <math.h>

void eval_add(eval_sum *s, const eval_answer *a)
{
    s->n++;
    s->correct += a->correct;
    s->tokens += a->tokens + a->end; /* tokens up to and with the first end token */
    s->passes += a->passes;
    s->rows += a->rows;
    s->rev_rows += a->rev_rows;
    s->jobs += a->jobs;
    s->sweeps += a->sweeps;
    s->edits += a->edits;
    s->remasks += a->remasks;
    s->seconds += a->seconds;
}

double eval_accuracy(const eval_sum *s) { return s->n ? (double)s->correct / (double)s->n : 0; }

void eval_interval(int64_t correct, int64_t n, double *low, double *high)
{
    const double z = 1.959963984540054; /* 97.5 % of the normal distribution lies below */
    *low = 0;
    *high = 1;
    if (n <= 0) return;
    double count = (double)n, p = (double)correct / count, scale = 1 / (1 + z * z / count);
    double middle = (p + z * z / (2 * count)) * scale;
    double half = z * sqrt(p * (1 - p) / count + z * z / (4 * count * count)) * scale;
    *low = correct > 0 ? middle - half : 0;
    *high = correct < n ? middle + half : 1;
}

void eval_paired(const eval_answer *a, const eval_answer *b, size_t n, double *difference, double *se)
{
    double sum = 0, squares = 0, count = (double)n;
    for (size_t i = 0; i < n; i++) {
        int d = (int)a[i].correct - (int)b[i].correct;
        sum += d;
        squares += d * d;
    }
    *difference = n ? sum / count : 0;
    double variance = n > 1 ? (squares - sum * sum / count) / (count - 1) : 0;
    *se = n ? sqrt(variance > 0 ? variance / count : 0) : 0;
}
