/* window.c - which rows a pass computes: whole canvas, prefix or dual cache, or the sliding window of multi-block
 * speculation (docs/decoding.md, section 5). */
#include "base/mem.h"
#include "decode/canvas.h"

int canvas_block_start(const decoder *d, int block) { return d->n_prompt + block * d->r.block; }

int canvas_block_end(const decoder *d, int block)
{
    int end = d->n_prompt + (block + 1) * d->r.block;
    return end < d->n_all ? end : d->n_all;
}

static bool open_mask(const decoder *d, int i) { return d->state[i] == POS_INVISIBLE && !d->closed[i]; }

/* The block of the first position that is a mask or an unconfirmed draft. */
static int current_block(const decoder *d)
{
    for (int i = d->n_prompt; i < d->n_all; i++)
        if (!d->closed[i] && (d->state[i] == POS_INVISIBLE || d->draft[i])) return canvas_block(d, i);
    return -1;
}

static int count_masks(const decoder *d, int lo, int hi)
{
    int n = 0;
    for (int i = lo; i < hi; i++) n += open_mask(d, i);
    return n;
}

static int first_mask(const decoder *d, int lo, int hi)
{
    for (int i = lo; i < hi; i++)
        if (open_mask(d, i)) return i;
    return hi;
}

/* Hold mode: drafts of the block that becomes current are shown now, to be confirmed by the pass that comes. */
static void show_held(decoder *d, int lo, int hi)
{
    for (int i = lo; i < hi; i++) {
        if (d->held[i] < 0 || d->state[i] != POS_INVISIBLE) continue;
        canvas_draft(d, i, d->held[i], d->conf[i]);
    }
}

static bool wants_refresh(const decoder *d, bool new_block)
{
    if (d->block < 0 || d->need_refresh || d->r.cache == LLADA_CACHE_NONE) return true;
    if (d->r.refresh == LLADA_REFRESH_EVERY) return d->since_refresh >= d->r.refresh_n;
    return new_block && d->r.refresh == LLADA_REFRESH_BLOCK;
}

static void add_rows(decoder *d, int lo, int hi)
{
    for (int i = lo; i < hi; i++) rows_add(&d->rows, i, d->token[i], -1, 0, ROW_PLAIN);
}

/* Milliseconds of a pass of n rows, between the measured points on a line, past the last one in proportion. */
static double cost(const decoder *d, int n)
{
    const llada_latency *t = d->latency;
    int k = 0, last = d->n_latency - 1;
    while (k < last && t[k].rows < n) k++;
    if (t[k].rows >= n && k == 0) return t[0].ms;
    if (t[k].rows < n) return t[k].ms * n / t[k].rows;
    double part = (double)(n - t[k - 1].rows) / (t[k].rows - t[k - 1].rows);
    return t[k - 1].ms + part * (t[k].ms - t[k - 1].ms);
}

/* Rows that may be added to n: up to the device's next bucket; by the table, while they cost under a twentieth more. */
static int room(const decoder *d, int n)
{
    int more = 0, bucket = d->r.bucket ? d->r.bucket : 32;
    if (d->r.bucket || !d->n_latency)
        more = n ? (bucket - n % bucket) % bucket : bucket;
    else
        while (more < d->r.look && cost(d, n + more + 1) <= 1.05 * cost(d, n ? n : 1)) more++;
    return more < d->r.look ? more : d->r.look;
}

/* Marks a row for this pass; returns how many that adds. */
static int choose_row(decoder *d, int i)
{
    int n = !d->chosen[i];
    d->chosen[i] = true;
    return n;
}

/* A mask that is to be scored, and where scores are shifted the row before it. */
static int choose_mask(decoder *d, int i)
{
    int n = choose_row(d, i);
    return d->shift && i > 0 ? n + choose_row(d, i - 1) : n;
}

/* The masks a window pass scores beyond the current block end, marked in d->chosen; and all masks of the block.  looks:
 * shadow rows that come on top. */
static void choose_window(decoder *d, int b0, int b1, int looks)
{
    int in_block = 0, n = looks;
    for (int i = b0; i < b1; i++)
        if (open_mask(d, i)) n += choose_mask(d, i), in_block++;
    for (int i = d->n_prompt; i < d->n_all; i++) {
        bool stale = d->state[i] >= POS_VISIBLE && !d->fresh[i];
        if (stale) n += choose_row(d, i);
    }
    if (d->r.mbsd == LLADA_MBSD_OFF) return;
    int left = in_block ? first_mask(d, b0, b1) : b0;
    int slide = left + d->r.block; /* continuous sliding: a window of one block from the first mask on */
    for (int i = b1; i < d->n_all && i < slide; i++)
        if (open_mask(d, i)) n += choose_mask(d, i);
    if (in_block >= d->r.trigger) return;
    int more = room(d, n); /* adaptive lookahead */
    for (int i = b1 > slide ? b1 : slide; i < d->n_all && more > 0; i++)
        if (open_mask(d, i)) more -= choose_mask(d, i);
}

