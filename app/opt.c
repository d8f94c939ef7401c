/* opt.c - reads the command line and the environment into `options`, by the table of opt_table.c and the library's
 * recipe keys.  Nothing is printed here: errors are sentences in the caller's buffer. */
#include "opt_table.h"
#include "settings.h"
#include "util.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_LEN = 64 };

typedef struct {
    options *o;
    const opt_command *cmd;
    char *err;
    size_t cap;
} parser;

static int wrong(char *err, size_t cap, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err, cap, fmt, ap);
    va_end(ap);
    return OPT_WRONG;
}

/* ---------------------------------------------------------------- names */

/* The i-th name of "--model -m"; its length, 0 behind the last. */
static size_t name_at(const char *names, int i, char out[NAME_MAX_LEN])
{
    for (; i > 0 && *names; i--) {
        names += strcspn(names, " ");
        names += strspn(names, " ");
    }
    size_t n = strcspn(names, " ");
    if (n >= NAME_MAX_LEN) n = NAME_MAX_LEN - 1;
    memcpy(out, names, n);
    out[n] = 0;
    return n;
}

static bool has_name(const char *names, const char *arg, size_t n)
{
    char one[NAME_MAX_LEN];
    for (int i = 0; name_at(names, i, one); i++)
        if (strlen(one) == n && !memcmp(one, arg, n)) return true;
    return false;
}

static const opt_def *find_flag(unsigned bit, const char *arg, size_t n)
{
    size_t count;
    const opt_def *t = opt_table(&count);
    for (size_t i = 0; i < count; i++)
        if ((t[i].cmds & bit) && has_name(t[i].names, arg, n)) return &t[i];
    return NULL;
}

/* "tau-draft" or "tau_draft" to the library's key; NULL when there is none. */
static const char *find_key(const char *word, size_t n)
{
    size_t count;
    const llada_recipe_key *keys = llada_recipe_keys(&count);
    for (size_t i = 0; i < count; i++) {
        if (strlen(keys[i].key) != n) continue;
        size_t k = 0;
        while (k < n && (word[k] == keys[i].key[k] || (word[k] == '-' && keys[i].key[k] == '_'))) k++;
        if (k == n) return keys[i].key;
    }
    return NULL;
}

/* Keys that are on or off: their flag needs no value, and has a --no- form. */
static bool is_switch_key(const char *key)
{
    llada_recipe r;
    llada_recipe_defaults(&r);
    return llada_recipe_set(&r, key, "true", NULL) == LLADA_OK && llada_recipe_set(&r, key, "false", NULL) == LLADA_OK;
}

/* Optimal string alignment; words longer than the table are told apart enough by then. */
int opt_distance(const char *a, const char *b)
{
    enum { MOST = 48 };
    int d[MOST + 1][MOST + 1];
    size_t la = strlen(a), lb = strlen(b);
    if (la > MOST || lb > MOST) return MOST;
    for (size_t i = 0; i <= la; i++) d[i][0] = (int)i;
    for (size_t j = 0; j <= lb; j++) d[0][j] = (int)j;
    for (size_t i = 1; i <= la; i++)
        for (size_t j = 1; j <= lb; j++) {
            int least = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < least) least = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < least) least = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < least)
                least = d[i - 2][j - 2] + 1;
            d[i][j] = least;
        }
    return d[la][lb];
}

/* The flag of this sub-command whose spelling is nearest to arg, when it is near at all. */
static bool nearest_flag(unsigned bit, const char *arg, char best[NAME_MAX_LEN])
{
    size_t count;
    int least = (int)strlen(arg) / 3 + 1;
    bool found = false;
    char one[NAME_MAX_LEN];
    const opt_def *t = opt_table(&count);
    for (size_t i = 0; i < count; i++)
        for (int k = 0; (t[i].cmds & bit) && name_at(t[i].names, k, one); k++) {
            int d = opt_distance(arg, one);
            if (d >= least) continue;
            least = d;
            found = true;
            strcpy(best, one);
        }
    const llada_recipe_key *keys = llada_recipe_keys(&count);
    for (size_t i = 0; i < count && (bit & CMD_GENERATE); i++) {
        snprintf(one, sizeof one, "--%s", keys[i].key);
        for (char *c = one; *c; c++)
            if (*c == '_') *c = '-';
        int d = opt_distance(arg, one);
        if (d >= least) continue;
        least = d;
        found = true;
        strcpy(best, one);
    }
    return found;
}

