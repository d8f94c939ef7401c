/* recipe.h - limits of the settings that others size their memory by. */
#ifndef DECODE_RECIPE_H
#define DECODE_RECIPE_H

#include "base/err.h"

enum { RECIPE_MAX_GEN = 65536, RECIPE_MAX_LAG = 8 };

/* LLADA_OK, or a sentence naming the first setting that is out of range (a struct filled by hand may hold anything). */
llada_status recipe_check(const llada_recipe *r, llada_err *err);

/* Decoded by the window engine: confidences are rounded, and a text may end inside a block. */
static inline bool recipe_windowed(const llada_recipe *r) { return r->mbsd != LLADA_MBSD_OFF || r->dppr; }

#endif
