/* llada.h - the library's only public header, and its manual.
 *
 * A diffusion language model writes by filling masks: the canvas starts as the prompt followed by masks, and each
 * denoising pass scores masked positions and commits some of them.  This library opens a model (GGUF), opens a session
 * on it, and generates; a callback sees every commit, edit and settlement as it happens.
 *
 *     llada_model *m = NULL;  llada_session *s = NULL;  llada_err err;
 *     llada_recipe r;  llada_session_opts so;  llada_request q;  llada_result res;
 *     if (llada_model_open(&m, "model.gguf", NULL, &err)) die(err.text);
 *     llada_recipe_defaults(&r);
 *     llada_session_opts_defaults(&so);
 *     if (llada_session_open(&s, m, &r, &so, &err)) die(err.text);
 *     llada_request_defaults(&q);  q.prompt = ids;  q.n_prompt = n;
 *     if (llada_generate(s, &q, &res, &err)) die(err.text);
 *     ... llada_detokenize(m, res.tokens, res.n_tokens, ...) ...
 *     llada_session_close(&s);  llada_model_close(&m);
 *
 * Rules that hold everywhere
 * - Every call that can fail returns a llada_status and, when `err` is not NULL, leaves one sentence for people in it.
 * - The library never prints, exits, aborts on input, or reads the environment.
 * - Structs that callers fill begin with `size`; a `_defaults` function sets it and every field.  Fields are only ever
 *   added at the end.
 * - A llada_model may be shared by any number of sessions and threads.  A llada_session belongs to one thread at a time;
 *   only llada_cancel may be called from another.
 * - Positions in events and results count from the first generated position (the prompt is not counted).
 * - The same request with the same recipe and seed gives the same tokens on every run and for every thread count. */
#ifndef LLADA_H
#define LLADA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LLADA_API __attribute__((visibility("default")))
#else
#define LLADA_API
#endif

#define LLADA_VERSION "0.1.0"

/* ---------------------------------------------------------------- errors */

typedef enum {
    LLADA_OK = 0,
    LLADA_BAD_ARG,     /* an argument, setting or size is out of its range */
    LLADA_BAD_MODEL,   /* the file is not one we can run; the sentence names the field or byte offset */
    LLADA_NO_MEMORY,
    LLADA_IO,          /* the system refused a read, write or map */
    LLADA_TOO_LONG,    /* prompt and canvas exceed the session's or the model's context */
    LLADA_UNSUPPORTED, /* understood, but not something this build or model can do */
    LLADA_NUMERIC,     /* NaN or infinity came out of the network; the sentence names layer and step */
    LLADA_CANCELLED    /* llada_cancel was called */
} llada_status;

typedef struct {
    llada_status status;
    char text[512]; /* one sentence, UTF-8, NUL-terminated */
} llada_err;

LLADA_API const char *llada_version(void);

/* ---------------------------------------------------------------- models */

typedef struct llada_model llada_model; /* weights, tokenizer, chat layout */

typedef struct {
    size_t size;
    bool use_mmap;           /* map the file (default); false: read it into memory (not with a mem_budget) */
    const char *chat_layout; /* NULL: decided from the file; else "llada", "chatml", ... */
    uint64_t mem_budget;     /* bytes for weights, sessions and all else; 0 (default): no bound.  What does not fit is
                                read anew each pass, ahead of the computation; a budget that cannot work is refused with
                                the smallest that can, by this call or when a session is opened */
    double read_rate;        /* with a budget: what the storage reads, in bytes a second; 0: unknown */
    double pass_seconds;     /* with a budget: what a pass computes, in seconds; 0: unknown */
    const char *device;      /* "cpu", "npu", or "auto" (NULL): the NPU where there is one; see llada_model_device */
    const char *transport;   /* to the NPU: "fastrpc" (NULL), or an emulation: "inproc", "loopback:PROGRAM" */
    uint64_t npu_memory;     /* bytes the NPU may have mapped at a time; 0: what it has */
    bool npu_few_rows;       /* the NPU may multiply few rows in 8-bit integers: answers then depend on how revision
                                is executed (docs/npu.md) */
} llada_model_opts;

LLADA_API void llada_model_opts_defaults(llada_model_opts *o);

