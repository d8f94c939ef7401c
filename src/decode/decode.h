/* decode.h - the decoding loop: a canvas, its caches, and the steps that turn masks into text.  Source of every rule:
 * docs/decoding.md.  One decoder serves one thread at a time. */
#ifndef DECODE_DECODE_H
#define DECODE_DECODE_H

#include "decode/recipe.h"
#include "device/device.h"
#include "model/model.h"

enum { DECODE_DEFAULT_GEN = 128, DECODE_MOST_THREADS = 16 };

typedef struct decoder decoder;

typedef struct {
    int ctx;           /* most positions: prompt + canvas */
    int threads;
    bool kv_f16;
    uint64_t cpu_mask;
    const llada_latency *latency; /* copied; may be NULL */
    int n_latency;
} decoder_limits;

/* Allocates all that later calls need. */
llada_status decoder_open(decoder **out, const model *m, const device *dev, device_weights *w, const llada_recipe *r,
                          const decoder_limits *lim, llada_err *err);
void decoder_close(decoder **d);
int decoder_threads(const decoder *d);

llada_status decoder_begin(decoder *d, const llada_request *q, llada_err *err);
llada_status decoder_step(decoder *d, bool *done, llada_err *err);
llada_status decoder_result(decoder *d, llada_result *out, llada_err *err);
void decoder_cancel(decoder *d); /* any thread */

/* For benchmarks on weights without meaning: pass i writes per_pass[i] tokens (the last count goes on for ever), the
 * leftmost masks it scores, whatever the scores say; looks confirm what is written.  Copied.  n 0: real scores
 * again. */
llada_status decoder_schedule(decoder *d, const int32_t *per_pass, int n, llada_err *err);

/* For benchmarks: one pass over n fresh rows against an empty cache, all of them scored. */
llada_status decoder_forward(decoder *d, int n, llada_err *err);

llada_status decoder_logits(decoder *d, const int32_t *ids, int n, float *out, llada_err *err);
llada_status decoder_likelihood(decoder *d, const int32_t *prompt, int n_prompt, const int32_t *answer, int n_answer,
                                int samples, double cfg, uint64_t seed, double *out, llada_err *err);

#endif
