/* trace_html.c - the report: one HTML file with no script and nothing from elsewhere.
 *
 * The heat map has positions from left to right and steps from top to bottom.  A position is drawn as runs: a rectangle
 * from the step it took a state to the step it left it, so the size of the page goes with the number of events, not
 * with positions times steps.  Beside each step stand its rows as a bar over the tiles of 32 rows they fill. */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

enum { TILE = 32, LEFT = 44, BAR = 220 };

typedef enum { CELL_MASK, CELL_DRAFT, CELL_VISIBLE, CELL_STABLE } cell_state;

typedef struct {
    cell_state state;
    int32_t since, token;
    double confidence;
    bool edited, cleared; /* cleared: a mask again */
} run;

typedef struct {
    const trace_file *t;
    text *out;
    run *runs;   /* owned: the open run of each position */
    int cell_w, cell_h, top;
} drawing;

/* ---------------------------------------------------------------- the map */

static int y_of(const drawing *d, int32_t step) { return d->top + (step - 1) * d->cell_h; }

/* <rect class=".." x=".." ...; the caller ends it. */
static void rect(const drawing *d, const char *class, int x, int y, double width, int height)
{
    text_fmt(d->out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"", class, x, y, width, height);
}

static const char *state_name(const run *r)
{
    static const char *const names[] = {"mask again", "draft", "visible", "settled"};
    return names[r->state];
}

/* Five shades: how sure the network was. */
static int shade(double confidence)
{
    static const double steps[] = {0.5, 0.8, 0.95, 0.99};
    int s = 0;
    while (s < 4 && confidence >= steps[s]) s++;
    return s;
}

static void piece_text(const trace_file *t, int32_t token, text *out)
{
    const char *s = trace_piece(t, token);
    text shown = {0};
    for (; *s; s++) {
        if (*s == '\n') text_str(&shown, "\\n");
        else if (*s == '\t') text_str(&shown, "\\t");
        else text_add(&shown, s, 1);
    }
    text_markup(out, shown.n ? shown.p : "", shown.n);
    text_free(&shown);
}

/* The run of pos ends before `step`. */
static void draw_run(drawing *d, int32_t pos, int32_t step)
{
    const run *r = &d->runs[pos];
    if (step <= r->since || (r->state == CELL_MASK && !r->cleared)) return;
    static const char *const classes[] = {"again", "draft", "seen", "stable"};
    int last = step - 1;
    char class[32];
    snprintf(class, sizeof class, r->state == CELL_MASK ? "%s" : "%s c%d%s", classes[r->state], shade(r->confidence),
             r->edited ? " edit" : "");
    rect(d, class, LEFT + pos * d->cell_w, y_of(d, r->since), d->cell_w, (int)(step - r->since) * d->cell_h);
    text_fmt(d->out, "><title>position %d, step %d", (int)pos, (int)r->since);
    if (last > r->since) text_fmt(d->out, " to %d", last);
    text_fmt(d->out, ": %s", state_name(r));
    if (r->token >= 0) {
        text_str(d->out, " “");
        piece_text(d->t, r->token, d->out);
        text_fmt(d->out, "” (token %d)%s", (int)r->token, r->edited ? ", changed" : "");
    }
    text_fmt(d->out, ", confidence %.4f</title></rect>\n", r->confidence);
}

static void change(drawing *d, const trace_event *e, cell_state state, bool edited)
{
    run *r = &d->runs[e->pos];
    bool cleared = state == CELL_MASK;
    draw_run(d, e->pos, e->step);
    *r = (run){.state = state, .since = e->step, .token = e->token, .confidence = e->confidence,
               .edited = edited, .cleared = cleared};
}

static void apply(drawing *d, const trace_event *e)
{
    const run *r = &d->runs[e->pos];
    switch (e->mark) {
    case MARK_COMMIT: change(d, e, CELL_VISIBLE, false); break;
    case MARK_DRAFT: change(d, e, CELL_DRAFT, false); break;
    case MARK_OK: change(d, e, CELL_VISIBLE, r->edited); break;
    case MARK_EDIT: change(d, e, CELL_VISIBLE, true); break;
    case MARK_STABLE: change(d, e, CELL_STABLE, r->edited); break;
    case MARK_DROP:
    case MARK_REMASK: change(d, e, CELL_MASK, false); break;
    }
}