/* ---------------------------------------------------------------- values */

static bool read_integer(const char *s, const char **end, int64_t *out)
{
    if (!isdigit((unsigned char)s[*s == '-'])) return false;
    char *e;
    errno = 0;
    long long v = strtoll(s, &e, 10);
    *end = e;
    if (errno == ERANGE) v = *s == '-' ? INT64_MIN : INT64_MAX;
    *out = v;
    return true;
}

bool opt_integer(const char *flag, const char *value, int64_t lo, int64_t hi, int64_t *out, char *err, size_t cap)
{
    const char *end;
    if (!read_integer(value, &end, out) || *end) {
        wrong(err, cap, "%s: '%.80s' is not a whole number", flag, value);
        return false;
    }
    if (*out >= lo && *out <= hi) return true;
    wrong(err, cap, "%s: %.40s is not in %lld..%lld", flag, value, (long long)lo, (long long)hi);
    return false;
}

bool opt_size(const char *flag, const char *value, int64_t *out, char *err, size_t cap)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    double n = isdigit((unsigned char)value[0]) ? strtod(value, &end) : 0;
    const char *unit = end && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    for (const char *u = units; unit && u <= unit; u++) n *= 1024;
    if (unit) end++;
    if (end && unit && !strcmp(end, "iB")) end += 2;
    else if (end && *end == 'B') end++;
    if (!end || *end || (value[0] == '0' && (value[1] == 'x' || value[1] == 'X'))) {
        wrong(err, cap, "%s: '%.80s' is not a size; write it as in 2G, 1.5G or 700M", flag, value);
        return false;
    }
    if (!(n >= 1 && n < 9e18)) {
        wrong(err, cap, "%s: %.40s is not a size that memory can have", flag, value);
        return false;
    }
    *out = (int64_t)n;
    return true;
}

static int read_u64(const char *flag, const char *value, uint64_t *out, char *err, size_t cap)
{
    bool hex = value[0] == '0' && (value[1] == 'x' || value[1] == 'X');
    char *end = NULL;
    errno = 0;
    if (isxdigit((unsigned char)value[hex ? 2 : 0])) *out = strtoull(value, &end, hex ? 16 : 10);
    if (!end || *end) return wrong(err, cap, "%s: '%.80s' is not a whole number", flag, value);
    if (errno == ERANGE) return wrong(err, cap, "%s: %.40s does not fit in 64 bits", flag, value);
    return OPT_OK;
}

static int read_mask(const char *flag, const char *value, uint64_t *out, char *err, size_t cap)
{
    if (!strcmp(value, "all") || !strcmp(value, "none")) {
        *out = value[0] == 'a' ? UINT64_MAX : 0;
        return OPT_OK;
    }
    if (isdigit((unsigned char)value[0])) return read_u64(flag, value, out, err, cap);
    size_t n;
    const char *const *names = llada_cpu_features(&n, NULL);
    *out = 0;
    for (const char *p = value;;) {
        size_t len = strcspn(p, ","), i = 0;
        while (i < n && !(strlen(names[i]) == len && !memcmp(names[i], p, len))) i++;
        if (i == n) return wrong(err, cap, "%s: '%.*s' is not a CPU feature; see llada info", flag, (int)len, p);
        *out |= (uint64_t)1 << i;
        if (!p[len]) return OPT_OK;
        p += len + 1;
    }
}

