/* eval_set.c - question sets: one JSON object a line, {"prompt", "answer", "reference"}; "question" stands for "prompt"
 * as in GSM8K's own files. */
#include "eval.h"
#include "prompt.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 256 << 20 };

/* The answer as text: a string as it is, a number or object as JSON. */
static char *answer_text(const json_t *a)
{
    if (!a || json_is_null(a)) return NULL;
    if (json_is_string(a)) return app_copy(json_string_value(a), json_string_length(a));
    char *s = json_dumps(a, JSON_ENCODE_ANY | JSON_COMPACT), *copy = s ? app_copy(s, strlen(s)) : NULL;
    free(s);
    return copy;
}

static int read_question(question_set *s, const char *line, size_t n, size_t number, extract_rule asked)
{
    json_error_t at;
    json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES, &at);
    const json_t *p = json_object_get(o, "prompt");
    if (!p) p = json_object_get(o, "question");
    if (!json_is_string(p)) {
        if (!o) app_error("%s, line %zu: %s", s->path, number, at.text);
        else app_error("%s, line %zu: there is no text \"prompt\"", s->path, number);
        json_decref(o);
        return EXIT_WRONG_USE;
    }
    s->q = app_grow(s->q, s->n + 1, sizeof *s->q);
    question *q = &s->q[s->n++];
    *q = (question){.prompt = app_copy(json_string_value(p), json_string_length(p)),
                    .answer = answer_text(json_object_get(o, "answer"))};
    q->rule = extract_choose(asked, s->path, q->answer, json_string_value(json_object_get(o, "reference")));
    bool answerless = !q->answer && q->rule != EXTRACT_STORY;
    if (answerless) app_error("%s, line %zu: there is no \"answer\" to compare with", s->path, number);
    json_decref(o);
    return answerless ? EXIT_WRONG_USE : EXIT_FINE;
}

static void name_set(question_set *s)
{
    const char *slash = strrchr(s->path, '/'), *name = slash ? slash + 1 : s->path;
    size_t n = strlen(name);
    if (n > 6 && !strcmp(name + n - 6, ".jsonl")) n -= 6;
    s->name = app_copy(name, n);
}

static int read_lines(question_set *s, const text *t, const options *o)
{
    size_t number = 0, limit = o->limit ? (size_t)o->limit : SIZE_MAX;
    for (size_t i = 0; i < t->n && s->n < limit;) {
        const char *nl = memchr(t->p + i, '\n', t->n - i);
        size_t len = nl ? (size_t)(nl - t->p) - i : t->n - i;
        number++;
        if (strspn(t->p + i, " \t\r") < len) {
            int rc = read_question(s, t->p + i, len, number, (extract_rule)o->extract);
            if (rc) return rc;
        }
        i += len + 1;
    }
    if (s->n) return EXIT_FINE;
    app_error("%s holds no questions", s->path);
    return EXIT_WRONG_USE;
}

int set_load(question_set *s, const app_model *am, const options *o, const char *path)
{
    text t = {0};
    *s = (question_set){.path = path};
    name_set(s);
    int rc = file_read(&t, path, MOST_BYTES);
    if (!rc) rc = read_lines(s, &t, o);
    text_free(&t);
    for (size_t i = 0; i < s->n && !rc; i++) {
        text prompt = {0};
        text_str(&prompt, s->q[i].prompt);
        rc = prompt_request(am, o, &prompt, &s->q[i].ids, &s->q[i].n_ids);
        text_free(&prompt);
        if (rc) app_error("(question %zu of %s)", i + 1, path);
    }
    return rc;
}

void set_free(question_set *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->q[i].prompt);
        free(s->q[i].answer);
        free(s->q[i].ids);
    }
    free(s->q);
    free(s->name);
    *s = (question_set){0};
}
