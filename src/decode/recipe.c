/* recipe.c - the settings of decoding: one table of keys with type, range and meaning, and the recipes known by name.
 * Flags of the program, settings files and fields of requests all come through llada_recipe_set, so that a key means
 * and refuses the same everywhere. */
#include "decode/recipe.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { K_INT, K_REAL, K_BOOL, K_WORD } key_kind;

typedef struct {
    const char *word;
    int value;
} word_value;

/* The first word of a value is its name; later ones are accepted spellings. */
static const word_value cache_words[] = {{"none", LLADA_CACHE_NONE}, {"prefix", LLADA_CACHE_PREFIX},
                                         {"dual", LLADA_CACHE_DUAL}, {NULL, 0}};
static const word_value rule_words[] = {{"quota", LLADA_RULE_QUOTA},       {"threshold", LLADA_RULE_THRESHOLD},
                                        {"factor", LLADA_RULE_FACTOR},     {"entropy", LLADA_RULE_ENTROPY},
                                        {"margin", LLADA_RULE_MARGIN},     {"klass", LLADA_RULE_KLASS},
                                        {"hierarchical", LLADA_RULE_HIERARCHICAL}, {"credit", LLADA_RULE_CREDIT},
                                        {"dream", LLADA_RULE_DREAM},       {"ar", LLADA_RULE_AR},
                                        {NULL, 0}};
static const word_value alg_words[] = {{"origin", LLADA_ALG_ORIGIN}, {"maskgit_plus", LLADA_ALG_MASKGIT_PLUS},
                                       {"topk_margin", LLADA_ALG_TOPK_MARGIN}, {"entropy", LLADA_ALG_ENTROPY},
                                       {NULL, 0}};
static const word_value remasking_words[] = {{"low_confidence", LLADA_REMASK_CONFIDENCE},
                                             {"random", LLADA_REMASK_RANDOM}, {NULL, 0}};
static const word_value mbsd_words[] = {{"off", LLADA_MBSD_OFF}, {"hold", LLADA_MBSD_HOLD}, {"show", LLADA_MBSD_SHOW},
                                        {"on", LLADA_MBSD_SHOW}, {"true", LLADA_MBSD_SHOW}, {"false", LLADA_MBSD_OFF},
                                        {NULL, 0}};
static const word_value refresh_words[] = {{"block", LLADA_REFRESH_BLOCK}, {"never", LLADA_REFRESH_NEVER},
                                           {"every", LLADA_REFRESH_EVERY}, {NULL, 0}};
static const word_value exec_words[] = {{"auto", LLADA_EXEC_AUTO}, {"serial", LLADA_EXEC_SERIAL},
                                        {"async", LLADA_EXEC_ASYNC}, {"fused", LLADA_EXEC_FUSED}, {NULL, 0}};
static const word_value launch_words[] = {{"pass", LLADA_LAUNCH_PASS}, {"boundary", LLADA_LAUNCH_BOUNDARY}, {NULL, 0}};
static const word_value bool_words[] = {{"false", 0}, {"true", 1}, {"off", 0}, {"on", 1}, {"no", 0}, {"yes", 1},
                                        {"0", 0}, {"1", 1}, {NULL, 0}};