static int read_word(const char *flag, const char *value, const char *words, int64_t *out, char *err, size_t cap)
{
    size_t want = strlen(value);
    int64_t i = 1;
    for (const char *p = words; *p; i++) {
        size_t len = strcspn(p, "|");
        if (len == want && !memcmp(p, value, len)) {
            *out = i;
            return OPT_OK;
        }
        p += len + (p[len] != 0);
    }
    return wrong(err, cap, "%s: '%.80s' is none of %s", flag, value, words);
}

int32_t *opt_ids(const char *flag, const char *value, size_t *n, char *err, size_t cap)
{
    size_t room = 2;
    for (const char *p = value; *p; p++) room += *p == ',' || *p == ' ';
    int32_t *ids = app_new(room, sizeof *ids);
    const char *p = value;
    *n = 0;
    while (*(p += strspn(p, ", []\t\n"))) {
        int64_t v;
        const char *end;
        size_t len = strcspn(p, ", []\t\n");
        if (!read_integer(p, &end, &v) || end != p + len || v < 0 || v > INT32_MAX || *n >= room) {
            wrong(err, cap, "%s: '%.*s' is not a token id", flag, len > 80 ? 80 : (int)len, p);
            free(ids);
            return NULL;
        }
        ids[(*n)++] = (int32_t)v;
        p = end;
    }
    if (*n) return ids;
    wrong(err, cap, "%s: there is no token id in '%.80s'", flag, value);
    free(ids);
    return NULL;
}

/* ---------------------------------------------------------------- sayings: what is said about the recipe */

static void add_saying(options *o, opt_saying s)
{
    o->sayings = app_grow(o->sayings, o->n_sayings + 1, sizeof *o->sayings);
    o->sayings[o->n_sayings++] = s;
}

static void add_list(opt_list *l, const char *s)
{
    l->p = app_grow(l->p, l->n + 1, sizeof *l->p);
    l->p[l->n++] = s;
}

/* A recipe key from a flag: tried at once, so that the sentence can name the flag. */
static int say_key(parser *p, const char *flag, const char *key, const char *value, bool env)
{
    llada_recipe r;
    llada_err e = {0};
    llada_recipe_defaults(&r);
    if (llada_recipe_set(&r, key, value, &e)) {
        size_t n = strlen(key);
        bool named = !strncmp(e.text, key, n) && e.text[n] == ':'; /* the flag is the better name */
        return wrong(p->err, p->cap, "%s:%s", flag, named ? e.text + n + 1 : e.text);
    }
    add_saying(p->o, (opt_saying){SAY_KEY, env, flag, key, value});
    return OPT_OK;
}

static int say_pair(parser *p, const char *flag, const char *value)
{
    const char *eq = strchr(value, '=');
    if (!eq) return wrong(p->err, p->cap, "%s: '%.80s' is not key=value", flag, value);
    const char *key = find_key(value, (size_t)(eq - value));
    if (!key) return wrong(p->err, p->cap, "%s: there is no recipe key '%.*s'", flag, (int)(eq - value), value);
    return say_key(p, flag, key, eq + 1, false);
}

/* llama.cpp counts its samplers 0..4: 3 and 4 are LLaDA's, the others Dream's.  With --diffusion-eps its 4 is Dream's
 * too, so for it the kind of schedule is settled when all flags are known (see speaks_llama_cpp). */
static int say_algorithm(parser *p, const char *flag, const char *value)
{
    static const struct {
        const char *words, *alg, *remasking;
    } algorithms[] = {
        {"0 origin", "origin", NULL},
        {"1 entropy entropy_based", "entropy", NULL},
        {"2 margin margin_based topk_margin", "topk_margin", NULL},
        {"3 random", NULL, "random"},
        {"4 confidence confidence_based low_confidence maskgit_plus", "maskgit_plus", "low_confidence"},
    };
    for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++) {
        const char *alg = algorithms[i].alg, *remasking = algorithms[i].remasking;
        if (!has_name(algorithms[i].words, value, strlen(value))) continue;
        if (alg && say_key(p, flag, "alg", alg, false)) return OPT_WRONG;
        if (remasking && say_key(p, flag, "remasking", remasking, false)) return OPT_WRONG;
        return OPT_OK;
    }
    return wrong(p->err, p->cap, "%s: '%.80s' is none of 0..4, origin, entropy, margin, random, confidence", flag,
                 value);
}

