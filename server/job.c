/* job.c - one generation as it runs (job.h). */
#include "job.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---------------------------------------------------------------- life */

void generation_free(generation *g)
{
    free(g->prompt);
    free(g->canvas);
    for (int i = 0; i < g->n_stop; i++) free(g->stop[i]);
    *g = (generation){0};
}

job *job_new(generation *g, const llada_model *m, int fd)
{
    llada_model_info info = {.size = sizeof info};
    job *j = buf_new(1, sizeof *j);
    llada_model_get_info(m, &info);
    j->gen = *g;
    *g = (generation){0};
    j->model = m;
    j->ends[0] = info.eos_id;
    j->ends[1] = info.eot_id;
    pthread_mutex_init(&j->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&j->changed, &clock);
    pthread_condattr_destroy(&clock);
    j->refs = 1;
    j->fd = fd;
    size_t most = (size_t)j->gen.max_tokens;
    j->cells = buf_new((size_t)j->gen.n_cells, sizeof *j->cells);
    for (int32_t i = 0; i < j->gen.n_cells; i++) {
        bool given = job_given(j, i);
        j->cells[i] = (cell){.token = given ? j->gen.canvas[i] : -1, .confidence = given, .dirty = given,
                             .state = given ? CELL_SETTLED : CELL_MASK};
    }
    j->tokens = buf_new(most, sizeof *j->tokens);
    j->starts = buf_new(most, sizeof *j->starts);
    j->confidence = buf_new(most, sizeof *j->confidence);
    j->text.stops = (const char *const *)j->gen.stop;
    j->text.n_stops = j->gen.n_stop;
    j->queued_at = now_seconds();
    j->first_text = j->first_block = -1;
    return j;
}

void job_free(job *j)
{
    pthread_mutex_lock(&j->lock);
    bool last = --j->refs == 0;
    pthread_mutex_unlock(&j->lock);
    if (!last) return;
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->changed);
    answer_free(&j->text);
    generation_free(&j->gen);
    free(j->cells);
    free(j->tokens);
    free(j->starts);
    free(j->confidence);
    free(j);
}

/* ---------------------------------------------------------------- what happens */