static void plan_rows(decoder *d, int b0, int b1)
{
    if (d->full) {
        add_rows(d, 0, d->n_all);
    } else if (d->windowed) {
        for (int i = 0; i < d->n_all; i++)
            if (d->chosen[i]) rows_add(&d->rows, i, d->token[i], -1, 0, ROW_PLAIN);
    } else {
        int lo = b0 - d->shift - d->r.vicinity, hi = d->r.cache == LLADA_CACHE_PREFIX ? d->n_all : b1 + d->r.vicinity;
        add_rows(d, lo > 0 ? lo : 0, hi < d->n_all ? hi : d->n_all);
    }
}

/* What rules and options will need of the scores is probed here. */
void want_mask(decoder *d, int row, int pos)
{
    score_ask *ask = rows_want(&d->rows, row, pos);
    if (d->r.temp > 0) ask->seed = rng_next(&d->random);
    const rule_memory *m = &d->mem[pos];
    if (d->r.rule == LLADA_RULE_KLASS)
        for (int j = 0; j < SCORE_TOP && m->top[0] >= 0 && m->top[j] >= 0; j++) ask->probe[ask->n_probe++] = m->top[j];
    if (d->r.ban_eos_conf && d->r.rule != LLADA_RULE_KLASS)
        for (int j = 0; j < d->m->n_ends; j++) ask->probe[ask->n_probe++] = d->m->ends[j];
}

/* The row that has the scores of row i's position: itself, or where scores are shifted the one before; -1: not in this
 * pass. */
static int scoring_row(const decoder *d, int i)
{
    const int32_t *pos = d->rows.pos;
    if (!d->shift || pos[i] == 0) return i;
    return i > 0 && pos[i - 1] == pos[i] - 1 ? i - 1 : -1;
}

llada_status window_plan(decoder *d, llada_err *err)
{
    int block = current_block(d);
    int b0 = canvas_block_start(d, block), b1 = canvas_block_end(d, block);
    bool new_block = block != d->block;
    if (d->r.mbsd == LLADA_MBSD_HOLD) show_held(d, b0, b1);
    d->full = wants_refresh(d, new_block);
    d->need_refresh = false;
    d->since_refresh = d->full ? 1 : d->since_refresh + 1;
    if (new_block) {
        d->block_masks = count_masks(d, b0, b1);
        d->block_step = 0;
    }
    d->block = block;

    d->n_checks = 0;
    d->n_seen = d->n_all;
    for (int i = d->n_prompt; i < b1; i++) d->n_checks += d->draft[i] && !d->closed[i];
    for (int i = 0; i < d->n_all; i++) d->chosen[i] = false;
    if (d->windowed && !d->full) choose_window(d, b0, b1, d->n_checks * d->per_look);
    for (int i = b0 - d->r.vicinity; i < b1 + d->r.vicinity; i++) /* all of the block and around it, masks or not */
        if (d->r.vicinity && i >= 0 && i < d->n_all) d->chosen[i] = true;
    if (d->r.rule == LLADA_RULE_DREAM) dream_plan(d);
    rows_clear(&d->rows);
    plan_rows(d, b0, b1);

    /* positions scored up to here: the block; with speculation as far as the window reaches */
    int left = first_mask(d, b0, b1), reach = b1;
    if (!d->full && d->r.mbsd != LLADA_MBSD_OFF) reach = d->n_all;
    if (d->full && d->r.mbsd != LLADA_MBSD_OFF && left < b1 && left + d->r.block > b1) reach = left + d->r.block;
    bool some = d->r.rule == LLADA_RULE_DREAM && d->r.alg == LLADA_ALG_ORIGIN; /* only the chosen masks */
    int dense = d->rows.n;
    for (int i = 0; i < dense; i++) {
        int pos = d->rows.pos[i];
        if (pos < (d->windowed ? 0 : b0) || pos >= reach || !open_mask(d, pos) || (some && !d->chosen[pos])) continue;
        int row = scoring_row(d, i);
        if (row >= 0) want_mask(d, row, pos);
    }
    for (int i = d->n_prompt; i < b1; i++) {
        if (!d->draft[i] || d->closed[i]) continue;
        if (!rows_look(d, &d->rows, i, i > 0 ? d->token[i - 1] : d->m->mask, NULL, 0))
            return llada_fail(err, LLADA_NO_MEMORY, "more rows than the %d planned for", d->rows.cap);
    }
    return LLADA_OK;
}