/* The rows a pass computed, as a frame around each run of neighbours. */
static void draw_window(drawing *d, const trace_pass *p)
{
    if (!p->known) return;
    for (int32_t i = 0; i < (p->all ? 1 : p->n_rows);) {
        int32_t from = p->all ? 0 : p->rows[i], to = p->all ? d->t->gen - 1 : from;
        for (i++; !p->all && i < p->n_rows && p->rows[i] == to + 1; i++) to++;
        if (to < 0) continue;
        if (from < 0) from = 0;
        rect(d, p->all ? "full" : "window", LEFT + from * d->cell_w, y_of(d, p->step),
             (int)(to - from + 1) * d->cell_w, d->cell_h);
        text_str(d->out, "/>\n");
    }
}

static int32_t row_count(const trace_file *t, const trace_pass *p)
{
    return (p->all ? t->n_prompt + t->gen : p->n_rows) + p->n_shadow;
}

/* Rows over the tiles they occupy; traces without rows show the tokens written instead. */
static void draw_bar(drawing *d, const trace_pass *p, int32_t most)
{
    int x = LEFT + d->t->gen * d->cell_w + 16, y = y_of(d, p->step);
    int32_t n = p->known ? row_count(d->t, p) : p->written;
    int32_t tiles = p->known ? (n + TILE - 1) / TILE * TILE : n;
    double scale = most ? (double)(BAR - 70) / most : 0;
    text_fmt(d->out, "<g><title>step %d: ", (int)p->step);
    if (p->known)
        text_fmt(d->out, "%d rows%s (%d shadow) in %d tiles of %d: %.0f %% filled; ", (int)n,
                 p->all ? ", the whole canvas" : "", (int)p->n_shadow, (int)(tiles / TILE), TILE,
                 tiles ? 100.0 * n / tiles : 0);
    text_fmt(d->out, "%d tokens written</title>", (int)p->written);
    rect(d, "tile", x, y, tiles * scale, d->cell_h);
    text_str(d->out, "/>");
    rect(d, "rows", x, y, n * scale, d->cell_h);
    text_str(d->out, "/>");
    if (d->cell_h >= 10)
        text_fmt(d->out, "<text x=\"%.1f\" y=\"%d\">%d</text>", x + tiles * scale + 4, y + d->cell_h - 2, (int)n);
    text_str(d->out, "</g>\n");
}

static void draw_axes(drawing *d)
{
    int bottom = y_of(d, d->t->last_step + 1);
    rect(d, "mask", LEFT, d->top, d->t->gen * d->cell_w, bottom - d->top);
    text_str(d->out, "/>\n");
    for (int32_t p = 0; p < d->t->gen; p += 32)
        text_fmt(d->out, "<text x=\"%d\" y=\"%d\">%d</text>", LEFT + p * d->cell_w, d->top - 4, (int)p);
    int low = d->cell_h >= 10 ? d->cell_h - 2 : 6; /* of the letters' foot under the top of a line */
    int every = d->cell_h >= 10 ? 1 : d->cell_h >= 5 ? 5 : 10;
    for (int32_t s = 1; s <= d->t->last_step; s += every)
        text_fmt(d->out, "<text class=\"step\" x=\"%d\" y=\"%d\">%d</text>", LEFT - 6, y_of(d, s) + low, (int)s);
    text_str(d->out, "\n");
}