/* Every key once: kind, name, range or words, text of the range, help. */
#define KEYS(INT, REAL, FLAG, WORD)                                                                                    \
    INT(gen, 0, RECIPE_MAX_GEN, "0..65536", "canvas length in tokens; 0: as many as max_tokens")                       \
    INT(block, 1, RECIPE_MAX_GEN, "1..65536", "positions per block; the last may be shorter")                          \
    INT(steps, 0, RECIPE_MAX_GEN, "0..65536", "quota and dream: steps over the whole canvas; 0: one token a step")     \
    WORD(cache, cache_words, "none, prefix, dual", "which K,V a pass reuses")                                          \
    WORD(rule, rule_words, "quota, threshold, factor, entropy, margin, klass, hierarchical, credit, dream, ar",        \
         "which masks of the block are committed; dream: of the canvas; ar: the next token, of autoregressive models") \
    REAL(tau, 0, 2, "0..2", "confidence threshold (threshold, klass and credit rules)")                                \
    REAL(factor, 0, 1e6, "0..1e6", "factor rule: largest n with (n+1)(1-c_n) < factor")                                \
    REAL(gamma, 0, 1e6, "0..1e6", "entropy rule: bound in nats")                                                       \
    REAL(margin, 0, 2, "0..2", "margin rule: probability of the best less that of the second")                         \
    REAL(kappa, 0, 1e6, "0..1e6", "klass rule: bound of the KL divergence to the pass before, in nats")                \
    REAL(low, 0, 2, "0..2", "hierarchical rule: the best of a run of masks needs this")                                \
    REAL(high, 0, 2, "0..2", "hierarchical rule: all over this are committed")                                         \
    REAL(credit, 0, 1, "0..1", "credit rule: weight of the past in the running average")                               \
    WORD(remasking, remasking_words, "low_confidence, random", "quota rule: which masks stay masks")                   \
    REAL(temp, 0, 100, "0..100", "0: the best token; else Gumbel noise at this temperature")                           \
    REAL(cfg, 0, 100, "0..100", "classifier-free guidance scale; 0: off")                                              \
    FLAG(ban_eos, "true, false", "the end token can't win")                                                            \
    FLAG(ban_eos_conf, "true, false", "end tokens are committed last")                                                 \
    FLAG(fresh_eos, "true, false", "only refresh passes may commit end tokens")                                        \
    FLAG(early, "true, false", "stop when the text has ended")                                                         \
    WORD(mbsd, mbsd_words, "off, hold, show (on)", "multi-block speculation")                                          \
    INT(trigger, 0, RECIPE_MAX_GEN, "0..65536", "look ahead when the block has fewer masks than this")                 \
    INT(look, 0, RECIPE_MAX_GEN, "0..65536", "most positions of adaptive lookahead")                                   \
    INT(bucket, 0, 4096, "0..4096, auto (0)", "rows are added up to a multiple of this; auto: by the measured table")  \
    REAL(tau_draft, 0, 2, "0..2", "confidence that makes a draft")                                                     \
    FLAG(verify, "true, false", "drafts are re-evaluated when their block becomes current")                            \
    FLAG(dppr, "off, on", "progressive revision")                                                                      \
    REAL(vis, 0, 2, "0..2", "revision: commit, and edit, at this confidence")                                          \
    REAL(stable, 0, 2, "0..2", "revision: a look over this counts towards settling")                                   \
    REAL(remask, 0, 2, "0..2", "revision: a token under this becomes a mask again")                                    \
    INT(n_stable, 1, 100, "1..100", "revision: looks in a row until a token settles")                                  \
    INT(rev, 1, 4096, "1..4096", "revision: tokens a job")                                                             \
    INT(rmax, 0, 100, "0..100", "revision: changes a position at most")                                                \
    INT(lag, 1, RECIPE_MAX_LAG, "1..8", "revision: a job merges this many steps after its launch")                     \
    WORD(refresh, refresh_words, "block, never, every", "when the whole canvas is computed again")                     \
    INT(refresh_n, 1, 65536, "1..65536", "refresh every: passes between refreshes")                                    \
    INT(vicinity, 0, RECIPE_MAX_GEN, "0..65536", "positions around the block computed with it")                        \
    WORD(exec, exec_words, "auto, serial, async, fused", "how revision jobs run; the text is the same")                \
    WORD(launch, launch_words, "pass, boundary", "revision: when a job's snapshot is taken")                           \
    FLAG(calm, "true, false", "revision: settle when a look changes nothing and nothing changed meanwhile")            \
    REAL(edit, 0, 2, "0..2", "revision: confidence an edit needs; 0: vis")                                             \
    REAL(ahead, 0, 2, "0..2", "threshold rule: confidence needed behind a mask that stays; 0: no more than others")    \
    REAL(trust, 0, 2, "0..2", "revision: at the end, no further look when all visible tokens are this confident")      \
    REAL(top_p, 0, 1, "0..1", "with a temperature: draw among the best that hold this much probability; 1: off")       \
    INT(top_k, 0, 1 << 24, "0..16777216", "with a temperature: draw among this many best; 0: off")                     \
    WORD(alg, alg_words, "origin, maskgit_plus, topk_margin, entropy",                                                 \
         "dream rule: what the masks filled first are best in")                                                        \
    REAL(alg_temp, 0, 100, "0..100", "dream rule: masks are drawn, at this temperature; 0: the best")                  \
    REAL(eps, 0, 0.5, "0..0.5", "dream rule: time at which the last step ends")

