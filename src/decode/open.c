/* open.c - a decoder's memory: everything that decoding needs is counted and allocated here, nothing later. */
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "decode/canvas.h"

/* `auto` on one engine: a job rides in the next dense pass where its results are not due before that. */
static llada_exec choose_exec(const llada_recipe *r)
{
    if (!r->dppr || r->lag < 2) return LLADA_EXEC_SERIAL;
    return r->exec == LLADA_EXEC_AUTO ? LLADA_EXEC_FUSED : r->exec;
}

static llada_status check_combination(const model *m, const llada_recipe *r, llada_err *err)
{
    if (r->cfg > 0 && recipe_windowed(r))
        return llada_fail(err, LLADA_UNSUPPORTED, "cfg works with block recipes (mbsd off, dppr off) only");
    if (r->dppr && r->lag < 2 && (r->exec == LLADA_EXEC_ASYNC || r->exec == LLADA_EXEC_FUSED))
        return llada_fail(err, LLADA_BAD_ARG, "exec async and fused need a lag of 2 or more, not %d", r->lag);
    bool ar = r->rule == LLADA_RULE_AR;
    if (m->arch->causal && !ar)
        return llada_fail(err, LLADA_UNSUPPORTED,
                          "%s models are autoregressive: they write one token after the other (recipe ar), and "
                          "can't be decoded with recipe %s",
                          m->arch->name, r->name[0] ? r->name : "without a name");
    if (!m->arch->causal && ar)
        return llada_fail(err, LLADA_UNSUPPORTED, "rule ar is for autoregressive models, %s is a diffusion model",
                          m->arch->name);
    if ((ar || r->rule == LLADA_RULE_DREAM) && recipe_windowed(r))
        return llada_fail(err, LLADA_UNSUPPORTED, "rule %s has no blocks: it works with mbsd off and dppr off only",
                          ar ? "ar" : "dream");
    if (ar && r->cfg > 0) return llada_fail(err, LLADA_UNSUPPORTED, "rule ar works without cfg only");
    return LLADA_OK;
}

static llada_status check_latency(const decoder_limits *lim, llada_err *err)
{
    if (!lim->latency) return LLADA_OK;
    if (lim->n_latency < 0 || lim->n_latency > LLADA_MAX_LATENCY)
        return llada_fail(err, LLADA_BAD_ARG, "a latency table of %d entries; it can have %d", lim->n_latency,
                          LLADA_MAX_LATENCY);
    for (int i = 0; i < lim->n_latency; i++)
        if (lim->latency[i].rows <= (i ? lim->latency[i - 1].rows : 0) || !(lim->latency[i].ms > 0))
            return llada_fail(err, LLADA_BAD_ARG, "latency table: entry %d has %d rows and %g ms; rows must rise", i,
                              lim->latency[i].rows, lim->latency[i].ms);
    return LLADA_OK;
}

/* End tokens and the mask are never chosen where the settings say so; ids stay ascending. */
static void fill_bans(decoder *d)
{
    static const score_rank rank[] = {[LLADA_ALG_MASKGIT_PLUS] = RANK_P, [LLADA_ALG_TOPK_MARGIN] = RANK_MARGIN,
                                      [LLADA_ALG_ENTROPY] = RANK_ENTROPY, [LLADA_ALG_ORIGIN] = RANK_NONE};
    int n = 0;
    if (d->m->mask >= 0) d->ban[n++] = d->m->mask;
    if (d->r.ban_eos && d->m->eos >= 0) {
        d->ban[n++] = d->m->eos;
        if (n == 2 && d->ban[0] > d->ban[1]) {
            int32_t t = d->ban[0];
            d->ban[0] = d->ban[1];
            d->ban[1] = t;
        }
    }
    d->how = (score_how){.ban = d->ban, .n_ban = n, .n_vocab = d->m->n_vocab, .temp = d->r.temp, .top_p = d->r.top_p,
                         .top_k = d->r.top_k, .want_top = rule_wants_top(&d->r),
                         .rank = d->r.rule == LLADA_RULE_DREAM ? rank[d->r.alg] : RANK_NONE};
}

