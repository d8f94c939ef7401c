/* test_decoder.c - what the decoding loop decides, on scores written by the test: ends of text, drafts and their
 * checks, revision, which rows a pass computes, the bans.  The device is fake_device.h's, which also checks every pass.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/canvas.h"
#include "fake_device.h"

enum { WORD = 7, OTHER = 8, MAX_RULES = 12, LOG = 8192 };

/* The scores of a row: the first rule that fits says token and probability; else WORD at 0.95. */
typedef struct {
    int pos, token;
    double p;
    int from, to;  /* runs of the device, jobs that run alone counted; 0: any */
    int alone;     /* 1: only looks behind a token; -1: only others; 0: both */
} said;
#define AT(pos, token, p) {pos, token, p, 0, 0, 0}
#define MASK(pos, token, p) {pos, token, p, 0, 0, -1}
#define LOOK(pos, token, p) {pos, token, p, 0, 0, 1}
#define IN(pos, token, p, from, to) {pos, token, p, from, to, 0}
#define END {0, 0, 0, 0, 0, 0}

typedef struct {
    const said *rules; /* ends with token 0 */
    int n_prompt;
    bool mask_wins;    /* the mask's score is by far the highest */
} play;

/* Scores under which `token` has probability p and the others share the rest. */
static void put(float *logits, int token, double p)
{
    for (int i = 0; i < FAKE_ROWS; i++) logits[i] = (float)log((1 - p) / (FAKE_VOCAB - 2));
    logits[token] = (float)log(p);
    logits[FAKE_MASK] = -40;
}

static void script(void *user, int run, int pos, bool alone, float *logits)
{
    const play *p = user;
    put(logits, WORD, 0.95);
    for (const said *s = p->rules; s && s->token; s++) {
        if (s->pos != pos - p->n_prompt || (s->from && run < s->from) || (s->to && run > s->to)) continue;
        if (s->alone && (s->alone > 0) != alone) continue;
        put(logits, s->token, s->p);
        break;
    }
    if (p->mask_wins) logits[FAKE_MASK] = 50;
}

/* One decoder with its story: events as text, "C5=7 " and so on. */
typedef struct {
    fake_model_parts parts;
    device_weights net;
    play p;
    decoder *d;
    llada_result res;
    llada_err err;
    char log[LOG];
} stage;

static bool write_down(const llada_event *ev, void *user)
{
    static const char letters[] = {[LLADA_EV_COMMIT] = 'C', [LLADA_EV_DRAFT] = 'D', [LLADA_EV_CONFIRM] = 'K',
                                   [LLADA_EV_EDIT] = 'E',   [LLADA_EV_REMASK] = 'R', [LLADA_EV_DROP] = 'X',
                                   [LLADA_EV_SETTLE] = 'S'};
    stage *st = user;
    size_t at = strlen(st->log);
    assert_true(at + 600 < LOG);
    char *to = st->log + at;
    switch (ev->kind) {
    case LLADA_EV_PASS:
        to += sprintf(to, "[%d:", ev->step);
        if (ev->refresh) to += sprintf(to, "all");
        for (int i = 0; ev->row_pos && i < ev->n_row_pos; i++) to += sprintf(to, i ? ",%d" : "%d", ev->row_pos[i]);
        for (int i = 0; i < ev->n_shadow_pos; i++) to += sprintf(to, i ? ",%d" : "?%d", ev->shadow_pos[i]);
        strcpy(to, "] ");
        break;
    case LLADA_EV_MERGE: sprintf(to, "(%d) ", ev->step); break;
    case LLADA_EV_BLOCK: sprintf(to, "B%d ", ev->pos); break;
    case LLADA_EV_TAIL: strcpy(to, "T "); break;
    case LLADA_EV_DONE: strcpy(to, "."); break;
    default:
        sprintf(to, ev->token < 0 ? "%c%d " : "%c%d=%d ", letters[ev->kind], ev->pos, ev->token);
    }
    return true;
}

static void open_stage(stage *st, const llada_recipe *r, const said *rules, int ctx)
{
    *st = (stage){.p = {.rules = rules}, .net = {.script = script}};
    st->net.user = &st->p;
    fake_model(&st->parts, false, false);
    decoder_limits lim = {.ctx = ctx, .threads = 1};
    if (decoder_open(&st->d, &st->parts.m, &fake_device, &st->net, r, &lim, &st->err)) fail_msg("%s", st->err.text);
}

