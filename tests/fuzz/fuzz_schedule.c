/* fuzz_schedule.c - the decoding loop under any settings and any scores.  The input chooses the recipe, the canvas and
 * the made-up network of fake_device.h, NaN and infinity included; then docs/decoding.md, section 8, is held against
 * what happens: it ends within the bound, every position settles and does not change afterwards, events tell the whole
 * story, counters agree with them, no slot of the K,V store is lost, the mask is never chosen, max_tokens is exact, the
 * same request gives the same events again, and however revision jobs are executed. */
#include <stdio.h>
#include <stdlib.h>

#include "decode/canvas.h"
#include "tests/unit/fake_device.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x)                                                         \
    do {                                                                 \
        if (!(x)) {                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);      \
            abort();                                                     \
        }                                                                \
    } while (0)

enum { MAX_PROMPT = 4, MAX_GEN = 24 }; /* small, as a pass costs their square here */

typedef struct {
    const uint8_t *at, *end;
} input;

static unsigned byte_of(input *in) { return in->at < in->end ? *in->at++ : 0; }
static int pick_int(input *in, int lo, int hi) { return lo + (int)(byte_of(in) % (unsigned)(hi - lo + 1)); }
static bool flag(input *in) { return byte_of(in) & 1; }

static double real(input *in)
{
    static const double some[] = {0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 1, 2, NAN};
    unsigned b = byte_of(in);
    return b < 128 ? b / 128.0 : some[b % (sizeof some / sizeof *some)];
}

static void read_recipe(llada_recipe *r, input *in)
{
    llada_recipe_defaults(r);
    r->block = pick_int(in, 1, 26);
    r->steps = pick_int(in, 0, 40);
    r->cache = (llada_cache)pick_int(in, 0, 2);
    r->rule = (llada_rule)pick_int(in, 0, LLADA_RULE_AR);
    r->remasking = (llada_remasking)pick_int(in, 0, 1);
    double *reals[] = {&r->tau, &r->factor, &r->gamma, &r->margin, &r->kappa,  &r->low, &r->high,
                       &r->credit, &r->tau_draft, &r->vis, &r->stable, &r->remask, &r->edit, &r->trust, &r->top_p,
                       &r->eps, &r->alg_temp, &r->ahead};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) *reals[i] = real(in);
    if (r->credit > 1) r->credit = 1;
    if (r->top_p > 1) r->top_p = 1;
    if (r->eps > 0.5) r->eps = 0.001;
    r->top_k = pick_int(in, 0, 5);
    r->alg = (llada_alg)pick_int(in, 0, 3);
    unsigned bits = byte_of(in);
    r->ban_eos = bits & 1;
    r->ban_eos_conf = bits & 2;
    r->fresh_eos = bits & 4;
    r->early = bits & 8;
    r->verify = bits & 16;
    r->dppr = bits & 32;
    r->calm = bits & 64;
    r->launch = bits & 128 ? LLADA_LAUNCH_BOUNDARY : LLADA_LAUNCH_PASS;
    r->mbsd = (llada_mbsd)pick_int(in, 0, 2);
    r->trigger = pick_int(in, 0, 20);
    r->look = pick_int(in, 0, 30);
    r->bucket = pick_int(in, 0, 40);
    r->n_stable = pick_int(in, 1, 5);
    r->rev = pick_int(in, 1, 20);
    r->rmax = pick_int(in, 0, 4);
    r->lag = pick_int(in, 1, 4);
    r->refresh = (llada_refresh)pick_int(in, 0, 2);
    r->refresh_n = pick_int(in, 1, 6);
    r->vicinity = pick_int(in, 0, 20);
    r->exec = LLADA_EXEC_AUTO;
    r->temp = flag(in) ? real(in) : 0;
    if (r->rule >= LLADA_RULE_DREAM) {
        r->dppr = false;
        r->mbsd = LLADA_MBSD_OFF;
    }
    bool guided = byte_of(in) % 8 == 0 && !r->dppr && r->mbsd == LLADA_MBSD_OFF && r->rule != LLADA_RULE_AR;
    r->cfg = guided ? 1 : 0;
}

