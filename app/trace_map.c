/* trace_map.c - the report's map of states: positions from left to right, steps from top to bottom.
 *
 * A position is drawn as cells: a rectangle from the step it took a state to the step it left it, so the size of the
 * page goes with the number of events, not with positions times steps.  Beside each step stand its rows as a bar over
 * the tiles they fill. */
#include "trace.h"

enum { LEFT = 44, BAR = 220 };

typedef struct {
    const trace_file *t;
    text *out;
    trace_cell *cells; /* the open cell of each position */
    int cell_w, cell_h, top;
} drawing;

static int y_of(const drawing *d, int32_t step) { return d->top + (step - 1) * d->cell_h; }

/* <rect class=".." x=".." ...; the caller ends it. */
static void rect(const drawing *d, const char *class, int x, int y, double width, int height)
{
    text_fmt(d->out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"", class, x, y, width, height);
}

static const char *state_name(const trace_cell *r)
{
    static const char *const names[] = {"mask again", "draft", "visible", "settled"};
    return names[r->state];
}

int trace_shade(double confidence)
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

/* The cell of pos ends before `step`. */
static void draw_cell(drawing *d, int32_t pos, int32_t step)
{
    const trace_cell *r = &d->cells[pos];
    if (step <= r->since || (r->state == CELL_MASK && !r->cleared)) return;
    static const char *const classes[] = {"again", "draft", "seen", "stable"};
    int last = step - 1;
    char class[32];
    snprintf(class, sizeof class, r->state == CELL_MASK ? "%s" : "%s c%d%s", classes[r->state],
             trace_shade(r->confidence), r->edited ? " edit" : "");
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
    trace_cell *r = &d->cells[e->pos];
    bool cleared = state == CELL_MASK;
    draw_cell(d, e->pos, e->step);
    *r = (trace_cell){.state = state, .since = e->step, .token = e->token, .confidence = e->confidence,
               .edited = edited, .cleared = cleared};
}

static void apply(drawing *d, const trace_event *e)
{
    const trace_cell *r = &d->cells[e->pos];
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

int32_t trace_rows(const trace_file *t, const trace_pass *p)
{
    return (p->all ? t->n_prompt + t->gen : p->n_rows) + p->n_shadow;
}

/* Rows over the tiles they occupy; traces without rows show the tokens written instead. */
static void draw_bar(drawing *d, const trace_pass *p, int32_t most)
{
    int x = LEFT + d->t->gen * d->cell_w + 16, y = y_of(d, p->step);
    int32_t n = p->known ? trace_rows(d->t, p) : p->written;
    int32_t tiles = p->known ? (n + TRACE_TILE - 1) / TRACE_TILE * TRACE_TILE : n;
    double scale = most ? (double)(BAR - 70) / most : 0;
    text_fmt(d->out, "<g><title>step %d: ", (int)p->step);
    if (p->known)
        text_fmt(d->out, "%d rows%s (%d shadow) in %d tiles of %d: %.0f %% filled; ", (int)n,
                 p->all ? ", the whole canvas" : "", (int)p->n_shadow, (int)(tiles / TRACE_TILE), TRACE_TILE,
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

void trace_map(const trace_file *t, trace_cell *last, text *out)
{
    drawing *d = &(drawing){.t = t, .out = out, .cells = last, .top = 18};
    for (int32_t i = 0; i < t->gen; i++) last[i] = (trace_cell){.token = -1};
    d->cell_w = t->gen <= 160 ? 7 : t->gen <= 640 ? 4 : 2;
    d->cell_h = t->last_step <= 80 ? 12 : t->last_step <= 300 ? 6 : 3;
    int32_t most = 0;
    int width = LEFT + t->gen * d->cell_w + BAR + 16, height = y_of(d, t->last_step + 1) + 8;
    for (size_t i = 0; i < t->n_passes; i++) {
        const trace_pass *p = &t->passes[i];
        int32_t n = p->known ? (trace_rows(t, p) + TRACE_TILE - 1) / TRACE_TILE * TRACE_TILE : p->written;
        if (n > most) most = n;
    }
    text_fmt(d->out, "<div class=\"scroll\" tabindex=\"0\"><svg width=\"%d\" height=\"%d\" role=\"img\" "
             "aria-label=\"states of %d positions over %d steps\">\n", width, height, (int)t->gen, (int)t->last_step);
    draw_axes(d);
    for (size_t i = 0; i < t->n_events; i++) apply(d, &t->events[i]);
    for (int32_t p = 0; p < t->gen; p++) draw_cell(d, p, t->last_step + 1);
    for (size_t i = 0; i < t->n_passes; i++) draw_window(d, &t->passes[i]);
    for (size_t i = 0; i < t->n_passes; i++) draw_bar(d, &t->passes[i], most);
    text_str(d->out, "</svg></div>\n");
}