static llada_status play_on(stage *st, const int32_t *canvas, int n_prompt, int n)
{
    static const int32_t prompt[8] = {6, 7, 8, 9, 6, 7, 8, 9};
    llada_request q;
    llada_request_defaults(&q);
    q.prompt = prompt;
    q.n_prompt = st->p.n_prompt = n_prompt;
    q.canvas = canvas;
    q.n_canvas = canvas ? n : 0;
    q.max_tokens = n;
    q.on_event = write_down;
    q.user = st;
    st->log[0] = 0;
    st->net.passes = 0;
    llada_status s = decoder_begin(st->d, &q, &st->err);
    bool done = false;
    for (int i = 0; s == LLADA_OK && !done; i++) {
        assert_true(i < 1000);
        s = decoder_step(st->d, &done, &st->err);
    }
    if (st->net.wrong[0]) fail_msg("%s", st->net.wrong);
    if (s == LLADA_OK) assert_int_equal(decoder_result(st->d, &st->res, &st->err), LLADA_OK);
    return s;
}

/* A whole run; "name" then "key=value ..." make the recipe. */
static void run(stage *st, const char *name, const char *settings, const said *rules, int n_prompt, int n)
{
    llada_recipe r;
    llada_err err;
    char text[300], *rest = NULL;
    snprintf(text, sizeof text, "%s", settings);
    assert_int_equal(llada_recipe_named(&r, name, NULL), LLADA_OK);
    for (char *kv = strtok_r(text, " ", &rest); kv; kv = strtok_r(NULL, " ", &rest)) {
        char *eq = strchr(kv, '=');
        *eq = 0;
        if (llada_recipe_set(&r, kv, eq + 1, &err)) fail_msg("%s", err.text);
    }
    open_stage(st, &r, rules, n_prompt + n ? n_prompt + n : 1);
    if (play_on(st, NULL, n_prompt, n)) fail_msg("%s", st->err.text);
}

static void must_say(const stage *st, const char *part)
{
    if (!strstr(st->log, part)) fail_msg("no \"%s\" in: %s", part, st->log);
}

static void must_not_say(const stage *st, const char *part)
{
    if (strstr(st->log, part)) fail_msg("\"%s\" in: %s", part, st->log);
}

/* ---------------------------------------------------------------- where the text ends */

static void test_ends(void **state)
{
    static const struct {
        const char *recipe, *settings;
        said rules[4];
        int tokens, passes;
        llada_finish finish;
    } cases[] = {
        /* ordinary tokens win behind the end; no pass for the blocks after it */
        {"parallel", "block=8", {AT(5, FAKE_EOS, .95)}, 5, 1, LLADA_FINISH_STOP},
        {"parallel", "block=8", {AT(0, FAKE_EOT, .95)}, 0, 1, LLADA_FINISH_STOP},
        {"parallel", "block=8", {AT(20, FAKE_EOS, .95)}, 20, 3, LLADA_FINISH_STOP},
        {"parallel", "block=8", {AT(7, FAKE_EOS, .95)}, 7, 1, LLADA_FINISH_STOP},
        {"parallel", "block=8 early=false", {AT(5, FAKE_EOS, .95)}, 5, 3, LLADA_FINISH_STOP},
        {"parallel", "block=8", {END}, 24, 3, LLADA_FINISH_LENGTH},
        /* a block is completed before it counts as ended */
        {"parallel", "block=8", {AT(5, FAKE_EOS, .95), AT(6, WORD, .3), AT(7, WORD, .2)}, 5, 3, LLADA_FINISH_STOP},
        {"vanilla", "block=8", {AT(5, FAKE_EOS, .99)}, 5, 8, LLADA_FINISH_STOP},
        {"dual", "block=8", {AT(0, FAKE_EOS, .99)}, 0, 8, LLADA_FINISH_STOP},
        /* the window engine needs what stands before the end, not what stands behind it */
        {"speculate", "block=8 tau=0.9", {AT(5, FAKE_EOS, .95), AT(6, WORD, .3)}, 5, 1, LLADA_FINISH_STOP},
        {"speculate", "block=8 tau=0.9", {AT(5, FAKE_EOS, .95), AT(2, WORD, .3), AT(1, WORD, .2)}, 5, 3,
         LLADA_FINISH_STOP},
        {"speculate", "block=8 tau=0.9 early=false", {AT(5, FAKE_EOS, .95)}, 5, 3, LLADA_FINISH_STOP},
        {"llada", "block=8 stable=0.9", {AT(5, FAKE_EOS, .95)}, 5, 1, LLADA_FINISH_STOP},
        {"llada", "block=8 stable=0.9", {AT(0, FAKE_EOS, .95)}, 0, 1, LLADA_FINISH_STOP},
        /* no blocks at all */
        {"dream", "steps=24", {AT(5, FAKE_EOS, .99)}, 5, 24, LLADA_FINISH_STOP},
        {"dream", "steps=1", {AT(5, FAKE_EOS, .99)}, 5, 1, LLADA_FINISH_STOP},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stage st;
        run(&st, cases[i].recipe, cases[i].settings, cases[i].rules, 3, 24);
        if (st.res.n_tokens != cases[i].tokens || st.res.finish != cases[i].finish)
            fail_msg("case %zu: %d tokens, finish %d: %s", i, st.res.n_tokens, st.res.finish, st.log);
        if (i != 14 && st.res.passes != cases[i].passes) fail_msg("case %zu: %d passes: %s", i, st.res.passes, st.log);
        assert_true(st.res.passes <= cases[i].passes);
        for (int k = cases[i].tokens + 1; k < 24; k++) assert_int_equal(st.res.canvas[k], FAKE_EOS);
        decoder_close(&st.d);
    }
}

