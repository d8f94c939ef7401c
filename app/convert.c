/* convert.c - `llada convert`: a checkpoint folder as its authors publish it (config.json, safetensors, tokenizer.json)
 * to one GGUF file.  Everything is checked before the first weight is copied. */
#include "commands.h"
#include "convert.h"
#include "rewrite.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---------------------------------------------------------------- files of a checkpoint */

typedef struct {
    char **path; /* owned */
    size_t n;
} path_list;

static void paths_free(path_list *l)
{
    for (size_t i = 0; i < l->n; i++) free(l->path[i]);
    free(l->path);
    *l = (path_list){0};
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The place of a file in the list, which it joins when it is new. */
static size_t add_path(path_list *l, const char *dir, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(file_name(l->path[i]), name)) return i;
    text t = {0};
    text_fmt(&t, "%s/%s", dir, name);
    l->path = app_grow(l->path, l->n + 1, sizeof *l->path);
    l->path[l->n] = t.p;
    return l->n++;
}

static int list_files(path_list *l, const char *dir, const json_t *map)
{
    const char *name;
    json_t *v;
    if (!map) {
        add_path(l, dir, "model.safetensors");
        return EXIT_FINE;
    }
    json_object_foreach((json_t *)(uintptr_t)map, name, v)
    {
        const char *file = json_string_value(v);
        if (!file || !file[0] || file[0] == '.' || strchr(file, '/') || l->n > 4096) {
            app_error("model.safetensors.index.json: tensor %.80s is not in a file beside it", name);
            return EXIT_WRONG_USE;
        }
        add_path(l, dir, file);
    }
    if (l->n) return EXIT_FINE;
    app_error("model.safetensors.index.json lists no files");
    return EXIT_WRONG_USE;
}

/* Index and files must agree both ways, or shards are of different checkpoints. */
static int check_index(const json_t *map, const tools_checkpoint *c, const path_list *l)
{
    tools_tensor t;
    const char *name;
    json_t *v;
    if (!map) return EXIT_FINE;
    json_object_foreach((json_t *)(uintptr_t)map, name, v)
    {
        long i = tools_checkpoint_find(c, name);
        if (i >= 0) tools_checkpoint_at(c, (size_t)i, &t);
        if (i >= 0 && !strcmp(file_name(l->path[t.file]), json_string_value(v))) continue;
        app_error("the index puts tensor %.80s in %s, but it is %s%s", name, json_string_value(v),
                  i < 0 ? "nowhere" : "in ",
                  i < 0 ? "" : file_name(l->path[t.file]));
        return EXIT_WRONG_USE;
    }
    if (json_object_size(map) == tools_checkpoint_n(c)) return EXIT_FINE;
    app_error("the index lists %zu tensors, but the files hold %zu", json_object_size(map), tools_checkpoint_n(c));
    return EXIT_WRONG_USE;
}

static int open_checkpoint(tools_checkpoint **c, const char *dir)
{
    json_t *index = NULL, *map = NULL;
    path_list l = {0};
    llada_err err = {0};
    int rc = convert_json(&index, dir, "model.safetensors.index.json", true);
    if (!rc && index && !json_is_object(map = json_object_get(index, "weight_map"))) {
        app_error("%s/model.safetensors.index.json has no weight_map", dir);
        rc = EXIT_WRONG_USE;
    }
    if (!rc) rc = list_files(&l, dir, map);
    if (!rc && tools_checkpoint_open(c, (const char *const *)l.path, l.n, &err)) {
        app_fail(&err);
        rc = EXIT_WRONG_USE; /* a checkpoint that can't be opened is one we can't convert */
    }
    if (!rc) rc = check_index(map, *c, &l);
    paths_free(&l);
    json_decref(index);
    return rc;
}

/* ---------------------------------------------------------------- the command */

static int write_file(convert_model *m, const tools_checkpoint *c, const options *o)
{
    tools_output *out = NULL;
    llada_err err = {0};
    rewrite w;
    float *factors = NULL;
    int rc = convert_check_tensors(m, c, o->quiet);
    if (!rc) rc = convert_rope_factors(m, &factors);
    if (!rc && tools_output_open(&out, o->arg2, &err)) rc = app_fail(&err);
    if (!rc) rc = convert_put_config(m, out);
    if (!rc) rc = convert_put_tokens(m, out);
    if (!rc) rc = convert_put_tensors(m, c, out);
    if (!rc && factors && tools_put_values(out, "rope_freqs.weight", factors, (size_t)m->head_dim / 2, &err))
        rc = app_fail(&err);
    free(factors);
    if (rc) {
        tools_output_discard(&out);
        return rc;
    }
    rewrite_begin(&w, o, "convert", o->arg2);
    llada_status st = tools_output_finish(&out, c, rewrite_threads(o), rewrite_tick, &w, &err);
    return rewrite_end(&w, st, &err);
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

int cmd_convert(const options *o)
{
    convert_model m = {.type = o->type ? o->type : "f16"};
    tools_checkpoint *c = NULL;
    static const char *const types[] = {"f16", "f32", "bf16", "q8_0"};
    bool known = false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i], m.type)) known = true;
    if (!o->arg || !o->arg2 || !known) {
        if (known) app_error("convert needs a checkpoint folder and the file to write: llada convert DIR OUT.gguf");
        else app_error("--type %.32s: convert writes f16, f32, bf16 or q8_0; quantize makes the others of these",
                       m.type);
        return EXIT_WRONG_USE;
    }
    if (is_file(o->arg)) {
        app_error("%s is a file: convert takes a checkpoint folder (safetensors); quantize and pack take GGUF files",
                  o->arg);
        return EXIT_WRONG_USE;
    }
    int rc = convert_read_config(&m, o->arg);
    if (!rc) rc = open_checkpoint(&c, o->arg);
    if (!rc) rc = write_file(&m, c, o);
    tools_checkpoint_close(&c);
    json_decref(m.json);
    return rc;
}
