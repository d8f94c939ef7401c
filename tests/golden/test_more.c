/* test_more.c - every run of tests/golden/data/more reproduced exactly: commit rules, sampling, guidance, bans,
 * refreshes, templates, hold mode and the options of revision, as tests/ref/more.py works them out from
 * docs/decoding.md.  No decision in these runs hangs on rounding: positions, tokens and steps are equal, confidences of
 * block recipes to 1e-4, those of the window engine exactly. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "record.h"

#define DATA LLADA_SOURCE_DIR "/tests/golden/data/more"
#define MODEL LLADA_SOURCE_DIR "/tests/fixtures/tiny-llada-f32.gguf"

enum { MAX_IDS = 256, MAX_FILES = 64 };

static void check_run(const llada_model *m, const llada_recipe *r, json_t *run, const char *what)
{
    int32_t prompt[MAX_IDS], canvas[MAX_IDS], final[MAX_IDS];
    llada_err err;
    llada_session *s = NULL;
    llada_session_opts so;
    llada_request q;
    llada_result res;
    recorder rec;
    llada_request_defaults(&q);
    q.prompt = prompt;
    q.n_prompt = ids_of(json_object_get(run, "prompt_ids"), prompt, MAX_IDS);
    q.seed = (uint64_t)json_integer_value(json_object_get(run, "seed"));
    json_t *template = json_object_get(run, "canvas");
    if (template) {
        q.n_canvas = ids_of(template, canvas, MAX_IDS);
        q.canvas = canvas;
    }
    int n = ids_of(json_object_get(run, "final_ids"), final, MAX_IDS);
    llada_session_opts_defaults(&so);
    so.ctx = q.n_prompt + n;
    if (llada_session_open(&s, m, r, &so, &err)) fail_msg("%s: %s", what, err.text);
    record_begin(&rec, r);
    q.on_event = record;
    q.user = &rec;
    if (llada_generate(s, &q, &res, &err)) fail_msg("%s: %s", what, err.text);
    check_trace(rec.entries, json_object_get(run, "trace"), rec.windowed ? 0 : 1e-4, what);
    check_counts(&res, json_object_get(run, "stats"), what);
    assert_int_equal(res.n_canvas, n);
    for (int i = 0; i < n; i++)
        if (res.canvas[i] != final[i]) fail_msg("%s: position %d shows %d, not %d", what, i, res.canvas[i], final[i]);
    record_end(&rec);
    llada_session_close(&s);
}

static void check_file(void **state)
{
    char path[512], what[128];
    snprintf(path, sizeof path, DATA "/%s", (const char *)*state);
    json_t *file = record_load(path), *runs = json_object_get(file, "runs");
    llada_err err;
    llada_model *m = NULL;
    llada_recipe r;
    if (llada_model_open(&m, MODEL, NULL, &err)) fail_msg("%s", err.text);
    assert_int_equal(llada_recipe_named(&r, "parallel", &err), LLADA_OK);
    record_settings(&r, json_object_get(file, "settings"));
    assert_int_equal(json_array_size(runs), 3);
    for (size_t i = 0; i < json_array_size(runs); i++) {
        snprintf(what, sizeof what, "%s, run %zu", (const char *)*state, i);
        check_run(m, &r, json_array_get(runs, i), what);
    }
    llada_model_close(&m);
    json_decref(file);
}

/* One test a file of the folder, or those named on the command line. */
int main(int argc, char **argv)
{
    static char names[MAX_FILES][64];
    struct CMUnitTest tests[MAX_FILES];
    size_t n = 0;
    struct dirent *e;
    DIR *d = argc > 1 ? NULL : opendir(DATA);
    for (int i = 1; i < argc && n < MAX_FILES; i++) snprintf(names[n++], sizeof names[0], "%s", argv[i]);
    while (d && n < MAX_FILES && (e = readdir(d)))
        if (strstr(e->d_name, ".json")) snprintf(names[n++], sizeof names[0], "%.60s", e->d_name);
    if (d) closedir(d);
    for (size_t i = 0; i < n; i++)
        tests[i] = (struct CMUnitTest){.name = names[i], .test_func = check_file, .initial_state = names[i]};
    if (n == 0) fprintf(stderr, "there is nothing in %s\n", DATA);
    return n == 0 || _cmocka_run_group_tests("more", tests, n, NULL, NULL);
}