static int say_recipe(parser *p, const char *flag, const char *value, bool env)
{
    llada_recipe r;
    options none = {0};
    char why[512];
    if (opt_recipe(&none, value, &r, why, sizeof why)) return wrong(p->err, p->cap, "%s: %s", flag, why);
    add_saying(p->o, (opt_saying){SAY_RECIPE, env, flag, NULL, value});
    return OPT_OK;
}

/* ---------------------------------------------------------------- flags */

static int set_flag(parser *p, const opt_def *d, const char *flag, const char *value, bool env)
{
    char *field = (char *)p->o + d->at;
    switch (d->kind) {
    case OPT_SWITCH: *(bool *)field = true; return OPT_OK;
    case OPT_INT: return opt_integer(flag, value, d->lo, d->hi, (int64_t *)field, p->err, p->cap) ? OPT_OK : OPT_WRONG;
    case OPT_SIZE: return opt_size(flag, value, (int64_t *)field, p->err, p->cap) ? OPT_OK : OPT_WRONG;
    case OPT_MASK: return read_mask(flag, value, (uint64_t *)field, p->err, p->cap);
    case OPT_TEXT: *(const char **)field = value; return OPT_OK;
    case OPT_LIST: add_list((opt_list *)field, value); return OPT_OK;
    case OPT_WORD: return read_word(flag, value, d->arg, (int64_t *)field, p->err, p->cap);
    case OPT_RECIPE: return say_recipe(p, flag, value, env);
    case OPT_SETTINGS: add_saying(p->o, (opt_saying){SAY_SETTINGS, env, flag, NULL, value}); return OPT_OK;
    case OPT_PAIR: return say_pair(p, flag, value);
    case OPT_ALIAS: return say_key(p, flag, d->key, value, env);
    case OPT_ALGORITHM: return say_algorithm(p, flag, value);
    case OPT_GUMBEL:
        if (!strcmp(value, "1") || !strcmp(value, "true")) return OPT_OK;
        return wrong(p->err, p->cap, "%s: '%.80s' cannot be honoured: a temperature always means Gumbel noise here",
                     flag, value);
    }
    return OPT_OK;
}

/* `--steps 128-t 4`: a number and a flag with no blank between. */
static void hint_glued(parser *p, const char *flag, const char *value)
{
    const char *end;
    int64_t v;
    if (!read_integer(value, &end, &v) || *end != '-' || !find_flag(p->cmd->bit, end, strlen(end))) return;
    size_t n = strlen(p->err);
    snprintf(p->err + n, p->cap - n, "; did you mean %s %.*s %s ?", flag, (int)(end - value), value, end);
}

static int unknown_flag(parser *p, const char *arg, size_t n)
{
    char name[NAME_MAX_LEN], best[NAME_MAX_LEN];
    snprintf(name, sizeof name, "%.*s", (int)(n < 60 ? n : 60), arg);
    if (find_flag(~0u, arg, n)) {
        size_t count;
        const opt_command *c = opt_commands(&count);
        for (size_t i = 0; i < count; i++)
            if (find_flag(c[i].bit, arg, n))
                return wrong(p->err, p->cap, "%s is a flag of 'llada %s', not of 'llada %s'", name, c[i].name,
                             p->cmd->name);
    }
    if (nearest_flag(p->cmd->bit, name, best))
        return wrong(p->err, p->cap, "unknown flag %s; the nearest is %s", name, best);
    return wrong(p->err, p->cap, "unknown flag %s; see llada %s --help", name, p->cmd->name);
}

