/* fake_device.h - a device without a network, for tests of the decoding loop: it checks every pass as strictly as a
 * real one and a little more (each column must hold the K,V of its position; no group sees another's fresh rows), and
 * makes up scores.  What a row "computes" is a hash of what it sees, over two layers as in a network: wrong, stale or
 * missing columns change the scores.  A test may also write the scores itself, by position (`script`).
 *
 *     device_weights net = {.salt = 7, .noise = 2};
 *     fake_model(&parts, false, false);
 *     decoder_open(&d, &parts.m, &fake_device, &net, ...);
 *
 * Include it in one file of a program: it defines the two opaque types of device.h. */
#ifndef TESTS_FAKE_DEVICE_H
#define TESTS_FAKE_DEVICE_H

#include <math.h>
#include <stdio.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "device/device.h"
#include "format/gguf_impl.h"
#include "model/model.h"

/* A model of which only the loop's part exists. */
enum { FAKE_EOS = 1, FAKE_EOT = 3, FAKE_MASK = 5, FAKE_VOCAB = 12, FAKE_ROWS = 14 };

typedef struct {
    gguf file;
    model_arch arch;
    model m;
} fake_model_parts;

static inline void fake_model(fake_model_parts *f, bool shift, bool causal)
{
    *f = (fake_model_parts){.arch = {.name = "fake", .shift_logits = shift, .causal = causal}};
    f->m.file = &f->file;
    f->m.arch = &f->arch;
    f->m.n_vocab = FAKE_VOCAB;
    f->m.g.n_vocab_rows = FAKE_ROWS; /* two rows of padding */
    f->m.mask = FAKE_MASK;
    f->m.eos = f->m.pad = FAKE_EOS;
    f->m.eot = FAKE_EOT;
    f->m.bos = -1;
    f->m.ends[0] = FAKE_EOS;
    f->m.ends[1] = FAKE_EOT;
    f->m.n_ends = 2;
}

/* Scores of one row, FAKE_ROWS of them.  pass: from 1, runs of the device (0: by the worker of exec async); alone: a
 * token of this position was looked behind (a shadow row). */
typedef void fake_script(void *user, int pass, int pos, bool alone, float *logits);

struct device_weights {
    uint64_t salt;
    fake_script *script; /* NULL: scores are made of the hash */
    void *user;
    int ends;            /* of 256 positions, how many would like to be an end token */
    int bad;             /* of 4096 rows, how many get NaN or infinity */
    bool causal;         /* a row sees nothing behind its position */
    int noise;           /* 0..5: how much what a row sees counts against what its position likes */
    atomic_int passes, jobs; /* runs; of these with two groups; a revision worker counts beside the main thread */
    char wrong[160];     /* the first breach of the contract, or "" */
};

typedef struct {
    int32_t pos, token; /* pos < 0: never written */
    uint64_t layer[2];
} fake_slot;

struct device_ctx {
    device_weights *w;
    device_limits lim;
    fake_slot *slot;  /* [lim.slots]; owned unless kv_of */
    uint32_t *stamp;  /* [lim.slots] the pass that wrote it last */
    uint8_t *writer;  /* [lim.slots] its group there */
    uint64_t *fresh;  /* [max_rows] */
    float *logits;
    uint32_t pass_no;
};

static inline uint64_t fake_mix(uint64_t a, uint64_t b) { return rng_mix(a * 0x9e3779b97f4a7c15u + b); }

static inline void fake_close(device_ctx **pc)
{
    device_ctx *c = *pc;
    if (!c) return;
    if (!c->lim.kv_of) mem_free(c->slot);
    mem_free(c->stamp);
    mem_free(c->writer);
    mem_free(c->fresh);
    mem_free(c->logits);
    mem_free(c);
    *pc = NULL;
}