/* Opens a GGUF file (any shard of a split set opens the set).  path NULL: the small model built into the library.
 * opts NULL: defaults.  *out is set only on LLADA_OK. */
LLADA_API llada_status llada_model_open(llada_model **out, const char *path, const llada_model_opts *opts, llada_err *err);
LLADA_API void llada_model_close(llada_model **m); /* NULL-safe; clears *m; every session of it must be closed before */

typedef struct {
    size_t size;
    const char *name, *arch, *chat_layout; /* borrowed from the model; chat_layout NULL when unknown */
    uint64_t n_params, file_bytes;
    int32_t n_layer, n_embd, n_head, n_head_kv, n_ff, n_vocab, n_ctx; /* n_ctx: positions the model was trained for */
    int32_t mask_id, eos_id, eot_id, bos_id;                          /* -1 where the file names none */
    const char *warning; /* borrowed; one sentence about oddities of the file, or "" */
    bool causal;         /* autoregressive: text is written from left to right (recipe ar); mask_id may be -1 */
    bool shift_logits;   /* row i of llada_logits scores position i + 1 (also where causal) */
    int32_t n_expert, n_expert_used; /* 0: no mixture of experts; else n_ff is the width of one */
} llada_model_info;

LLADA_API void llada_model_get_info(const llada_model *m, llada_model_info *out);

/* What became of mem_budget; all zeros without one.  Plans are made when sessions open. */
typedef struct {
    size_t size;
    uint64_t budget, total;  /* bytes allowed; planned for all together */
    uint64_t held, streamed; /* bytes of weights that stay; that a pass brings in */
    uint64_t slot_bytes;
    int32_t slots, parts, held_parts;
    bool direct;             /* read past the page cache */
    uint64_t bytes_read, passes; /* so far; loading what stays is not counted */
    double transfer_seconds, stall_seconds, overlap; /* reading; passes waiting for it; 1 - stall / transfer */
} llada_memory;

LLADA_API void llada_model_memory(const llada_model *m, llada_memory *out);
/* The device that passes run on now, "cpu" or "npu", and a sentence why (may be NULL).  An NPU that is missing,
 * refuses, fails its self-test or breaks down in the middle of a request is no error: the CPU takes over, from the pass
 * that failed, and the sentence says what happened. */
LLADA_API const char *llada_model_device(const llada_model *m, char *buf, size_t cap);

/* ---------------------------------------------------------------- text and tokens */

/* Text to ids.  Writes up to cap ids and sets *n to the full count (call with cap 0 to ask).  `special`: recognise the
 * spellings of special tokens in the text; false (what user text should use) leaves them plain characters. */
LLADA_API llada_status llada_tokenize(const llada_model *m, const char *text, size_t len, bool special, int32_t *ids,
                                      size_t cap, size_t *n, llada_err *err);

/* Ids to bytes (not NUL-terminated; may end inside a UTF-8 character).  Special tokens give no bytes unless `special`.
 * Sets *len to the full length, writes up to cap bytes. */
LLADA_API llada_status llada_detokenize(const llada_model *m, const int32_t *ids, size_t n, bool special, char *buf,
                                        size_t cap, size_t *len, llada_err *err);

typedef struct {
    const char *role, *text; /* role: "system", "user" or "assistant"; text: UTF-8, trimmed by the layout */
} llada_message;

/* A conversation to prompt ids in the model's chat layout, ending where the assistant's answer begins. */
LLADA_API llada_status llada_chat(const llada_model *m, const llada_message *msgs, size_t n_msgs, int32_t *ids, size_t cap,
                                  size_t *n, llada_err *err);

/* ---------------------------------------------------------------- recipes: how a session decodes */

