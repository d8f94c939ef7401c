/* tokenize.c - `llada tokenize`: text to ids, and with --ids, ids to text. */
#include "commands.h"
#include "prompt.h"
#include "tracelog.h"

#include <stdlib.h>
#include <string.h>

static void print_object(json_t *o)
{
    char *s = json_dumps(o, JSON_SHORT_REALS);
    if (s) out_write(s, strlen(s));
    out_write("\n", 1);
    free(s);
    json_decref(o);
}

static int to_text(const app_model *am, const options *o)
{
    char why[256];
    size_t n;
    text t = {0};
    int32_t *ids = opt_ids("--ids", o->ids, &n, why, sizeof why);
    if (!ids) {
        app_error("%s", why);
        return EXIT_WRONG_USE;
    }
    int rc = app_detokenize(am, ids, n, o->special, &t);
    if (!rc && o->json) {
        json_t *j = json_object();
        json_object_set_new(j, "text", text_json(t.p, t.n));
        json_object_set_new(j, "n_tokens", json_integer((json_int_t)n));
        print_object(j);
    } else if (!rc) {
        out_text(t.p, t.n);
        out_write("\n", 1);
    }
    text_free(&t);
    free(ids);
    return rc;
}

static void print_ids(const app_model *am, const options *o, const int32_t *ids, size_t n)
{
    if (!o->json) {
        text t = {0};
        for (size_t i = 0; i < n; i++) text_fmt(&t, "%s%d", i ? "," : "", (int)ids[i]);
        text_str(&t, "\n");
        out_write(t.p, t.n);
        text_free(&t);
        return;
    }
    json_t *tokens = json_array(), *pieces = json_array(), *j = json_object();
    for (size_t i = 0; i < n; i++) {
        text t = {0};
        app_detokenize(am, &ids[i], 1, true, &t);
        json_array_append_new(tokens, json_integer(ids[i]));
        json_array_append_new(pieces, text_json(t.p, t.n));
        text_free(&t);
    }
    json_object_set_new(j, "tokens", tokens);
    json_object_set_new(j, "pieces", pieces);
    json_object_set_new(j, "n_tokens", json_integer((json_int_t)n));
    print_object(j);
}

static int to_ids(const app_model *am, const options *o)
{
    text t = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    options one = *o;
    if (o->arg) one.prompt = o->arg;
    int rc = prompt_read(&one, true, NULL, &t);
    if (!rc && o->chat) rc = prompt_request(am, &one, &t, &ids, &n);
    else if (!rc) rc = prompt_raw_ids(am, t.n ? t.p : "", t.n, o->special, &ids, &n);
    if (!rc) print_ids(am, o, ids, n);
    free(ids);
    text_free(&t);
    return rc;
}

int cmd_tokenize(const options *o)
{
    app_model am;
    options quiet = *o;
    if ((o->ids != NULL) + (o->prompt != NULL || o->arg) + (o->file != NULL) > 1 || (o->prompt && o->arg)) {
        app_error("give one of -p TEXT, -f FILE, --ids");
        return EXIT_WRONG_USE;
    }
    quiet.quiet = true; /* the note on the built-in model helps nobody here */
    int rc = app_model_open(&am, &quiet, false);
    if (rc) return rc;
    rc = o->ids ? to_text(&am, o) : to_ids(&am, o);
    app_model_close(&am);
    return rc;
}
