/* progress.h - how far long work is: a bar on a terminal, a line now and then elsewhere. */
#ifndef APP_PROGRESS_H
#define APP_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    bool on, bar;
    size_t total, done;
    double began, said;
    char title[64];
} progress;

void progress_begin(progress *p, bool on, const char *title, size_t total);
/* note: a few words on how it goes, behind the count. */
void progress_step(progress *p, size_t done, const char *note);
void progress_end(progress *p);

#endif
