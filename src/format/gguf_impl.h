/* gguf_impl.h - what the gguf_*.c files share: the records behind the two opaque types and the limits of the reader. */
#ifndef FORMAT_GGUF_IMPL_H
#define FORMAT_GGUF_IMPL_H

#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/size.h"
#include "format/gguf.h"

/* Limits that keep the cost of refusing any file below 16 MiB and 100 ms.  The largest published files hold about 50
 * keys, 150,000 tokens, 150,000 merges and 1,000 tensors. */
enum {
    GGUF_MAX_KEYS = 100000,
    GGUF_MAX_TENSORS = 32768,
    GGUF_MAX_NAME_BYTES = 2 << 20, /* all key and tensor names of a file together */
    GGUF_MAX_WALKED = 2 << 20,     /* array items that have to be looked at one by one: strings and booleans */
    GGUF_MAX_KEY = 65535,          /* bytes, from the specification */
    GGUF_MAX_TENSOR_NAME = 255,
    GGUF_MAX_ALIGN = 65536,
    GGUF_MAX_SHARDS = 4096,
    GGUF_ARR_HEAD = 12 /* bytes before an array's items: item kind u32, count u64 */
};

#define GGUF_KINDS 13

typedef struct {
    const char *name; /* owned by the part's arena */
    uint64_t n;       /* items of an array */
    size_t at, end;   /* the value's bytes in the file, behind its type */
    uint8_t kind, item;
} gguf_kv;

/* One entry of an index. */
typedef struct {
    uint64_t key;     /* what it is sorted by: the name's hash, or an address */
    const char *name; /* borrowed; NULL when sorted by address */
    uint32_t i;       /* place in the list */
} gguf_slot;

/* One file of a set. */
typedef struct {
    os_file file;    /* for a file in memory: borrowed bytes, `path` NULL */
    char *path;      /* owned */
    char where[168]; /* "name.gguf: " before every sentence, or "" */
    arena *names;
    gguf_kv *kv;         /* owned; in file order */
    gguf_tensor *t;      /* owned; in file order */
    gguf_slot *kv_order; /* owned: index of kv by name */
    uint32_t n_kv, n_t, version;
    size_t align, data_at; /* data_at: file offset of the tensor data */
} gguf_part;

struct gguf {
    gguf_part *parts; /* owned; parts[0] has the metadata */
    uint32_t n_parts, n_t;
    gguf_tensor *t;     /* all shards' tensors; owned when n_parts > 1, else parts[0].t */
    gguf_slot *t_order; /* owned: index of t by name */
};

static inline uint32_t le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t le64(const uint8_t *p) { return le32(p) | (uint64_t)le32(p + 4) << 32; }

static inline bool gguf_align_ok(uint64_t a) { return a >= 1 && a <= GGUF_MAX_ALIGN && (a & (a - 1)) == 0; }

/* Names go into messages and onto terminals: the specification's ASCII, without control characters. */
bool gguf_printable(const uint8_t *s, size_t len);

/* A type as files number it, into t->type and t->packed; false when it is none we know. */
bool gguf_take_type(gguf_tensor *t, uint32_t file_type);
/* A stack of matrices can be packed only if none of them shares a stripe with the next. */
bool gguf_stack_ok(const gguf_tensor *t);
/* Fills t->bytes from type and dims (unused ones 1); false when rows do not divide into blocks, a dimension is 0, the
 * product overflows or the stack is not one that can be packed. */
bool gguf_tensor_bytes(gguf_tensor *t);

/* Bytes of one value of a kind; 0 for strings and arrays. */
size_t gguf_kind_bytes(uint32_t kind);
const char *gguf_kind_name(uint32_t kind);

/* gguf_magic.c: LLADA_OK when the bytes begin as a little-endian GGUF of a version we read. */
llada_status gguf_check_magic(const gguf_part *p, llada_err *err);

/* gguf_read.c: the header of p->file into p; gguf_tensors.c: the tensor table behind the keys, at byte `at`. */
llada_status gguf_read_part(gguf_part *p, char *warn, size_t cap, llada_err *err);
llada_status gguf_read_tensors(gguf_part *p, size_t at, uint64_t count, size_t name_bytes, char *warn, size_t cap,
                               llada_err *err);
void gguf_free_part(gguf_part *p);

/* A name of `len` bytes at `at`, checked and copied into the part's arena.  `what`: "key" or "tensor name". */
llada_status gguf_read_name(gguf_part *p, size_t at, uint64_t len, uint64_t max, const char *what, size_t *name_bytes,
                            const char **name, llada_err *err);
/* The sentence for a field that needs more bytes than are left. */
llada_status gguf_cut_short(const gguf_part *p, const char *what, const char *name, size_t at, uint64_t need,
                            llada_err *err);

/* gguf_split.c: when parts[0] belongs to a split set, opens the others; parts are ordered by number afterwards. */
llada_status gguf_open_set(gguf *g, const char *path, bool use_mmap, char *warn, size_t cap, llada_err *err);
llada_status gguf_open_part(gguf_part *p, const char *path, bool use_mmap, char *warn, size_t cap, llada_err *err);

/* gguf_index.c: sorted indices, owned by the caller; NULL: no memory. */
gguf_slot *gguf_index_keys(const gguf_kv *kv, uint32_t n);       /* by name */
gguf_slot *gguf_index_tensors(const gguf_tensor *t, uint32_t n); /* by name */
gguf_slot *gguf_index_places(const gguf_tensor *t, uint32_t n);  /* by data */
/* In an index by name, the second of two equal ones (the first stands before it); NULL: all differ. */
const gguf_slot *gguf_double(const gguf_slot *s, uint32_t n);
/* The entry of a name; NULL: not there. */
const gguf_slot *gguf_lookup(const gguf_slot *s, uint32_t n, const char *name);
const gguf_kv *gguf_part_find(const gguf_part *p, const char *key);

/* gguf_get.c: the getter of integers, on one part. */
llada_status gguf_part_int(const gguf_part *p, const char *key, int64_t lo, int64_t hi, int64_t *out, llada_err *err);

#endif