static bool flag_exists(const parser *p, const char *arg)
{
    size_t n = strncmp(arg, "--", 2) ? strlen(arg) : strcspn(arg, "=");
    if (find_flag(p->cmd->bit, arg, n)) return true;
    bool no = n > 5 && !strncmp(arg, "--no-", 5);
    return (p->cmd->bit & CMD_GENERATE) && !strncmp(arg, "--", 2) &&
           (find_key(arg + 2, n - 2) || (no && find_key(arg + 5, n - 5)));
}

/* Reads the flag at argv[i]; *used: how many arguments it took. */
static int read_flag(parser *p, int argc, char *const *argv, int i, int *used)
{
    const char *arg = argv[i], *eq = strncmp(arg, "--", 2) ? NULL : strchr(arg, '=');
    size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
    const char *next = eq ? eq + 1 : i + 1 < argc ? argv[i + 1] : NULL;
    const opt_def *d = find_flag(p->cmd->bit, arg, n);
    bool generates = (p->cmd->bit & CMD_GENERATE) && !strncmp(arg, "--", 2);
    const char *key = !d && generates ? find_key(arg + 2, n - 2) : NULL;
    *used = 1;
    if (!d && !key && generates && n > 5 && !strncmp(arg, "--no-", 5) && !eq) {
        key = find_key(arg + 5, n - 5);
        if (key && is_switch_key(key)) return say_key(p, arg, key, "false", false);
        return unknown_flag(p, arg, n);
    }
    if (!d && !key) return unknown_flag(p, arg, n);
    /* messages name the flag without its value; the copy lives as long as the options */
    const char *flag = arg;
    if (eq) {
        flag = app_copy(arg, n);
        add_list(&p->o->owned, flag);
    }
    if (d && d->kind == OPT_SWITCH) {
        if (eq) return wrong(p->err, p->cap, "%s takes no value", flag);
        return set_flag(p, d, flag, NULL, false);
    }
    if (key && !eq && (!next || next[0] == '-') && is_switch_key(key)) return say_key(p, flag, key, "true", false);
    if (!next) return wrong(p->err, p->cap, "%s needs a value", flag);
    *used = eq ? 1 : 2;
    int rc = d ? set_flag(p, d, flag, next, false) : say_key(p, flag, key, next, false);
    if (rc) hint_glued(p, flag, next);
    return rc;
}

/* ---------------------------------------------------------------- environment */

/* "--no-mmap" or "tau_draft" to "LLADA_NO_MMAP", "LLADA_TAU_DRAFT". */
static void env_name(const char *flag, size_t n, char out[NAME_MAX_LEN])
{
    while (n && *flag == '-') {
        flag++;
        n--;
    }
    size_t k = (size_t)snprintf(out, NAME_MAX_LEN, "LLADA_");
    for (size_t i = 0; i < n && k + 1 < NAME_MAX_LEN; i++)
        out[k++] = flag[i] == '-' ? '_' : (char)toupper((unsigned char)flag[i]);
    out[k] = 0;
}

static const char *env_value(char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; env && *env; env++)
        if (!strncmp(*env, name, n) && (*env)[n] == '=' && (*env)[n + 1]) return *env + n + 1;
    return NULL;
}

static int env_switch(parser *p, const opt_def *d, const char *name, const char *value)
{
    static const char *const yes = "1 true on yes", *const no = "0 false off no";
    if (has_name(yes, value, strlen(value))) return set_flag(p, d, name, NULL, true);
    if (has_name(no, value, strlen(value))) return OPT_OK;
    return wrong(p->err, p->cap, "%s: '%.80s' is neither 1 nor 0", name, value);
}

static const char *keep_name(options *o, const char *name)
{
    const char *s = app_copy(name, strlen(name));
    add_list(&o->owned, s);
    return s;
}