/* An end token that revision takes back does not end the text. */
static void test_end_withdrawn(void **state)
{
    const said edited[] = {LOOK(2, OTHER, .95), AT(2, FAKE_EOS, .95), END};
    const said remasked[] = {{2, OTHER, .5, 1, 2, 1}, IN(2, FAKE_EOS, .95, 1, 1), AT(2, WORD, .95), END};
    stage st;
    run(&st, "llada-v1", "block=4 stable=0.9 mbsd=off n_stable=1", edited, 0, 12);
    must_say(&st, "E2=8 ");
    assert_int_equal(st.res.n_tokens, 12);
    assert_int_equal(st.res.finish, LLADA_FINISH_LENGTH);
    assert_int_equal(st.res.edits, 1);
    decoder_close(&st.d);
    run(&st, "llada-v1", "block=4 stable=0.9 mbsd=off n_stable=1", remasked, 0, 12);
    must_say(&st, "R2 ");
    must_say(&st, "C2=7 ");
    assert_int_equal(st.res.n_tokens, 12);
    assert_int_equal(st.res.remasks, 1);
    decoder_close(&st.d);
}

/* A file that names only an end of turn: that is what stands behind the end. */
static void test_no_eos(void **state)
{
    const said rules[] = {AT(2, FAKE_EOT, .95), END};
    llada_recipe r;
    stage st;
    llada_recipe_named(&r, "parallel", NULL);
    open_stage(&st, &r, rules, 8);
    st.parts.m.eos = -1;
    st.parts.m.ends[0] = FAKE_EOT;
    st.parts.m.n_ends = 1;
    assert_int_equal(play_on(&st, NULL, 0, 6), LLADA_OK);
    for (int i = 2; i < 6; i++) assert_int_equal(st.res.canvas[i], FAKE_EOT);
    st.parts.m.n_ends = 0;
    assert_int_equal(play_on(&st, NULL, 0, 6), LLADA_OK);
    assert_int_equal(st.res.n_tokens, 6);
    decoder_close(&st.d);
}

/* ---------------------------------------------------------------- each pass writes */

static void test_mask_wins(void **state)
{
    static const char *const names[] = {"vanilla", "parallel", "speculate", "llada", "dream"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        llada_recipe r;
        stage st;
        llada_recipe_named(&r, names[i], NULL);
        open_stage(&st, &r, NULL, 16);
        st.p.mask_wins = true;
        assert_int_equal(play_on(&st, NULL, 2, 10), LLADA_OK);
        for (int k = 0; k < 10; k++) assert_int_equal(st.res.canvas[k], WORD);
        decoder_close(&st.d);
    }
}

static void test_flat(void **state)
{
    static const struct {
        const char *settings;
        int passes;
    } cases[] = {{"tau=1", 6}, {"tau=2", 6}, {"tau=0", 2}, {"tau=0.95", 6}, {"tau=0.5", 2}};
    said flat[7] = {END};
    for (int i = 0; i < 6; i++) flat[i] = (said){.pos = i, .token = WORD, .p = 0.6};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stage st;
        char text[64];
        snprintf(text, sizeof text, "block=3 %s", cases[i].settings);
        run(&st, "parallel", text, flat, 0, 6);
        if (st.res.passes != cases[i].passes) fail_msg("%s: %d passes", text, st.res.passes);
        decoder_close(&st.d);
    }
}

