/* eval_store.c - the file of --resume: one JSON object a line for every answer, appended and flushed at once, so that
 * an evaluation that was stopped goes on where it was.
 *
 * An answer belongs to a key made of everything that decides it: the model's file, every setting of the recipe, the
 * prompt's ids, canvas, seed, how keys and values are kept, and the program's version. */
#include "eval.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_BYTES = 1 << 30, SAMPLE = 1 << 16 };

static void read_records(eval_store *st, const text *t)
{
    for (size_t i = 0; i < t->n;) {
        const char *nl = memchr(t->p + i, '\n', t->n - i);
        size_t len = nl ? (size_t)(nl - t->p) - i : t->n - i;
        json_t *r = json_loadb(t->p + i, len, 0, NULL); /* a line cut short by a crash is none: NULL */
        const char *key = json_string_value(json_object_get(r, "key"));
        if (key) json_object_set(st->done, key, r);
        json_decref(r);
        i += len + 1;
    }
}

int store_open(eval_store *st, const char *path)
{
    text t = {0};
    *st = (eval_store){.done = json_object(), .path = path};
    if (!path) return EXIT_FINE;
    struct stat about;
    int rc = EXIT_FINE;
    if (stat(path, &about) == 0 && S_ISREG(about.st_mode)) rc = file_read(&t, path, MOST_BYTES);
    if (!rc) read_records(st, &t);
    if (!rc) st->f = fopen(path, "abe");
    if (!rc && !st->f) {
        app_error("cannot write %s: %s", path, strerror(errno));
        rc = EXIT_FAILED;
    }
    if (!rc && t.n && t.p[t.n - 1] != '\n') fputc('\n', st->f); /* behind a line cut short */
    text_free(&t);
    return rc;
}

int store_close(eval_store *st)
{
    int rc = EXIT_FINE;
    json_decref(st->done);
    if (st->f && fclose(st->f) != 0) {
        app_error("cannot write %s: %s", st->path, strerror(errno));
        rc = EXIT_FAILED;
    }
    *st = (eval_store){0};
    return rc;
}

/* Name, sizes, and the two ends of the file: enough to tell files apart without reading gigabytes. */
uint64_t store_model_key(const app_model *am, const options *o)
{
    uint64_t h = app_hash(APP_HASH_SEED, llada_version(), strlen(llada_version()));
    if (am->info.name) h = app_hash(h, am->info.name, strlen(am->info.name));
    h = app_hash(h, &am->info.file_bytes, sizeof am->info.file_bytes);
    h = app_hash(h, &am->info.n_params, sizeof am->info.n_params);
    h = app_hash(h, &o->kv, sizeof o->kv);
    if (o->device) h = app_hash(h, o->device, strlen(o->device));
    FILE *f = o->model ? fopen(o->model, "rbe") : NULL;
    if (!f) return h;
    char *buf = app_new(SAMPLE, 1);
    h = app_hash(h, buf, fread(buf, 1, SAMPLE, f));
    if (fseek(f, -SAMPLE, SEEK_END) == 0) h = app_hash(h, buf, fread(buf, 1, SAMPLE, f));
    free(buf);
    fclose(f);
    return h;
}

void store_key(uint64_t model, const llada_recipe *r, const question *q, int32_t gen, uint64_t seed, char key[20])
{
    size_t n;
    uint64_t h = model;
    const llada_recipe_key *keys = llada_recipe_keys(&n);
    for (size_t i = 0; i < n; i++) {
        char value[64] = "";
        llada_recipe_get(r, keys[i].key, value, sizeof value, NULL);
        h = app_hash(h, keys[i].key, strlen(keys[i].key) + 1);
        h = app_hash(h, value, strlen(value) + 1);
    }
    h = app_hash(h, q->ids, q->n_ids * sizeof *q->ids);
    h = app_hash(h, &gen, sizeof gen);
    h = app_hash(h, &seed, sizeof seed);
    snprintf(key, 20, "%016llx", (unsigned long long)h);
}

const json_t *store_find(const eval_store *st, const char *key) { return json_object_get(st->done, key); }

int store_add(eval_store *st, const char *key, json_t *record)
{
    int rc = EXIT_FINE;
    if (st->f) {
        json_object_set_new(record, "key", json_string(key));
        char *s = json_dumps(record, JSON_COMPACT);
        if (!s || fputs(s, st->f) < 0 || fputc('\n', st->f) < 0 || fflush(st->f) != 0) {
            app_error("cannot write %s: %s", st->path, strerror(errno));
            rc = EXIT_FAILED;
        }
        free(s);
    }
    json_decref(record);
    return rc;
}