/* What the events have told so far. */
typedef struct {
    decoder *d;
    int n_prompt, n_gen, stop_at;
    int32_t token[MAX_GEN]; /* as shown; FAKE_MASK: a mask */
    bool settled[MAX_GEN], tail, done;
    int passes, full, edits, remasks, drafts, confirmed, dropped, commits, events, jobs;
    int64_t rows, rev_rows;
    uint64_t hash;
} story;

static void note(story *s, const llada_event *ev)
{
    uint64_t conf;
    memcpy(&conf, &ev->confidence, sizeof conf);
    s->hash = fake_mix(s->hash, (uint64_t)ev->kind << 40 ^ (uint64_t)(ev->step + 1) << 20 ^ (uint64_t)(ev->pos + 64));
    s->hash = fake_mix(s->hash, conf ^ (uint64_t)(ev->token + 2) ^ (uint64_t)ev->rows << 32);
}

static bool on_event(const llada_event *ev, void *user)
{
    story *s = user;
    int at = ev->pos;
    CHECK(!s->done);
    note(s, ev);
    bool at_pos = ev->kind != LLADA_EV_PASS && ev->kind != LLADA_EV_MERGE && ev->kind != LLADA_EV_BLOCK &&
                  ev->kind != LLADA_EV_TAIL && ev->kind != LLADA_EV_DONE;
    if (at_pos) {
        CHECK(at >= 0 && at < s->n_gen);
        CHECK(!s->settled[at] || s->tail);
        CHECK(!s->tail || ev->kind == LLADA_EV_SETTLE);
        CHECK(ev->confidence >= 0 && ev->confidence <= 1);
        CHECK(ev->token != FAKE_MASK && ev->token < FAKE_VOCAB);
    }
    switch (ev->kind) {
    case LLADA_EV_PASS:
        s->passes++;
        s->full += ev->refresh;
        s->rows += ev->rows;
        CHECK(ev->rows == ev->n_row_pos + ev->n_shadow_pos * s->d->per_look || s->d->shift);
        CHECK(ev->rows >= ev->n_row_pos + ev->n_shadow_pos);
        break;
    case LLADA_EV_COMMIT:
    case LLADA_EV_DRAFT:
        CHECK(s->token[at] == FAKE_MASK);
        s->token[at] = ev->token;
        s->drafts += ev->kind == LLADA_EV_DRAFT;
        s->commits += ev->kind == LLADA_EV_COMMIT;
        break;
    case LLADA_EV_CONFIRM:
        CHECK(s->token[at] == ev->token);
        s->confirmed++;
        break;
    case LLADA_EV_EDIT:
        CHECK(s->token[at] != FAKE_MASK && s->token[at] != ev->token);
        s->token[at] = ev->token;
        s->edits++;
        break;
    case LLADA_EV_REMASK:
    case LLADA_EV_DROP:
        CHECK(s->token[at] != FAKE_MASK && ev->token == -1);
        s->token[at] = FAKE_MASK;
        s->remasks += ev->kind == LLADA_EV_REMASK;
        s->dropped += ev->kind == LLADA_EV_DROP;
        break;
    case LLADA_EV_SETTLE:
        CHECK(s->tail || s->token[at] == ev->token);
        s->token[at] = ev->token;
        s->settled[at] = true;
        break;
    case LLADA_EV_TAIL: s->tail = true; break;
    case LLADA_EV_DONE: s->done = true; break;
    case LLADA_EV_MERGE:
        s->jobs++;
        s->rev_rows += ev->rows;
        CHECK(ev->ran != LLADA_EXEC_AUTO);
        break;
    case LLADA_EV_BLOCK: break;
    }
    return ++s->events != s->stop_at;
}

/* The K,V store at rest: every slot is one position's, or spare; nothing is pinned. */
static void check_slots(const kv_map *k)
{
    static uint8_t owned[4096];
    CHECK(k->slots <= (int)sizeof owned);
    memset(owned, 0, sizeof owned);
    CHECK(k->n_spare == k->slots - k->positions);
    for (int i = 0; i < k->positions; i++) owned[k->current[i]]++;
    for (int i = 0; i < k->n_spare; i++) owned[k->spare[i]]++;
    for (int i = 0; i < k->slots; i++) CHECK(owned[i] == 1 && k->pins[i] == 0 && k->orphan[i] == 0);
}

