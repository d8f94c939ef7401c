/* tools.h - what the project's own tools (benchmarks, quantise, convert, pack) need beyond llada.h.  Not installed, and no
 * promise to anyone else. */
#ifndef TOOLS_H
#define TOOLS_H

#include "llada.h"

/* Benchmarks on random weights: pass i writes per_pass[i] tokens whatever the scores say (see decode.h). */
llada_status tools_schedule(llada_session *s, const int32_t *per_pass, int n, llada_err *err);

#endif
