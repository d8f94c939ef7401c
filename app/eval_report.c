/* eval_report.c - what an evaluation found: JSON objects for scripts, a Markdown table, a plot. */
#include "eval.h"
#include "tracelog.h"

#include <math.h>
#include <string.h>

static double each(int64_t total, int64_t n) { return n ? (double)total / (double)n : 0; }

static double per_pass(const eval_sum *s) { return s->passes ? (double)s->tokens / (double)s->passes : 0; }

/* ---------------------------------------------------------------- JSON */

static json_t *rule_json(const evaluation *e, size_t set)
{
    if (set == e->n_sets) return json_null();
    const question_set *s = &e->sets[set];
    for (size_t i = 1; i < s->n; i++)
        if (s->q[i].rule != s->q[0].rule) return json_string("mixed");
    return json_string(extract_name(s->q[0].rule));
}

json_t *report_json(const evaluation *e, size_t recipe, size_t set)
{
    const eval_recipe *r = &e->recipes[recipe];
    const eval_sum *s = &r->sums[set];
    double low, high;
    eval_interval(s->correct, s->n, &low, &high);
    json_t *o = json_object();
    json_object_set_new(o, "recipe", text_json(r->name, strlen(r->name)));
    const char *name = set < e->n_sets ? e->sets[set].name : "all";
    json_object_set_new(o, "set", text_json(name, strlen(name)));
    json_object_set_new(o, "n", json_integer(s->n));
    json_object_set_new(o, "correct", json_integer(s->correct));
    json_object_set_new(o, "accuracy", json_real(eval_accuracy(s)));
    json_object_set_new(o, "ci", json_pack("[f,f]", low, high));
    json_object_set_new(o, "passes_per_answer", json_real(each(s->passes, s->n)));
    json_object_set_new(o, "tokens_per_pass", json_real(per_pass(s)));
    json_object_set_new(o, "rows_per_answer", json_real(each(s->rows, s->n)));
    json_object_set_new(o, "sweeps_per_answer", json_real(each(s->sweeps, s->n)));
    json_object_set_new(o, "rev_rows_per_answer", json_real(each(s->rev_rows, s->n)));
    json_object_set_new(o, "jobs_per_answer", json_real(each(s->jobs, s->n)));
    json_object_set_new(o, "revisions", json_integer(s->edits + s->remasks));
    json_object_set_new(o, "edits", json_integer(s->edits));
    json_object_set_new(o, "remasks", json_integer(s->remasks));
    json_object_set_new(o, "tokens_per_answer", json_real(each(s->tokens, s->n)));
    json_object_set_new(o, "seconds", json_real(s->seconds));
    json_object_set_new(o, "seeds", json_integer(e->o->seeds));
    json_object_set_new(o, "extract", rule_json(e, set));
    if (recipe > 0) {
        json_t *p = json_object();
        json_object_set_new(p, "against", text_json(e->recipes[0].name, strlen(e->recipes[0].name)));
        json_object_set_new(p, "difference", json_real(s->difference));
        json_object_set_new(p, "se", json_real(s->difference_se));
        json_object_set_new(o, "paired", p);
    }
    json_object_set_new(o, "settings", recipe_json(&r->r));
    return o;
}

/* ---------------------------------------------------------------- Markdown */

/* A cell's text: no bar may end it. */
static void cell(text *t, const char *s)
{
    for (; *s; s++) {
        if (*s == '|') text_str(t, "\\");
        text_add(t, s, 1);
    }
}

static void heads(const evaluation *e, text *out)
{
    text_str(out, "| recipe |");
    for (size_t k = 0; k < e->n_sets; k++) {
        text_str(out, " ");
        cell(out, e->sets[k].name);
        text_str(out, " |");
    }
    if (e->n_sets > 1) text_str(out, " all |");
    text_str(out, " 95 % interval |");
    if (e->n_recipes > 1) text_str(out, " against first |");
    text_str(out, " passes | sweeps | rows | rev rows | jobs | edits + re-masks | tokens/pass | s/answer |\n|---|");
    size_t columns = e->n_sets + (e->n_sets > 1) + 1 + (e->n_recipes > 1) + 8;
    for (size_t k = 0; k < columns; k++) text_str(out, "---|");
    text_str(out, "\n");
}

