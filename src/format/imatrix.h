/* imatrix.h - importance matrices: for each tensor, the mean square of what its columns were multiplied with, measured
 * on some text by another program.  Two kinds of file: GGUF (general.type "imatrix", tensors NAME.in_sum2 and
 * NAME.counts) and the older one of bare numbers (".dat").  The reader trusts nothing. */
#ifndef FORMAT_IMATRIX_H
#define FORMAT_IMATRIX_H

#include "base/err.h"

typedef struct imatrix imatrix;

llada_status imatrix_open(imatrix **out, const char *path, llada_err *err);
void imatrix_close(imatrix **m); /* NULL-safe */

size_t imatrix_n(const imatrix *m); /* tensors */
/* The weights of a tensor: *n of them, finite and not negative; a row's length, or that for each expert.  Borrowed,
 * until imatrix_close.  NULL: there are none for it. */
const float *imatrix_find(const imatrix *m, const char *name, uint64_t *n);

#endif
