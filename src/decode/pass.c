/* pass.c - rows of a pass: put together, given slots, run on the device, and their scores collected. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "decode/canvas.h"

llada_status rows_open(row_list *l, int cap, llada_err *err)
{
    size_t n = (size_t)cap;
    *l = (row_list){.cap = cap};
    l->pos = mem_array(n, sizeof *l->pos);
    l->token = mem_array(n, sizeof *l->token);
    l->slot = mem_array(n, sizeof *l->slot);
    l->group = mem_array(n, sizeof *l->group);
    l->kind = mem_array(n, sizeof *l->kind);
    l->instead = mem_array(n, sizeof *l->instead);
    l->want = mem_array(n, sizeof *l->want);
    l->scored = mem_array(n, sizeof *l->scored);
    l->ask = mem_array(n, sizeof *l->ask);
    l->out = mem_array(n, sizeof *l->out);
    if (l->pos && l->token && l->slot && l->group && l->kind && l->instead && l->want && l->scored && l->ask && l->out)
        return LLADA_OK;
    rows_free(l);
    return llada_fail(err, LLADA_NO_MEMORY, "no memory for passes of %d rows", cap);
}

void rows_free(row_list *l)
{
    mem_free(l->pos);
    mem_free(l->token);
    mem_free(l->slot);
    mem_free(l->group);
    mem_free(l->kind);
    mem_free(l->instead);
    mem_free(l->want);
    mem_free(l->scored);
    mem_free(l->ask);
    mem_free(l->out);
    *l = (row_list){0};
}

void rows_clear(row_list *l) { l->n = l->n_want = 0; }

int rows_add(row_list *l, int32_t pos, int32_t token, int32_t slot, int group, row_kind kind)
{
    if (l->n == l->cap) return -1;
    int i = l->n++;
    l->pos[i] = pos;
    l->token[i] = token;
    l->slot[i] = slot;
    l->group[i] = (uint8_t)group;
    l->kind[i] = (uint8_t)kind;
    l->instead[i] = -1;
    return i;
}

score_ask *rows_want(row_list *l, int row, int32_t pos)
{
    int i = l->n_want++;
    l->want[i] = row;
    l->scored[i] = pos;
    l->ask[i] = (score_ask){.plain = l->kind[row] != ROW_PLAIN};
    return &l->ask[i];
}

score_ask *rows_look(const decoder *d, row_list *l, int32_t pos, int32_t before, const int32_t *slots, int group)
{
    int row = rows_add(l, pos, d->m->mask, slots ? slots[0] : -1, group, ROW_SHADOW), mask = row;
    if (row >= 0 && d->shift && pos > 0) {
        row = rows_add(l, pos - 1, before, slots ? slots[1] : -1, group, ROW_BEFORE);
        if (row >= 0) l->instead[row] = mask;
    }
    return row < 0 ? NULL : rows_want(l, row, pos);
}

static pass as_pass(decoder *d, const row_list *l)
{
    return (pass){.n = l->n, .pos = l->pos, .token = l->token, .slot = l->slot, .group = l->group,
                  .instead = d->shift ? l->instead : NULL, .n_want = l->n_want, .want = l->want, .how = &d->how,
                  .ask = l->ask, .out = l->out, .stop = &d->cancelled};
}

/* A job's token rows, then its shadow rows, of which the scores are wanted. */
static void add_job(decoder *d, row_list *l, const job *j, int group)
{
    for (int i = 0; i < j->n; i++) rows_add(l, j->pos[i], j->token[i], j->slot[i], group, ROW_PLAIN);
    for (int i = 0; i < j->n; i++) {
        const int32_t *slots = j->slot + j->n + i * d->per_look;
        score_ask *ask = rows_look(d, l, j->pos[i], j->before[i], slots, group);
        ask->probe[0] = j->token[i];
        ask->n_probe = 1;
    }
}

/* Gives dense rows their slots: the position's own, or a spare one for a shadow row. */
static llada_status give_slots(decoder *d, llada_err *err)
{
    row_list *l = &d->rows;
    for (int i = 0; i < l->n; i++) {
        l->slot[i] = l->kind[i] ? kv_take(&d->kv) : kv_write(&d->kv, l->pos[i]);
        if (l->slot[i] < 0) return llada_fail(err, LLADA_NO_MEMORY, "the K,V store of %d slots is full", d->kv.slots);
    }
    return LLADA_OK;
}