/* At a temperature near 0 noise weighs nothing: the same commitments in the same order. */
static void test_cold(void **state)
{
    const said rules[] = {AT(1, OTHER, .6), AT(2, WORD, .7), AT(4, FAKE_EOS, .8), AT(5, OTHER, .5), END};
    stage a, b;
    run(&a, "dual", "block=8", rules, 2, 8);
    run(&b, "dual", "block=8 temp=1e-9", rules, 2, 8);
    assert_string_equal(a.log, b.log);
    decoder_close(&a.d);
    decoder_close(&b.d);
    run(&a, "dual", "block=8 ban_eos_conf=true", rules, 2, 8);
    run(&b, "dual", "block=8 ban_eos_conf=true temp=1e-9", rules, 2, 8);
    assert_string_equal(a.log, b.log);
    decoder_close(&a.d);
    decoder_close(&b.d);
}

/* NaN: a sentence that says where. */
static void test_numeric(void **state)
{
    const said rules[] = {AT(1, WORD, .5), IN(2, WORD, NAN, 2, 0), AT(2, WORD, .2), END};
    llada_recipe r;
    stage st;
    llada_recipe_named(&r, "parallel", NULL);
    open_stage(&st, &r, rules, 8);
    assert_int_equal(play_on(&st, NULL, 2, 6), LLADA_NUMERIC);
    assert_non_null(strstr(st.err.text, "pass 2"));
    assert_non_null(strstr(st.err.text, "position 2"));
    decoder_close(&st.d);
}

/* ---------------------------------------------------------------- end tokens kept back */

static void test_bans(void **state)
{
    const said rules[] = {AT(0, FAKE_EOS, .99), AT(1, WORD, .5), AT(2, FAKE_EOT, .98), AT(3, OTHER, .6), END};
    stage st;
    run(&st, "dual", "block=4 early=false", rules, 0, 4);
    must_say(&st, "C0=1 ");
    assert_true(strstr(st.log, "C0=1") < strstr(st.log, "C2=3") && strstr(st.log, "C2=3") < strstr(st.log, "C3=8"));
    decoder_close(&st.d);
    run(&st, "dual", "block=4 early=false ban_eos=true", rules, 0, 4); /* the end of text only, as published */
    must_not_say(&st, "C0=1");
    must_say(&st, "C2=3 ");
    decoder_close(&st.d);
    static const char *const late[] = {"rule=quota", "rule=threshold tau=0.1", "rule=entropy gamma=9",
                                       "rule=margin margin=0", "rule=hierarchical low=0.1 high=0.2",
                                       "rule=credit tau=0.1", "rule=klass tau=0.1", "rule=factor factor=9"};
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
        char text[96];
        snprintf(text, sizeof text, "block=4 early=false ban_eos_conf=true %s", late[i]);
        run(&st, "dual", text, rules, 0, 4);
        const char *eos = strstr(st.log, "C0=1"), *eot = strstr(st.log, "C2=3"), *ends = eos < eot ? eos : eot;
        assert_non_null(ends);
        if (ends < strstr(st.log, "C1=7") || ends < strstr(st.log, "C3=8")) fail_msg("%s: %s", late[i], st.log);
        decoder_close(&st.d);
    }
}

/* Only refresh passes may write an end token; when nothing else is left, the next pass is one. */
static void test_fresh_eos(void **state)
{
    const said rules[] = {AT(0, WORD, .5), IN(1, FAKE_EOS, .99, 2, 0), IN(1, FAKE_EOS, .2, 1, 1), AT(2, OTHER, .45),
                          END};
    stage st;
    run(&st, "parallel", "block=3 fresh_eos=true", rules, 0, 3);
    assert_string_equal(st.log, "[1:all] C0=7 S0=7 [2:0,1,2] C2=8 S2=8 [3:0,1,2] [4:all] C1=1 S1=1 B0 T S2=1 .");
    decoder_close(&st.d);
    run(&st, "parallel", "block=3 fresh_eos=true cache=none", rules, 0, 3);
    assert_int_equal(st.res.passes, 3);
    decoder_close(&st.d);
    /* neither a draft nor an edit */
    const said later[] = {AT(0, WORD, .5), AT(1, WORD, .4), IN(4, FAKE_EOS, .999, 2, 4), LOOK(5, FAKE_EOS, .999), END};
    run(&st, "llada-v1", "block=3 fresh_eos=true refresh=never", later, 0, 9);
    must_not_say(&st, "D4=1 ");
    must_not_say(&st, "E5=1 ");
    decoder_close(&st.d);
    run(&st, "llada-v1", "block=3 refresh=never", later, 0, 9);
    must_say(&st, "D4=1 ");
    must_say(&st, "E5=1 ");
    decoder_close(&st.d);
}

