/* trace_timeline.c - the report's timeline of the two paths: when the network ran, on which thread.
 *
 * The upper lane is the thread that decodes: dense passes, the revision jobs that ride in them, and those it runs by
 * itself.  The lower lane, there when anything ran on it, is the revision worker. */
#include "trace.h"

#include <math.h>

enum {
    LABEL = 22, LANE = 36, GAP = 10, AXIS = 26, /* heights, from top to bottom */
    LEAST_WIDTH = 1176, MOST_WIDTH = 24000, WIDTH_A_RUN = 22, WIDTH_A_TICK = 90, WIDTH_A_DIGIT = 7
};

typedef struct {
    const trace_file *t;
    text *out;
    bool worker;   /* it ran something */
    double scale;  /* pixels a second */
    int width;
} chart;

/* Seconds, but for counts and rows. */
typedef struct {
    double dense, serial, worker, shared; /* shared: passes with a job within, which dense counts too */
    double both;                          /* the worker ran while a pass did */
    double n[4], rows[4];                 /* by run_kind */
} sums;

/* ---------------------------------------------------------------- sums */

static double length(const trace_run *r) { return r->ended - r->began; }

/* How long a worker's job and a dense pass were at it together.  Within a lane runs follow each other. */
static double together(const trace_file *t)
{
    double sum = 0;
    for (size_t i = 0, k = 0; i < t->n_dense && k < t->n_jobs;) {
        const trace_run *a = &t->dense[i], *b = &t->jobs[k];
        if (b->kind != RUN_ASYNC) {
            k++;
            continue;
        }
        double common = fmin(a->ended, b->ended) - fmax(a->began, b->began);
        if (common > 0) sum += common;
        if (a->ended < b->ended) i++;
        else k++;
    }
    return sum;
}

static sums add_up(const trace_file *t)
{
    sums s = {.both = together(t)};
    for (size_t i = 0; i < t->n_dense + t->n_jobs; i++) {
        const trace_run *r = i < t->n_dense ? &t->dense[i] : &t->jobs[i - t->n_dense];
        s.n[r->kind]++;
        s.rows[r->kind] += r->rows;
        if (r->kind == RUN_PASS) s.dense += length(r);
        if (r->kind == RUN_SERIAL) s.serial += length(r);
        if (r->kind == RUN_ASYNC) s.worker += length(r);
        if (r->kind == RUN_FUSED) s.shared += length(r);
    }
    return s;
}

/* Three digits. */
static void put_time(text *out, double seconds)
{
    double v = seconds < 1 ? seconds * 1e3 : seconds;
    text_fmt(out, "%.*f %s", v < 10 ? 2 : v < 100 ? 1 : 0, v, seconds < 1 ? "ms" : "s");
}

/* The caller ends it with a </dd></div>. */
static void put_sum(text *out, const char *name, double seconds)
{
    text_fmt(out, "<div><dt>%s</dt><dd><strong>", name);
    put_time(out, seconds > 0 ? seconds : 0);
    text_str(out, "</strong> ");
}

static void put_part(text *out, const char *name, double seconds, double of, const char *what)
{
    put_sum(out, name, seconds);
    text_fmt(out, "%.0f&nbsp;%% of %s</dd></div>\n", of > 0 && seconds > 0 ? 100 * seconds / of : 0, what);
}

static void put_runs(text *out, const char *name, double seconds, const sums *s, run_kind kind)
{
    const char *what = kind == RUN_PASS ? s->n[kind] == 1 ? "pass" : "passes" : s->n[kind] == 1 ? "job" : "jobs";
    if (s->n[kind] == 0) return;
    put_sum(out, name, seconds);
    text_fmt(out, "%.0f %s, %.0f rows</dd></div>\n", s->n[kind], what, s->rows[kind]);
}