typedef struct {
    key_kind kind;
    size_t offset; /* into llada_recipe */
    double lo, hi;
    const word_value *words;
} key_def;

#define PUB_NUMBER(f, lo, hi, range, help) {#f, range, help},
#define PUB_FLAG(f, range, help) {#f, range, help},
#define PUB_WORD(f, words, range, help) {#f, range, help},
static const llada_recipe_key pub_keys[] = {KEYS(PUB_NUMBER, PUB_NUMBER, PUB_FLAG, PUB_WORD)};

#define DEF_INT(f, lo, hi, range, help) {K_INT, offsetof(llada_recipe, f), lo, hi, NULL},
#define DEF_REAL(f, lo, hi, range, help) {K_REAL, offsetof(llada_recipe, f), lo, hi, NULL},
#define DEF_FLAG(f, range, help) {K_BOOL, offsetof(llada_recipe, f), 0, 1, bool_words},
#define DEF_WORD(f, words, range, help) {K_WORD, offsetof(llada_recipe, f), 0, 0, words},
static const key_def keys[] = {KEYS(DEF_INT, DEF_REAL, DEF_FLAG, DEF_WORD)};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

/* ---------------------------------------------------------------- recipes by name */

typedef struct {
    const char *name;
    const char *set[32]; /* key, value, ...; what differs from base_recipe */
} named_recipe;

static const named_recipe recipes[] = {
    {"llada", {"mbsd", "show", "dppr", "on", "tau_draft", "0.99", "vis", "0.8", "ahead", "0.99", "edit", "0.4",
               "stable", "0.999", "remask", "0.9", "n_stable", "2", "rev", "32", "rmax", "6", "lag", "2", "launch",
               "boundary", "calm", "true", "trust", "0.98", NULL}},
    {"vanilla", {"cache", "none", "rule", "quota", NULL}},
    {"prefix", {"cache", "prefix", "rule", "quota", NULL}},
    {"dual", {"cache", "dual", "rule", "quota", NULL}},
    {"parallel", {NULL}},
    {"speculate", {"mbsd", "show", "tau", "0.99", "tau_draft", "0.99", NULL}},
    {"dream", {"cache", "none", "rule", "dream", NULL}},
    {"ar", {"rule", "ar", NULL}},
    {"llada-v1", {"mbsd", "show", "dppr", "on", "tau_draft", "0.99", "vis", "0.9", "stable", "0.999", "remask", "0.9",
                  "n_stable", "3", "rev", "64", "rmax", "6", NULL}},
};
enum { N_RECIPES = sizeof recipes / sizeof recipes[0] };

/* The one a session uses when nobody chose. */
#define RECIPE_DEFAULT "llada"

static const char *const recipe_names[N_RECIPES] = {"llada", "vanilla", "prefix", "dual", "parallel", "speculate",
                                                    "dream", "ar", "llada-v1"};