/* ---------------------------------------------------------------- drafts */

static void test_drafts(void **state)
{
    /* block 0: position 1 needs a second pass; drafts at 2 (wrong when looked at again) and 3 (right) */
    const said rules[] = {AT(1, WORD, .3), {2, OTHER, .999, 1, 0, -1}, LOOK(2, WORD, .97), AT(3, WORD, .999), END};
    stage st;
    run(&st, "speculate", "block=2 tau=0.9 trigger=0", rules, 1, 4);
    assert_string_equal(st.log, "[1:all] C0=7 S0=7 [2:0,1,2] C1=7 S1=7 D2=8 B0 [3:all?2] X2 C3=7 S3=7 "
                                "[4:2,3] C2=8 S2=8 B1 T .");
    decoder_close(&st.d);
    run(&st, "speculate", "block=2 tau=0.9 refresh=never", rules, 1, 4);
    /* looking ahead, to a multiple of 32 rows */
    assert_string_equal(st.log, "[1:all] C0=7 S0=7 [2:0,1,2,3] C1=7 S1=7 D2=8 D3=7 B0 [3:1,2,3?2,3] X2 K3=7 S3=7 "
                                "[4:2] C2=8 S2=8 B1 T .");
    assert_int_equal(st.res.drafts, 2);
    assert_int_equal(st.res.draft_ok, 1);
    assert_int_equal(st.res.rows, 5 + 4 + 5 + 1);
    decoder_close(&st.d);
    run(&st, "speculate", "block=2 tau=0.9 refresh=never verify=false", rules, 1, 4);
    must_say(&st, "D2=8 S2=8 ");
    must_not_say(&st, "K");
    assert_int_equal(st.res.canvas[2], OTHER);
    decoder_close(&st.d);
    /* a position whose draft was dropped as often as allowed is no draft any more */
    const said stubborn[] = {AT(0, WORD, .3), AT(1, WORD, .2), MASK(2, OTHER, .999), LOOK(2, WORD, .97), END};
    run(&st, "speculate", "block=1 tau=0.9 refresh=never rmax=0", stubborn, 0, 4);
    must_say(&st, "X2 ");
    assert_null(strstr(strstr(st.log, "X2") + 1, "D2"));
    decoder_close(&st.d);
}

/* Hold: drafts are not shown, so not seen and not told, until their block is current; the last look counts. */
static void test_hold(void **state)
{
    const said rules[] = {IN(0, WORD, .3, 1, 2), IN(1, WORD, .2, 1, 3),       MASK(2, OTHER, .999), LOOK(2, OTHER, .97),
                          IN(3, WORD, .999, 1, 2), IN(3, WORD, .5, 3, 0), END};
    stage st;
    run(&st, "speculate", "block=2 tau=0.9 mbsd=hold refresh=never", rules, 0, 4);
    assert_string_equal(st.log, "[1:all] C0=7 S0=7 [2:0,1,2,3] C1=7 S1=7 B0 D2=8 D3=7 [3:1,2,3?2,3] K2=8 S2=8 X3 "
                                "[4:3] C3=7 S3=7 B1 T .");
    assert_int_equal(st.res.drafts, 2);
    assert_true(st.res.confidence[2] > .96 && st.res.confidence[2] < .98);
    decoder_close(&st.d);
    /* held for two passes: counted once; withdrawn by the second look */
    const said twice[] = {AT(0, WORD, .3), AT(1, WORD, .2), AT(2, WORD, .15), IN(3, OTHER, .999, 1, 2),
                          IN(3, OTHER, .5, 3, 0), AT(4, OTHER, .999), END};
    run(&st, "speculate", "block=3 tau=0.9 mbsd=hold refresh=never", twice, 0, 6);
    must_not_say(&st, "D3");
    must_say(&st, "B0 D4=8 [4:2,3,4,5?4] K4=8 ");
    assert_int_equal(st.res.drafts, 2);
    decoder_close(&st.d);
    run(&st, "speculate", "block=2 tau=0.9 mbsd=hold refresh=never verify=false", rules, 0, 4);
    must_say(&st, "B0 D2=8 S2=8 D3=7 S3=7 ");
    assert_true(st.res.confidence[2] > .99);
    decoder_close(&st.d);
}

