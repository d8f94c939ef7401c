/* profile.c - see profile.h.  A file system has a profile of its own: "FOLDER/machine-DEVICE.json". */
#include "profile.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache.h"
#include "tools.h"

/* NULL: there is no folder to keep it in, or no such file. */
static char *profile_path(const char *model, bool make)
{
    struct stat st;
    text t = {0};
    if (!model || stat(model, &st) != 0 || !cache_folder(&t, make)) return NULL;
    text_fmt(&t, "/machine-%llx.json", (unsigned long long)st.st_dev);
    return t.p;
}

machine_profile profile_load(const char *model)
{
    char *path = profile_path(model, false);
    json_t *file = path ? json_load_file(path, JSON_REJECT_DUPLICATES, NULL) : NULL;
    machine_profile p = {.read_rate = json_number_value(json_object_get(file, "read_rate")),
                         .copy_rate = json_number_value(json_object_get(file, "copy_rate")),
                         .direct = json_is_true(json_object_get(file, "direct"))};
    if (!(p.read_rate > 0) || !(p.read_rate < 1e15)) p.read_rate = 0; /* someone else's file */
    if (!(p.copy_rate > 0) || !(p.copy_rate < 1e15)) p.copy_rate = 0;
    json_decref(file);
    free(path);
    return p;
}

static int keep(const char *model, const char *bytes, bool quiet)
{
    char *path = profile_path(model, true);
    int rc = EXIT_FAILED;
    if (path) rc = file_write(path, bytes, strlen(bytes));
    else app_error("there is no folder to keep the profile in: neither XDG_CACHE_HOME nor HOME is set");
    if (!rc && !quiet) app_note("profile kept in %s", path);
    free(path);
    return rc;
}

int profile_run(const options *o)
{
    tools_rates r;
    llada_err err = {0};
    if (!o->model) {
        app_error("--profile needs -m FILE: the storage that the file lies on is measured");
        return EXIT_WRONG_USE;
    }
    if (tools_measure(o->model, &r, &err)) return app_fail(&err);
    json_t *j = json_pack("{s:f, s:f, s:b}", "read_rate", r.read_rate, "copy_rate", r.copy_rate, "direct", r.direct);
    char *s = json_dumps(j, JSON_REAL_PRECISION(6));
    text t = {0};
    if (o->json) text_fmt(&t, "%s\n", s ? s : "");
    else
        text_fmt(&t, "storage  %.0f MB/s%s, over %.0f MB in %.1f s\nmemory   %.1f GB/s copied\n", r.read_rate / 1e6,
                 r.direct ? "" : " (through the page cache, which may flatter)", (double)r.read_bytes / 1e6, r.seconds,
                 r.copy_rate / 1e9);
    out_write(t.p, t.n);
    text_free(&t);
    int rc = s ? keep(o->model, s, o->quiet) : EXIT_FAILED;
    free(s);
    json_decref(j);
    return rc;
}
