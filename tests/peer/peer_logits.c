/* peer_logits.c - scores of one forward pass by llama.cpp's release libraries, with attention in float32: what
 * tests/peer/logits.sh compares ours with.  Built by that script, not by CMake.
 *
 *   peer_logits BACKENDS MODEL 1,2,3 OUT.f32 causal|both
 *
 * The library comes without headers, and its structures of parameters change from release to release: they are taken as
 * blobs (the x86-64 System V convention passes both alike), and the settings that matter are found by the values around
 * them. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is used of the library's interface. */
typedef struct {
    int32_t n_tokens, *token;
    float *embd;
    int32_t *pos, *n_seq_id, **seq_id;
    int8_t *logits;
} batch;
typedef struct {
    int32_t w[512];
} blob; /* a structure of parameters; larger than it is */

struct llama_model;
struct llama_context;
void ggml_backend_load_all_from_path(const char *dir);
void llama_backend_init(void);
void llama_log_set(void (*fn)(int level, const char *text, void *user), void *user);
blob llama_model_default_params(void);
blob llama_context_default_params(void);
struct llama_model *llama_model_load_from_file(const char *path, blob params);
struct llama_context *llama_init_from_model(struct llama_model *m, blob params);
void llama_set_n_threads(struct llama_context *c, int32_t one, int32_t many);
void llama_set_causal_attn(struct llama_context *c, bool causal);
batch llama_batch_init(int32_t n, int32_t embd, int32_t seqs);
int32_t llama_decode(struct llama_context *c, batch b);
float *llama_get_logits(struct llama_context *c);
const void *llama_model_get_vocab(const struct llama_model *m);
int32_t llama_vocab_n_tokens(const void *vocab);

static void be_quiet(int level, const char *text, void *user)
{
    if (level == 4) fputs(text, stderr); /* errors */
}

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "peer_logits: %s\n", what);
    exit(1);
}

/* Flash attention would round K and V to half floats, and so does the cache by default.  Four settings of "decide
 * yourself" (-1) in a row end with the first; two types "half" (1) behind two empty pointers are the second. */
static void exact_attention(blob *p)
{
    int i = 0, last = 512;
    while (i + 4 < last && !(p->w[i] == -1 && p->w[i + 1] == -1 && p->w[i + 2] == -1 && p->w[i + 3] == -1)) i++;
    if (i + 4 == last) die("the library's settings are not as known");
    p->w[i + 3] = 0;
    for (i += 4; i + 6 < last; i++) {
        if (p->w[i] || p->w[i + 1] || p->w[i + 2] || p->w[i + 3] || p->w[i + 4] != 1 || p->w[i + 5] != 1) continue;
        p->w[i + 4] = p->w[i + 5] = 0;
        return;
    }
    die("the library's cache types are not as known");
}

int main(int argc, char **argv)
{
    static int32_t ids[65536];
    int n = 0;
    if (argc != 6) die("usage: see the head of peer_logits.c");
    for (char *s = argv[3]; *s && n < 65536; s += *s == ',') ids[n++] = (int32_t)strtol(s, &s, 10);
    llama_log_set(be_quiet, NULL);
    ggml_backend_load_all_from_path(argv[1]);
    llama_backend_init();

    struct llama_model *m = llama_model_load_from_file(argv[2], llama_model_default_params());
    if (!m) die("the model can't be loaded");
    blob p = llama_context_default_params();
    p.w[0] = p.w[1] = p.w[2] = n; /* context, batch, micro-batch */
    exact_attention(&p);
    struct llama_context *c = llama_init_from_model(m, p);
    if (!c) die("no context");
    llama_set_n_threads(c, 2, 2);
    llama_set_causal_attn(c, strcmp(argv[5], "causal") == 0);

    batch b = llama_batch_init(n, 0, 1);
    b.n_tokens = n;
    for (int i = 0; i < n; i++) {
        b.token[i] = ids[i];
        b.pos[i] = i;
        b.n_seq_id[i] = 1;
        b.seq_id[i][0] = 0;
        b.logits[i] = 1;
    }
    if (llama_decode(c, b)) die("the pass failed");
    size_t all = (size_t)n * (size_t)llama_vocab_n_tokens(llama_model_get_vocab(m));
    FILE *f = fopen(argv[4], "wb");
    if (!f || fwrite(llama_get_logits(c), sizeof(float), all, f) != all || fclose(f)) die("the scores can't be written");
    return 0;
}