/* ---------------------------------------------------------------- revision */

/* A draft that every look finds likely, but not likely enough, must not keep the end waiting for ever: it goes. */
static void test_undecided_draft(void **state)
{
    const said likely[] = {MASK(0, WORD, .2), MASK(2, WORD, .999), MASK(3, WORD, .999), LOOK(3, WORD, .8), END};
    const said other[] = {MASK(0, WORD, .2), MASK(2, WORD, .999), MASK(3, WORD, .999), LOOK(3, OTHER, .4), END};
    stage st;
    run(&st, "llada-v1", "block=2 refresh=never rmax=2", likely, 0, 4);
    must_say(&st, "D2=7 D3=7 (2) B0 B1 (3) (4) "); /* no mask is left, so no pass judges it */
    must_say(&st, "(5) X3 S0=7 S2=7 [6:3] ");
    must_say(&st, "C3=7 ");
    assert_int_equal(st.res.n_tokens, 4);
    decoder_close(&st.d);
    run(&st, "llada-v1", "block=2 refresh=never rmax=2 remask=0", other, 0, 4);
    must_say(&st, "X3 ");
    assert_int_equal(st.res.n_tokens, 4);
    decoder_close(&st.d);
}

/* Settling takes n_stable looks in a row; own confidence decides re-masks; over rmax changes a token stays. */
static void test_merges(void **state)
{
    stage st;
    run(&st, "llada-v1", "block=4 mbsd=off vis=0.9 stable=0.9 n_stable=3", NULL, 0, 4);
    assert_string_equal(st.log, "[1:all] C0=7 C1=7 C2=7 C3=7 (1) B0 (2) (3) S0=7 S1=7 S2=7 S3=7 T .");
    assert_int_equal(st.res.jobs, 3);
    assert_int_equal(st.res.rev_rows, 3 * 8);
    assert_int_equal(st.res.sweeps, 4);
    decoder_close(&st.d);
    /* likely but never over `stable`: rmax + 2 looks */
    run(&st, "llada-v1", "block=4 mbsd=off vis=0.9 stable=0.99 rmax=1", NULL, 0, 2);
    assert_string_equal(st.log, "[1:all] C0=7 C1=7 (1) B0 (2) (3) S0=7 S1=7 T .");
    decoder_close(&st.d);
    /* another token each time, too weak to edit, own strong enough to stay: rmax + 1 looks */
    const said weak[] = {LOOK(0, OTHER, .5), END};
    run(&st, "llada-v1", "block=4 mbsd=off vis=0.9 stable=0.9 n_stable=1 rmax=1 remask=0", weak, 0, 2);
    assert_string_equal(st.log, "[1:all] C0=7 C1=7 (1) S1=7 B0 (2) S0=7 T .");
    decoder_close(&st.d);
    /* own too weak: a mask again, and written anew in the block it lies in */
    run(&st, "llada-v1", "block=4 mbsd=off vis=0.9 stable=0.9 n_stable=1 rmax=1 remask=0.3", weak, 0, 2);
    assert_string_equal(st.log, "[1:all] C0=7 C1=7 (1) R0 S1=7 [2:0] C0=7 (2) S0=7 B0 T .");
    decoder_close(&st.d);
    /* two tokens that want to change into each other: rmax edits, then it stays as it is */
    const said flip[] = {{0, OTHER, .95, 2, 2, 1}, {0, WORD, .95, 3, 3, 1}, {0, OTHER, .95, 4, 9, 1}, END};
    run(&st, "llada-v1", "block=4 mbsd=off vis=0.9 stable=0.9 n_stable=1 rmax=2", flip, 0, 2);
    assert_string_equal(st.log, "[1:all] C0=7 C1=7 (1) E0=8 S1=7 B0 (2) E0=7 (3) S0=7 T .");
    assert_int_equal(st.res.edits, 2);
    decoder_close(&st.d);
}