void report_markdown(const evaluation *e, text *out)
{
    heads(e, out);
    for (size_t i = 0; i < e->n_recipes; i++) {
        const eval_recipe *r = &e->recipes[i];
        const eval_sum *all = &r->sums[e->n_sets];
        double low, high;
        eval_interval(all->correct, all->n, &low, &high);
        text_str(out, "| ");
        cell(out, r->name);
        text_str(out, " |");
        size_t columns = e->n_sets + (e->n_sets > 1);
        for (size_t k = 0; k < columns; k++) text_fmt(out, " %.1f |", 100 * eval_accuracy(&r->sums[k]));
        text_fmt(out, " %.1f to %.1f |", 100 * low, 100 * high);
        if (i > 0) text_fmt(out, " %+.1f ± %.1f |", 100 * all->difference, 100 * all->difference_se);
        else if (e->n_recipes > 1) text_str(out, " |");
        text_fmt(out, " %.1f | %.1f | %.0f | %.0f | %.1f |", each(all->passes, all->n), each(all->sweeps, all->n),
                 each(all->rows, all->n), each(all->rev_rows, all->n), each(all->jobs, all->n));
        text_fmt(out, " %.1f | %.2f | %.3f |\n", each(all->edits + all->remasks, all->n), per_pass(all),
                 all->n ? all->seconds / (double)all->n : 0);
    }
    text_fmt(out, "\nAccuracy in percent over %lld answers a recipe", (long long)e->n_answers);
    if (e->o->seeds > 1) text_fmt(out, " (%lld seeds)", (long long)e->o->seeds);
    text_str(out, "; costs for each answer.");
    if (e->n_recipes > 1) text_str(out, "  Against first: paired difference and its standard error, in points.");
    text_str(out, "\n");
}

/* ---------------------------------------------------------------- SVG */

enum { WIDTH = 760, HEIGHT = 460, LEFT = 64, RIGHT = 24, TOP = 40, BOTTOM = 56 };

typedef struct {
    double x0, x1, y0, y1; /* passes, logarithmic; accuracy */
} frame;

static double at_x(const frame *f, double passes)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (log(passes) - log(f->x0)) / (log(f->x1) - log(f->x0));
}

static double at_y(const frame *f, double accuracy)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (accuracy - f->y0) / (f->y1 - f->y0);
}

static double passes_of(const eval_recipe *r, size_t all)
{
    double p = each(r->sums[all].passes, r->sums[all].n);
    return p > 0.1 ? p : 0.1;
}

static frame make_frame(const evaluation *e)
{
    frame f = {1e9, 0.1, 1, 0};
    for (size_t i = 0; i < e->n_recipes; i++) {
        const eval_sum *s = &e->recipes[i].sums[e->n_sets];
        double p = passes_of(&e->recipes[i], e->n_sets), low, high;
        eval_interval(s->correct, s->n, &low, &high);
        f.x0 = fmin(f.x0, p);
        f.x1 = fmax(f.x1, fmax(p, each(s->sweeps, s->n)));
        f.y0 = fmin(f.y0, low);
        f.y1 = fmax(f.y1, high);
    }
    f.x0 /= 1.4;
    f.x1 *= 1.8; /* room for the names on the right */
    f.y0 = fmax(0, floor(f.y0 * 20) / 20);
    f.y1 = fmin(1, ceil(f.y1 * 20) / 20);
    if (f.y1 - f.y0 < 0.05) f.y1 = f.y0 + 0.05;
    return f;
}

