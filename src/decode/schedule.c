/* schedule.c - decoding at a given pace, for benchmarks on random weights, whose scores mean nothing: what is computed
 * and how the window moves is real, only the confidences are put in by a schedule of tokens a pass. */
#include <string.h>

#include "base/mem.h"
#include "decode/canvas.h"

llada_status decoder_schedule(decoder *d, const int32_t *per_pass, int n, llada_err *err)
{
    mem_free(d->schedule);
    d->schedule = NULL;
    d->n_schedule = 0;
    if (n == 0) return LLADA_OK;
    for (int i = 0; i < n; i++)
        if (per_pass[i] < 1)
            return llada_fail(err, LLADA_BAD_ARG, "%d tokens in pass %d of the schedule", per_pass[i], i + 1);
    d->schedule = mem_array((size_t)n, sizeof *d->schedule);
    if (!d->schedule) return llada_fail(err, LLADA_NO_MEMORY, "no memory for a schedule of %d passes", n);
    memcpy(d->schedule, per_pass, (size_t)n * sizeof *per_pass);
    d->n_schedule = n;
    return LLADA_OK;
}

/* Any token that is neither a mask nor an end. */
static int32_t plain_token(const decoder *d, int32_t token)
{
    while (token == d->m->mask || model_is_end(d->m, token)) token = (token + 1) % d->m->n_vocab;
    return token;
}

static void judge(score *s, int32_t token, double p)
{
    s->token = token;
    s->p = s->top_p[0] = s->probe_p[0] = p;
    s->top_p[1] = 0;
    s->entropy = p > 0 ? 0 : 100;
    s->bad = false;
}

void schedule_scores(const decoder *d, const row_list *l, score *out)
{
    int at = d->step < d->n_schedule ? d->step : d->n_schedule - 1, left = d->schedule[at];
    for (int i = 0; i < l->n_want; i++) {
        int row = l->want[i], pos = l->scored[i];
        if (l->kind[row]) {
            judge(&out[i], d->token[pos], 1);
            continue;
        }
        judge(&out[i], plain_token(d, out[i].token), left > 0 ? 1 : 0);
        left--;
    }
}