/* Results enter `lag` steps after the launch, however the job was run. */
static void test_lag(void **state)
{
    static const char *const exec[] = {"serial", "fused", "async"};
    const said slow[] = {MASK(3, WORD, .3), MASK(2, WORD, .2), END};
    for (int e = 0; e < 3; e++) {
        stage st;
        char text[128];
        snprintf(text, sizeof text, "block=4 mbsd=off vis=0.9 stable=0.9 n_stable=1 lag=2 exec=%s", exec[e]);
        run(&st, "llada-v1", text, slow, 0, 4);
        assert_string_equal(st.log, "[1:all] C0=7 C1=7 [2:0,1,2,3] C3=7 (2) S0=7 S1=7 [3:2,3] C2=7 (3) S3=7 B0 "
                                    "(4) S2=7 T .");
        decoder_close(&st.d);
    }
}

/* A draft dropped, and written anew as another token, while a job looks at it: what the job found is of no use. */
static void test_stale(void **state)
{
    const said rules[] = {MASK(0, WORD, .3), MASK(1, WORD, .2),     {2, OTHER, .999, 1, 3, -1},
                          MASK(3, WORD, .1), {2, 9, .95, 1, 5, 1}, END};
    stage st;
    run(&st, "llada-v1", "block=2 vis=0.9 stable=0.9 n_stable=1 lag=3 refresh=never exec=serial", rules, 0, 4);
    must_say(&st, "D2=8 ");
    must_say(&st, "X2 ");
    must_say(&st, "C2=7 ");
    must_not_say(&st, "E2");
    decoder_close(&st.d);
}

/* Reading the weights: a job that rides in a dense pass or runs beside one costs no sweep of its own. */
static void test_sweeps(void **state)
{
    static const struct {
        const char *exec;
        int beside; /* jobs that cost nothing */
    } cases[] = {{"serial", 0}, {"fused", 3}, {"async", 3}};
    const said slow[] = {MASK(0, WORD, .3), MASK(1, WORD, .2), MASK(2, WORD, .15), END};
    for (int i = 0; i < 3; i++) {
        stage st;
        char text[128];
        snprintf(text, sizeof text, "block=4 mbsd=off vis=0.9 stable=0.9 n_stable=1 lag=2 exec=%s", cases[i].exec);
        run(&st, "llada-v1", text, slow, 0, 4);
        assert_int_equal(st.res.passes, 4); /* one job after each; the last has no pass to go with */
        assert_int_equal(st.res.jobs, 4);
        assert_int_equal(st.res.sweeps, 4 + 4 - cases[i].beside);
        decoder_close(&st.d);
    }
}

/* More tokens in a job than rows in a dense pass. */
static void test_large_job(void **state)
{
    stage st;
    run(&st, "llada-v1", "block=8 mbsd=off vis=0.9 stable=0.9 n_stable=1 rev=64", NULL, 0, 8);
    assert_int_equal(st.res.rev_rows, 16);
    decoder_close(&st.d);
}

/* ---------------------------------------------------------------- rows */