static inline llada_status fake_open(device_ctx **out, device_weights *w, const device_limits *lim, llada_err *err)
{
    device_ctx *c = mem_new(sizeof *c);
    if (!c) return llada_fail(err, LLADA_NO_MEMORY, "no memory for a fake context");
    size_t slots = (size_t)lim->slots;
    c->w = w;
    c->lim = *lim;
    c->slot = lim->kv_of ? lim->kv_of->slot : mem_array(slots, sizeof *c->slot);
    c->stamp = mem_array(slots, sizeof *c->stamp);
    c->writer = mem_array(slots, 1);
    c->fresh = mem_array((size_t)lim->max_rows, sizeof *c->fresh);
    c->logits = mem_array(FAKE_ROWS, sizeof *c->logits);
    if (!c->slot || !c->stamp || !c->writer || !c->fresh || !c->logits) {
        fake_close(&c);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for a fake context");
    }
    for (size_t i = 0; i < slots && !lim->kv_of; i++) c->slot[i].pos = -1;
    *out = c;
    return LLADA_OK;
}

static inline llada_status fake_wrong(device_ctx *c, llada_err *err, const char *what, int a, int b)
{
    if (!c->w->wrong[0]) snprintf(c->w->wrong, sizeof c->w->wrong, "%s (%d, %d)", what, a, b);
    return llada_fail(err, LLADA_BAD_ARG, "%s (%d, %d)", what, a, b);
}

static inline llada_status fake_rows(device_ctx *c, const pass *p, llada_err *err)
{
    if (p->n < 1 || p->n > c->lim.max_rows) return fake_wrong(c, err, "rows of a pass", p->n, c->lim.max_rows);
    if (p->n_want < 0 || p->n_want > c->lim.max_want) return fake_wrong(c, err, "wanted", p->n_want, c->lim.max_want);
    c->pass_no++;
    for (int r = 0; r < p->n; r++) {
        int s = p->slot[r];
        if (s < 0 || s >= c->lim.slots) return fake_wrong(c, err, "slot", s, c->lim.slots);
        if (p->pos[r] < 0 || p->pos[r] >= c->lim.max_pos)
            return fake_wrong(c, err, "position", p->pos[r], c->lim.max_pos);
        if (p->token[r] < 0 || p->token[r] >= FAKE_VOCAB) return fake_wrong(c, err, "token", p->token[r], r);
        if (p->group[r] >= PASS_GROUPS) return fake_wrong(c, err, "group", p->group[r], r);
        if (c->stamp[s] == c->pass_no) return fake_wrong(c, err, "two rows write a slot", s, r);
        c->stamp[s] = c->pass_no;
        c->writer[s] = p->group[r];
        c->slot[s] = (fake_slot){p->pos[r], p->token[r], {fake_mix((uint64_t)p->pos[r] + 1, (uint64_t)p->token[r]), 0}};
    }
    for (int i = 0; i < p->n_want; i++)
        if (p->want[i] < 0 || p->want[i] >= p->n) return fake_wrong(c, err, "wanted row", p->want[i], p->n);
    for (int r = 0; p->instead && r < p->n; r++)
        if (p->instead[r] < -1 || p->instead[r] >= p->n) return fake_wrong(c, err, "row instead", p->instead[r], p->n);
    return LLADA_OK;
}

static inline llada_status fake_cols(device_ctx *c, const pass *p, int g, llada_err *err)
{
    const pass_cols *l = &p->cols[g];
    for (int i = 0; i < l->n; i++) {
        int s = l->slot[i];
        if (s < 0 || s >= c->lim.slots) return fake_wrong(c, err, "column's slot", s, i);
        if (i > 0 && l->pos[i] <= l->pos[i - 1]) return fake_wrong(c, err, "columns out of order", l->pos[i], i);
        if (c->slot[s].pos != l->pos[i])
            return fake_wrong(c, err, "column holds another position", c->slot[s].pos, l->pos[i]);
        if (c->stamp[s] == c->pass_no && c->writer[s] != g) return fake_wrong(c, err, "column of another group", s, g);
    }
    return LLADA_OK;
}

