/* commit.c - which results of a pass change the text: drafts confirmed or dropped, masks of the block committed by the
 * rule, confident masks beyond it drafted (docs/decoding.md, sections 4 and 5). */
#include <math.h>

#include "decode/canvas.h"

void canvas_unwrite(decoder *d, int pos)
{
    d->version++;
    d->token[pos] = d->m->mask;
    d->state[pos] = POS_INVISIBLE;
    d->fresh[pos] = false;
    d->draft[pos] = false;
    rule_forget(&d->mem[pos]);
}

static double commit_threshold(const decoder *d) { return d->r.dppr ? d->r.vis : d->r.tau; }

void canvas_write(decoder *d, int pos, int32_t token, double conf)
{
    d->version++;
    d->token[pos] = token;
    d->conf[pos] = conf;
    d->hits[pos] = 0;
    d->fresh[pos] = false;
    d->state[pos] = d->r.dppr ? POS_VISIBLE : POS_STABLE;
    d->held[pos] = -1;
}

void canvas_drop(decoder *d, int pos, double conf)
{
    canvas_unwrite(d, pos);
    d->n_drop[pos]++;
    canvas_emit(d, LLADA_EV_DROP, pos, -1, conf);
}

/* A draft of the current block, looked at by a shadow row: the same token with enough confidence, or it goes. */
static void check_draft(decoder *d, int pos, const score *s)
{
    double p = rule_grid(s->p);
    if (s->token != d->token[pos] || !(p >= commit_threshold(d))) {
        canvas_drop(d, pos, p);
        return;
    }
    d->draft[pos] = false;
    d->conf[pos] = p;
    d->res.draft_ok++;
    canvas_emit(d, LLADA_EV_CONFIRM, pos, s->token, p);
    if (d->state[pos] == POS_STABLE) canvas_emit(d, LLADA_EV_SETTLE, pos, s->token, p);
}

static void commit(decoder *d, const cand *c)
{
    canvas_write(d, c->pos, c->token, c->p);
    canvas_emit(d, LLADA_EV_COMMIT, c->pos, c->token, c->p);
    if (d->state[c->pos] == POS_STABLE) canvas_emit(d, LLADA_EV_SETTLE, c->pos, c->token, c->p);
}

void canvas_draft(decoder *d, int pos, int32_t token, double conf)
{
    canvas_write(d, pos, token, conf);
    d->draft[pos] = d->r.verify;
    canvas_emit(d, LLADA_EV_DRAFT, pos, token, conf);
    if (!d->r.verify && !d->r.dppr) canvas_emit(d, LLADA_EV_SETTLE, pos, token, conf);
}

/* Drafts in show mode are inputs of later passes; in hold mode they are only noted, and the last look counts. */
static void draft(decoder *d, const cand *c)
{
    int most = d->r.rmax > 0 ? d->r.rmax : 1; /* drops, so that decoding ends */
    bool good = c->key >= d->r.tau_draft && !c->late && d->n_drop[c->pos] < most;
    if (d->r.mbsd != LLADA_MBSD_HOLD) {
        d->res.drafts += good;
        if (good) canvas_draft(d, c->pos, c->token, c->p);
        return;
    }
    d->res.drafts += good && d->held[c->pos] < 0;
    d->held[c->pos] = good ? c->token : -1;
    d->conf[c->pos] = good ? c->p : 0;
}

/* What the rule compares: the confidence; with ban_eos_conf under the softmax without end tokens, in which an end token
 * has none (as LLaDA's published sampler computes it at temperature 0). */
static double key_of(const decoder *d, const score *s)
{
    if (!d->r.ban_eos_conf || d->r.rule == LLADA_RULE_KLASS) return s->p; /* klass: its probes are taken */
    double rest = 1;
    for (int j = 0; j < d->m->n_ends; j++) rest -= s->probe_p[j];
    return rest > 0 ? fmin(1, s->p / rest) : s->p;
}