static void test_rows(void **state)
{
    static const struct {
        const char *recipe, *settings, *says;
    } cases[] = {
        {"parallel", "block=3 tau=2 cache=none", "[1:all] C0=7 S0=7 [2:all] C1=7 S1=7 [3:all] C2=7 S2=7 B0 [4:all] "},
        {"parallel", "block=3 tau=2 cache=prefix", "[1:all] C0=7 S0=7 [2:0,1,2,3,4,5,6,7] "},
        {"parallel", "block=3 tau=2 cache=prefix", "B0 [4:all] C3=7 S3=7 [5:3,4,5,6,7] "},
        {"parallel", "block=3 tau=2", "[1:all] C0=7 S0=7 [2:0,1,2] C1=7 S1=7 [3:0,1,2] C2=7 S2=7 B0 [4:all] "},
        {"parallel", "block=3 tau=2", "B1 [7:all] C6=7 S6=7 [8:6,7] C7=7 S7=7 B2 "},
        {"parallel", "block=3 tau=2 refresh=never", "B0 [4:3,4,5] "},
        {"parallel", "block=3 tau=2 refresh=every refresh_n=2",
         "[1:all] C0=7 S0=7 [2:0,1,2] C1=7 S1=7 [3:all] C2=7 S2=7 B0 [4:3,4,5] "},
        {"parallel", "block=3 tau=2 refresh=every refresh_n=1", "[1:all] C0=7 S0=7 [2:all] "},
        {"parallel", "block=3 tau=2 vicinity=1", "[2:-1,0,1,2,3] "},
        {"parallel", "block=3 tau=2 vicinity=1", "[8:5,6,7] "},
        {"parallel", "block=3 tau=2 vicinity=9", "[2:-2,-1,0,1,2,3,4,5,6,7] "},
        {"parallel", "block=3 tau=2 vicinity=1 cache=prefix", "[5:2,3,4,5,6,7] "},
        /* the window: the block's masks, a block's length from the first mask on, what the last pass wrote */
        {"speculate", "block=3 tau=2 trigger=0", "[1:all] C0=7 S0=7 [2:0,1,2,3] C1=7 S1=7 [3:1,2,3,4] "},
        {"speculate", "block=3 tau=2 tau_draft=2 look=2", "[2:0,1,2,3,4,5] "},
        {"speculate", "block=3 tau=2 tau_draft=2 bucket=4", "[2:0,1,2,3] C1=7 S1=7 [3:1,2,3,4] "},
        {"speculate", "block=3 tau=2 tau_draft=2 bucket=5", "[2:0,1,2,3,4] C1=7 S1=7 [3:1,2,3,4,5] "},
        {"speculate", "block=3 tau=2 tau_draft=2 look=0 vicinity=1", "[2:-1,0,1,2,3] C1=7 S1=7 [3:-1,0,1,2,3,4] "},
        {"speculate", "block=3 tau=2 tau_draft=2 look=0 cache=none", "[2:all] "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stage st;
        run(&st, cases[i].recipe, cases[i].settings, NULL, 2, 8);
        if (!strstr(st.log, cases[i].says)) fail_msg("case %zu (%s): %s", i, cases[i].settings, st.log);
        decoder_close(&st.d);
    }
}

static void test_guided_passes(void **state)
{
    stage st;
    run(&st, "parallel", "block=3 cfg=1 tau=0.5", NULL, 2, 6);
    assert_int_equal(st.net.passes, 4);
    assert_int_equal(st.res.passes, 4);
    assert_int_equal(st.res.full, 2);
    assert_int_equal(st.res.rows, 4 * 8);
    decoder_close(&st.d);
}

/* Two holes: the end of one text is not the end of the other; Dream's schedule counts open masks only. */
static void test_holes(void **state)
{
    const int32_t canvas[] = {LLADA_HOLE, LLADA_HOLE, LLADA_HOLE, 9, LLADA_HOLE, LLADA_HOLE, LLADA_HOLE};
    const said rules[] = {AT(0, FAKE_EOS, .99), AT(1, WORD, .5), AT(2, WORD, .5), AT(6, WORD, .6), END};
    static const char *const names[] = {"parallel", "speculate", "llada", "dream"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        llada_recipe r;
        stage st;
        llada_recipe_named(&r, names[i], NULL);
        r.steps = i == 3 ? 7 : 0;
        open_stage(&st, &r, rules, 8);
        if (play_on(&st, canvas, 0, 7)) fail_msg("%s: %s", names[i], st.err.text);
        const int32_t want[] = {FAKE_EOS, FAKE_EOS, FAKE_EOS, 9, WORD, WORD, WORD}, text[] = {WORD, WORD, WORD};
        if (i > 0) assert_memory_equal(st.res.canvas, want, sizeof want);
        assert_int_equal(st.res.n_tokens, 3);
        assert_memory_equal(st.res.tokens, text, sizeof text);
        if (strstr(st.log, "] [")) fail_msg("%s: a pass without a decision: %s", names[i], st.log);
        decoder_close(&st.d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),      cmocka_unit_test(test_end_withdrawn),  cmocka_unit_test(test_no_eos),
        cmocka_unit_test(test_mask_wins), cmocka_unit_test(test_flat),           cmocka_unit_test(test_cold),
        cmocka_unit_test(test_numeric),   cmocka_unit_test(test_bans),           cmocka_unit_test(test_fresh_eos),
        cmocka_unit_test(test_drafts),    cmocka_unit_test(test_hold),           cmocka_unit_test(test_undecided_draft),
        cmocka_unit_test(test_merges),    cmocka_unit_test(test_lag),            cmocka_unit_test(test_stale),
        cmocka_unit_test(test_sweeps),
        cmocka_unit_test(test_large_job), cmocka_unit_test(test_rows),           cmocka_unit_test(test_guided_passes),
        cmocka_unit_test(test_holes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
