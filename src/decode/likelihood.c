/* likelihood.c - scores of given tokens: one plain pass, and LLaDA's Monte-Carlo bound of log p(answer | prompt). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "decode/canvas.h"

/* Rows for all of 0..n-1, each in its own slot, seeing each other. */
static llada_status all_rows(decoder *d, const int32_t *ids, int n, llada_err *err)
{
    if (n < 1 || n > d->cap)
        return llada_fail(err, n < 1 ? LLADA_BAD_ARG : LLADA_TOO_LONG, "%d tokens, but the session has %d positions", n,
                          d->cap);
    if (d->running) return llada_fail(err, LLADA_BAD_ARG, "a request is running in this session");
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= d->m->n_vocab)
            return llada_fail(err, LLADA_BAD_ARG, "id %d at %d is outside the vocabulary of %d", ids[i], i,
                              d->m->n_vocab);
    if (d->side_job) task_wait(d->worker);
    d->side_job = NULL;
    rows_clear(&d->rows);
    for (int i = 0; i < n; i++) rows_add(&d->rows, i, ids[i], i, 0, ROW_PLAIN);
    return LLADA_OK;
}

static pass plain_pass(const decoder *d, int n)
{
    const row_list *l = &d->rows;
    pass p = {.n = n, .pos = l->pos, .token = l->token, .slot = l->slot, .group = l->group, .n_want = l->n_want,
              .want = l->want, .ask = l->ask, .out = l->out, .how = &d->how};
    p.cols[0] = (pass_cols){.slot = d->all_pos, .pos = d->all_pos, .n = n};
    return p;
}

llada_status decoder_logits(decoder *d, const int32_t *ids, int n, float *out, llada_err *err)
{
    llada_status st = all_rows(d, ids, n, err);
    if (st) return st;
    for (int i = 0; i < n; i++) rows_want(&d->rows, i, i);
    size_t head = (size_t)d->m->g.n_vocab_rows, width = (size_t)d->m->n_vocab;
    float *wide = head == width ? out : mem_array((size_t)n, head * sizeof *wide); /* padding rows are not handed out */
    if (!wide) return llada_fail(err, LLADA_NO_MEMORY, "no memory for the scores of %d rows", n);
    pass p = plain_pass(d, n);
    p.out = NULL;
    p.logits = wide;
    st = d->dev->run(d->ctx, &p, err);
    if (wide == out) return st;
    for (int i = 0; i < n && st == LLADA_OK; i++)
        memcpy(out + (size_t)i * width, wide + (size_t)i * head, width * sizeof *out);
    mem_free(wide);
    return st;
}

llada_status decoder_forward(decoder *d, int n, llada_err *err)
{
    for (int i = 0; i < n && i < d->cap; i++) d->row_list_out[i] = d->m->mask >= 0 ? d->m->mask : 0;
    llada_status st = all_rows(d, d->row_list_out, n, err);
    if (st) return st;
    for (int i = 0; i < n; i++) rows_want(&d->rows, i, i);
    pass p = plain_pass(d, n);
    return d->dev->run(d->ctx, &p, err);
}

/* What likelihood works with: rows are in d->rows, the mask is an ordinary token here and nothing is banned. */
typedef struct {
    decoder *d;
    const int32_t *answer;
    int n_prompt, n;
    double cfg;
    float *cond, *uncond; /* owned; [n_answer][n_vocab_rows]; NULL without guidance */
} measure;

/* The scores of the answer's masks under guidance, un + (cfg + 1)(cond - un), un with the prompt masked. */
static llada_status guided_scores(const measure *m, pass *p, llada_err *err)
{
    decoder *d = m->d;
    row_list *l = &d->rows;
    size_t width = (size_t)d->m->g.n_vocab_rows;
    p->out = NULL;
    p->logits = m->cond;
    llada_status st = d->dev->run(d->ctx, p, err);
    if (st) return st;
    for (int i = 0; i < m->n_prompt; i++) l->token[i] = d->m->mask;
    p->logits = m->uncond;
    st = d->dev->run(d->ctx, p, err);
    for (int i = 0; i < m->n_prompt; i++) l->token[i] = d->row_list_out[i];
    if (st) return st;
    for (int i = 0; i < l->n_want; i++) {
        float *c = m->cond + (size_t)i * width;
        const float *u = m->uncond + (size_t)i * width;
        for (size_t v = 0; v < width; v++) c[v] = (float)(u[v] + (m->cfg + 1) * ((double)c[v] - u[v]));
        score_row(&l->out[i], c, (int)width, p->how, &l->ask[i]);
    }
    return LLADA_OK;
}