/* Section 8: how often a draft of one position can be dropped, how many dense steps there can be, how many tokens of
 * one position revision's jobs can hold. */
static int most_drops(const llada_recipe *r)
{
    return r->mbsd != LLADA_MBSD_OFF && r->verify ? (r->rmax > 0 ? r->rmax : 1) : 0;
}
static int most_steps(const llada_recipe *r, int holes)
{
    return holes * (1 + (r->dppr ? r->rmax : 0) + most_drops(r)) * (r->fresh_eos ? 2 : 1);
}
static int most_looks(const llada_recipe *r) { return 2 * r->rmax + 2 + 2 * most_drops(r); }

static void check_result(const story *s, const llada_recipe *r, const llada_request *q, const llada_result *res)
{
    int holes = 0, text = 0, hole_at = -2;
    bool ended = false;
    for (int i = 0; i < s->n_gen; i++) {
        bool hole = !q->canvas || q->canvas[i] == LLADA_HOLE;
        CHECK(res->canvas[i] != FAKE_MASK && res->canvas[i] >= 0 && res->canvas[i] < FAKE_VOCAB);
        if (!hole) {
            CHECK(res->canvas[i] == q->canvas[i]);
            continue;
        }
        holes++;
        CHECK(s->settled[i] && s->token[i] == res->canvas[i]);
        if (hole_at != i - 1) ended = false;
        hole_at = i;
        if (ended) CHECK(res->canvas[i] == FAKE_EOS);
        ended |= res->canvas[i] == FAKE_EOS || res->canvas[i] == FAKE_EOT;
        if (ended) continue;
        if (text < res->n_tokens) CHECK(res->tokens[text] == res->canvas[i]);
        text++;
    }
    int max = q->max_tokens < 0 ? s->n_gen : q->max_tokens;
    CHECK(res->n_tokens == (text < max ? text : max));
    CHECK(s->done && s->tail && s->passes <= most_steps(r, holes));
    int guided = r->cfg > 0 ? 2 : 1;
    CHECK(res->passes == s->passes * guided && res->full == s->full && res->rows == s->rows * guided);
    CHECK(res->edits == s->edits && res->remasks == s->remasks && res->draft_ok == s->confirmed);
    CHECK(r->mbsd == LLADA_MBSD_HOLD ? res->drafts >= s->drafts : res->drafts == s->drafts);
    CHECK(res->draft_ok + s->dropped <= s->drafts);
    CHECK(res->sweeps >= res->passes && res->sweeps <= res->passes + res->jobs);
    CHECK(r->dppr || (res->jobs == 0 && res->rev_rows == 0));
    CHECK(res->jobs == s->jobs && res->rev_rows == s->rev_rows);
    int look = 1 + s->d->per_look;
    CHECK(res->rev_rows >= look * res->jobs && res->rev_rows <= look * (int64_t)holes * most_looks(r));
    if (q->max_tokens == 0 && !q->canvas) CHECK(res->passes == 0);
}

/* One request; returns its status. */
static llada_status run(decoder *d, const llada_recipe *r, llada_request *q, story *s, llada_result *res)
{
    llada_err err = {0};
    bool done = false;
    int holes = s->n_gen, steps = 0;
    q->on_event = on_event;
    q->user = s;
    llada_status st = decoder_begin(d, q, &err);
    if (st) fprintf(stderr, "%s\n", err.text);
    CHECK(st == LLADA_OK);
    while (st == LLADA_OK && !done) {
        st = decoder_step(d, &done, &err);
        CHECK(++steps <= most_steps(r, holes) + r->lag * holes * most_looks(r) + 1);
    }
    if (st == LLADA_OK) CHECK(decoder_result(d, res, &err) == LLADA_OK);
    if (st && st != LLADA_NUMERIC && st != LLADA_CANCELLED) fprintf(stderr, "%s\n", err.text);
    CHECK(st == LLADA_OK || st == LLADA_NUMERIC || st == LLADA_CANCELLED);
    return st;
}

static void start(story *s, decoder *d, int n_prompt, int n_gen, int stop_at)
{
    *s = (story){.d = d, .n_prompt = n_prompt, .n_gen = n_gen, .stop_at = stop_at};
    for (int i = 0; i < MAX_GEN; i++) s->token[i] = FAKE_MASK;
}

