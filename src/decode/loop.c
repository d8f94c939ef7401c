/* loop.c - the decoding loop: begin a request, one step after the other, the end, the result. */
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "decode/canvas.h"

void canvas_tell(decoder *d, llada_event *ev)
{
    if (!d->on_event || d->stopped) return;
    ev->size = sizeof *ev;
    ev->step = d->step;
    ev->seconds = os_seconds() - d->started;
    if (!d->on_event(ev, d->user)) d->stopped = true;
}

bool canvas_emit(decoder *d, llada_event_kind kind, int pos, int32_t token, double conf)
{
    llada_event ev = {.kind = kind, .pos = pos - d->n_prompt, .token = token, .confidence = conf};
    canvas_tell(d, &ev);
    return !d->stopped;
}

/* ---------------------------------------------------------------- begin */

static llada_status check_ids(const decoder *d, const int32_t *ids, int n, bool holes, const char *what, llada_err *err)
{
    for (int i = 0; i < n; i++) {
        if (holes && ids[i] == LLADA_HOLE) continue;
        if (ids[i] < 0 || ids[i] >= d->m->n_vocab)
            return llada_fail(err, LLADA_BAD_ARG, "%s id %d at %d is outside the vocabulary of %d", what, ids[i], i,
                              d->m->n_vocab);
    }
    return LLADA_OK;
}

static llada_status check_request(const decoder *d, const llada_request *q, int n_gen, llada_err *err)
{
    if (q->size != sizeof *q)
        return llada_fail(err, LLADA_BAD_ARG, "the request's size is %zu, not %zu: call llada_request_defaults first",
                          q->size, sizeof *q);
    if (q->n_prompt < 0 || q->n_canvas < 0 || q->max_tokens < -1)
        return llada_fail(err, LLADA_BAD_ARG, "a request with negative counts: prompt %d, canvas %d, max_tokens %d",
                          q->n_prompt, q->n_canvas, q->max_tokens);
    if (q->n_prompt > 0 && !q->prompt) return llada_fail(err, LLADA_BAD_ARG, "a prompt of %d ids at NULL", q->n_prompt);
    if ((int64_t)q->n_prompt + n_gen > d->cap)
        return llada_fail(err, LLADA_TOO_LONG, "prompt %d + canvas %d = %lld positions, but the session has %d",
                          q->n_prompt, n_gen, (long long)q->n_prompt + n_gen, d->cap);
    llada_status st = check_ids(d, q->prompt, q->n_prompt, false, "prompt", err);
    if (st == LLADA_OK && d->r.rule == LLADA_RULE_AR) return ar_check(q, err);
    if (st || !q->canvas) return st;
    return check_ids(d, q->canvas, n_gen, true, "canvas", err);
}

/* The canvas' length: the template's, else the recipe's gen, else max_tokens. */
static int canvas_length(const decoder *d, const llada_request *q)
{
    if (q->canvas) return q->n_canvas;
    if (d->r.gen && q->max_tokens != 0) return d->r.gen;
    return q->max_tokens < 0 ? DECODE_DEFAULT_GEN : q->max_tokens;
}

static void clear_position(decoder *d, int i, int32_t token, pos_state state)
{
    d->token[i] = token;
    d->state[i] = (uint8_t)state;
    d->draft[i] = d->fresh[i] = d->busy[i] = d->closed[i] = 0;
    d->conf[i] = state == POS_FIXED ? 1 : 0;
    d->hits[i] = d->looks[i] = d->n_rev[i] = d->n_drop[i] = 0;
    d->held[i] = -1;
    d->hole[i] = -1;
    rule_forget(&d->mem[i]);
}

static void lay_out(decoder *d, const llada_request *q)
{
    for (int i = 0; i < d->n_prompt; i++) clear_position(d, i, q->prompt[i], POS_FIXED);
    d->n_holes = 0;
    for (int i = 0; i < d->n_gen; i++) {
        bool fixed = q->canvas && q->canvas[i] != LLADA_HOLE;
        int pos = d->n_prompt + i;
        clear_position(d, pos, fixed ? q->canvas[i] : d->m->mask, fixed ? POS_FIXED : POS_INVISIBLE);
        if (fixed) continue;
        bool first = i == 0 || d->hole[pos - 1] < 0;
        d->n_holes += first;
        d->hole[pos] = d->n_holes - 1;
    }
}