/* log p of each masked answer token of one masking, summed; of all answer tokens when the model is causal. */
static llada_status masked_loss(const measure *m, double *sum, llada_err *err)
{
    decoder *d = m->d;
    row_list *l = &d->rows;
    l->n_want = 0;
    for (int i = m->n_prompt; i < m->n; i++) {
        if (!d->m->arch->causal && l->token[i] != d->m->mask) continue;
        bool before = d->m->arch->causal || (d->shift && i > 0);
        score_ask *ask = rows_want(l, before ? i - 1 : i, i);
        ask->probe[0] = m->answer[i - m->n_prompt];
        ask->n_probe = 1;
    }
    pass p = plain_pass(d, m->n);
    score_how plain = {.n_vocab = d->m->n_vocab};
    p.how = &plain;
    llada_status st = m->cfg > 0 ? guided_scores(m, &p, err) : d->dev->run(d->ctx, &p, err);
    if (st) return st;
    *sum = 0;
    for (int i = 0; i < l->n_want; i++)
        if (l->out[i].bad) return llada_fail(err, LLADA_NUMERIC, "the scores of answer token %d are NaN or infinite",
                                             l->scored[i] - m->n_prompt);
    for (int i = 0; i < l->n_want; i++) *sum += log(fmax(l->out[i].probe_p[0], 1e-300));
    return LLADA_OK;
}

/* Masks `count` answer positions, chosen without replacement (Fisher-Yates; order is scratch). */
static void mask_some(decoder *d, const int32_t *answer, int n_prompt, int n_answer, int count)
{
    for (int i = 0; i < n_answer; i++) {
        d->order[i] = i;
        d->rows.token[n_prompt + i] = answer[i];
    }
    for (int i = 0; i < count; i++) {
        int j = i + (int)rng_below(&d->random, (uint64_t)(n_answer - i)), t = d->order[i];
        d->order[i] = d->order[j];
        d->order[j] = t;
        d->rows.token[n_prompt + d->order[i]] = d->m->mask;
    }
}

/* The mean over maskings.  Their numbers of masks are spread evenly over 1..n_answer from a random start, as in the
 * published evaluation. */
static llada_status sample_maskings(const measure *m, int samples, uint64_t seed, double *out, llada_err *err)
{
    decoder *d = m->d;
    int n_answer = m->n - m->n_prompt;
    rng_seed(&d->random, seed);
    double first = 1 + (double)rng_below(&d->random, (uint64_t)n_answer), total = 0;
    for (int s = 0; s < samples; s++) {
        int64_t x = (int64_t)nearbyint(first + s * ((double)n_answer / samples));
        int count = (int)((x - 1) % n_answer) + 1;
        double sum;
        mask_some(d, m->answer, m->n_prompt, n_answer, count);
        llada_status st = masked_loss(m, &sum, err);
        if (st) return st;
        total += sum * n_answer / count;
    }
    *out = total / samples;
    return LLADA_OK;
}

llada_status decoder_likelihood(decoder *d, const int32_t *prompt, int n_prompt, const int32_t *answer, int n_answer,
                                int samples, double cfg, uint64_t seed, double *out, llada_err *err)
{
    if (n_prompt < 0 || n_answer < 1 || samples < 1)
        return llada_fail(err, LLADA_BAD_ARG, "likelihood of %d answer tokens after %d, over %d samples", n_answer,
                          n_prompt, samples);
    if (!(cfg >= 0 && cfg <= 100))
        return llada_fail(err, LLADA_BAD_ARG, "a guidance scale of %g; it can be 0..100", cfg);
    if ((int64_t)n_prompt + n_answer > d->cap)
        return llada_fail(err, LLADA_TOO_LONG, "prompt %d + answer %d, but the session has %d positions", n_prompt,
                          n_answer, d->cap);
    int n = n_prompt + n_answer;
    for (int i = 0; i < n; i++) d->row_list_out[i] = i < n_prompt ? prompt[i] : answer[i - n_prompt];
    llada_status st = all_rows(d, d->row_list_out, n, err);
    if (st) return st;
    measure m = {.d = d, .answer = answer, .n_prompt = n_prompt, .n = n, .cfg = cfg};
    if (d->m->arch->causal) { /* exact, in one pass */
        if (n_prompt < 1 || cfg > 0)
            return llada_fail(err, LLADA_UNSUPPORTED,
                              "an autoregressive model's likelihood needs a prompt, and no cfg");
        return masked_loss(&m, out, err);
    }
    size_t width = (size_t)d->m->g.n_vocab_rows * sizeof(float);
    if (cfg > 0) {
        m.cond = mem_array((size_t)n_answer, width);
        m.uncond = mem_array((size_t)n_answer, width);
        if (!m.cond || !m.uncond)
            st = llada_fail(err, LLADA_NO_MEMORY, "no memory for the scores of %d tokens", n_answer);
    }
    if (st == LLADA_OK) st = sample_maskings(&m, samples, seed, out, err);
    mem_free(m.cond);
    mem_free(m.uncond);
    return st;
}