static void base_recipe(llada_recipe *r)
{
    *r = (llada_recipe){
        .size = sizeof *r, .gen = 0, .block = 32, .steps = 0, .cache = LLADA_CACHE_DUAL, .rule = LLADA_RULE_THRESHOLD,
        .tau = 0.9, .factor = 1.0, .gamma = 0.1, .margin = 0.8, .kappa = 0.01, .low = 0.6, .high = 0.9, .credit = 0.7,
        .remasking = LLADA_REMASK_CONFIDENCE, .early = true, .mbsd = LLADA_MBSD_OFF, .trigger = 8, .look = 32,
        .bucket = 32, .tau_draft = 0.9, .verify = true, .vis = 0.7, .stable = 0.9, .remask = 0.3, .n_stable = 1,
        .rev = 8, .rmax = 2, .trust = 2, .lag = 1, .refresh = LLADA_REFRESH_BLOCK, .refresh_n = 16,
        .exec = LLADA_EXEC_AUTO, .top_p = 1, .alg = LLADA_ALG_ENTROPY, .eps = 1e-3,
    };
}

llada_status llada_recipe_named(llada_recipe *r, const char *name, llada_err *err)
{
    if (!r || !name) return llada_fail(err, LLADA_BAD_ARG, "a named recipe needs a place and a name");
    for (int i = 0; i < N_RECIPES; i++) {
        if (strcmp(recipes[i].name, name)) continue;
        base_recipe(r);
        snprintf(r->name, sizeof r->name, "%s", name);
        for (const char *const *kv = recipes[i].set; *kv; kv += 2) {
            llada_status st = llada_recipe_set(r, kv[0], kv[1], err);
            if (st) return st;
        }
        return LLADA_OK;
    }
    char list[256] = "";
    for (int i = 0; i < N_RECIPES; i++) {
        size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", recipes[i].name);
    }
    return llada_fail(err, LLADA_BAD_ARG, "there is no recipe '%.64s'; there are %s", name, list);
}

void llada_recipe_defaults(llada_recipe *r) { llada_recipe_named(r, RECIPE_DEFAULT, NULL); }

const char *const *llada_recipe_names(size_t *n)
{
    *n = N_RECIPES;
    return recipe_names;
}

/* ---------------------------------------------------------------- keys */

const llada_recipe_key *llada_recipe_keys(size_t *n)
{
    *n = N_KEYS;
    return pub_keys;
}

static int find_key(const char *key)
{
    for (int i = 0; i < N_KEYS; i++)
        if (!strcmp(pub_keys[i].key, key)) return i;
    return -1;
}

static llada_status bad_value(int k, const char *value, llada_err *err)
{
    return llada_fail(err, LLADA_BAD_ARG, "%s: '%.40s' is not one of %s", pub_keys[k].key, value, pub_keys[k].values);
}

/* The whole of value as a number; false on trailing characters, on no digits and on NaN. */
static bool whole_number(const char *value, double *v)
{
    if (value[0] == '\0' || strspn(value, "+-.0123456789eE") != strlen(value)) return false;
    char *end;
    errno = 0;
    *v = strtod(value, &end);
    return *end == '\0' && !isnan(*v) && errno == 0;
}

static llada_status set_number(llada_recipe *r, int k, const char *value, llada_err *err)
{
    double v;
    char *at = (char *)r + keys[k].offset;
    if (!whole_number(value, &v) || (keys[k].kind == K_INT && v != floor(v)))
        return llada_fail(err, LLADA_BAD_ARG, "%s: '%.40s' is not a %snumber", pub_keys[k].key, value,
                          keys[k].kind == K_INT ? "whole " : "");
    if (v < keys[k].lo || v > keys[k].hi)
        return llada_fail(err, LLADA_BAD_ARG, "%s: %.40s is out of range; it can be %s", pub_keys[k].key, value,
                          pub_keys[k].values);
    if (keys[k].kind == K_INT) {
        int32_t i = (int32_t)v;
        memcpy(at, &i, sizeof i);
    } else {
        memcpy(at, &v, sizeof v);
    }
    return LLADA_OK;
}