/* One who closed his side for writing counts as gone too: no client of an API does that while it waits. */
static bool client_gone(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

bool job_look(job *j)
{
    if (!j->gone && j->fd >= 0 && client_gone(j->fd)) j->gone = j->unwanted = true;
    return j->gone;
}

bool job_given(const job *j, int32_t pos)
{
    return j->gen.whole && j->gen.canvas[pos] != LLADA_HOLE;
}

bool job_bytes(const job *j, int32_t token, buf *out)
{
    char stack[256];
    size_t n = 0;
    if (token < 0 || llada_detokenize(j->model, &token, 1, false, stack, sizeof stack, &n, NULL)) return false;
    if (n <= sizeof stack) {
        buf_add(out, stack, n);
        return n > 0;
    }
    char *heap = buf_new(n, 1);
    if (!llada_detokenize(j->model, &token, 1, false, heap, n, &n, NULL)) buf_add(out, heap, n);
    free(heap);
    return true;
}

static bool is_end(const job *j, int32_t token)
{
    return token < 0 || token == j->ends[0] || token == j->ends[1];
}

static void take_token(job *j, int32_t token, float confidence)
{
    buf bytes = {0};
    job_bytes(j, token, &bytes);
    j->tokens[j->n_tokens] = token;
    j->starts[j->n_tokens] = j->text.text.n;
    j->confidence[j->n_tokens++] = confidence;
    if (bytes.n) answer_add(&j->text, bytes.p, bytes.n);
    if (j->text.shown && j->first_text < 0) j->first_text = j->seconds;
    buf_free(&bytes);
}

/* A special token may end the text without being the one the file calls so: the result will tell. */
static bool may_end(const job *j, int32_t token)
{
    buf bytes = {0};
    bool has_bytes = job_bytes(j, token, &bytes);
    buf_free(&bytes);
    return !has_bytes;
}

static void take_given(job *j, int32_t token)
{
    buf bytes = {0};
    job_bytes(j, token, &bytes);
    if (bytes.n) answer_add(&j->text, bytes.p, bytes.n);
    buf_free(&bytes);
}

/* Gives the text a cell that has settled; false: not yet. */
static bool take_cell(job *j, int32_t pos, bool last)
{
    const cell *c = &j->cells[pos];
    if (job_given(j, pos)) {
        take_given(j, c->token);
        j->filled = false;
    } else if (j->filled || is_end(j, c->token) || j->n_tokens == j->gen.max_tokens) {
        j->filled = true;
        j->ended = !j->gen.whole;
    } else {
        if (!last && may_end(j, c->token)) return false;
        take_token(j, c->token, c->confidence);
    }
    j->ended |= j->text.stopped;
    return true;
}

/* Gives the text what has settled at its end; last: nothing will change any more. */
static void advance(job *j, bool last)
{
    while (!j->ended && j->next_cell < j->gen.n_cells && j->cells[j->next_cell].state == CELL_SETTLED &&
           take_cell(j, j->next_cell, last))
        j->next_cell++;
    int32_t block = j->gen.recipe.block < j->gen.n_cells ? j->gen.recipe.block : j->gen.n_cells;
    if (j->first_block < 0 && (j->ended || j->next_cell >= block)) j->first_block = j->seconds;
}

static void set_cell(cell *c, int32_t token, double confidence, cell_state state)
{
    if (c->state != CELL_MASK && c->token != token && c->changes < UINT8_MAX) c->changes++;
    c->token = token;
    c->confidence = (float)confidence;
    c->state = (uint8_t)state;
    c->dirty = true;
}

static void cell_event(job *j, const llada_event *ev)
{
    if (ev->pos < 0 || ev->pos >= j->gen.n_cells) return;
    cell *c = &j->cells[ev->pos];
    switch (ev->kind) {
    case LLADA_EV_COMMIT:
    case LLADA_EV_EDIT: set_cell(c, ev->token, ev->confidence, CELL_VISIBLE); break;
    case LLADA_EV_DRAFT: set_cell(c, ev->token, ev->confidence, CELL_DRAFT); break;
    case LLADA_EV_CONFIRM: set_cell(c, ev->token, ev->confidence, CELL_VISIBLE); break;
    case LLADA_EV_REMASK:
    case LLADA_EV_DROP: set_cell(c, -1, ev->confidence, CELL_MASK); break;
    case LLADA_EV_SETTLE:
        set_cell(c, ev->token, ev->confidence, CELL_SETTLED);
        advance(j, false);
        break;
    default: break;
    }
}

bool job_event(job *j, const llada_event *ev)
{
    pthread_mutex_lock(&j->lock);
    j->seconds = ev->seconds;
    if (ev->kind == LLADA_EV_PASS) {
        j->step = ev->step;
        j->rows = ev->rows;
        j->refresh = ev->refresh;
        job_look(j);
    }
    cell_event(j, ev);
    /* nothing that comes can change the answer: a stop string, or one token more than are wanted */
    bool enough = j->text.stopped || (j->ended && j->n_tokens == j->gen.max_tokens);
    bool go_on = !j->unwanted && !enough;
    pthread_mutex_unlock(&j->lock);
    return go_on;
}

/* Tokens the text waited with, because they might have been its end. */
static void take_rest(job *j, const llada_result *res)
{
    if (j->gen.whole) {
        advance(j, true);
        return;
    }
    for (int32_t i = j->n_tokens; i < res->n_tokens && !j->text.stopped; i++)
        take_token(j, res->tokens[i], i < res->n_canvas ? (float)res->confidence[i] : 0);
}

void job_finish(job *j, llada_status st, const llada_err *err, const llada_result *res)
{
    pthread_mutex_lock(&j->lock);
    bool cut = st == LLADA_CANCELLED && !j->unwanted && j->ended;
    if (cut) st = LLADA_OK;
    j->status = st;
    j->err = *err;
    if (res->size) {
        j->result = *res;
        if (st == LLADA_OK && !cut) take_rest(j, res);
    }
    j->result.tokens = j->result.canvas = NULL;
    j->result.confidence = NULL;
    if (!j->text.stopped) answer_end(&j->text);
    if (j->first_text < 0) j->first_text = j->result.seconds;
    if (j->first_block < 0) j->first_block = j->result.seconds;
    j->ended = true;
    j->phase = JOB_DONE;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

/* ---------------------------------------------------------------- the connection's side */

bool job_wait(job *j, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    long nano = until.tv_nsec + (long)(seconds * 1e9);
    until.tv_sec += nano / 1000000000;
    until.tv_nsec = nano % 1000000000;
    pthread_mutex_lock(&j->lock);
    if (j->phase != JOB_DONE) pthread_cond_timedwait(&j->changed, &j->lock, &until);
    bool here = !job_look(j);
    pthread_mutex_unlock(&j->lock);
    return here;
}

void job_leave(job *j)
{
    pthread_mutex_lock(&j->lock);
    j->fd = -1;
    j->gone = true;
    if (j->phase != JOB_DONE) j->unwanted = true;
    pthread_mutex_unlock(&j->lock);
    job_free(j);
}

int32_t job_count(const job *j)
{
    int32_t n = j->n_tokens;
    while (j->text.stopped && n > 0 && j->starts[n - 1] >= j->text.text.n) n--;
    return n;
}

const char *job_finish_reason(const job *j)
{
    return j->text.stopped || j->result.finish == LLADA_FINISH_STOP ? "stop" : "length";
}

/* Where a draft without a template ends: at its end token, or behind its last token. */
static int32_t draft_end(const job *j)
{
    int32_t last = 0;
    for (int32_t i = 0; i < j->gen.n_cells && i < j->gen.max_tokens; i++) {
        if (j->cells[i].token < 0) continue;
        if (is_end(j, j->cells[i].token)) break;
        last = i + 1;
    }
    return last;
}

void job_draft(const job *j, buf *out)
{
    answer a = {0};
    buf bytes = {0};
    bool filled = false;
    int32_t end = j->gen.whole ? j->gen.n_cells : draft_end(j);
    for (int32_t i = 0; i < end; i++) {
        int32_t token = j->cells[i].token;
        filled = !job_given(j, i) && (filled || (token >= 0 && is_end(j, token)));
        if (filled) continue;
        bytes.n = 0;
        if (token < 0) buf_str(&bytes, "\xE2\x96\x91");
        else job_bytes(j, token, &bytes);
        if (bytes.n) answer_add(&a, bytes.p, bytes.n);
    }
    answer_end(&a);
    if (a.text.n) buf_add(out, a.text.p, a.text.n);
    buf_free(&bytes);
    answer_free(&a);
}