static int read_environment(parser *p, char *const *env)
{
    size_t n;
    char name[NAME_MAX_LEN];
    const opt_def *t = opt_table(&n);
    for (size_t i = 0; i < n; i++) {
        if (!t[i].env || !(t[i].cmds & p->cmd->bit)) continue;
        env_name(t[i].names, strcspn(t[i].names, " "), name);
        const char *value = env_value(env, name);
        if (!value) continue;
        const char *flag = keep_name(p->o, name);
        int rc = t[i].kind == OPT_SWITCH ? env_switch(p, &t[i], flag, value) : set_flag(p, &t[i], flag, value, true);
        if (rc) return rc;
    }
    const llada_recipe_key *keys = llada_recipe_keys(&n);
    for (size_t i = 0; i < n && (p->cmd->bit & CMD_GENERATE); i++) {
        env_name(keys[i].key, strlen(keys[i].key), name);
        const char *value = env_value(env, name);
        if (value && say_key(p, keep_name(p->o, name), keys[i].key, value, true)) return OPT_WRONG;
    }
    return OPT_OK;
}

int opt_parse(options *o, const opt_command *cmd, int argc, char *const *argv, char *const *env, char *err, size_t cap)
{
    parser p = {o, cmd, err, cap};
    *o = (options){.cpu_mask = UINT64_MAX, .max_tokens = -1, .prompt_tokens = -1, .seeds = 1};
    /* help is given even where values are wrong or missing, but not for flags that there are none of */
    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) o->help = true;
    for (int i = 0; o->help && i < argc; i++) {
        int used;
        if (argv[i][0] != '-' || !argv[i][1] || !strcmp(argv[i], "--")) continue;
        if (!flag_exists(&p, argv[i])) return read_flag(&p, argc, argv, i, &used);
    }
    if (o->help) return OPT_OK;
    if (read_environment(&p, env)) return OPT_WRONG;
    int n_args = 0;
    bool flags = true;
    for (int i = 0, used; i < argc; i += used) {
        used = 1;
        if (flags && !strcmp(argv[i], "--")) {
            flags = false;
        } else if (flags && argv[i][0] == '-' && argv[i][1]) {
            if (read_flag(&p, argc, argv, i, &used)) return OPT_WRONG;
        } else if (n_args < cmd->max_args) {
            *(n_args++ ? &o->arg2 : &o->arg) = argv[i];
        } else {
            return wrong(err, cap, "unexpected argument '%.80s'%s", argv[i],
                         cmd->bit == CMD_RUN ? "; the prompt goes behind -p" : "");
        }
    }
    return OPT_OK;
}

void opt_free(options *o)
{
    for (size_t i = 0; i < o->owned.n; i++) free((void *)o->owned.p[i]);
    free(o->owned.p);
    free(o->sayings);
    free(o->sets.p);
    free(o->recipes.p);
    free(o->allow_hosts.p);
    free(o->origins.p);
    *o = (options){0};
}

/* ---------------------------------------------------------------- the recipe */

/* NAME[:key=value,...] */
static int apply_spec(llada_recipe *r, const char *spec, bool name_only, char *err, size_t cap)
{
    llada_err e = {0};
    char word[256];
    size_t n = strcspn(spec, ":");
    if (name_only) {
        snprintf(word, sizeof word, "%.*s", n < 200 ? (int)n : 200, spec);
        if (llada_recipe_named(r, word, &e)) return wrong(err, cap, "%s", e.text);
        return OPT_OK;
    }
    for (const char *p = spec + n; *p;) {
        p++;
        n = strcspn(p, ",");
        size_t k = strcspn(p, "=,");
        const char *key = find_key(p, k);
        if (p[k] != '=') return wrong(err, cap, "'%.*s' in '%.80s' is not key=value", (int)n, p, spec);
        if (!key) return wrong(err, cap, "there is no recipe key '%.*s' (in '%.80s')", (int)k, p, spec);
        snprintf(word, sizeof word, "%.*s", n - k - 1 < 200 ? (int)(n - k - 1) : 200, p + k + 1);
        if (llada_recipe_set(r, key, word, &e)) return wrong(err, cap, "%s (in '%.80s')", e.text, spec);
        p += n;
    }
    return OPT_OK;
}

