/* safetensors.h - checkpoints in the safetensors format, one file or several read as one.  The reader trusts nothing:
 * the header is scanned without recursion, every offset is checked against the file, and tensors must cover the data
 * exactly, as the published reader demands.  Opening reads only headers; the data stays in the mapping. */
#ifndef FORMAT_SAFETENSORS_H
#define FORMAT_SAFETENSORS_H

#include "format/gguf.h"

typedef struct safetensors safetensors;

/* All files together: a name must stand in only one of them. */
llada_status st_open(safetensors **out, const char *const *paths, size_t n, llada_err *err);
/* One file's bytes in memory, which the caller keeps until st_close. */
llada_status st_open_memory(safetensors **out, const void *data, size_t len, llada_err *err);
void st_close(safetensors **s); /* NULL-safe */

/* Tensors look like those of a GGUF: dims fastest first (the file lists the slowest first), a scalar is one value, the
 * type is QT_F32, QT_F16 or QT_BF16.  Other types and more than 4 dimensions are refused when the file is opened. */
uint32_t st_n_tensors(const safetensors *s);
const gguf_tensor *st_tensor_at(const safetensors *s, uint32_t i);
const gguf_tensor *st_find(const safetensors *s, const char *name); /* NULL: none */
/* The file, by its place in `paths`, that holds a tensor of s. */
size_t st_file_of(const safetensors *s, const gguf_tensor *t);
/* The tensor's bytes are not needed again: a mapped file's pages may go. */
void st_forget(const safetensors *s, const gguf_tensor *t);

#endif
