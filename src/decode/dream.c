/* dream.c - Dream's sampler (docs/decoding.md, section 2): times fall linearly from 1 to eps; the step from t to s
 * fills a share 1 - s/t of the masks of the whole canvas, the last step all that are left.  Source: the generation code
 * published with Dream-v0-Instruct-7B. */
#include <math.h>

#include "decode/canvas.h"

/* The i-th of n points evenly from 1 to eps, in float as published: the floor of a count may hang on it. */
static float time_at(float eps, int i, int n)
{
    float step = (eps - 1) / (float)(n - 1);
    return i < n / 2 ? 1 + step * (float)i : eps - step * (float)(n - 1 - i);
}

/* origin: every mask is filled with the same probability. */
static int choose_each(decoder *d, float share)
{
    int n = 0;
    for (int i = d->n_prompt; i < d->n_all; i++) {
        if (d->state[i] != POS_INVISIBLE || d->closed[i]) continue;
        d->chosen[i] = rng_unit(&d->random) < share;
        n += d->chosen[i];
    }
    return n;
}

/* A step that fills nothing would see the canvas that the next one sees: it is not computed. */
void dream_plan(decoder *d)
{
    int steps = d->r.steps > 0 ? d->r.steps : d->block_masks, masks = 0;
    for (int i = d->n_prompt; i < d->n_all; i++) masks += d->state[i] == POS_INVISIBLE && !d->closed[i];
    for (d->quota = 0; d->quota == 0; d->dream_step++) {
        int i = d->dream_step;
        float eps = (float)d->r.eps, share = 1;
        float t = time_at(eps, i, steps + 1), s = time_at(eps, i + 1, steps + 1);
        if (i < steps - 1) share = fmaxf(0, 1 - s / t); /* NaN: 0 */
        d->quota = d->r.alg == LLADA_ALG_ORIGIN ? choose_each(d, share) : (int)((float)masks * share);
    }
}

/* Drawing without replacement from softmax(rank / alg_temp) is taking the highest of rank / alg_temp plus Gumbel
 * noise. */
double dream_key(decoder *d, const score *s)
{
    if (!(d->r.alg_temp > 0) || d->r.alg == LLADA_ALG_ORIGIN) return s->rank;
    return s->rank / d->r.alg_temp - log(-log(rng_unit(&d->random)));
}
