/* rewrite.h - what convert, quantize and pack share: progress in megabytes, Ctrl-C that leaves no half-written file, and
 * the line at the end. */
#ifndef APP_REWRITE_H
#define APP_REWRITE_H

#include "opt.h"
#include "progress.h"
#include "tools.h"

typedef struct {
    progress bar;
    bool begun, quiet;
    const char *title, *path;
    double began;
    uint64_t bytes;
} rewrite;

/* path: the new file; borrowed, until the end. */
void rewrite_begin(rewrite *w, const options *o, const char *title, const char *path);
bool rewrite_tick(void *user, const char *tensor, uint64_t done, uint64_t total); /* a tools_tick; user: the rewrite */
int rewrite_end(rewrite *w, llada_status st, const llada_err *err);               /* an exit code; prints why not 0 */
int rewrite_threads(const options *o);
int rewrite_not_same(const char *in, const char *out); /* an exit code; prints why not 0 */

#endif
