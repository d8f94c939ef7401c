/* profile.h - what this machine's storage and memory do, measured by `llada devices --profile -m FILE` and kept in the
 * user's cache folder; plans of --mem-budget are told with it. */
#ifndef APP_PROFILE_H
#define APP_PROFILE_H

#include "opt.h"

typedef struct {
    double read_rate, copy_rate; /* bytes a second: storage, memory; 0: not measured */
    bool direct;                 /* the storage was read past the page cache */
} machine_profile;

machine_profile profile_load(const char *model); /* of the file system that the model lies on */
/* Measures, prints and keeps it; an exit code. */
int profile_run(const options *o);

#endif
