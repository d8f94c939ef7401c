/* err.h - error values: a status for programs and one sentence for people.  The rule of the whole library: return
 * llada_fail(...) at the place where it is known what went wrong; callers pass the status up untouched. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "base/compiler.h"
#include "llada.h"

/* Fills err (may be NULL) and returns st.  Long sentences are cut at a character boundary; control characters and
 * invalid UTF-8 (from file names or hostile files) are replaced by '?'.  The arguments may quote err->text. */
llada_status llada_fail(llada_err *err, llada_status st, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