/* Array of n elements for *p; 0 on success so that a chain of them reads as one condition. */
#define NEW(p, n) (!((p) = mem_array((size_t)(n), sizeof *(p))))

static bool alloc_positions(decoder *d)
{
    int n = d->cap;
    if (NEW(d->token, n) || NEW(d->state, n) || NEW(d->draft, n) || NEW(d->fresh, n) || NEW(d->busy, n)) return false;
    if (NEW(d->hole, n) || NEW(d->closed, n) || NEW(d->chosen, n) || NEW(d->conf, n) || NEW(d->hits, n)) return false;
    if (NEW(d->looks, n) || NEW(d->n_rev, n) || NEW(d->n_drop, n) || NEW(d->mem, n) || NEW(d->held, n)) return false;
    if (NEW(d->all_pos, n) || NEW(d->cands, n) || NEW(d->cand_mem, n) || NEW(d->order, n)) return false;
    if (NEW(d->pick, n)) return false;
    if (NEW(d->value, n) || NEW(d->final_tokens, n) || NEW(d->final_canvas, n)) return false;
    return !NEW(d->row_list_out, n) && !NEW(d->shadow_list_out, n);
}

static bool alloc_jobs(decoder *d)
{
    if (!d->r.dppr) return true;
    for (int i = 0; i < MAX_JOBS; i++) {
        job *j = &d->jobs[i];
        if (NEW(j->pos, d->r.rev) || NEW(j->token, d->r.rev) || NEW(j->slot, 3 * d->r.rev)) return false;
        if (NEW(j->before, d->r.rev) || NEW(j->cols, d->cap) || NEW(j->out, d->r.rev)) return false;
    }
    return true;
}

/* Slots of the K,V store: one a position; for shadow rows of drafts; for jobs in flight (token rows until the merge,
 * shadow rows while they run); copies of all positions while a snapshot is pinned; and guidance's own. */
static int count_slots(const decoder *d, int checks)
{
    int64_t n = d->cap + (int64_t)checks;
    if (d->r.dppr) n += (int64_t)d->r.rev * (d->r.lag + 1 + d->per_look);
    if (d->exec != LLADA_EXEC_SERIAL) n += d->cap;
    if (d->r.cfg > 0) n += d->cap;
    return n < INT32_MAX ? (int)n : 0;
}

static llada_status open_device(decoder *d, device_weights *w, const decoder_limits *lim, llada_err *err)
{
    int checks = d->r.mbsd != LLADA_MBSD_OFF && d->r.verify ? d->cap * d->per_look : 0;
    int job_rows = d->r.dppr ? (1 + d->per_look) * d->r.rev : 0, dense = d->cap + checks;
    int rows = d->exec == LLADA_EXEC_FUSED ? dense + job_rows : dense > job_rows ? dense : job_rows;
    int slots = count_slots(d, checks);
    if (slots == 0) return llada_fail(err, LLADA_BAD_ARG, "a context of %d positions is too long", d->cap);
    int cores = os_cores() < DECODE_MOST_THREADS ? os_cores() : DECODE_MOST_THREADS;
    int threads = lim->threads > 0 ? lim->threads : cores;
    int aside = d->exec == LLADA_EXEC_ASYNC ? (threads > 3 ? threads / 4 : 1) : 0;
    device_limits dl = {.max_rows = rows, .max_want = rows, .slots = slots, .max_pos = d->cap, .kv_f16 = lim->kv_f16,
                        .threads = threads > aside ? threads - aside : 1, .cpu_mask = lim->cpu_mask};
    llada_status st;
    if ((st = kv_open(&d->kv, d->cap, slots - (d->r.cfg > 0 ? d->cap : 0), err))) return st;
    d->uncond_slot = d->kv.slots;
    if ((st = rows_open(&d->rows, rows, err))) return st;
    if ((st = d->dev->open(&d->ctx, w, &dl, err))) return st;
    if (!d->r.dppr) return LLADA_OK;
    if ((st = rows_open(&d->job_rows, job_rows, err))) return st;
    if (d->exec != LLADA_EXEC_ASYNC) return LLADA_OK;
    dl.max_rows = dl.max_want = job_rows;
    dl.threads = aside;
    dl.kv_of = d->ctx;
    if ((st = d->dev->open(&d->side, w, &dl, err))) return st;
    return task_open(&d->worker, err);
}

