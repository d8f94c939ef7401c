/* cache.h - the folder for what was measured once: $XDG_CACHE_HOME/llada, or ~/.cache/llada. */
#ifndef APP_CACHE_H
#define APP_CACHE_H

#include "util.h"

/* Appends the folder's path; false when the environment names none.  make: it is made when it is not there; a failure
 * shows when a file is written. */
bool cache_folder(text *t, bool make);

#endif
