/* settings.h - settings files: a JSON object whose keys are recipe keys. */
#ifndef APP_SETTINGS_H
#define APP_SETTINGS_H

#include "llada.h"

/* Reads FILE and sets each of its keys through llada_recipe_set.  Unknown keys, values out of range and nested values
 * are refused by name.  false leaves a sentence in err. */
bool settings_file(llada_recipe *r, const char *path, char *err, size_t cap);

#endif