/* A worker that is still at a job of a request given up must be done before its slots are used again. */
static void stop_worker(decoder *d)
{
    if (d->side_job) task_wait(d->worker);
    d->side_job = NULL;
}

llada_status decoder_begin(decoder *d, const llada_request *q, llada_err *err)
{
    d->running = false;
    int n_gen = canvas_length(d, q);
    llada_status st = check_request(d, q, n_gen, err);
    if (st) return st;
    stop_worker(d);
    d->n_prompt = q->n_prompt;
    d->n_gen = n_gen;
    d->n_all = d->n_prompt + d->n_gen;
    d->max_tokens = q->max_tokens < 0 ? n_gen : q->max_tokens;
    d->on_event = q->on_event;
    d->user = q->user;
    rng_seed(&d->random, q->seed);
    lay_out(d, q);
    kv_reset(&d->kv);
    d->first_job = d->n_jobs = 0;
    d->version = 0;
    d->step = d->block_step = d->since_refresh = d->blocks_done = d->dream_step = 0;
    d->block = -1;
    d->need_refresh = d->stopped = false;
    d->res = (llada_result){.size = sizeof d->res};
    atomic_store(&d->cancelled, false);
    d->started = os_seconds();
    d->running = true;
    return LLADA_OK;
}

/* ---------------------------------------------------------------- ends */

/* The block recipes end a hole when a completed block of it holds an end token. */
static bool block_complete(const decoder *d, int pos)
{
    int block = canvas_block(d, pos);
    for (int i = canvas_block_start(d, block); i < canvas_block_end(d, block); i++)
        if (d->hole[i] == d->hole[pos] && d->state[i] == POS_INVISIBLE) return false;
    return true;
}

/* The hole at [lo, hi) needs nothing more: it has no masks, or its text has ended.  Where text has no blocks (the
 * window engine, Dream's rule, autoregression) that is when every position before a confirmed end token is written and
 * confirmed. */
static bool hole_done(const decoder *d, int lo, int hi)
{
    bool no_blocks = d->windowed || d->r.rule == LLADA_RULE_DREAM || d->r.rule == LLADA_RULE_AR;
    bool masks = false, clean = true; /* clean: neither a mask nor an unconfirmed draft so far */
    for (int i = lo; i < hi; i++) {
        bool written = d->state[i] >= POS_VISIBLE;
        if (d->r.early && written && model_is_end(d->m, d->token[i]) && !(d->windowed && d->draft[i]))
            if (no_blocks ? clean : block_complete(d, i)) return true;
        if (!written || d->draft[i]) clean = false;
        masks |= !written;
    }
    return d->r.dppr ? !masks : clean; /* unconfirmed drafts are looked at by revision's last jobs, or by a pass */
}

static void close_holes(decoder *d, bool *finished)
{
    *finished = true;
    for (int lo = d->n_prompt, hi; lo < d->n_all; lo = hi) {
        hi = lo + 1;
        if (d->hole[lo] < 0) continue;
        while (hi < d->n_all && d->hole[hi] == d->hole[lo]) hi++;
        bool done = hole_done(d, lo, hi);
        for (int i = lo; i < hi; i++) d->closed[i] = done;
        if (!done) *finished = false;
    }
}

/* BLOCK events, in order, for blocks that have no mask and no unconfirmed draft left. */
static void tell_blocks(decoder *d, bool finished)
{
    for (; d->blocks_done * d->r.block < d->n_gen; d->blocks_done++) {
        int b = d->blocks_done;
        for (int i = canvas_block_start(d, b); i < canvas_block_end(d, b); i++)
            if (!finished && !d->closed[i] && (d->state[i] == POS_INVISIBLE || d->draft[i])) return;
        canvas_emit(d, LLADA_EV_BLOCK, d->n_prompt + b, -1, 0);
    }
}

/* What stands behind an end token: the file's end of text, else the one there is. */
static int32_t end_token(const decoder *d)
{
    return d->m->eos >= 0 ? d->m->eos : d->m->n_ends > 0 ? d->m->ends[0] : LLADA_HOLE;
}

/* What is still revisable settles; behind the first end token of a hole stand end tokens. */
static void tail_fill(decoder *d)
{
    int hole = -1;
    bool ended = false;
    for (int i = d->n_prompt; i < d->n_all; i++) {
        if (d->hole[i] != hole) ended = false;
        hole = d->hole[i];
        if (hole < 0) continue;
        if (ended || d->state[i] == POS_INVISIBLE) {
            d->token[i] = end_token(d);
            d->conf[i] = 0;
        }
        bool told = d->state[i] == POS_STABLE && !d->draft[i] && !ended;
        d->state[i] = POS_STABLE;
        d->draft[i] = false;
        if (!told) canvas_emit(d, LLADA_EV_SETTLE, i, d->token[i], d->conf[i]);
        if (model_is_end(d->m, d->token[i])) ended = true;
    }
}

