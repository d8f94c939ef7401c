/* rewrite.c - see rewrite.h. */
#include "rewrite.h"

#include <sys/stat.h>
#include <unistd.h>

#include "interrupt.h"
#include "util.h"

enum { MOST_THREADS = 64 };
#define MB 1e6

void rewrite_begin(rewrite *w, const options *o, const char *title, const char *path)
{
    *w = (rewrite){.quiet = o->quiet, .title = title, .path = path, .began = app_seconds()};
    interrupt_at_prompt(true); /* a signal is only noted: rewrite_tick stops the work, and the new file goes away */
}

bool rewrite_tick(void *user, const char *tensor, uint64_t done, uint64_t total)
{
    rewrite *w = user;
    if (!w->begun) progress_begin(&w->bar, !w->quiet, w->title, (size_t)((double)total / MB) + 1);
    w->begun = true;
    w->bytes = total;
    progress_step(&w->bar, (size_t)((double)done / MB), tensor);
    return !interrupt_signal();
}

int rewrite_end(rewrite *w, llada_status st, const llada_err *err)
{
    interrupt_at_prompt(false);
    if (w->begun) progress_end(&w->bar);
    if (st == LLADA_CANCELLED) return interrupt_exit_code();
    if (st) return app_fail(err);
    if (!w->quiet) app_note("%s: %.1f MB in %.1f s", w->path, (double)w->bytes / MB, app_seconds() - w->began);
    return EXIT_FINE;
}

int rewrite_threads(const options *o)
{
    long n = o->threads ? (long)o->threads : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : (int)n;
}

int rewrite_not_same(const char *in, const char *out)
{
    struct stat x, y;
    if (stat(in, &x) || stat(out, &y) || x.st_dev != y.st_dev || x.st_ino != y.st_ino) return EXIT_FINE;
    app_error("%s and %s are the same file", in, out);
    return EXIT_WRONG_USE;
}