/* What row r sees in a layer, in order of position, its own slot at its own place. */
static inline uint64_t fake_see(const device_ctx *c, const pass *p, int r, int layer)
{
    const pass_cols *l = &p->cols[p->group[r]];
    int other = p->instead ? p->instead[r] : -1;
    uint64_t h = c->w->salt;
    bool own = false;
    for (int i = 0; i <= l->n; i++) {
        if (!own && (i == l->n || l->pos[i] >= p->pos[r])) {
            h = fake_mix(h, c->slot[p->slot[r]].layer[layer]);
            own = true;
            if (i < l->n && l->pos[i] == p->pos[r]) continue;
        }
        if (i == l->n || (c->w->causal && l->pos[i] > p->pos[r])) continue;
        int slot = other >= 0 && l->pos[i] == p->pos[other] ? p->slot[other] : l->slot[i];
        h = fake_mix(h, c->slot[slot].layer[layer]);
    }
    return fake_mix(h, (uint64_t)layer);
}

/* A position has a favourite; what the row sees adds to it or speaks against it. */
static inline void fake_logits(const device_weights *w, uint64_t h, int pos, float *out)
{
    static const float noise[6] = {0.1f, 1, 3, 6, 12, 30}, like[8] = {0, 0, 2, 4, 6, 8, 12, 30};
    uint64_t of_pos = fake_mix(w->salt ^ 0x5a5a, (uint64_t)pos), r = h;
    int favourite = (int)(of_pos % FAKE_VOCAB);
    if ((int)(of_pos >> 8 & 255) < w->ends) favourite = of_pos >> 16 & 1 ? FAKE_EOS : FAKE_EOT;
    for (int i = 0; i < FAKE_ROWS; i++) {
        r = rng_mix(r);
        out[i] = noise[w->noise] * (float)(r >> 40) / (float)(1 << 24);
    }
    out[favourite] += like[h & 7];
    if ((int)(h >> 8 & 4095) < w->bad) out[h >> 20 & 7] = h >> 24 & 1 ? NAN : INFINITY;
}

static inline llada_status fake_run(device_ctx *c, const pass *p, llada_err *err)
{
    llada_status st = fake_rows(c, p, err);
    for (int g = 0; st == LLADA_OK && g < PASS_GROUPS; g++) st = fake_cols(c, p, g, err);
    if (st) return st;
    for (int r = 0; r < p->n; r++) c->fresh[r] = fake_see(c, p, r, 0);
    for (int r = 0; r < p->n; r++) c->slot[p->slot[r]].layer[1] = c->fresh[r];
    if (!c->lim.kv_of) c->w->passes++;
    if (p->cols[1].n) c->w->jobs++;
    for (int i = 0; i < p->n_want; i++) {
        int r = p->want[i], pos = p->pos[r];
        bool alone = false;
        for (int k = 0; k < p->cols[p->group[r]].n; k++)
            if (p->cols[p->group[r]].pos[k] == pos) alone = p->cols[p->group[r]].slot[k] != p->slot[r];
        if (c->w->script)
            c->w->script(c->w->user, c->lim.kv_of ? 0 : c->w->passes, pos, alone, c->logits);
        else
            fake_logits(c->w, fake_see(c, p, r, 1), pos, c->logits);
        if (p->logits) memcpy(p->logits + (size_t)i * FAKE_ROWS, c->logits, FAKE_ROWS * sizeof *c->logits);
        if (p->out) score_row(&p->out[i], c->logits, FAKE_ROWS, p->how, &p->ask[i]);
    }
    return LLADA_OK;
}

static inline llada_status fake_weights_open(device_weights **out, const graph *g, llada_err *err)
{
    return llada_fail(err, LLADA_UNSUPPORTED, "the fake device's weights are the test's");
}
static inline void fake_weights_close(device_weights **w) { *w = NULL; }
static inline int fake_threads(const device_ctx *c) { return c->lim.threads; }
static inline size_t fake_bytes(const device_ctx *c) { return sizeof *c; }

static const device fake_device = {"fake",     fake_weights_open, fake_weights_close, fake_open,
                                   fake_close, fake_run,          fake_threads,       fake_bytes,
                                   NULL,       NULL};

#endif