static cand make_cand(const decoder *d, int i)
{
    const score *s = &d->rows.out[i];
    cand c = {.pos = d->rows.scored[i], .token = s->token, .p = s->p, .key = key_of(d, s), .s = s};
    c.late = d->r.ban_eos_conf && model_is_end(d->m, s->token);
    if (c.late) c.key = 0;
    if (!d->windowed) return c;
    c.p = rule_grid(c.p);
    c.key = rule_grid(c.key);
    return c;
}

/* Commitments in the window engine are told in order of position. */
static void sort_rising(int *pick, int n)
{
    for (int i = 1; i < n; i++) {
        int v = pick[i], at = i;
        for (; at > 0 && pick[at - 1] > v; at--) pick[at] = pick[at - 1];
        pick[at] = v;
    }
}

static void commit_block(decoder *d, int n)
{
    if (n == 0) return;
    int steps = d->block_masks; /* one token a step, unless `steps` says otherwise */
    if (d->r.steps > 0) {
        int blocks = (d->n_gen + d->r.block - 1) / d->r.block;
        steps = d->r.steps / blocks > 1 ? d->r.steps / blocks : 1;
    }
    int quota = d->r.rule == LLADA_RULE_DREAM ? d->quota : rule_quota(d->block_masks, steps, d->block_step);
    int k = rule_pick(&d->r, commit_threshold(d), quota, d->cands, n, d->cand_mem, d->order, d->value, d->pick);
    if (d->windowed) sort_rising(d->pick, k);
    for (int i = 0; i < k; i++) commit(d, &d->cands[d->pick[i]]);
}

static void emit_pass(decoder *d)
{
    if (!d->on_event) return;
    int rows = 0, shadows = 0;
    for (int i = 0; i < d->rows.n; i++) {
        if (d->rows.kind[i] == ROW_SHADOW)
            d->shadow_list_out[shadows++] = d->rows.pos[i] - d->n_prompt;
        else if (d->rows.kind[i] == ROW_PLAIN)
            d->row_list_out[rows++] = d->rows.pos[i] - d->n_prompt;
    }
    llada_event ev = {.kind = LLADA_EV_PASS, .token = -1, .rows = d->rows.n, .refresh = d->full,
                      .row_pos = d->full ? NULL : d->row_list_out, .n_row_pos = rows,
                      .shadow_pos = d->shadow_list_out, .n_shadow_pos = shadows,
                      .began = d->pass_time.began - d->started, .took = d->pass_time.took};
    canvas_tell(d, &ev);
}

llada_status commit_scores(decoder *d, llada_err *err)
{
    int b1 = canvas_block_end(d, d->block), n = 0;
    bool may_end = d->full || !d->r.fresh_eos || d->r.rule == LLADA_RULE_AR;
    bool withheld = false, random = d->r.rule == LLADA_RULE_QUOTA && d->r.remasking == LLADA_REMASK_RANDOM;
    emit_pass(d);
    for (int i = 0; i < d->rows.n_want; i++) {
        int row = d->rows.want[i];
        if (d->rows.kind[row]) check_draft(d, d->rows.scored[i], &d->rows.out[i]);
    }
    for (int i = 0; i < d->rows.n_want; i++) {
        int row = d->rows.want[i], pos = d->rows.scored[i];
        if (d->rows.kind[row] || pos >= b1) continue;
        cand c = make_cand(d, i);
        if (!may_end && model_is_end(d->m, c.token)) {
            withheld = true;
            continue;
        }
        if (random) c.key = rng_unit(&d->random);
        if (d->r.rule == LLADA_RULE_DREAM) c.key = c.late ? -INFINITY : dream_key(d, c.s);
        d->cand_mem[n] = &d->mem[pos];
        d->cands[n++] = c;
    }
    commit_block(d, n);
    if (n == 0 && withheld) d->need_refresh = true;
    for (int i = 0; i < d->rows.n_want && d->r.mbsd != LLADA_MBSD_OFF; i++) {
        int row = d->rows.want[i], pos = d->rows.scored[i];
        if (d->rows.kind[row] || pos < b1) continue;
        cand c = make_cand(d, i);
        if (may_end || !model_is_end(d->m, c.token)) draft(d, &c);
    }
    d->block_step++;
    return LLADA_OK;
}