static void draw_map(drawing *d)
{
    const trace_file *t = d->t;
    int32_t most = 0;
    int width = LEFT + t->gen * d->cell_w + BAR + 16, height = y_of(d, t->last_step + 1) + 8;
    for (size_t i = 0; i < t->n_passes; i++) {
        const trace_pass *p = &t->passes[i];
        int32_t n = p->known ? (row_count(t, p) + TILE - 1) / TILE * TILE : p->written;
        if (n > most) most = n;
    }
    text_fmt(d->out, "<div class=\"scroll\" tabindex=\"0\"><svg width=\"%d\" height=\"%d\" role=\"img\" "
             "aria-label=\"states of %d positions over %d steps\">\n", width, height, (int)t->gen, (int)t->last_step);
    draw_axes(d);
    for (size_t i = 0; i < t->n_events; i++) apply(d, &t->events[i]);
    for (int32_t p = 0; p < t->gen; p++) draw_run(d, p, t->last_step + 1);
    for (size_t i = 0; i < t->n_passes; i++) draw_window(d, &t->passes[i]);
    for (size_t i = 0; i < t->n_passes; i++) draw_bar(d, &t->passes[i], most);
    text_str(d->out, "</svg></div>\n");
}

/* ---------------------------------------------------------------- the rest of the page */

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1b1b;--soft:#667;--mask:#e4e6ea;--line:#1769aa;--hue:210;--d:0%}"
    "@media(prefers-color-scheme:dark){:root{--bg:#15171a;--fg:#e2e4e8;--soft:#99a;--mask:#2a2d33;--line:#6db3f2}}"
    "body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;margin:1.5rem auto;max-width:80rem;"
    "padding:0 1rem}h1{font-size:1.3rem}h2{font-size:1.05rem;margin-top:1.6rem}table{border-collapse:collapse}"
    "td,th{padding:.1rem .8rem .1rem 0;text-align:left;vertical-align:top}th{font-weight:500;color:var(--soft)}"
    ".scroll{overflow-x:auto}svg text{fill:var(--soft);font-size:10px}svg .step{text-anchor:end}"
    ".mask{fill:var(--mask)}.again{fill:#b3261e;opacity:.35}.draft{opacity:.45}"
    ".c0{fill:#c8553d}.c1{fill:#d9952b}.c2{fill:#b5b53c}.c3{fill:#5a9f5a}.c4{fill:#2e7d6b}.stable{opacity:.55}"
    ".edit{stroke:#7b1fa2;stroke-width:1.5}.window,.full{fill:none;stroke:var(--line);stroke-width:.8}"
    ".full{stroke-dasharray:3 2}.tile{fill:var(--mask)}.rows{fill:var(--line)}"
    ".text{white-space:pre-wrap;font-family:ui-monospace,monospace;border:1px solid var(--mask);padding:.6rem}"
    ".text span{border-bottom:2px solid transparent}.text .c0,.text .c1{border-color:#c8553d}"
    ".text .edit{border-color:#7b1fa2}.key i{display:inline-block;width:1.1em;height:.8em;margin:0 .35em 0 1em}";

static void legend_item(text *out, const char *css, const char *name)
{
    text_fmt(out, "<i style=\"%s\"></i>%s", css, name);
}

static void put_legend(text *out)
{
    text_str(out, "<p class=\"key\">Confidence");
    legend_item(out, "background:#c8553d", "under 0.5");
    legend_item(out, "background:#d9952b", "0.5");
    legend_item(out, "background:#b5b53c", "0.8");
    legend_item(out, "background:#5a9f5a", "0.95");
    legend_item(out, "background:#2e7d6b", "0.99 and more");
    legend_item(out, "background:#2e7d6b;opacity:.45", "draft or settled: paler");
    legend_item(out, "border:2px solid #7b1fa2;box-sizing:border-box", "changed");
    legend_item(out, "background:#b3261e;opacity:.35", "a mask again");
    legend_item(out, "border:1px solid var(--line);box-sizing:border-box", "rows of the pass (dashed: all)");
    text_str(out, "</p>\n");
}

static void put_row(text *out, const char *name, const char *value)
{
    text_str(out, "<tr><th>");
    text_markup(out, name, strlen(name));
    text_str(out, "</th><td>");
    text_markup(out, value, strlen(value));
    text_str(out, "</td></tr>\n");
}

static void put_number(text *out, const char *name, double v)
{
    char value[32];
    snprintf(value, sizeof value, "%.10g", v);
    put_row(out, name, value);
}

