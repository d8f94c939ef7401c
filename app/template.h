/* template.h - answers of which parts are given: a text to end in (--suffix), or a text with holes (--template). */
#ifndef APP_TEMPLATE_H
#define APP_TEMPLATE_H

#include "model.h"

typedef struct {
    int32_t *canvas; /* owned; LLADA_HOLE where the model writes; NULL: no template was given */
    int32_t n;
    bool whole;      /* the answer is shown with its given parts (--template), not the holes alone (--suffix) */
} app_template;

/* From the options; `room`: length of the hole before a suffix, in tokens.  An exit code, with the sentence printed. */
int template_read(const options *o, const app_model *am, int32_t room, app_template *t);
void template_free(app_template *t);

/* The answer as text: the holes, each up to its end token, and with `whole` what was given around them. */
int template_text(const app_template *t, const app_model *am, const llada_result *res, text *out);

#endif