static void put_sums(const chart *c, const sums *s)
{
    double all = c->t->seconds;
    text_str(c->out, "<dl class=\"sums\">\n");
    put_sum(c->out, "Whole run", all);
    text_fmt(c->out, "%d steps</dd></div>\n", (int)c->t->last_step);
    put_runs(c->out, "Dense passes", s->dense, s, RUN_PASS);
    put_runs(c->out, "Of these, with revision", s->shared, s, RUN_FUSED);
    put_runs(c->out, "Revision between passes", s->serial, s, RUN_SERIAL);
    put_runs(c->out, "Revision on the worker", s->worker, s, RUN_ASYNC);
    if (c->worker) {
        put_part(c->out, "Overlapped", s->both, s->worker, "the worker&rsquo;s time");
        put_part(c->out, "Worker idle", all - s->worker, all, "the run");
    }
    put_part(c->out, "Neither path", all - (s->dense + s->serial + s->worker - s->both), all,
             "the run: rules, events, waiting");
    text_str(c->out, "</dl>\n");
}

/* ---------------------------------------------------------------- lanes */

/* A pass over the whole canvas; entries of block recipes don't say, but their rows do. */
static bool is_whole(const trace_file *t, const trace_run *r)
{
    if (r->kind != RUN_PASS) return false;
    size_t i = (size_t)(r - t->dense);
    return i < t->n_passes && t->passes[i].known ? t->passes[i].all : r->rows >= t->n_prompt + t->gen;
}

static const char *kind_name(const trace_file *t, const trace_run *r)
{
    static const char *const names[] = {"dense pass", "revision job between passes", "revision job on the worker",
                                        "revision job within a pass"};
    return is_whole(t, r) ? "dense pass over the whole canvas" : names[r->kind];
}

static int lane_top(const trace_run *r) { return r->kind == RUN_ASYNC ? 2 * LABEL + LANE + GAP : LABEL; }

static void put_rect(const chart *c, const char *class, double x, double y, double width, double height)
{
    text_fmt(c->out, "<rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"/>", class, x, y, width,
             height);
}

/* A run as a bar; `riding`: rows of a revision job within it, which takes its share of the bar's foot. */
static void draw_run(const chart *c, const trace_run *r, int32_t riding)
{
    static const char *const classes[] = {"pass", "rev", "rev", "rev"};
    double x = r->began * c->scale, width = fmax(1, length(r) * c->scale - 1); /* a gap to the next */
    int y = lane_top(r);
    text_fmt(c->out, "<g><title>step %d: %s, %d rows", (int)r->step, kind_name(c->t, r), (int)r->rows);
    if (riding) text_fmt(c->out, " and %d of a revision job", (int)riding);
    text_str(c->out, ", ");
    put_time(c->out, length(r));
    text_str(c->out, ", begun at ");
    put_time(c->out, r->began);
    text_str(c->out, "</title>");
    put_rect(c, is_whole(c->t, r) ? "pass whole" : classes[r->kind], x, y, width, LANE);
    if (riding) {
        double part = fmax(5, LANE * (double)riding / ((double)riding + r->rows));
        put_rect(c, "rev rides", x, y + LANE - part, width, part);
    }
    int digits = r->step < 10 ? 1 : r->step < 100 ? 2 : r->step < 1000 ? 3 : 6;
    if (width >= WIDTH_A_DIGIT * digits + 4)
        text_fmt(c->out, "<text class=\"in\" x=\"%.1f\" y=\"%d\">%d</text>", x + width / 2,
                 y + (riding ? 15 : LANE / 2 + 4), (int)r->step);
    text_str(c->out, "</g>\n");
}

