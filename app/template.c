/* template.c - canvases of which parts are given.  A hole is written {{N}}: N tokens to fill, fewer where the text ends
 * sooner. */
#include "template.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "prompt.h"

enum { MOST_HOLE = 65536, MOST_CANVAS = 1 << 20 };

static void add(app_template *t, const int32_t *ids, size_t n)
{
    t->canvas = app_grow(t->canvas, (size_t)t->n + n + 1, sizeof *t->canvas);
    memcpy(t->canvas + t->n, ids, n * sizeof *ids);
    t->n += (int32_t)n;
}

static void add_hole(app_template *t, int32_t n)
{
    t->canvas = app_grow(t->canvas, (size_t)t->n + (size_t)n + 1, sizeof *t->canvas);
    for (int32_t i = 0; i < n; i++) t->canvas[t->n++] = LLADA_HOLE;
}

static int add_text(app_template *t, const app_model *am, const char *s, size_t len)
{
    int32_t *ids = NULL;
    size_t n = 0;
    if (len == 0) return EXIT_FINE;
    int rc = prompt_raw_ids(am, s, len, false, &ids, &n);
    if (!rc && n > (size_t)(MOST_CANVAS - t->n)) {
        app_error("the given parts of the answer have more than %d tokens", MOST_CANVAS);
        rc = EXIT_WRONG_USE;
    }
    if (!rc) add(t, ids, n);
    free(ids);
    return rc;
}

/* "{{12}}" at s: the number and the length of the mark; 0 when there is none. */
static size_t hole_mark(const char *s, long *n)
{
    if (strncmp(s, "{{", 2) || !isdigit((unsigned char)s[2])) return 0;
    char *end;
    *n = strtol(s + 2, &end, 10);
    return strncmp(end, "}}", 2) ? 0 : (size_t)(end - s) + 2;
}

static int read_marked(app_template *t, const app_model *am, const char *s)
{
    int holes = 0;
    while (*s) {
        size_t plain = 0, mark = 0;
        long n = 0;
        while (s[plain] && !(mark = hole_mark(s + plain, &n))) plain++;
        int rc = add_text(t, am, s, plain);
        if (rc) return rc;
        if (mark && (n > MOST_HOLE || n > MOST_CANVAS - t->n)) {
            app_error("--template: a hole of %ld tokens; it can have %d", n, MOST_HOLE);
            return EXIT_WRONG_USE;
        }
        if (mark) add_hole(t, (int32_t)n);
        holes += mark > 0;
        s += plain + mark;
    }
    if (holes) return EXIT_FINE;
    app_error("--template: there is no hole in it; write {{N}} where N tokens are to be filled in");
    return EXIT_WRONG_USE;
}

int template_read(const options *o, const app_model *am, int32_t room, app_template *t)
{
    *t = (app_template){.whole = o->template_text != NULL};
    if (!o->suffix && !o->template_text) return EXIT_FINE;
    if (o->suffix && o->template_text) {
        app_error("--suffix and --template both give parts of the answer; use one");
        return EXIT_WRONG_USE;
    }
    if (am->info.causal) {
        app_error("%s writes from left to right and can't fill holes", am->info.name);
        return EXIT_WRONG_USE;
    }
    if (t->whole) return read_marked(t, am, o->template_text);
    add_hole(t, room);
    int rc = add_text(t, am, o->suffix, strlen(o->suffix));
    /* in a conversation the answer ends behind the suffix */
    if (!rc && !o->raw && am->info.eot_id >= 0) add(t, &am->info.eot_id, 1);
    return rc;
}

void template_free(app_template *t) { free(t->canvas); }

static bool ends(const app_model *am, int32_t id) { return id == am->info.eos_id || id == am->info.eot_id; }

int template_text(const app_template *t, const app_model *am, const llada_result *res, text *out)
{
    int32_t *ids = app_new((size_t)res->n_canvas + 1, sizeof *ids);
    size_t n = 0;
    bool ended = false;
    for (int32_t i = 0; i < res->n_canvas; i++) {
        bool hole = t->canvas[i] == LLADA_HOLE;
        if (!hole) ended = false; /* the next hole begins anew */
        if (hole && ends(am, res->canvas[i])) ended = true;
        if (hole ? !ended : t->whole) ids[n++] = res->canvas[i];
    }
    int rc = app_detokenize(am, ids, n, false, out);
    free(ids);
    return rc;
}
