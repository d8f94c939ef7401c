/* ar.c - autoregression, the reference that diffusion is compared with: each pass computes what is new (the prompt,
 * then the token just written) against the cached K,V of all before it, and its last row scores the next position. */
#include "decode/canvas.h"

llada_status ar_check(const llada_request *q, llada_err *err)
{
    if (q->canvas)
        return llada_fail(err, LLADA_UNSUPPORTED, "an autoregressive model can't fill a template: it only writes on");
    if (q->n_prompt > 0) return LLADA_OK;
    return llada_fail(err, LLADA_BAD_ARG, "an autoregressive model needs a prompt of a token at least");
}

void ar_plan(decoder *d)
{
    int next = d->n_prompt;
    while (d->state[next] != POS_INVISIBLE) next++;
    rows_clear(&d->rows);
    d->full = d->block < 0;
    d->block = canvas_block(d, next);
    d->n_seen = next;
    for (int i = 0; i < next; i++)
        if (!d->fresh[i]) rows_add(&d->rows, i, d->token[i], -1, 0, ROW_PLAIN);
    want_mask(d, d->rows.n - 1, next);
}
