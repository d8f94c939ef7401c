/* params.h - hyper-parameters of a model file. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "model/model.h"

/* Reads `<architecture>.*` keys into m, each within its range and in agreement with the others.  m->file and m->arch
 * are set before. */
llada_status model_read_params(model *m, llada_err *err);

/* One sentence about something odd that does not stop us; the first is kept. */
void model_warn(model *m, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
