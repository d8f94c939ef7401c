/* cache.c - see cache.h. */
#include "cache.h"

#include <stdlib.h>
#include <sys/stat.h>

bool cache_folder(text *t, bool make)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/')
        text_str(t, cache);
    else if (home && home[0] == '/')
        text_fmt(t, "%s/.cache", home);
    else
        return false;
    if (make) mkdir(t->p, 0700);
    text_str(t, "/llada");
    if (make) mkdir(t->p, 0700);
    return true;
}
