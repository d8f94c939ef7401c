/* opt.h - the command line: one table of flags for all sub-commands (opt_table.c), read by one parser (opt.c).
 * Numbers are read whole, errors name flag and text, a flag beats its LLADA_* variable.  Every key of
 * llada_recipe_keys is a flag of the same word; its range and its sentences are the library's. */
#ifndef APP_OPT_H
#define APP_OPT_H

#include "llada.h"

enum {
    CMD_RUN = 1, CMD_CHAT = 2, CMD_EVAL = 4, CMD_INFO = 8, CMD_TOKENIZE = 16, CMD_LOGITS = 32, CMD_TRACE = 64,
    CMD_BENCH = 128, CMD_DEVICES = 512, CMD_CONVERT = 1024, CMD_QUANTIZE = 2048, CMD_PACK = 4096,
    CMD_SERVE = 256,
    CMD_GENERATE = CMD_SERVE | CMD_RUN | CMD_CHAT | CMD_EVAL | CMD_BENCH /* the commands that take a recipe */
};

/* One thing said about the recipe, in the order it was said; texts are borrowed from argv and the environment. */
typedef struct {
    enum { SAY_RECIPE, SAY_SETTINGS, SAY_KEY } what;
    bool from_env;
    const char *flag;       /* as the user spelled it, for messages */
    const char *key, *value; /* SAY_RECIPE: value is the name; SAY_SETTINGS: the file */
} opt_saying;

typedef struct {
    const char **p; /* the array is owned, the strings are borrowed */
    size_t n;
} opt_list;

typedef struct {
    bool help, version;
    /* model and machine */
    const char *model, *chat_layout, *device, *transport;
    bool no_mmap;
    int64_t mem_budget;   /* bytes; 0: no bound */
    int64_t kv;           /* 0: the library's default; 1: f32; 2: f16 */
    int64_t ctx, threads; /* 0: the library's default */
    int64_t npu_memory;   /* MiB; 0: the library's default */
    bool npu_few_rows;
    uint64_t cpu_mask;
    int64_t seed;         /* -1: a random one */
    /* the request */
    const char *prompt, *file, *system, *suffix, *template_text;
    bool raw, chat, special;
    int64_t max_tokens;   /* -1: not said */
    opt_saying *sayings;  /* owned */
    size_t n_sayings;
    /* output */
    bool json, quiet, no_canvas, visual; /* visual: asked for by name; the canvas is on without it */
    const char *trace, *out;
    /* eval */
    opt_list sets, recipes;
    int64_t limit, seeds;
    int64_t extract;      /* an extract_rule of eval.h; 0: auto */
    const char *markdown, *svg, *resume;
    /* bench */
    const char *rows;
    int64_t reps, prompt_tokens, per_pass, most_passes;
    bool save, limits;
    const char *without;
    /* info, devices */
    bool plan, profile;
    /* serve */
    const char *host, *api_key;
    opt_list allow_hosts, origins;
    int64_t port, queue;  /* 0: the default */
    bool any_port, metrics;
    /* tokenize, logits */
    const char *ids, *tokens;
    /* convert, quantize */
    const char *type, *imatrix;
    bool report, allow_requantize;
    opt_list owned;       /* texts the options own */
    const char *arg;      /* the one argument without a flag that info, tokenize, trace and bench take */
    const char *arg2;     /* the second one of convert and quantize */
} options;

typedef struct {
    const char *name, *args, *about; /* about: one line */
    unsigned bit;
    int max_args;                    /* arguments without a flag */
} opt_command;

enum { OPT_OK, OPT_WRONG };

/* The sub-command of a name; NULL when there is none. */
const opt_command *opt_find_command(const char *name);
const opt_command *opt_commands(size_t *n);
/* Reads argv (without program and sub-command names) over env ("NAME=value" strings, NULL-terminated).  OPT_WRONG
 * leaves a sentence in err. */
int opt_parse(options *o, const opt_command *cmd, int argc, char *const *argv, char *const *env, char *err, size_t cap);
void opt_free(options *o);

/* Makes the recipe: a named one (by flag, else by LLADA_RECIPE, else the library's default), then LLADA_SETTINGS
 * (unless --settings is given), variables of single keys, settings files, single flags.  `spec` (may be NULL) is a
 * recipe as --recipe takes it, NAME[:key=value,...]: its name replaces the other and its keys come last. */
int opt_recipe(const options *o, const char *spec, llada_recipe *r, char *err, size_t cap);
/* Whether a flag or a variable chose the recipe; if not, it is the model's to choose. */
bool opt_recipe_named(const options *o);
/* A sentence on settings that will have no effect in this recipe; NULL: none. */
const char *opt_recipe_note(const options *o, const llada_recipe *r);

/* The help of a sub-command (NULL: of the program) on standard output. */
void opt_help(const opt_command *cmd);
void opt_help_recipes(void); /* recipes and their keys */
void opt_version(void);

/* Reads a whole number in lo..hi; false leaves a sentence in err that names flag and text. */
bool opt_integer(const char *flag, const char *value, int64_t lo, int64_t hi, int64_t *out, char *err, size_t cap);
/* The same for bytes, as in 700M or 1.5G. */
bool opt_size(const char *flag, const char *value, int64_t *out, char *err, size_t cap);
/* The names nearest to a misspelled one: edit distance with neighbouring swaps. */
int opt_distance(const char *a, const char *b);
/* "1,2,3" to ids; blanks and brackets are allowed around them.  NULL leaves a sentence in err.  Owned by the caller. */
int32_t *opt_ids(const char *flag, const char *value, size_t *n, char *err, size_t cap);

#endif