llada_status llada_recipe_set(llada_recipe *r, const char *key, const char *value, llada_err *err)
{
    if (!r || !key || !value) return llada_fail(err, LLADA_BAD_ARG, "a setting needs a recipe, a key and a value");
    int k = find_key(key);
    if (k < 0) return llada_fail(err, LLADA_BAD_ARG, "there is no setting '%.64s'", key);
    if (!strcmp(key, "bucket") && !strcmp(value, "auto")) value = "0";
    if (keys[k].kind == K_INT || keys[k].kind == K_REAL) return set_number(r, k, value, err);
    for (const word_value *w = keys[k].words; w->word; w++) {
        if (strcmp(w->word, value)) continue;
        char *at = (char *)r + keys[k].offset;
        if (keys[k].kind == K_BOOL) {
            bool b = w->value != 0;
            memcpy(at, &b, sizeof b);
        } else {
            memcpy(at, &w->value, sizeof w->value);
        }
        return LLADA_OK;
    }
    return bad_value(k, value, err);
}

static const char *word_of(int k, int value)
{
    for (const word_value *w = keys[k].words; w->word; w++)
        if (w->value == value) return w->word;
    return NULL;
}

static int read_int(const llada_recipe *r, int k)
{
    int i;
    bool b;
    if (keys[k].kind == K_BOOL) {
        memcpy(&b, (const char *)r + keys[k].offset, sizeof b);
        return b;
    }
    memcpy(&i, (const char *)r + keys[k].offset, sizeof i);
    return i;
}

static double read_real(const llada_recipe *r, int k)
{
    double v;
    memcpy(&v, (const char *)r + keys[k].offset, sizeof v);
    return v;
}

/* The shortest text that reads back as the same number. */
static void print_real(char *text, size_t cap, double v)
{
    double back;
    int digits = 1;
    do snprintf(text, cap, "%.*g", digits, v);
    while (++digits <= 17 && whole_number(text, &back) && back != v);
}

llada_status llada_recipe_get(const llada_recipe *r, const char *key, char *buf, size_t cap, llada_err *err)
{
    char text[32]; /* longer than any word or number */
    if (!r || !key || (!buf && cap)) return llada_fail(err, LLADA_BAD_ARG, "a setting needs a recipe, a key and room");
    int k = find_key(key);
    if (k < 0) return llada_fail(err, LLADA_BAD_ARG, "there is no setting '%.64s'", key);
    const char *word = keys[k].kind == K_INT || keys[k].kind == K_REAL ? NULL : word_of(k, read_int(r, k));
    if (keys[k].kind == K_REAL)
        print_real(text, sizeof text, read_real(r, k));
    else if (word)
        snprintf(text, sizeof text, "%s", word);
    else
        snprintf(text, sizeof text, "%d", read_int(r, k));
    size_t need = strlen(text) + 1;
    if (need > cap) return llada_fail(err, LLADA_BAD_ARG, "%s: the value takes %zu bytes, not %zu", key, need, cap);
    memcpy(buf, text, need);
    return LLADA_OK;
}

llada_status recipe_check(const llada_recipe *r, llada_err *err)
{
    if (r->size != sizeof *r)
        return llada_fail(err, LLADA_BAD_ARG, "the recipe's size is %zu, not %zu: call llada_recipe_defaults first",
                          r->size, sizeof *r);
    for (int k = 0; k < N_KEYS; k++) {
        double v = keys[k].kind == K_REAL ? read_real(r, k) : read_int(r, k);
        if (keys[k].kind == K_WORD ? !word_of(k, (int)v) : v < keys[k].lo || v > keys[k].hi)
            return llada_fail(err, LLADA_BAD_ARG, "%s is out of range; it can be %s", pub_keys[k].key,
                              pub_keys[k].values);
    }
    return LLADA_OK;
}