/* Values of the string-like settings. */
typedef enum { LLADA_CACHE_NONE, LLADA_CACHE_PREFIX, LLADA_CACHE_DUAL } llada_cache;
typedef enum {
    LLADA_RULE_QUOTA,
    LLADA_RULE_THRESHOLD,
    LLADA_RULE_FACTOR,
    LLADA_RULE_ENTROPY,
    LLADA_RULE_MARGIN,
    LLADA_RULE_KLASS,
    LLADA_RULE_HIERARCHICAL,
    LLADA_RULE_CREDIT,
    LLADA_RULE_DREAM, /* Dream's schedule over the whole canvas */
    LLADA_RULE_AR     /* autoregressive models: the next token */
} llada_rule;
typedef enum { LLADA_ALG_ORIGIN, LLADA_ALG_MASKGIT_PLUS, LLADA_ALG_TOPK_MARGIN, LLADA_ALG_ENTROPY } llada_alg;
typedef enum { LLADA_REMASK_CONFIDENCE, LLADA_REMASK_RANDOM } llada_remasking;
typedef enum { LLADA_MBSD_OFF, LLADA_MBSD_HOLD, LLADA_MBSD_SHOW } llada_mbsd;
typedef enum { LLADA_REFRESH_BLOCK, LLADA_REFRESH_NEVER, LLADA_REFRESH_EVERY } llada_refresh;
typedef enum { LLADA_LAUNCH_PASS, LLADA_LAUNCH_BOUNDARY } llada_launch;
typedef enum { LLADA_EXEC_AUTO, LLADA_EXEC_SERIAL, LLADA_EXEC_ASYNC, LLADA_EXEC_FUSED } llada_exec;

/* Every setting of decoding.  The names are the contract: llada_recipe_set, settings files, flags and API fields use
 * the same words.  llada_recipe_keys lists each with its range and meaning. */
typedef struct {
    size_t size;
    char name[32];              /* the named recipe it began as */
    int32_t gen;                /* canvas length; 0: the request's max_tokens */
    int32_t block;              /* positions per block */
    int32_t steps;              /* quota rule: steps over the whole canvas; 0: one token a step */
    llada_cache cache;          /* which K,V a pass reuses */
    llada_rule rule;            /* which confident positions are committed */
    double tau, factor, gamma;  /* threshold; factor; entropy bound */
    double margin;              /* margin rule: top-1 minus top-2 probability */
    double kappa;               /* klass: KL bound */
    double low, high;           /* hierarchical: thresholds */
    double credit;              /* credit rule: decay of the running average */
    llada_remasking remasking;  /* quota rule: by confidence, or at random */
    double temp;                /* 0: greedy; else Gumbel noise at this temperature */
    double cfg;                 /* classifier-free guidance scale; 0: off */
    bool ban_eos;               /* end tokens can't win (logits) */
    bool ban_eos_conf;          /* end tokens are committed last (confidence) */
    bool fresh_eos;             /* only refresh passes may commit end tokens */
    bool early;                 /* stop when the text has ended */
    llada_mbsd mbsd;            /* multi-block speculation */
    int32_t trigger, look, bucket; /* adaptive lookahead; bucket 0: from the measured table */
    double tau_draft;           /* confidence a draft needs */
    bool verify;                /* drafts are re-evaluated when their block becomes current */
    bool dppr;                  /* progressive revision */
    double vis, stable, remask; /* its thresholds: become visible, become stable, go back to a mask */
    int32_t n_stable, rev, rmax, lag; /* looks in a row to settle; tokens a job; revisions a position; merge delay */
    llada_refresh refresh;      /* when the whole canvas is computed again */
    int32_t refresh_n;          /* refresh every n passes */
    int32_t vicinity;           /* rows around the block that are refreshed with it */
    llada_exec exec;            /* how revision jobs run; never changes the text on one engine */
    llada_launch launch;        /* a job's snapshot: right after the pass, or at the boundary, when others have merged */
    bool calm;                  /* tokens settle when a look changes nothing and nothing changed since its snapshot */
    double edit;                /* confidence an edit needs; 0: vis */
    double ahead;               /* threshold rule: confidence needed behind a mask that stays one; 0: no more than others */
    double trust;               /* at the end, visible tokens all of this confidence settle without another look */
    double top_p;               /* with a temperature: draw among the best that hold this much probability; 1: off */
    int32_t top_k;              /* with a temperature: draw among this many best; 0: off */
    llada_alg alg;              /* dream rule: what the masks filled first are best in */
    double alg_temp;            /* dream rule: masks are drawn, at this temperature; 0: the best */
    double eps;                 /* dream rule: time at which the last step ends */
} llada_recipe;

typedef struct {
    const char *key, *values, *help; /* values: a range or a list of words, for people */
} llada_recipe_key;

