/* tools.h - what the project's own tools (benchmarks, quantise, convert, pack) need beyond llada.h.  Not installed,
 * and no promise to anyone else. */
#ifndef TOOLS_H
#define TOOLS_H

#include "llada.h"

/* Benchmarks on random weights: pass i writes per_pass[i] tokens whatever the scores say (see decode.h). */
llada_status tools_schedule(llada_session *s, const int32_t *per_pass, int n, llada_err *err);
/* Benchmarks: one pass over n fresh rows against an empty cache, all scored; n at most the session's positions. */
llada_status tools_forward(llada_session *s, int n, llada_err *err);

/* Benchmarks: what this machine can do at most, all threads together. */
typedef struct {
    double read_gbs;                             /* memory read, 1e9 bytes a second */
    double float_gflops, integer_gops;           /* the matrix kernels on operands in the first cache; a product and an
                                                    addition are two */
    const char *float_kernel, *integer_kernel;   /* static */
    int threads;
} tools_limits;

/* Each of the three is measured for `seconds` (at least 0.02). */
llada_status tools_machine(tools_limits *out, int threads, uint64_t cpu_mask, double seconds, llada_err *err);

/* What a pass reads and multiplies: bytes of all matrices, and their values by the kind of product. */
typedef struct {
    double bytes, floats, integers;
} tools_work;
void tools_pass_work(const llada_model *m, tools_work *out);

/* llada_model_open for comparisons: parts of the memory runtime are left out. */
enum { TOOLS_WITHOUT_RESIDENCY = 1, TOOLS_WITHOUT_LAYOUT = 2, TOOLS_WITHOUT_PIPELINE = 4 };
llada_status tools_model_open(llada_model **out, const char *path, const llada_model_opts *opts, unsigned without,
                              llada_err *err);

typedef struct {
    double read_rate, copy_rate; /* bytes a second: this file's storage; memory, counting a copied byte once */
    double seconds;              /* of reading */
    uint64_t read_bytes;
    bool direct;                 /* past the page cache */
} tools_rates;

/* Reads up to two seconds of the file, as the memory runtime does, and copies memory for a tenth. */
llada_status tools_measure(const char *path, tools_rates *out, llada_err *err);

/* A plan of memory, told without loading anything. */
typedef struct {
    llada_memory use;              /* budget, total, held, streamed, slots, parts */
    uint64_t contexts, fixed;      /* bytes of total: the session; vocabulary, norms, rows of the embedding */
    bool table_held;               /* the token embedding is in memory, not read by the row */
    double seconds, read, compute; /* of a pass: in all; transfers; computing (0: unknown) */
    double read_rate;              /* taken to be so */
    uint64_t work, work_sum, work_live; /* activations: bytes; all added up; most alive at once (a lower bound) */
    int n_groups;
    struct {
        char name[64];             /* "ffn_down": of all layers */
        uint64_t held, streamed;   /* bytes */
    } group[32];
} tools_plan;

llada_status tools_memory_plan(const llada_model *m, const llada_recipe *r, int ctx, bool kv_f16, uint64_t budget,
                               double read_rate, double pass_seconds, tools_plan *out, llada_err *err);

uint64_t tools_free_memory(void); /* bytes that can be taken without swapping, within control groups; 0: unknown */

/* ---------------------------------------------------------------- types of tensors */

/* The number of a type by name ("q8_0", any case) among those that can be written; -1: none.  And back. */
int tools_type(const char *name);
const char *tools_type_name(int type);

/* Called now and then with the tensor at hand and bytes written of all; false stops the work (LLADA_CANCELLED). */
typedef bool (*tools_tick)(void *user, const char *tensor, uint64_t done, uint64_t total);

/* ---------------------------------------------------------------- pre-tokenizers */

/* Whether the pattern of a checkpoint's tokenizer cuts text as the pre-tokenizer `name` does. */
bool tools_pre_alike(const char *name, const char *regex, size_t len);

/* ---------------------------------------------------------------- convert: safetensors in, GGUF out */

typedef struct tools_checkpoint tools_checkpoint; /* tensors of one or more safetensors files */
typedef struct tools_output tools_output;         /* a GGUF file being written; it appears at the finish, or never */

typedef struct {
    const char *name; /* borrowed, until the checkpoint is closed */
    int type;         /* F32, F16 or BF16 */
    int n_dims;
    uint64_t dims[4]; /* slowest first, as checkpoints count; unused ones are 1 */
    size_t file;      /* place among the paths */
} tools_tensor;

