/* record.h - golden traces: an event callback that writes down what happens in the form of tests/golden/data, and the
 * comparison of two traces.  Everything here fails the running test (cmocka) when something is wrong. */
#ifndef TESTS_RECORD_H
#define TESTS_RECORD_H

#include <jansson.h>
#include <stdbool.h>

#include "llada.h"

/* The trace as it grows. */
typedef struct {
    json_t *entries;  /* owned */
    json_t *list;     /* borrowed: where events of the current entry go */
    bool windowed, merging;
} recorder;

void record_begin(recorder *r, const llada_recipe *recipe); /* record_end frees what it holds */
void record_end(recorder *r);
bool record(const llada_event *ev, void *user);             /* an llada_event_fn; user: the recorder */

/* Settings of a file's object, by llada_recipe_set. */
void record_settings(llada_recipe *r, json_t *settings);

/* A JSON file whole; fails when it can't be read. */
json_t *record_load(const char *path);

/* Equal entry by entry, real numbers within tol; else says where and fails. */
void check_trace(const json_t *got, const json_t *want, double tol, const char *what);

/* Counters by name ("passes", "rows", ...), those that `stats` has. */
void check_counts(const llada_result *res, json_t *stats, const char *what);

/* An array of ids; returns how many, at most cap. */
int ids_of(json_t *array, int32_t *ids, int cap);

#endif