LLADA_API void llada_recipe_defaults(llada_recipe *r); /* the default recipe */
/* The default for this model: `ar` for an autoregressive one (nothing else works there), Dream's own for Dream. */
LLADA_API void llada_recipe_for(llada_recipe *r, const llada_model *m);
LLADA_API llada_status llada_recipe_named(llada_recipe *r, const char *name, llada_err *err);
LLADA_API const char *const *llada_recipe_names(size_t *n);
/* Sets one key from text ("tau", "0.95").  Unknown keys and values out of range are refused by name. */
LLADA_API llada_status llada_recipe_set(llada_recipe *r, const char *key, const char *value, llada_err *err);
/* Writes the text of one key's value; LLADA_BAD_ARG for an unknown key. */
LLADA_API llada_status llada_recipe_get(const llada_recipe *r, const char *key, char *buf, size_t cap, llada_err *err);
LLADA_API const llada_recipe_key *llada_recipe_keys(size_t *n);

/* ---------------------------------------------------------------- sessions */

typedef struct llada_session llada_session; /* one canvas, its caches and scratch */

/* What a pass costs on this machine, by rows; rising in rows.  `llada bench` measures it. */
typedef struct {
    int32_t rows;
    double ms;
} llada_latency;
enum { LLADA_MAX_LATENCY = 32, LLADA_MAX_THREADS = 256, LLADA_MAX_CTX = 1 << 20 };

typedef struct {
    size_t size;
    int32_t ctx;       /* most positions, prompt + canvas; 0: 512 + the recipe's gen */
    int32_t threads;   /* 0: one per core, at most 16 */
    bool kv_f16;       /* keep K,V as half floats */
    uint64_t cpu_mask; /* CPU features that may be used (all ones: every one found); see llada_cpu_features */
    const llada_latency *latency; /* for recipes with bucket 0 (auto); copied; NULL: rows are filled up to 32s */
    int32_t n_latency;            /* at most LLADA_MAX_LATENCY */
} llada_session_opts;

LLADA_API void llada_session_opts_defaults(llada_session_opts *o);

/* Allocates everything generation needs; later calls allocate nothing.  The model must outlive the session.  r NULL: the
 * model's default (llada_recipe_for). */
LLADA_API llada_status llada_session_open(llada_session **out, const llada_model *m, const llada_recipe *r,
                                          const llada_session_opts *o, llada_err *err);
LLADA_API void llada_session_close(llada_session **s); /* NULL-safe; clears *s */
LLADA_API int32_t llada_session_threads(const llada_session *s); /* threads it really has */

typedef enum {
    LLADA_EV_PASS,   /* a pass ran: step, rows, refresh, row_pos/n_row_pos (NULL for a refresh), shadow_pos/n_shadow_pos */
    LLADA_EV_COMMIT, /* pos shows token */
    LLADA_EV_DRAFT,  /* pos of a later block shows token, still unconfirmed */
    LLADA_EV_CONFIRM,/* a draft was confirmed */
    LLADA_EV_EDIT,   /* pos changed to token */
    LLADA_EV_REMASK, /* pos is a mask again (revision) */
    LLADA_EV_DROP,   /* pos is a mask again (a draft not confirmed) */
    LLADA_EV_SETTLE, /* pos will not change any more: token */
    LLADA_EV_MERGE,  /* a revision job's results enter now: step, rows; its edits, re-masks and settlements follow */
    LLADA_EV_BLOCK,  /* block number pos is complete */
    LLADA_EV_TAIL,   /* the text has ended: settlements of what was left open, and of end tokens behind it, follow */
    LLADA_EV_DONE    /* generation ended */
} llada_event_kind;

typedef struct {
    size_t size;
    llada_event_kind kind;
    int32_t step;      /* pass number, from 1 */
    int32_t pos;       /* from the first generated position */
    int32_t token;     /* -1 where there is none */
    double confidence; /* plain softmax probability, 0..1 */
    int32_t rows;      /* PASS: dense rows, shadow rows included; MERGE: the job's rows */
    bool refresh;      /* PASS: the whole canvas was computed */
    const int32_t *row_pos, *shadow_pos; /* PASS; borrowed, until the callback returns */
    int32_t n_row_pos, n_shadow_pos;
    double seconds;    /* since generation began */
    double began, took; /* PASS, and MERGE (its job): when the network began on it, like seconds, and for how long */
    llada_exec ran;    /* MERGE: how its job ran: serial, async (the worker) or fused (times are its dense pass's) */
} llada_event;