/* Says at which step the network failed. */
static llada_status run_on(const decoder *d, device_ctx *ctx, const pass *p, const row_list *l, llada_err *err)
{
    llada_err inner = {0};
    llada_status st = d->dev->run(ctx, p, &inner);
    if (st == LLADA_CANCELLED) return llada_fail(err, st, "cancelled after %d passes", d->res.passes);
    if (st == LLADA_NUMERIC) return llada_fail(err, st, "pass %d: %s", d->step + 1, inner.text);
    if (st) return llada_fail(err, st, "%s", inner.text);
    if (d->schedule && p->out) schedule_scores(d, l, p->out);
    for (int i = 0; p->out && i < p->n_want; i++)
        if (p->out[i].bad)
            return llada_fail(err, LLADA_NUMERIC, "pass %d: the scores of position %d are NaN, infinite or all banned",
                              d->step + 1, l->scored[i] - d->n_prompt);
    return LLADA_OK;
}

/* Guidance: a second pass that sees masks for the prompt, with K,V of its own; scores are un + (cfg + 1)(cond - un).
 * Source: LLaDA, after arXiv 2207.12598. */
static llada_status run_guided(decoder *d, pass *p, llada_err *err)
{
    row_list *l = &d->rows;
    size_t width = (size_t)d->m->g.n_vocab_rows;
    score *out = p->out;
    p->out = NULL;
    p->logits = d->cond;
    llada_status st = run_on(d, d->ctx, p, l, err);
    if (st) return st;
    /* unconditional K,V: position i in slot uncond_slot + i */
    for (int i = 0; i < l->n; i++) {
        l->slot[i] = d->uncond_slot + l->pos[i];
        if (l->pos[i] < d->n_prompt) l->token[i] = d->m->mask;
    }
    for (int i = 0; i < d->n_all; i++) d->row_list_out[i] = d->uncond_slot + i;
    p->cols[0].slot = d->row_list_out;
    p->logits = d->uncond;
    if ((st = run_on(d, d->ctx, p, l, err))) return st;
    d->res.passes++;
    d->res.sweeps++;
    d->res.rows += l->n;
    for (int i = 0; i < l->n_want; i++) {
        float *c = d->cond + (size_t)i * width;
        const float *u = d->uncond + (size_t)i * width;
        for (size_t v = 0; v < width; v++) c[v] = (float)(u[v] + (d->r.cfg + 1) * ((double)c[v] - u[v]));
        score_row(&out[i], c, (int)width, &d->how, &l->ask[i]);
        if (out[i].bad)
            return llada_fail(err, LLADA_NUMERIC, "pass %d: guided scores are NaN or infinite", d->step + 1);
    }
    return LLADA_OK;
}

llada_status pass_run(decoder *d, llada_err *err)
{
    row_list *l = &d->rows;
    int dense = l->n, dense_want = l->n_want;
    llada_status st = give_slots(d, err);
    if (st) return st;
    job *riding = d->exec == LLADA_EXEC_FUSED ? revise_waiting(d) : NULL;
    if (riding) add_job(d, l, riding, 1);
    pass p = as_pass(d, l);
    p.cols[0] = (pass_cols){.slot = d->kv.current, .pos = d->all_pos, .n = d->n_seen};
    if (riding) p.cols[1] = (pass_cols){.slot = riding->cols, .pos = d->all_pos, .n = d->n_all};
    d->pass_time.began = os_seconds();
    st = d->r.cfg > 0 ? run_guided(d, &p, err) : run_on(d, d->ctx, &p, l, err);
    d->pass_time.took = os_seconds() - d->pass_time.began;
    if (st) return st;
    d->res.passes++;
    d->res.sweeps++;
    d->res.full += d->full;
    d->res.rows += dense;
    for (int i = 0; i < dense; i++) {
        if (l->kind[i])
            kv_give(&d->kv, l->slot[i]);
        else
            d->fresh[l->pos[i]] = d->state[l->pos[i]] != POS_INVISIBLE;
    }
    if (riding) {
        memcpy(riding->out, l->out + dense_want, (size_t)riding->n * sizeof *riding->out);
        riding->exec = LLADA_EXEC_FUSED;
        riding->time = d->pass_time;
        revise_ran(d, riding, true);
    }
    l->n = dense;
    l->n_want = dense_want;
    return LLADA_OK;
}

llada_status pass_run_job(decoder *d, job *j, device_ctx *ctx, llada_err *err)
{
    row_list *l = &d->job_rows;
    rows_clear(l);
    add_job(d, l, j, 0);
    pass p = as_pass(d, l);
    p.out = j->out;
    p.cols[0] = (pass_cols){.slot = j->cols, .pos = d->all_pos, .n = d->n_all};
    j->time.began = os_seconds();
    llada_status st = run_on(d, ctx, &p, l, err);
    j->time.took = os_seconds() - j->time.began;
    return st;
}
