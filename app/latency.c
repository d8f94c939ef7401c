/* latency.c - reads and writes the table of pass times in the user's cache folder. */
#include "latency.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache.h"

/* "FOLDER/latency-NAME-BYTES-tN-cMASK.json", so that another file, thread count or CPU mask has a table of its own. */
static char *table_path(const app_model *am, const options *o, bool make_folders)
{
    text t = {0};
    if (!cache_folder(&t, make_folders)) return NULL;
    text_str(&t, "/latency-");
    for (const char *c = am->info.name; *c; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '-';
        text_fmt(&t, "%c", plain ? *c : '_');
    }
    text_fmt(&t, "-%llu-t%lld-c%llx.json", (unsigned long long)am->info.file_bytes, (long long)o->threads,
             (unsigned long long)o->cpu_mask);
    return t.p;
}

int latency_load(const app_model *am, const options *o, llada_latency *t)
{
    char *path = table_path(am, o, false);
    json_t *file = path ? json_load_file(path, JSON_REJECT_DUPLICATES, NULL) : NULL;
    size_t n = json_array_size(file);
    int kept = 0;
    for (size_t i = 0; i < n && kept < LLADA_MAX_LATENCY; i++) {
        json_t *e = json_array_get(file, i);
        json_int_t rows = json_integer_value(json_object_get(e, "rows"));
        double ms = json_number_value(json_object_get(e, "ms"));
        bool rises = rows > (kept ? t[kept - 1].rows : 0) && rows <= 65536 && ms > 0;
        if (rises) t[kept++] = (llada_latency){(int32_t)rows, ms};
    }
    json_decref(file);
    free(path);
    return kept;
}

int latency_save(const app_model *am, const options *o, const llada_latency *t, int n, char **path)
{
    *path = table_path(am, o, true);
    if (!*path) {
        app_error("there is no folder to keep the table in: neither XDG_CACHE_HOME nor HOME is set");
        return EXIT_FAILED;
    }
    json_t *file = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(file, json_pack("{s:i, s:f}", "rows", t[i].rows, "ms", t[i].ms));
    char *bytes = json_dumps(file, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    int rc = bytes ? file_write(*path, bytes, strlen(bytes)) : EXIT_FAILED;
    free(bytes);
    json_decref(file);
    return rc;
}