static void axes(const frame *f, text *out)
{
    double step = f->y1 - f->y0 > 0.5 ? 0.1 : 0.05;
    for (double y = f->y0; y < f->y1 + 1e-9; y += step)
        text_fmt(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" "
                 "text-anchor=\"end\">%.0f</text>\n", LEFT, WIDTH - RIGHT, at_y(f, y), at_y(f, y), LEFT - 8,
                 at_y(f, y) + 4, 100 * y);
    static const double ticks[] = {0.5, 1, 2, 3, 5, 8, 12, 20, 32, 50, 80, 128, 200, 320, 512, 1024};
    for (size_t i = 0; i < sizeof ticks / sizeof ticks[0]; i++) {
        double x = at_x(f, ticks[i]);
        if (ticks[i] < f->x0 || ticks[i] > f->x1) continue;
        text_fmt(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text x=\"%.1f\" y=\"%d\" "
                 "text-anchor=\"middle\">%g</text>\n", x, x, TOP, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 18, ticks[i]);
    }
    text_fmt(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">dense passes an answer (logarithmic)</text>\n",
             (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12);
    text_fmt(out, "<text x=\"%d\" y=\"%d\">accuracy in percent, 95 %% intervals; "
             "hollow: sweeps of the weights, with revision jobs</text>\n", LEFT, TOP - 16);
}

/* On the front: no recipe is at least as good on both and better on one. */
static bool on_front(const evaluation *e, size_t i)
{
    double p = passes_of(&e->recipes[i], e->n_sets), a = eval_accuracy(&e->recipes[i].sums[e->n_sets]);
    for (size_t k = 0; k < e->n_recipes; k++) {
        double q = passes_of(&e->recipes[k], e->n_sets), b = eval_accuracy(&e->recipes[k].sums[e->n_sets]);
        if (q <= p && b >= a && (q < p || b > a)) return false;
    }
    return true;
}

/* The front's points by rising passes; as it rises in accuracy too, this is a staircase. */
static void front(const evaluation *e, const frame *f, text *out)
{
    double last = 0;
    text_str(out, "<polyline class=\"front\" points=\"");
    for (size_t n = 0; n < e->n_recipes; n++) {
        size_t best = e->n_recipes;
        for (size_t i = 0; i < e->n_recipes; i++) {
            double p = passes_of(&e->recipes[i], e->n_sets);
            if (p <= last || !on_front(e, i)) continue;
            if (best == e->n_recipes || p < passes_of(&e->recipes[best], e->n_sets)) best = i;
        }
        if (best == e->n_recipes) break;
        last = passes_of(&e->recipes[best], e->n_sets);
        text_fmt(out, "%.1f,%.1f ", at_x(f, last), at_y(f, eval_accuracy(&e->recipes[best].sums[e->n_sets])));
    }
    text_str(out, "\"/>\n");
}

/* Names of points that lie together stand under each other. */
static int names_above(const evaluation *e, size_t i, const frame *f)
{
    int n = 0;
    double x = at_x(f, passes_of(&e->recipes[i], e->n_sets));
    double y = at_y(f, eval_accuracy(&e->recipes[i].sums[e->n_sets]));
    for (size_t k = 0; k < i; k++) {
        double dx = x - at_x(f, passes_of(&e->recipes[k], e->n_sets));
        double dy = y - at_y(f, eval_accuracy(&e->recipes[k].sums[e->n_sets]));
        n += fabs(dx) < 60 && fabs(dy) < 14;
    }
    return n;
}

static void point(const evaluation *e, size_t i, const frame *f, text *out)
{
    const eval_recipe *r = &e->recipes[i];
    const eval_sum *s = &r->sums[e->n_sets];
    double low, high, x = at_x(f, passes_of(r, e->n_sets)), y = at_y(f, eval_accuracy(s));
    eval_interval(s->correct, s->n, &low, &high);
    text_fmt(out, "<g><title>");
    text_markup(out, r->name, strlen(r->name));
    text_fmt(out, ": %.1f %% (%.1f to %.1f), %.1f passes, %.1f sweeps</title>", 100 * eval_accuracy(s), 100 * low,
             100 * high, each(s->passes, s->n), each(s->sweeps, s->n));
    text_fmt(out, "<line class=\"bar\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x, x, at_y(f, low),
             at_y(f, high));
    double sweeps = each(s->sweeps, s->n), end = at_x(f, sweeps);
    if (sweeps > passes_of(r, e->n_sets))
        text_fmt(out, "<line class=\"sweep\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/><circle class=\"sweep\" "
                 "cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", x, end, y, y, end, y);
    text_fmt(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"/><text x=\"%.1f\" y=\"%.1f\">",
             on_front(e, i) ? "best" : "dot", x, y, x + 8, y + 16 + 15 * names_above(e, i, f));
    text_markup(out, r->name, strlen(r->name));
    text_str(out, "</text></g>\n");
}

void report_svg(const evaluation *e, text *out)
{
    frame f = make_frame(e);
    text_fmt(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
             "font-size=\"13\" role=\"img\" aria-label=\"accuracy against dense passes\">\n", WIDTH, HEIGHT);
    text_str(out, "<style>svg{background:#fff;color:#222}text{fill:currentColor}.grid{stroke:currentColor;opacity:.15}"
             ".bar{stroke:currentColor;opacity:.5;stroke-width:2}.dot{fill:#777}.best{fill:#1769aa}"
             ".sweep{fill:none;stroke:currentColor;opacity:.5}line.sweep{stroke-dasharray:3 3}"
             ".front{fill:none;stroke:#1769aa;stroke-width:1.5}"
             "@media(prefers-color-scheme:dark){svg{background:#161616;color:#ddd}.best{fill:#6db3f2}"
             ".front{stroke:#6db3f2}}</style>\n");
    axes(&f, out);
    front(e, &f, out);
    for (size_t i = 0; i < e->n_recipes; i++) point(e, i, &f, out);
    text_str(out, "</svg>\n");
}
