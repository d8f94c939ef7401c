/* convert.h - the parts of `llada convert`: what a checkpoint's config.json says, which of its tensors become which of
 * the GGUF file, and its tokenizer.  Functions that return int give an exit code, and have printed why it is not 0. */
#ifndef APP_CONVERT_H
#define APP_CONVERT_H

#include <jansson.h>

#include "tools.h"
#include "util.h"

enum { CONVERT_MAX_LAYERS = 512, CONVERT_MAX_EXPERTS = 4096 };

/* What is particular about an architecture. */
typedef struct {
    const char *classes[2]; /* of config.json's "architectures"; NULL ends */
    const char *arch;       /* general.architecture */
    const char *pre;        /* tokenizer.ggml.pre, where tokenizer.json does not say otherwise */
    const char *mask;       /* the mask token's spelling, where config.json names no id; NULL: no mask */
    int32_t mask_id;        /* the published one, where there is no such token either; -1: none */
    bool llada_names;       /* LLaDA's own names of tensors; else those of Llama and Qwen2 */
    bool pairs;             /* neighbours are rotated: rows of queries and keys are interleaved */
    bool bos;               /* texts begin with it, though the tokenizer's files put that by other means */
    bool bias, experts, causal, shift; /* shift: the scores of position i stand in row i-1 */
} convert_family;

typedef struct {
    const convert_family *fam;
    const char *dir;
    json_t *json;      /* owned: config.json */
    int layers, embd, heads, kv_heads, head_dim, ff, ctx, vocab, n_experts, n_used, expert_ff;
    int rows;          /* of the embedding, and tokens of the file: vocab or more */
    double theta, eps;
    bool tied;         /* the embedding is the head too */
    const char *type;  /* of matrices */
} convert_model;

/* DIR/name as JSON.  Missing: NULL and fine when `optional`.  Owned by the caller. */
int convert_json(json_t **out, const char *dir, const char *name, bool optional);

int convert_read_config(convert_model *m, const char *dir);
/* Writes the model's keys.  *factors: rope_freqs to be written, head_dim / 2 of them (owned by the caller); or NULL. */
int convert_put_config(const convert_model *m, tools_output *out);
int convert_rope_factors(const convert_model *m, float **factors);

/* Checks names and shapes, sets m->rows, declares the tensors.  Tensors that are not used are said on stderr. */
int convert_check_tensors(convert_model *m, const tools_checkpoint *c, bool quiet);
int convert_put_tensors(const convert_model *m, const tools_checkpoint *c, tools_output *out);

int convert_put_tokens(const convert_model *m, tools_output *out);

#endif
