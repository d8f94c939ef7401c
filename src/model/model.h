/* model.h - a model: its file, tokenizer, hyper-parameters and the graph of one pass.  Everything a file says is
 * checked here, once, with sentences that name both numbers; nothing above or below checks it again.  One file per
 * architecture (llada.c, ...) builds its graph. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "format/gguf.h"
#include "graph/graph.h"
#include "text/chat.h"
#include "text/tok.h"

enum { MODEL_MAX_ENDS = 4, MODEL_MAX_BAN = 8, MODEL_MAX_VOCAB = 1 << 24 };

typedef struct model model;

typedef struct {
    const char *name;  /* general.architecture */
    bool shift_logits; /* the score of position i stands in row i-1 */
    bool causal;       /* autoregressive: a row sees nothing behind itself, row i-1 scores position i */
    bool experts;      /* the feed-forward part is a mixture of experts */
    rope_style rope;
    llada_status (*build)(model *m, llada_err *err); /* fills m->g from the tensors */
} model_arch;

struct model {
    gguf *file;              /* owned */
    tok *tok;                /* owned */
    const chat_layout *chat; /* NULL: the file's template is none we know */
    const model_arch *arch;
    char title[128]; /* general.name, else the file's name */
    char warn[256];  /* one sentence about oddities, or "" */
    int n_layer, n_embd, n_head, n_head_kv, n_ff, n_ctx, head_dim;
    int n_expert, n_expert_used; /* 0: no experts; else n_ff is the width of one */
    int n_vocab;                 /* tokens in the vocabulary; the head may have more rows (padding) */
    double rope_base;
    float eps;
    uint64_t n_params;
    int32_t mask, eos, eot, bos, pad; /* -1: none; mask is always there, except in causal models */
    int32_t ends[MODEL_MAX_ENDS];     /* ids that end the text, ascending */
    int n_ends;
    graph g; /* weights borrowed from the file */
};

/* file is taken over also on failure. */
llada_status model_open(model **out, gguf *file, const char *title, const char *chat_layout, llada_err *err);
void model_close(model **m); /* NULL-safe; accepts a half-built model */
bool model_is_end(const model *m, int32_t id);

/* The architectures we run; n of them. */
const model_arch *const *model_archs(size_t *n);

/* For architecture files: the weight of that name, checked to be rows x cols (cols fastest), as a graph tensor; a bias
 * or norm has rows 1.  -1 and *st set: missing or of another shape.  optional: -1 with LLADA_OK when absent. */
tensor_id model_weight(model *m, int64_t rows, int64_t cols, bool optional, llada_status *st, llada_err *err,
                       const char *fmt, ...) PRINTF_LIKE(7, 8);
/* The matrices of n experts in one tensor, each rows x cols: a weight of n * rows rows. */
tensor_id model_experts(model *m, int n, int64_t rows, int64_t cols, const char *name, llada_status *st,
                        llada_err *err);

extern const model_arch arch_llada, arch_dream, arch_llada_moe, arch_llama;

#endif