llada_status tools_checkpoint_open(tools_checkpoint **out, const char *const *paths, size_t n, llada_err *err);
void tools_checkpoint_close(tools_checkpoint **c);
size_t tools_checkpoint_n(const tools_checkpoint *c);
void tools_checkpoint_at(const tools_checkpoint *c, size_t i, tools_tensor *out);
long tools_checkpoint_find(const tools_checkpoint *c, const char *name); /* -1: none */

llada_status tools_output_open(tools_output **out, const char *path, llada_err *err);
void tools_output_discard(tools_output **o); /* NULL-safe */
llada_status tools_put_u32(tools_output *o, const char *key, uint32_t v, llada_err *err);
llada_status tools_put_f32(tools_output *o, const char *key, double v, llada_err *err);
llada_status tools_put_bool(tools_output *o, const char *key, bool v, llada_err *err);
llada_status tools_put_str(tools_output *o, const char *key, const char *s, llada_err *err);
llada_status tools_put_strs(tools_output *o, const char *key, const char *const *s, size_t n, llada_err *err);
llada_status tools_put_i32s(tools_output *o, const char *key, const int32_t *v, size_t n, llada_err *err);
/* A tensor made of `n` ones of the checkpoint, all of one type and shape: one as it is, several stacked.  heads > 0:
 * its rows belong to so many heads and their halves are interleaved (llada, llama: queries and keys). */
llada_status tools_put_tensor(tools_output *o, const char *name, int type, const tools_checkpoint *c, const long *which,
                              size_t n, int heads, llada_err *err);
/* The same of numbers of our own: n values, F32. */
llada_status tools_put_values(tools_output *o, const char *name, const float *v, size_t n, llada_err *err);
/* Writes all data and finishes the file.  o is gone afterwards, whatever the result. */
llada_status tools_output_finish(tools_output **o, const tools_checkpoint *c, int threads, tools_tick tick, void *user,
                                 llada_err *err);

/* ---------------------------------------------------------------- quantise */

typedef struct {
    const char *name;
    const char *from, *to; /* names of types */
    uint64_t values;
    double error;          /* relative: sqrt(sum of squared differences / sum of squares); 0 where nothing changed */
    double weighed;        /* the same with each square times its weight; -1: no weights were used */
    const char *why;       /* why it is not stored as asked; NULL: it is */
} tools_quantized;

typedef struct {
    const char *type;      /* "q4_0", "q4_k_m", ...: tools_recipes lists them */
    const char *imatrix;   /* a file of importance matrices; NULL: none */
    bool allow_requantize; /* also from types that have lost much already */
    int threads;
    tools_tick tick;
    void (*report)(void *user, const tools_quantized *t); /* after each tensor; NULL: none */
    void *user;
} tools_quantize_opts;

const char *tools_recipes(void); /* names with blanks between them */
/* The new file appears whole or not at all.  in may be any shard of a split set. */
llada_status tools_quantize(const char *in, const char *out, const tools_quantize_opts *o, llada_err *err);

/* ---------------------------------------------------------------- pack */

typedef struct {
    int threads;
    tools_tick tick;
    void *user;
} tools_pack_opts;

/* Writes the matrices of a model that can be run in the layout the engines compute with (format/t32.h); nothing is
 * rounded.  The new file appears whole or not at all.  in may be any shard of a split set. */
llada_status tools_pack(const char *in, const char *out, const tools_pack_opts *o, llada_err *err);

/* ---------------------------------------------------------------- info */

typedef struct {
    char arch[64], name[128], tokenizer[32], pre[64]; /* "" where the file does not say */
    char types[256];                                  /* "F32 65, Q4_K 193" */
    char warning[256];
    int64_t n_layer, n_embd, n_head, n_ctx;           /* 0: the file does not say */
    uint64_t file_bytes, n_params, n_tensors, n_packed, n_keys;
    uint32_t version;
} tools_found;

/* What the header of a GGUF file says, whatever its architecture. */
llada_status tools_inspect(const char *path, tools_found *out, llada_err *err);

typedef struct {
    uint64_t kv, work;  /* bytes: keys and values; activations */
    uint64_t sum, live; /* activations added up; the most alive at once, a lower bound of work */
} tools_memory;

/* What a session of ctx positions would take beside the weights, to within a few percent; nothing is opened. */
llada_status tools_session_bytes(const llada_model *m, const llada_recipe *r, int ctx, bool kv_f16, tools_memory *out,
                                 llada_err *err);

#endif
