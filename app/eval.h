/* eval.h - what the parts of `llada eval` share: question sets, runs over them, and their sums. */
#ifndef APP_EVAL_H
#define APP_EVAL_H

#include "eval_score.h"
#include "model.h"

#include <jansson.h>

typedef struct {
    char *prompt, *answer; /* owned; answer NULL: a story */
    extract_rule rule;
    int32_t *ids;          /* owned; the prompt as the model gets it */
    size_t n_ids;
} question;

typedef struct {
    const char *path;      /* borrowed */
    char *name;            /* owned: the file's name without folder and .jsonl */
    question *q;           /* owned */
    size_t n;
} question_set;

/* Reads a set (at most `limit` questions, 0: all) and makes the prompts' ids.  An exit code, with the sentence. */
int set_load(question_set *s, const app_model *am, const options *o, const char *path);
void set_free(question_set *s);

/* What one answer was and cost. */
typedef struct {
    bool correct, end; /* end: the text ended by an end token */
    int32_t tokens, passes, jobs, sweeps, edits, remasks;
    int64_t rows, rev_rows;
    double seconds;
} eval_answer;

/* Sums over the answers of one recipe to one set, or to all. */
typedef struct {
    int64_t n, correct, tokens, passes, rows, rev_rows, jobs, sweeps, edits, remasks;
    double seconds;
    /* against the first recipe, the same questions with the same seeds */
    double difference, difference_se;
} eval_sum;

void eval_add(eval_sum *s, const eval_answer *a);
double eval_accuracy(const eval_sum *s);
/* Wilson's 95 % interval of a proportion. */
void eval_interval(int64_t correct, int64_t n, double *low, double *high);
/* Mean and standard error of the paired difference of two lists of right and wrong. */
void eval_paired(const eval_answer *a, const eval_answer *b, size_t n, double *difference, double *se);

typedef struct {
    const char *name;     /* borrowed: as --recipe spelled it */
    llada_recipe r;
    eval_sum *sums;       /* owned: one for each set, then one for all */
    eval_answer *answers; /* owned: set by set, question by question, seed by seed */
} eval_recipe;

typedef struct {
    const options *o;
    app_model am;
    question_set *sets;    /* owned */
    eval_recipe *recipes;  /* owned */
    size_t n_sets, n_recipes, n_answers; /* answers of a recipe */
} evaluation;

/* ---------------------------------------------------------------- the file of --resume */

typedef struct {
    json_t *done; /* owned: key -> record */
    FILE *f;      /* owned; NULL: nothing is kept */
    const char *path;
} eval_store;

int store_open(eval_store *st, const char *path); /* path NULL: nothing is kept */
int store_close(eval_store *st);
/* What makes an answer the same: model, recipe, request. */
uint64_t store_model_key(const app_model *am, const options *o);
void store_key(uint64_t model, const llada_recipe *r, const question *q, int32_t gen, uint64_t seed, char key[20]);
const json_t *store_find(const eval_store *st, const char *key); /* borrowed; NULL: not there */
int store_add(eval_store *st, const char *key, json_t *record);  /* takes the reference */

/* ---------------------------------------------------------------- reports */

/* The object of one recipe and one set (set == n_sets: all).  New reference. */
json_t *report_json(const evaluation *e, size_t recipe, size_t set);
void report_markdown(const evaluation *e, text *out);
void report_svg(const evaluation *e, text *out);

#endif