/* 1, 2 or 5 times a power of ten. */
static double round_up(double v)
{
    double ten = pow(10, floor(log10(v))), lead = v / ten;
    return ten * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

static void draw_axis(const chart *c, int height)
{
    double every = round_up(WIDTH_A_TICK / c->scale), unit = c->t->seconds < 1 ? 1e3 : 1;
    for (int i = 0; i * every * c->scale <= c->width - WIDTH_A_TICK / 2; i++) {
        double x = i * every * c->scale;
        text_fmt(c->out, "<path class=\"tick\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\">%.6g %s</text>\n", x + .5,
                 LABEL, height - AXIS + 6, x + 3, height - 9, i * every * unit, unit > 1 ? "ms" : "s");
    }
}

static void draw_lanes(const chart *c)
{
    const trace_file *t = c->t;
    int height = (c->worker ? 2 : 1) * (LABEL + LANE) + (c->worker ? GAP : 0) + AXIS;
    text_str(c->out, "<div class=\"lanes\"><span style=\"top:0\">dense passes</span>");
    if (c->worker) text_fmt(c->out, "<span style=\"top:%dpx\">revision (worker)</span>", LABEL + LANE + GAP);
    text_fmt(c->out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"timeline\"><svg width=\"%d\" "
             "height=\"%d\" role=\"img\" aria-label=\"when %zu dense passes and %zu revision jobs ran\">\n",
             c->width, height, t->n_dense, t->n_jobs);
    put_rect(c, "lane", 0, LABEL, c->width, LANE);
    if (c->worker) put_rect(c, "lane", 0, 2 * LABEL + LANE + GAP, c->width, LANE);
    draw_axis(c, height);
    size_t k = 0;
    for (size_t i = 0; i < t->n_dense; i++) {
        int32_t riding = 0;
        for (; k < t->n_jobs && t->jobs[k].began <= t->dense[i].began; k++)
            if (t->jobs[k].kind == RUN_FUSED && t->jobs[k].began == t->dense[i].began) riding = t->jobs[k].rows;
        draw_run(c, &t->dense[i], riding);
    }
    for (k = 0; k < t->n_jobs; k++)
        if (t->jobs[k].kind != RUN_FUSED) draw_run(c, &t->jobs[k], 0);
    text_str(c->out, "</svg></div></div>\n");
}

/* What the bars tell when pointed at, for those who don't point. */
static void put_table(const chart *c)
{
    const trace_file *t = c->t;
    text_str(c->out, "<details><summary>Every pass and job</summary><table>\n"
             "<tr><th>began</th><th>took</th><th>what</th><th>step</th><th>rows</th></tr>\n");
    for (size_t i = 0, k = 0; i < t->n_dense || k < t->n_jobs;) {
        bool job = i == t->n_dense || (k < t->n_jobs && t->jobs[k].began < t->dense[i].began);
        const trace_run *r = job ? &t->jobs[k++] : &t->dense[i++];
        text_str(c->out, "<tr><td>");
        put_time(c->out, r->began);
        text_str(c->out, "</td><td>");
        put_time(c->out, length(r));
        text_fmt(c->out, "</td><td>%s</td><td>%d</td><td>%d</td></tr>\n", kind_name(t, r), (int)r->step, (int)r->rows);
    }
    text_str(c->out, "</table></details>\n");
}

static void put_legend(const chart *c, const sums *s)
{
    text_str(c->out, "<p class=\"key bars\"><span><i class=\"pass\"></i>dense pass, with its step</span>"
             "<span><i class=\"pass whole\"></i>over the whole canvas</span>");
    if (s->n[RUN_FUSED] > 0)
        text_str(c->out, "<span><i class=\"rides\"></i>with a revision job within: its share of the rows</span>");
    if (s->n[RUN_SERIAL] + s->n[RUN_ASYNC] > 0)
        text_str(c->out, "<span><i class=\"rev\"></i>revision job, with the step its results entered at</span>");
    text_str(c->out, "</p>\n");
}

void trace_timeline(const trace_file *t, text *out)
{
    if (t->n_dense == 0) return;
    sums s = add_up(t);
    chart c = {.t = t, .out = out, .worker = s.n[RUN_ASYNC] > 0};
    c.width = (int)fmin(MOST_WIDTH, fmax(LEAST_WIDTH, WIDTH_A_RUN * (double)(t->n_dense + t->n_jobs)));
    c.scale = c.width / fmax(t->seconds, 1e-6); /* times are no finer */
    text_str(out, "<h2>Time</h2>\n");
    put_sums(&c, &s);
    put_legend(&c, &s);
    draw_lanes(&c);
    put_table(&c);
}
