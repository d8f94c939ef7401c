/* opt_table.h - the table of flags, between parser and help. */
#ifndef APP_OPT_TABLE_H
#define APP_OPT_TABLE_H

#include "opt.h"

typedef enum {
    OPT_SWITCH,    /* no value: sets a bool */
    OPT_INT,       /* a whole number in lo..hi to an int64_t */
    OPT_SIZE,      /* bytes: a number with K, M, G or T (powers of 1024) behind it, to an int64_t */
    OPT_MASK,      /* names of CPU features, or a number, to a uint64_t */
    OPT_TEXT,      /* any text to a const char * */
    OPT_LIST,      /* may be repeated: appended to an opt_list */
    OPT_WORD,      /* one of `arg` ("f32|f16"), 1 for the first word, to an int64_t */
    OPT_RECIPE,    /* a recipe's name: a saying */
    OPT_SETTINGS,  /* a settings file: a saying */
    OPT_PAIR,      /* key=value: a saying */
    OPT_ALIAS,     /* another spelling of the recipe key `key` */
    OPT_ALGORITHM, /* llama.cpp's number or name of a sampler */
    OPT_GUMBEL     /* llama.cpp's switch for Gumbel noise, which is always on here */
} opt_kind;

typedef struct {
    const char *names; /* separated by blanks; the first is the name, also as LLADA_NAME in the environment */
    opt_kind kind;
    unsigned cmds;     /* the sub-commands it belongs to */
    size_t at;         /* the field of options */
    int64_t lo, hi;
    bool env;
    const char *arg, *help;
    const char *key;   /* OPT_ALIAS */
} opt_def;

const opt_def *opt_table(size_t *n);

#endif