static uint64_t decode(const llada_recipe *r, device_weights *net, bool shift, llada_request *q, int n_gen, int stop_at)
{
    fake_model_parts f;
    decoder *d = NULL;
    llada_err err;
    llada_result res;
    decoder_limits lim = {.ctx = q->n_prompt + n_gen > 0 ? q->n_prompt + n_gen : 1, .threads = 1};
    story s, again;
    fake_model(&f, shift, net->causal);
    CHECK(decoder_open(&d, &f.m, &fake_device, net, r, &lim, &err) == LLADA_OK);
    if (stop_at) { /* given up in the middle: the next request must not notice */
        start(&s, d, q->n_prompt, n_gen, stop_at);
        run(d, r, q, &s, &res);
    }
    start(&s, d, q->n_prompt, n_gen, 0);
    llada_status st = run(d, r, q, &s, &res);
    if (st == LLADA_OK) {
        check_slots(&d->kv);
        if (!q->canvas) /* of a template only what lies in holes is told */
            for (int i = 0; i < n_gen; i++) CHECK(s.settled[i]);
        check_result(&s, r, q, &res);
    }
    if (stop_at) {
        start(&again, d, q->n_prompt, n_gen, 0);
        CHECK(run(d, r, q, &again, &res) == st && again.hash == s.hash);
    }
    if (net->wrong[0]) fprintf(stderr, "%s\n", net->wrong);
    CHECK(!net->wrong[0]);
    decoder_close(&d);
    return st ? (uint64_t)st : s.hash; /* where NaN is met first depends on the execution */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, data + size};
    llada_recipe r;
    llada_request q;
    int32_t prompt[MAX_PROMPT], canvas[MAX_GEN];
    device_weights net = {.salt = byte_of(&in)};
    read_recipe(&r, &in);
    net.salt = fake_mix(net.salt, byte_of(&in));
    net.noise = pick_int(&in, 0, 5);
    net.ends = (int)byte_of(&in);
    net.bad = byte_of(&in) % 8 ? 0 : (int)byte_of(&in);

    llada_request_defaults(&q);
    q.n_prompt = pick_int(&in, 0, MAX_PROMPT);
    q.seed = byte_of(&in);
    bool shift = flag(&in) && r.rule != LLADA_RULE_AR;
    net.causal = r.rule == LLADA_RULE_AR;
    if (net.causal && q.n_prompt == 0) q.n_prompt = 1;
    for (int i = 0; i < q.n_prompt; i++) prompt[i] = 6 + i % 5;
    q.prompt = q.n_prompt ? prompt : NULL;
    int n_gen = pick_int(&in, 0, MAX_GEN), stop_at = flag(&in) ? 1 + (int)byte_of(&in) : 0;
    if (flag(&in) && !net.causal) { /* a template; each byte a run of holes or fixed tokens */
        for (int i = 0; i < n_gen;) {
            unsigned b = byte_of(&in);
            for (unsigned k = 0; k <= (b & 15) && i < n_gen; k++, i++) canvas[i] = b & 16 ? 6 + i % 5 : LLADA_HOLE;
        }
        q.canvas = canvas;
        q.n_canvas = n_gen;
        q.max_tokens = pick_int(&in, -1, MAX_GEN);
    } else {
        q.max_tokens = pick_int(&in, 0, MAX_GEN);
        r.gen = q.max_tokens == 0 || flag(&in) ? 0 : n_gen;
        if (r.gen == 0) n_gen = q.max_tokens;
    }
    r.exec = LLADA_EXEC_SERIAL;
    uint64_t serial = decode(&r, &net, shift, &q, n_gen, stop_at);
    if (!r.dppr || r.lag < 2) return 0;
    r.exec = LLADA_EXEC_FUSED;
    CHECK(decode(&r, &net, shift, &q, n_gen, stop_at) == serial);
    if (net.salt & 7) return 0; /* threads are slow: some inputs */
    r.exec = LLADA_EXEC_ASYNC;
    CHECK(decode(&r, &net, shift, &q, n_gen, stop_at) == serial);
    return 0;
}
