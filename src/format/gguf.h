/* gguf.h - GGUF v2/v3 files, read and written.  The reader trusts nothing: every count, length and offset is checked
 * against the file before it is used, and a refusal names the field or the byte offset.  Opening reads only the header;
 * tensor data stays in the mapping.  A split set is opened whole through any of its shards.  Tensors may be packed
 * (t32.h). */
#ifndef FORMAT_GGUF_H
#define FORMAT_GGUF_H

#include "base/os_reader.h"
#include "format/t32.h"

typedef struct gguf gguf;

typedef enum {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STR, GGUF_ARR, GGUF_U64,
    GGUF_I64, GGUF_F64
} gguf_kind;

typedef struct {
    const char *name;    /* owned by the gguf; NUL-terminated, printable */
    uint32_t type;       /* quant_type */
    bool packed;         /* in T32 layout: one matrix of dims[1] * dims[2] * dims[3] rows */
    int n_dims;          /* 1..4 */
    uint64_t dims[4];    /* fastest first; unused ones are 1 */
    const uint8_t *data; /* borrowed from the mapping, until gguf_close; the file's alignment (32, but it may say 1) */
    size_t bytes;        /* checked: data[0..bytes) lies in the file */
} gguf_tensor;

typedef struct {
    const char *s; /* borrowed; not NUL-terminated */
    size_t len;
} gguf_str;

/* Opens path; `warn` (may be NULL, cap bytes) gets one sentence about oddities that do not stop us ("longer than its
 * table"). */
llada_status gguf_open(gguf **out, const char *path, bool use_mmap, char *warn, size_t cap, llada_err *err);
/* The same on bytes in memory, which the caller keeps until gguf_close. */
llada_status gguf_open_memory(gguf **out, const void *data, size_t len, char *warn, size_t cap, llada_err *err);
void gguf_close(gguf **g);

uint32_t gguf_version(const gguf *g);
bool gguf_packed(const gguf *g); /* some tensor is */
uint64_t gguf_file_bytes(const gguf *g);  /* all shards together */
/* True when a mapped file has been cut short on disk since it was opened (touching its data would fault). */
bool gguf_lost(const gguf *g);
/* The data of t (a tensor of g) is not needed soon: a mapped file's pages may leave memory. */
void gguf_forget(const gguf *g, const gguf_tensor *t);

/* Files of a set, and which of them the data at p lies in, at which offset; false: in none. */
uint32_t gguf_n_files(const gguf *g);
bool gguf_place(const gguf *g, const void *p, uint32_t *file, uint64_t *offset);
/* A reader of a file's own bytes, for those that must not touch the mapping; what is in memory only has none. */
llada_status gguf_reader(const gguf *g, uint32_t file, os_reader **out, llada_err *err);
/* The mapping will be touched here and there only: nothing is read ahead of a touch. */
void gguf_sparse(const gguf *g);
size_t gguf_header_bytes(const gguf *g); /* before the tensors' data, all files together */

/* Typed getters: LLADA_OK and *out; or LLADA_BAD_MODEL with a sentence naming key, type found and type wanted.  A
 * missing key gives LLADA_BAD_MODEL ("key X is missing").  Integers of any width are converted when the value fits;
 * nothing else is, but that gguf_arr_f32 takes f64 items and rounds them. */
bool gguf_has(const gguf *g, const char *key);
llada_status gguf_get_int(const gguf *g, const char *key, int64_t lo, int64_t hi, int64_t *out, llada_err *err);
llada_status gguf_get_f64(const gguf *g, const char *key, double *out, llada_err *err); /* f32, f64 or integers */
llada_status gguf_get_bool(const gguf *g, const char *key, bool *out, llada_err *err);
llada_status gguf_get_str(const gguf *g, const char *key, gguf_str *out, llada_err *err);
/* Arrays: the count; then the items into an array of the caller's, of just that many: another n is refused with both
 * numbers.  Items were bounds-checked when the file was opened. */
llada_status gguf_get_arr(const gguf *g, const char *key, gguf_kind *item, uint64_t *n, llada_err *err);
llada_status gguf_arr_str(const gguf *g, const char *key, gguf_str *items, uint64_t n, llada_err *err);
llada_status gguf_arr_i64(const gguf *g, const char *key, int64_t *items, uint64_t n, llada_err *err);
llada_status gguf_arr_f32(const gguf *g, const char *key, float *items, uint64_t n, llada_err *err);

/* All keys, in file order: for `info`, and for copying metadata to a new file. */
uint64_t gguf_n_keys(const gguf *g);
const char *gguf_key(const gguf *g, uint64_t i, gguf_kind *kind);

uint64_t gguf_n_tensors(const gguf *g);
const gguf_tensor *gguf_tensor_at(const gguf *g, uint64_t i);
const gguf_tensor *gguf_find(const gguf *g, const char *name); /* NULL: none */

/* ------------------------------------------------------------ writing (v3, little-endian, one file) */

typedef struct gguf_writer gguf_writer;

/* The file appears under its name only at the finish. */
llada_status gguf_writer_open(gguf_writer **out, const char *path, llada_err *err);
llada_status gguf_put_u32(gguf_writer *w, const char *key, uint32_t v, llada_err *err);
llada_status gguf_put_f32(gguf_writer *w, const char *key, float v, llada_err *err);
llada_status gguf_put_bool(gguf_writer *w, const char *key, bool v, llada_err *err);
llada_status gguf_put_str(gguf_writer *w, const char *key, const char *s, size_t len, llada_err *err);
llada_status gguf_put_str_arr(gguf_writer *w, const char *key, const gguf_str *items, uint64_t n, llada_err *err);
llada_status gguf_put_i32_arr(gguf_writer *w, const char *key, const int32_t *items, uint64_t n, llada_err *err);
llada_status gguf_put_f32_arr(gguf_writer *w, const char *key, const float *items, uint64_t n, llada_err *err);
/* Any kind, byte for byte; keys split.* are left out, for the new file is whole; general.alignment is obeyed. */
llada_status gguf_copy_key(gguf_writer *w, const gguf *from, uint64_t i, llada_err *err);
/* type: a quant_type, or T32_TYPE + one: a packed tensor (the file then needs T32_KEY, too, to be read).
 * Declare every tensor first, then write their data in the same order, in one or more pieces each. */
llada_status gguf_add_tensor(gguf_writer *w, const char *name, uint32_t type, int n_dims, const uint64_t *dims,
                             llada_err *err);
llada_status gguf_write_data(gguf_writer *w, const void *data, size_t bytes, llada_err *err);
/* Refuses when data is missing; atomic.  The writer is gone afterwards, whatever the result. */
llada_status gguf_writer_finish(gguf_writer **w, llada_err *err);
void gguf_writer_discard(gguf_writer **w); /* NULL-safe */

#endif
