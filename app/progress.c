/* progress.c - the bar and the lines, on stderr. */
#include "progress.h"

#include "util.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BAR_SECONDS 0.1
#define LINE_SECONDS 10.0
enum { BAR = 24 };

void progress_begin(progress *p, bool on, const char *title, size_t total)
{
    const char *term = getenv("TERM");
    *p = (progress){.on = on, .total = total, .began = app_seconds()};
    p->bar = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    p->said = p->bar ? 0 : p->began;
    text safe = {0};
    text_terminal(&safe, title, strlen(title));
    snprintf(p->title, sizeof p->title, "%.60s", safe.p ? safe.p : "");
    text_free(&safe);
}

void progress_step(progress *p, size_t done, const char *note)
{
    double t = app_seconds(), spent = t - p->began;
    p->done = done;
    if (!p->on || t - p->said < (p->bar ? BAR_SECONDS : LINE_SECONDS)) return;
    p->said = t;
    double left = done ? spent / (double)done * (double)(p->total - done) : 0;
    if (!p->bar) {
        fprintf(stderr, "%s: %zu of %zu, %s, %.0f s left\n", p->title, done, p->total, note, left);
        return;
    }
    char bar[BAR + 1];
    size_t full = p->total ? done * BAR / p->total : 0;
    memset(bar, ' ', BAR);
    memset(bar, '#', full < BAR ? full : BAR);
    bar[BAR] = 0;
    fprintf(stderr, "\r\x1b[K%s [%s] %zu/%zu  %s  %.0f s left", p->title, bar, done, p->total, note, left);
}

void progress_end(progress *p)
{
    if (p->on && p->bar) fputs("\r\x1b[K", stderr);
}
