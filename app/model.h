/* model.h - opening models and sessions for the sub-commands, with what people need to be told on the way. */
#ifndef APP_MODEL_H
#define APP_MODEL_H

#include "opt.h"
#include "util.h"

typedef struct {
    llada_model *m; /* owned */
    llada_model_info info;
    bool builtin;
    bool tell_device;
    char device[256]; /* what passes ran on when the model was opened, and why */
} app_model;

/* Opens the model of the options.  Says on stderr when it is the small one built in, and with `about` what that can do
 * and where larger ones are; refuses one that memory cannot hold.  Returns an exit code, with the sentence printed. */
int app_model_open(app_model *am, const options *o, bool about);
void app_model_close(app_model *am);

/* ctx: positions the session must have, unless -c says else. */
int app_session_open(llada_session **s, const app_model *am, const llada_recipe *r, const options *o, int64_t ctx);
void app_session_close(llada_session **s);

/* The recipe of the options (see opt_recipe), with notes on stderr; an exit code. */
int app_recipe(const options *o, const char *spec, llada_recipe *r);

/* The same, fitted to the model: when nobody chose a recipe, r becomes the model's own default.  Says so of models that are
 * no diffusion models. */
int app_recipe_fit(const options *o, const app_model *am, llada_recipe *r);

/* ids -> bytes, appended. */
int app_detokenize(const app_model *am, const int32_t *ids, size_t n, bool special, text *out);

/* With --mem-budget: what stayed, what streamed, and how well, on stderr. */
void app_memory_note(const app_model *am, const options *o);

/* Memory this machine could still give, in bytes; 0: unknown. */
uint64_t app_memory_free(void);

/* Says it when `positions` are more than the model was trained for. */
void app_note_context(const app_model *am, const options *o, int64_t positions);

/* The canvas a request gets: what -n, the recipe's gen and the default of 128 say.  *max_tokens: for the request. */
int32_t app_canvas_size(const options *o, const llada_recipe *r, int32_t *max_tokens);

#endif