static const opt_saying *last_recipe(const options *o, bool env)
{
    const opt_saying *found = NULL;
    for (size_t i = 0; i < o->n_sayings; i++)
        if (o->sayings[i].what == SAY_RECIPE && o->sayings[i].from_env == env) found = &o->sayings[i];
    return found;
}

static bool said(const options *o, int what, bool env)
{
    for (size_t i = 0; i < o->n_sayings; i++)
        if ((int)o->sayings[i].what == what && o->sayings[i].from_env == env) return true;
    return false;
}

static const opt_saying *last_key(const options *o, const char *key)
{
    const opt_saying *found = NULL;
    for (size_t i = 0; i < o->n_sayings; i++)
        if (o->sayings[i].what == SAY_KEY && !strcmp(o->sayings[i].key, key)) found = &o->sayings[i];
    return found;
}

/* Where hands speak llama.cpp, its samplers are meant: Dream's with times down to eps, or an order only Dream has; else
 * LLaDA's.  NULL: they do not. */
static const char *speaks_llama_cpp(const options *o)
{
    bool speaks = false;
    for (size_t i = 0; i < o->n_sayings; i++) speaks |= !strncmp(o->sayings[i].flag, "--diffusion-", 12);
    if (!speaks) return NULL;
    const opt_saying *eps = last_key(o, "eps"), *alg = last_key(o, "alg");
    bool times = eps && strtod(eps->value, NULL) > 0;
    return times || (alg && strcmp(alg->value, "maskgit_plus")) ? "dream" : "vanilla";
}

static int apply_sayings(const options *o, llada_recipe *r, int what, bool env, char *err, size_t cap)
{
    for (size_t i = 0; i < o->n_sayings; i++) {
        const opt_saying *s = &o->sayings[i];
        llada_err e = {0};
        if ((int)s->what != what || s->from_env != env) continue;
        if (what == SAY_SETTINGS && !settings_file(r, s->value, err, cap)) return OPT_WRONG;
        if (what == SAY_KEY && llada_recipe_set(r, s->key, s->value, &e))
            return wrong(err, cap, "%s: %s", s->flag, e.text);
    }
    return OPT_OK;
}

int opt_recipe(const options *o, const char *spec, llada_recipe *r, char *err, size_t cap)
{
    const opt_saying *flag = last_recipe(o, false), *env = last_recipe(o, true);
    const char *base = spec ? spec : flag ? flag->value : speaks_llama_cpp(o);
    if (!base && env) base = env->value;
    llada_recipe_defaults(r);
    if (base && apply_spec(r, base, true, err, cap)) return OPT_WRONG;
    if (!said(o, SAY_SETTINGS, false) && apply_sayings(o, r, SAY_SETTINGS, true, err, cap)) return OPT_WRONG;
    if (apply_sayings(o, r, SAY_KEY, true, err, cap)) return OPT_WRONG;
    if (apply_sayings(o, r, SAY_SETTINGS, false, err, cap)) return OPT_WRONG;
    if (apply_sayings(o, r, SAY_KEY, false, err, cap)) return OPT_WRONG;
    return base ? apply_spec(r, base, false, err, cap) : OPT_OK;
}

bool opt_recipe_named(const options *o)
{
    return last_recipe(o, false) || last_recipe(o, true) || speaks_llama_cpp(o);
}

const char *opt_recipe_note(const options *o, const llada_recipe *r)
{
    const opt_saying *block = last_key(o, "block");
    if (block && !block->from_env && r->block >= 128)
        return "note: blocks of 128 positions and more tend to repeat themselves; 32 is usual";
    bool counts = r->rule == LLADA_RULE_QUOTA || r->rule == LLADA_RULE_DREAM;
    if (counts && r->mbsd == LLADA_MBSD_OFF && !r->dppr) return NULL;
    for (size_t i = 0; i < o->n_sayings; i++)
        if (o->sayings[i].what == SAY_KEY && !o->sayings[i].from_env && !strcmp(o->sayings[i].key, "steps"))
            return "note: steps has no effect in this recipe; it belongs to the quota rule (--recipe vanilla)";
    return NULL;
}