static bool alloc_guidance(decoder *d)
{
    if (!(d->r.cfg > 0)) return true;
    int most = d->r.block < d->cap ? d->r.block : d->cap; /* scored rows of a pass */
    size_t width = (size_t)d->m->g.n_vocab_rows;
    d->cond = mem_array((size_t)most, width * sizeof *d->cond);
    d->uncond = mem_array((size_t)most, width * sizeof *d->uncond);
    return d->cond && d->uncond;
}

llada_status decoder_open(decoder **out, const model *m, const device *dev, device_weights *w, const llada_recipe *r,
                          const decoder_limits *lim, llada_err *err)
{
    llada_status st;
    if ((st = recipe_check(r, err))) return st;
    if ((st = check_combination(m, r, err))) return st;
    if (lim->ctx < 1 || lim->ctx > LLADA_MAX_CTX)
        return llada_fail(err, LLADA_BAD_ARG, "a context of %d positions; it can be 1..%d", lim->ctx, LLADA_MAX_CTX);
    if ((st = check_latency(lim, err))) return st;
    decoder *d = mem_new(sizeof *d);
    if (!d) return llada_fail(err, LLADA_NO_MEMORY, "no memory for the decoder");
    d->m = m;
    d->dev = dev;
    d->r = *r;
    d->cap = lim->ctx;
    d->n_latency = lim->latency ? lim->n_latency : 0;
    for (int i = 0; i < d->n_latency; i++) d->latency[i] = lim->latency[i];
    if (d->r.rev > d->cap) d->r.rev = d->cap;
    d->exec = choose_exec(&d->r);
    d->windowed = recipe_windowed(&d->r);
    d->shift = m->arch->shift_logits;
    d->per_look = d->shift ? 2 : 1;
    if (d->r.rule == LLADA_RULE_DREAM) d->r.block = RECIPE_MAX_GEN; /* the canvas is one block */
    atomic_init(&d->cancelled, false);
    if (!alloc_positions(d) || !alloc_jobs(d) || !alloc_guidance(d)) {
        st = llada_fail(err, LLADA_NO_MEMORY, "no memory for a session of %d positions", d->cap);
        goto fail;
    }
    for (int i = 0; i < d->cap; i++) d->all_pos[i] = i;
    fill_bans(d);
    if ((st = open_device(d, w, lim, err))) goto fail;
    *out = d;
    return LLADA_OK;
fail:
    decoder_close(&d);
    return st;
}

void decoder_close(decoder **dp)
{
    decoder *d = *dp;
    if (!d) return;
    if (d->worker) task_close(&d->worker);
    if (d->side) d->dev->close(&d->side);
    if (d->ctx) d->dev->close(&d->ctx);
    for (int i = 0; i < MAX_JOBS; i++) {
        job *j = &d->jobs[i];
        void *of_job[] = {j->pos, j->token, j->before, j->slot, j->cols, j->out};
        for (size_t k = 0; k < sizeof of_job / sizeof *of_job; k++) mem_free(of_job[k]);
    }
    rows_free(&d->rows);
    rows_free(&d->job_rows);
    kv_free(&d->kv);
    void *all[] = {d->token, d->state, d->draft,   d->fresh,  d->busy,     d->hole,         d->closed,       d->chosen,
                   d->conf,  d->hits,  d->looks,   d->n_rev,  d->n_drop,   d->mem,          d->held,         d->all_pos,
                   d->cands, d->cand_mem, d->order, d->pick,  d->value,    d->final_tokens, d->final_canvas,
                   d->row_list_out, d->shadow_list_out, d->cond, d->uncond, d->schedule};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) mem_free(all[k]);
    mem_free(d);
    *dp = NULL;
}

int decoder_threads(const decoder *d) { return d->dev->threads(d->ctx) + (d->side ? d->dev->threads(d->side) : 0); }
