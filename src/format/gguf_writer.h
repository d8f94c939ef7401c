/* gguf_writer.h - the writer's record, shared by gguf_write.c (file, tensors, data) and gguf_put.c (keys). */
#ifndef FORMAT_GGUF_WRITER_H
#define FORMAT_GGUF_WRITER_H

#include "format/gguf_impl.h"

struct gguf_writer {
    os_new_file out;
    arena *names;
    gguf_kv *kv;    /* owned; only `name` is used, to find doubles */
    gguf_tensor *t; /* owned; `data` is unused */
    uint32_t n_kv, cap_kv, n_t, cap_t;
    size_t align;
    uint64_t at;   /* bytes written */
    uint32_t now;  /* tensor whose data comes next */
    size_t filled; /* of its bytes */
    bool begun;    /* the table is written: no more keys or tensors */
    bool broken;   /* a write failed: the file can't be finished */
};

/* Bytes to the file; after a failure every later call fails too. */
llada_status gguf_emit(gguf_writer *w, const void *data, size_t n, llada_err *err);
llada_status gguf_emit_le(gguf_writer *w, uint64_t v, size_t bytes, llada_err *err); /* the low `bytes` bytes of v */
llada_status gguf_emit_str(gguf_writer *w, const char *s, size_t len, llada_err *err);
/* Room for one more record in a list; *p grows by doubling. */
bool gguf_reserve(void **p, uint32_t n, uint32_t *cap, size_t each);

#endif
