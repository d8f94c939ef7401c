/* revise.c - dual-path progressive revision (docs/decoding.md, section 6): visible tokens, least confident first, are
 * looked at again by shadow rows that see everything but the token itself; what they find enters at a step boundary a
 * fixed number of steps later, whoever computed it and however long it took. */
#include <math.h>
#include <string.h>

#include "decode/canvas.h"

static job *job_at(decoder *d, int i) { return &d->jobs[(d->first_job + i) % MAX_JOBS]; }

static int job_rows(const decoder *d, const job *j) { return (1 + d->per_look) * j->n; }

/* Marks in d->chosen what is behind the first end token written in its hole. */
static void mark_behind(decoder *d)
{
    int hole = -1;
    bool behind = false;
    for (int i = d->n_prompt; i < d->n_all; i++) {
        if (d->hole[i] != hole) behind = false;
        hole = d->hole[i];
        d->chosen[i] = behind;
        if (d->r.early && hole >= 0 && d->state[i] >= POS_VISIBLE && model_is_end(d->m, d->token[i])) behind = true;
    }
}

/* Up to rev candidates by rising confidence, ties by position; into j->pos. */
static int choose(decoder *d, job *j, bool text_only)
{
    int n = 0, most = d->r.rev;
    if (text_only) mark_behind(d);
    for (int i = d->n_prompt; i < d->n_all; i++) {
        if (d->state[i] != POS_VISIBLE || d->busy[i] || (text_only && d->chosen[i])) continue;
        int at = n < most ? n++ : most; /* at == most: would fall off the end */
        while (at > 0 && d->conf[i] < d->conf[j->pos[at - 1]]) {
            if (at < most) j->pos[at] = j->pos[at - 1];
            at--;
        }
        if (at < most) j->pos[at] = i;
    }
    return n;
}

/* At the end of the text: everything still visible is confident enough to settle as it is. */
static bool trusted(const decoder *d, const job *j)
{
    return d->conf[j->pos[0]] >= d->r.trust; /* the least confident comes first */
}

bool revise_launch(decoder *d, bool text_only)
{
    job *j = job_at(d, d->n_jobs);
    j->n = choose(d, j, text_only);
    if (j->n == 0 || (text_only && trusted(d, j))) return false;
    d->n_jobs++;
    j->ran = false;
    j->version = d->version;
    j->due = d->step + d->r.lag - 1;
    memcpy(j->cols, d->kv.current, (size_t)d->n_all * sizeof *j->cols);
    for (int i = 0; i < j->n; i++) {
        int pos = j->pos[i];
        j->token[i] = d->token[pos];
        j->before[i] = pos > 0 ? d->token[pos - 1] : d->m->mask;
        d->busy[pos] = true;
        j->slot[i] = kv_take(&d->kv);
        j->cols[pos] = j->slot[i];
    }
    for (int i = 0; i < d->per_look * j->n; i++) j->slot[j->n + i] = kv_take(&d->kv);
    kv_pin(&d->kv, j->cols, d->n_all);
    d->res.jobs++;
    d->res.rev_rows += job_rows(d, j);
    return true;
}

job *revise_waiting(decoder *d)
{
    for (int i = 0; i < d->n_jobs; i++)
        if (!job_at(d, i)->ran) return job_at(d, i);
    return NULL;
}

void revise_ran(decoder *d, job *j, bool beside)
{
    j->ran = true;
    kv_unpin(&d->kv, j->cols, d->n_all);
    for (int i = 0; i < d->per_look * j->n; i++) kv_give(&d->kv, j->slot[j->n + i]);
    if (!beside) d->res.sweeps++;
}

static void run_beside(void *user)
{
    decoder *d = user;
    d->side_status = pass_run_job(d, d->side_job, d->side, &d->side_err);
}

llada_status revise_start(decoder *d, bool beside, llada_err *err)
{
    job *j = revise_waiting(d);
    if (!j || j == d->side_job) return LLADA_OK;
    if (beside && d->exec == LLADA_EXEC_FUSED) return LLADA_OK; /* rides in the next pass */
    if (beside && d->exec == LLADA_EXEC_ASYNC) {
        j->exec = LLADA_EXEC_ASYNC;
        d->side_job = j;
        task_start(d->worker, run_beside, d);
        return LLADA_OK;
    }
    j->exec = LLADA_EXEC_SERIAL;
    llada_status st = pass_run_job(d, j, d->ctx, err);
    if (st == LLADA_OK) revise_ran(d, j, false);
    return st;
}

