/* tiny_gguf.h - small synthetic GGUF files for tests: a whole `llada` model that is built in memory, changed as a test
 * wants it, and written as bytes, as a file or as shards.
 *
 *     tiny_gguf *t = tiny_llada(NULL);                          a model every part of the program accepts
 *     tiny_set_f32(t, "llada.rope.freq_base", NAN);             ... but for one key
 *     tiny_file f = tiny_bytes(t);
 *     tiny_poke(&f, "dim0 of blk.0.attn_q.weight", 1u << 31);   ... and one field of the finished bytes
 *     gguf_open_memory(&g, f.data, f.len, ...);
 *     tiny_file_free(&f);
 *     tiny_free(t);
 *
 * The model: byte-level BPE with 300 tokens (256 bytes, 38 merges, 6 special ones), random weights of a fixed seed, the
 * keys and tensor names of published `llada` files.  It writes nonsense, but it runs.  Everything here asserts (cmocka)
 * when it can't do what was asked. */
#ifndef TESTS_TINY_GGUF_H
#define TESTS_TINY_GGUF_H

#include "format/gguf.h"

/* Token ids. */
enum {
    TINY_BOS = 294,   /* <|startoftext|> */
    TINY_EOS = 295,   /* <|endoftext|>, also the padding */
    TINY_MASK = 296,  /* <|mdm_mask|> */
    TINY_START = 297, /* <|start_header_id|> */
    TINY_END = 298,   /* <|end_header_id|> */
    TINY_EOT = 299,   /* <|eot_id|> */
    TINY_VOCAB = 300
};

typedef struct {
    const char *arch;  /* general.architecture, and the prefix of the model's keys */
    uint32_t type;     /* quant_type of embeddings, head and matrices; one with an encoder.  Norms are always F32 */
    int n_layer, n_embd, n_head, n_head_kv, n_ff, n_ctx;
    int pad_rows;      /* rows of embedding and head beyond the vocabulary; may be negative */
    bool tied;         /* no output.weight */
    uint64_t seed;
} tiny_opts;

/* llada, F32, 2 layers, width 64, 4 heads (4 for K and V), ffn 96, context 256, no padding, untied. */
tiny_opts tiny_defaults(void);
/* As small as a whole model gets: Q4_0, 1 layer, width and ffn 32, 2 heads.  For tests that open it very often. */
tiny_opts tiny_smallest(void);

typedef struct {
    char name[80];
    uint32_t kind, item; /* gguf_kind; item: of an array */
    uint64_t n;          /* items of an array */
    uint8_t *raw;        /* owned: the value's bytes; of an array the items' */
    size_t raw_len;
} tiny_key;

typedef struct {
    char name[72];
    uint32_t type, n_dims; /* type: as files number it */
    uint64_t dims[4];
    uint8_t *data; /* owned */
    size_t bytes;  /* of data; written as they are, whatever dims and type say */
} tiny_tensor;

/* Fields may be changed directly; keys and tensors are written in this order. */
typedef struct {
    uint32_t version, align; /* align: used for layout; the key general.alignment is only written when it is set */
    tiny_key *keys;          /* owned */
    size_t n_keys;
    tiny_tensor *tensors;    /* owned */
    size_t n_tensors;
} tiny_gguf;

tiny_gguf *tiny_new(void);                      /* v3, no keys, no tensors */
tiny_gguf *tiny_llada(const tiny_opts *o);      /* NULL: the defaults */
void tiny_free(tiny_gguf *t);                   /* NULL-safe */

/* Each replaces the key of that name, in its place, or adds it at the end. */
void tiny_set_raw(tiny_gguf *t, const char *key, uint32_t kind, const void *raw, size_t len);
void tiny_set_u32(tiny_gguf *t, const char *key, uint32_t v);
void tiny_set_f32(tiny_gguf *t, const char *key, float v);
void tiny_set_bool(tiny_gguf *t, const char *key, bool v);
void tiny_set_str(tiny_gguf *t, const char *key, const char *s);
void tiny_set_arr(tiny_gguf *t, const char *key, uint32_t item, uint64_t n, const void *raw, size_t len);
void tiny_set_strs(tiny_gguf *t, const char *key, const char *const *s, size_t n);
/* n items (0, 1, 0, 1, ... or ""/"a") of any kind; GGUF_ARR gives an array of empty arrays. */
void tiny_set_arr_of(tiny_gguf *t, const char *key, uint32_t item, uint64_t n);
void tiny_drop_key(tiny_gguf *t, const char *key);
tiny_key *tiny_find_key(tiny_gguf *t, const char *key);

/* values NULL: random ones around 0 with deviation `std`. */
void tiny_add_tensor(tiny_gguf *t, const char *name, uint32_t type, int n_dims, const uint64_t *dims,
                     const float *values, float std, uint64_t seed);
void tiny_pack_tensor(tiny_gguf *t, const char *name); /* into T32 layout */
void tiny_pack(tiny_gguf *t); /* every matrix but the embedding, and the key */
void tiny_drop_tensor(tiny_gguf *t, const char *name);
tiny_tensor *tiny_find_tensor(tiny_gguf *t, const char *name);

/* ------------------------------------------------------------ bytes */

/* A number in the file that says how to read the rest. */
typedef struct {
    char what[112]; /* "version", "tensor count", "key count", "alignment of data" ...; see tiny_bytes */
    size_t at;
    int width;      /* bytes: 4 or 8 */
} tiny_mark;

typedef struct {
    uint8_t *data; /* owned */
    size_t len, data_at;
    tiny_mark *marks; /* owned */
    size_t n_marks;
} tiny_file;

/* The finished file and a mark for every number in its header: "version", "tensor count", "key count"; for a key K
 * "key length of K", "kind of K", "string length of K", "item kind of K", "item count of K", "first string of K",
 * "last string of K"; for a tensor T "name length of T", "n_dims of T", "dim0 of T" ..., "type of T", "offset of T". */
tiny_file tiny_bytes(const tiny_gguf *t);
void tiny_file_free(tiny_file *f);
const tiny_mark *tiny_find_mark(const tiny_file *f, const char *what);
void tiny_poke_mark(tiny_file *f, const tiny_mark *m, uint64_t v);
void tiny_poke(tiny_file *f, const char *what, uint64_t v);
void tiny_save(const tiny_gguf *t, const char *path);

/* The part of a split set with number `no` (from 0) of `count`: tensors are dealt out in order, evenly; only part 0 has
 * the keys.  For tiny_bytes or tiny_save; owned by the caller. */
tiny_gguf *tiny_shard(const tiny_gguf *t, int no, int count);

#endif