/* Called on the thread that runs the session.  Return false to stop: the call returns LLADA_CANCELLED. */
typedef bool (*llada_event_fn)(const llada_event *ev, void *user);

#define LLADA_HOLE (-1) /* in a template: a position to fill */

typedef struct {
    size_t size;
    const int32_t *prompt; /* borrowed, until the call returns */
    int32_t n_prompt;
    const int32_t *canvas; /* NULL: all holes.  Else n_canvas ids, LLADA_HOLE where the model writes */
    int32_t n_canvas;
    int32_t max_tokens;    /* most tokens of text; -1 (default): the recipe's gen, or 128 when that is 0 */
    uint64_t seed;
    llada_event_fn on_event;
    void *user;
} llada_request;

typedef enum {
    LLADA_FINISH_STOP,  /* an end token was written */
    LLADA_FINISH_LENGTH /* the canvas or max_tokens is full */
} llada_finish;

typedef struct {
    size_t size;
    const int32_t *tokens;      /* text before the first end token; borrowed, until the session's next call */
    int32_t n_tokens;
    const int32_t *canvas;      /* the whole canvas; behind the first end token, end tokens */
    int32_t n_canvas;
    const double *confidence;   /* per canvas position: the value when it was last committed, confirmed or revised */
    llada_finish finish;
    int32_t passes, full;       /* dense passes (NFE); of these, refresh passes over the whole canvas */
    int32_t jobs, sweeps;       /* revision jobs; times the weights were read */
    int64_t rows, rev_rows;     /* dense rows (shadow rows included); revision rows */
    int32_t edits, remasks, drafts, draft_ok;
    double tokens_per_pass;     /* tokens up to and with the first end token / passes */
    double seconds;
} llada_result;

LLADA_API void llada_request_defaults(llada_request *q);

/* Runs a request to its end. */
LLADA_API llada_status llada_generate(llada_session *s, const llada_request *q, llada_result *out, llada_err *err);

/* The same in steps, for programs that own the loop: begin, then step until *done, then result.  on_event is called
 * from within llada_step.  q's prompt and canvas are copied. */
LLADA_API llada_status llada_begin(llada_session *s, const llada_request *q, llada_err *err);
LLADA_API llada_status llada_step(llada_session *s, bool *done, llada_err *err);
LLADA_API llada_status llada_get_result(llada_session *s, llada_result *out, llada_err *err);

LLADA_API void llada_cancel(llada_session *s); /* from any thread: the running call returns within one pass */

/* Scores of one forward pass over n tokens (all see each other; in an autoregressive model only what is before), out:
 * [n][n_vocab] float32, row by row as the network gives them: see llada_model_info.shift_logits. */
LLADA_API llada_status llada_logits(llada_session *s, const int32_t *ids, int32_t n, float *out, llada_err *err);

/* Monte-Carlo bound of log p(answer | prompt), natural log, as in LLaDA's evaluation: `samples` random maskings of the
 * answer, `cfg` guidance scale (0: off).  Source: "Large Language Diffusion Models", appendix B (arXiv 2502.09992).
 * Of an autoregressive model: log p itself, in one pass. */
LLADA_API llada_status llada_likelihood(llada_session *s, const int32_t *prompt, int32_t n_prompt, const int32_t *answer,
                                        int32_t n_answer, int32_t samples, double cfg, uint64_t seed, double *out,
                                        llada_err *err);

/* ---------------------------------------------------------------- machine */

/* CPU features the kernels know; bit i of a cpu_mask stands for the i-th name.  found: the bits of this machine. */
LLADA_API const char *const *llada_cpu_features(size_t *n, uint64_t *found);

typedef struct {
    size_t size;       /* set by the caller */
    const char *name;  /* "cpu"; never freed */
    char about[256];   /* one line for people: what it is, or why it can't be used */
    bool usable;
    int32_t threads;   /* that a session takes when it is not told otherwise; 0: not a matter of threads */
} llada_device_info;

/* The i-th device that passes could run on; false behind the last. */
LLADA_API bool llada_device_at(size_t i, llada_device_info *out);

#ifdef __cplusplus
}
#endif
#endif