llada_status revise_settle(decoder *d, bool beside, llada_err *err)
{
    job *j = d->side_job;
    if (!j) return LLADA_OK;
    task_wait(d->worker);
    d->side_job = NULL;
    if (d->side_status) return llada_fail(err, d->side_status, "%s", d->side_err.text);
    revise_ran(d, j, beside);
    return LLADA_OK;
}

static void settle(decoder *d, int pos, double conf)
{
    d->state[pos] = POS_STABLE;
    canvas_emit(d, LLADA_EV_SETTLE, pos, d->token[pos], conf);
}

/* The best token at pos is another than the one written there. */
static void merge_other(decoder *d, int pos, const score *s, double best, double own)
{
    bool may_edit = !(d->r.fresh_eos && model_is_end(d->m, s->token)); /* no job is a refresh pass */
    d->hits[pos] = 0;
    if (++d->n_rev[pos] > d->r.rmax) {
        if (!d->draft[pos]) settle(d, pos, own);
    } else if (may_edit && best >= (d->r.edit > 0 ? d->r.edit : d->r.vis)) {
        d->res.edits++;
        d->version++;
        d->token[pos] = s->token;
        d->conf[pos] = best;
        d->fresh[pos] = false;
        canvas_emit(d, LLADA_EV_EDIT, pos, s->token, best);
    } else if (own < d->r.remask) {
        d->res.remasks++;
        canvas_unwrite(d, pos);
        canvas_emit(d, LLADA_EV_REMASK, pos, -1, own);
    } else {
        d->conf[pos] = own;
    }
}

static void merge_same(decoder *d, int pos, double own)
{
    d->conf[pos] = own;
    if (own >= d->r.vis) d->draft[pos] = false;
    d->hits[pos] = own >= d->r.stable ? d->hits[pos] + 1 : 0;
    bool enough = d->hits[pos] >= d->r.n_stable || d->looks[pos] >= d->r.rmax + 2;
    if (enough && !d->draft[pos]) settle(d, pos, own);
}

/* The job changed nothing and nothing changed since its snapshot: another look would find the same. */
static void settle_calm(decoder *d, const job *j)
{
    for (int i = 0; i < j->n; i++) {
        int pos = j->pos[i];
        if (d->state[pos] == POS_VISIBLE && !d->draft[pos]) settle(d, pos, d->conf[pos]);
    }
}

static void merge_job(decoder *d, job *j)
{
    llada_event ev = {.kind = LLADA_EV_MERGE, .token = -1, .rows = job_rows(d, j), .ran = j->exec,
                      .began = j->time.began - d->started, .took = j->time.took};
    canvas_tell(d, &ev);
    for (int i = 0; i < j->n; i++) {
        int pos = j->pos[i];
        d->busy[pos] = false;
        if (d->state[pos] != POS_VISIBLE || d->token[pos] != j->token[i]) { /* changed since the snapshot */
            kv_give(&d->kv, j->slot[i]);
            continue;
        }
        kv_replace(&d->kv, pos, j->slot[i]);
        d->fresh[pos] = true;
        d->looks[pos]++;
        const score *s = &j->out[i];
        double best = rule_grid(s->p), own = rule_grid(s->probe_p[0]);
        if (s->token == d->token[pos])
            merge_same(d, pos, own);
        else
            merge_other(d, pos, s, best, own);
        if (d->draft[pos] && d->looks[pos] >= d->r.rmax + 2) canvas_drop(d, pos, own); /* so that the drain ends */
    }
    if (d->r.calm && j->version == d->version) settle_calm(d, j);
}

llada_status revise_merge(decoder *d, llada_err *err)
{
    while (d->n_jobs > 0 && job_at(d, 0)->due <= d->step) {
        job *j = job_at(d, 0);
        llada_status st = LLADA_OK;
        if (j == d->side_job)
            st = revise_settle(d, false, err);
        else if (!j->ran)
            st = revise_start(d, false, err); /* no dense pass came that it could ride in */
        if (st) return st;
        merge_job(d, j);
        d->first_job = (d->first_job + 1) % MAX_JOBS;
        d->n_jobs--;
    }
    return LLADA_OK;
}
