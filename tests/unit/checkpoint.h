/* checkpoint.h - for tests of convert: a GGUF file as the checkpoint folder its authors would have published.  Written
 * from the published names, apart from the tables of app/convert_tensors.c that it checks. */
#ifndef TESTS_CHECKPOINT_H
#define TESTS_CHECKPOINT_H

#include "format/gguf.h"
#include "scratch.h"

typedef struct {
    const char *dtype;   /* "F32", "F16" or "BF16" */
    int shards;          /* 1: model.safetensors; more: with an index */
    /* what a test changes; NULL: nothing */
    const char *config;  /* a JSON object laid over config.json; null removes a key */
    const char *skip;    /* a tensor that is left out */
    const char *rename;  /* a tensor that gets "_" behind its name */
    const char *extra;   /* a tensor more, of four zeros */
    bool illada;         /* a llada file under iLLaDA's class, with Llama's names */
    bool pairs;          /* merges as pairs, as newer files have them */
} checkpoint_opts;

/* Into the folder `name` of s. */
void checkpoint_write(scratch *s, const char *name, const gguf *g, const checkpoint_opts *o);
/* One file of given tensors: name, dtype, bytes; for tests of the reader.  Owned by the caller (free). */
uint8_t *safetensors_bytes(const char *header, size_t data, size_t *len);

#endif