/* ---------------------------------------------------------------- the step */

static llada_status dense_step(decoder *d, llada_err *err)
{
    llada_status st;
    bool at_boundary = d->r.launch == LLADA_LAUNCH_BOUNDARY;
    if (gguf_lost(d->m->file)) return llada_fail(err, LLADA_IO, "the model's file was cut short while it was in use");
    if (d->r.dppr && at_boundary && revise_launch(d, false) && (st = revise_start(d, true, err))) return st;
    if (d->r.rule == LLADA_RULE_AR)
        ar_plan(d);
    else if ((st = window_plan(d, err)))
        return st;
    if ((st = pass_run(d, err))) return st;
    if ((st = revise_settle(d, true, err))) return st;
    d->step++;
    if ((st = commit_scores(d, err))) return st;
    if (d->r.dppr && !at_boundary && revise_launch(d, false)) return revise_start(d, true, err);
    return LLADA_OK;
}

static void finish(decoder *d)
{
    tell_blocks(d, true);
    canvas_emit(d, LLADA_EV_TAIL, d->n_prompt, -1, 0);
    tail_fill(d);
    canvas_emit(d, LLADA_EV_DONE, d->n_prompt, -1, 0);
    d->running = false;
}

/* One step: merge what is due; then a dense pass, or, when nothing is invisible any more, a drain step in which
 * revision settles what is left. */
llada_status decoder_step(decoder *d, bool *done, llada_err *err)
{
    *done = false;
    if (!d->running) return llada_fail(err, LLADA_BAD_ARG, "no request was begun");
    bool finished;
    llada_status st = LLADA_OK;
    if (atomic_load(&d->cancelled)) d->stopped = true;
    if (!d->stopped) st = revise_merge(d, err);
    close_holes(d, &finished);
    if (st == LLADA_OK) tell_blocks(d, false);
    if (st == LLADA_OK && !d->stopped) {
        if (!finished) {
            st = dense_step(d, err);
        } else if (d->r.dppr && (d->n_jobs > 0 || revise_launch(d, true))) {
            d->step++;
            st = revise_start(d, false, err);
        } else {
            finish(d);
            *done = true;
        }
    }
    d->res.seconds = os_seconds() - d->started;
    if (st == LLADA_OK && !d->stopped) return LLADA_OK;
    *done = d->running = false; /* the callback's word holds to the last event */
    stop_worker(d);
    return st ? st : llada_fail(err, LLADA_CANCELLED, "cancelled after %d passes", d->res.passes);
}

void decoder_cancel(decoder *d) { atomic_store(&d->cancelled, true); }

/* ---------------------------------------------------------------- the result */

llada_status decoder_result(decoder *d, llada_result *out, llada_err *err)
{
    if (d->running || !d->res.size)
        return llada_fail(err, LLADA_BAD_ARG, d->running ? "the request has not ended yet" : "no request was begun");
    int n = 0, hole = -1, counted = 0;
    bool ended = false, any_end = false;
    for (int i = 0; i < d->n_gen; i++) {
        int pos = d->n_prompt + i;
        d->final_canvas[i] = d->state[pos] == POS_INVISIBLE ? end_token(d) : d->token[pos];
        if (d->hole[pos] != hole) ended = false;
        hole = d->hole[pos];
        if (hole < 0 || ended) continue;
        ended = model_is_end(d->m, d->token[pos]) || d->state[pos] == POS_INVISIBLE;
        any_end |= ended;
        counted++;
        if (!ended) d->final_tokens[n++] = d->token[pos];
    }
    if (n > d->max_tokens) {
        n = d->max_tokens;
        any_end = false;
    }
    *out = d->res;
    out->tokens = d->final_tokens;
    out->n_tokens = n;
    out->canvas = d->final_canvas;
    out->n_canvas = d->n_gen;
    out->confidence = d->conf + d->n_prompt;
    out->finish = any_end ? LLADA_FINISH_STOP : LLADA_FINISH_LENGTH;
    out->tokens_per_pass = d->res.passes ? (double)counted / d->res.passes : 0;
    return LLADA_OK;
}