static void put_sums(const trace_file *t, text *out)
{
    double rows = 0, tiles = 0, known = 0, count[7] = {0};
    for (size_t i = 0; i < t->n_passes; i++) {
        const trace_pass *p = &t->passes[i];
        if (!p->known) continue;
        known++;
        rows += row_count(t, p);
        tiles += (row_count(t, p) + TILE - 1) / TILE * TILE;
    }
    for (size_t i = 0; i < t->n_events; i++) count[t->events[i].mark]++;
    text_str(out, "<table>\n");
    const char *model = json_string_value(json_object_get(t->header, "model"));
    const char *recipe = json_string_value(json_object_get(t->header, "recipe"));
    put_row(out, "model", model ? model : "-");
    put_row(out, "recipe", recipe ? recipe : "-");
    put_number(out, "prompt tokens", t->n_prompt);
    put_number(out, "canvas", t->gen);
    put_number(out, "dense passes", (double)t->n_passes);
    put_number(out, "merges", (double)t->n_merges);
    if (known > 0) {
        char value[64];
        put_number(out, "dense rows", rows);
        snprintf(value, sizeof value, "%.1f %% of %.0f rows in tiles of %d", tiles > 0 ? 100 * rows / tiles : 0, tiles,
                 TILE);
        put_row(out, "tiles filled", value);
    }
    put_number(out, "commits", count[MARK_COMMIT]);
    put_number(out, "drafts", count[MARK_DRAFT]);
    put_number(out, "edits", count[MARK_EDIT]);
    put_number(out, "re-masks and dropped drafts", count[MARK_REMASK] + count[MARK_DROP]);
    text_str(out, "</table>\n");
}

/* The answer as it stood at the end, up to the first end token. */
static void put_text(const drawing *d)
{
    text_str(d->out, "<h2>Text</h2>\n<div class=\"text\">");
    for (int32_t p = 0; p < d->t->gen; p++) {
        const run *r = &d->runs[p];
        if (r->state != CELL_MASK && trace_is_end(d->t, r->token)) break;
        text_fmt(d->out, "<span class=\"c%d%s\" title=\"position %d, since step %d, confidence %.4f\">",
                 shade(r->confidence), r->edited ? " edit" : "", (int)p, (int)r->since, r->confidence);
        const char *s = r->state == CELL_MASK ? "\xE2\x96\x91" : trace_piece(d->t, r->token);
        text_markup(d->out, s, strlen(s));
        text_str(d->out, "</span>");
    }
    text_str(d->out, "</div>\n");
}

static void put_settings(const trace_file *t, text *out)
{
    const char *key;
    json_t *v;
    text_str(out, "<details><summary>Settings</summary><table>\n");
    json_object_foreach(json_object_get(t->header, "settings"), key, v) {
        char *s = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
        put_row(out, key, s ? s : "");
        free(s);
    }
    text_str(out, "</table></details>\n");
}

void trace_html(const trace_file *t, text *out)
{
    drawing d = {.t = t, .out = out, .top = 18};
    text map = {0};
    d.runs = app_new((size_t)t->gen, sizeof *d.runs);
    for (int32_t i = 0; i < t->gen; i++) d.runs[i] = (run){.token = -1};
    d.cell_w = t->gen <= 160 ? 7 : t->gen <= 640 ? 4 : 2;
    d.cell_h = t->last_step <= 80 ? 12 : t->last_step <= 300 ? 6 : 3;
    text_str(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
             "content=\"width=device-width, initial-scale=1\">\n<title>llada trace</title>\n<style>");
    text_str(out, style);
    text_str(out, "</style>\n</head>\n<body>\n<h1>How the answer came to be</h1>\n");
    put_sums(t, out);
    d.out = &map; /* drawn first: it leaves the last state of every position */
    draw_map(&d);
    d.out = out;
    put_text(&d);
    text_fmt(out, "<h2>Positions and steps</h2>\n<p>Each column is a position, each line a step.  Point at a "
             "rectangle for its token.  On the right: %s.</p>\n", t->n_passes && t->passes[0].known
             ? "rows of the pass, over the tiles of 32 rows they need" : "tokens written by the pass");
    put_legend(out);
    text_add(out, map.p, map.n);
    put_settings(t, out);
    text_str(out, "</body>\n</html>\n");
    text_free(&map);
    free(d.runs);
}
