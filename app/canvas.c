/* canvas.c - draws the canvas in place: moves up over the last frame, clears, writes the new one in a single write.
 *
 * Masks are grey blocks; a token of this pass, or one that may still change, is coloured by its confidence; drafts are
 * dim; changed tokens are underlined; settled ones plain.  What the model wrote reaches the terminal only as printable
 * characters.  Lines are broken here, one column short of the edge, so that the terminal never wraps by itself and the
 * number of lines to move up is known. */
#include "canvas.h"

#include <errno.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#define FRAME_SECONDS 0.05

/* How a byte is shown.  The low bits are the colour. */
enum { PLAIN, LOW, MIDDLE, HIGH, COLOURS = 3, DIM = 4, UNDER = 8, MASK = 16, END = 32 };

typedef struct {
    int32_t token; /* -1: a mask */
    int32_t step;  /* when it was written */
    float confidence;
    bool draft, edited, settled;
    text bytes;    /* owned */
} cell;

struct live {
    const app_model *am; /* borrowed */
    cell *cells;         /* owned */
    int32_t n, step, rows;
    double seconds, drawn_at;
    bool changed, colour, utf8;
    int lines, width;     /* of the frame on the screen */
    text bytes, frame;    /* scratch */
    unsigned char *looks; /* scratch: how each byte of `bytes` is shown */
    size_t looks_cap;
};

bool live_wanted(const options *o)
{
    const char *term = getenv("TERM");
    return !o->no_canvas && !o->quiet && !o->json && term && *term && strcmp(term, "dumb") != 0 &&
           isatty(STDERR_FILENO) && isatty(STDOUT_FILENO);
}

live *live_new(const app_model *am, int32_t n)
{
    live *c = app_new(1, sizeof *c);
    const char *plain = getenv("NO_COLOR");
    c->am = am;
    c->n = n;
    c->cells = app_new((size_t)n, sizeof *c->cells);
    for (int32_t i = 0; i < n; i++) c->cells[i].token = -1;
    c->colour = !(plain && *plain);
    c->utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
    c->changed = true;
    return c;
}

void live_free(live **c)
{
    if (!*c) return;
    for (int32_t i = 0; i < (*c)->n; i++) text_free(&(*c)->cells[i].bytes);
    text_free(&(*c)->bytes);
    text_free(&(*c)->frame);
    free((*c)->looks);
    free((*c)->cells);
    free(*c);
    *c = NULL;
}

/* ---------------------------------------------------------------- what happened */

static void write_cell(live *c, cell *k, const llada_event *ev)
{
    char buf[256];
    size_t n = 0;
    k->token = ev->token;
    k->step = ev->step;
    k->confidence = (float)ev->confidence;
    text_cut(&k->bytes, 0);
    if (llada_detokenize(c->am->m, &ev->token, 1, false, buf, sizeof buf, &n, NULL) == LLADA_OK)
        text_add(&k->bytes, buf, n < sizeof buf ? n : sizeof buf);
}

void live_event(live *c, const llada_event *ev)
{
    c->seconds = ev->seconds;
    if (ev->kind == LLADA_EV_PASS) {
        c->step = ev->step;
        c->rows = ev->rows;
        c->changed = true;
    }
    if (ev->pos < 0 || ev->pos >= c->n) return;
    cell *k = &c->cells[ev->pos];
    c->changed = true;
    switch (ev->kind) {
    case LLADA_EV_COMMIT:
        write_cell(c, k, ev);
        k->draft = k->edited = k->settled = false;
        break;
    case LLADA_EV_DRAFT:
        write_cell(c, k, ev);
        k->draft = true;
        k->edited = k->settled = false;
        break;
    case LLADA_EV_CONFIRM:
        k->draft = false;
        k->confidence = (float)ev->confidence;
        break;
    case LLADA_EV_EDIT:
        write_cell(c, k, ev);
        k->draft = false;
        k->edited = true;
        break;
    case LLADA_EV_REMASK:
    case LLADA_EV_DROP:
        k->token = -1;
        k->draft = k->edited = k->settled = false;
        break;
    case LLADA_EV_SETTLE:
        if (k->token != ev->token) write_cell(c, k, ev);
        k->settled = true;
        k->draft = false;
        break;
    default: break;
    }
}

/* ---------------------------------------------------------------- the frame */

static unsigned char look_of(const live *c, const cell *k)
{
    if (k->token < 0) return MASK;
    unsigned char look = k->edited ? UNDER : 0;
    if (k->draft) return look | DIM;
    if (k->settled && k->step < c->step) return look;
    return look | (k->confidence >= 0.99f ? HIGH : k->confidence >= 0.8f ? MIDDLE : LOW);
}

static void add_bytes(live *c, const char *p, size_t n, unsigned char look)
{
    if (c->bytes.n + n > c->looks_cap) {
        c->looks_cap = (c->bytes.n + n) * 2 + 256;
        c->looks = app_grow(c->looks, c->looks_cap, 1);
    }
    memset(c->looks + c->bytes.n, look, n);
    text_add(&c->bytes, p, n);
}

/* All cells as one run of bytes: characters may be spread over several tokens.  Masks and end tokens stand as a NUL. */
static void gather(live *c)
{
    text_cut(&c->bytes, 0);
    text_add(&c->bytes, "", 0);
    for (int32_t i = 0; i < c->n; i++) {
        const cell *k = &c->cells[i];
        unsigned char look = look_of(c, k);
        bool end = k->token >= 0 && (k->token == c->am->info.eos_id || k->token == c->am->info.eot_id);
        if (look & MASK) add_bytes(c, "", 1, MASK);
        else if (end || !k->bytes.n) add_bytes(c, "", 1, END | DIM);
        else add_bytes(c, k->bytes.p, k->bytes.n, look);
    }
}

typedef struct {
    live *c;
    text *out;
    int column, width, look;
    bool colour;
    size_t *starts; /* owned: where each line begins in out */
    int lines, first_mask; /* first_mask: the line of the first mask, -1: none */
} pen;

static void set_look(pen *p, int look)
{
    if (look == p->look || !p->colour) return;
    static const char *const colours[] = {"", ";31", ";33", ";32"};
    text_fmt(p->out, "\x1b[0%s%s%s%sm", look & (DIM | END) ? ";2" : "", look & UNDER ? ";4" : "",
             look & MASK ? ";90" : "", colours[look & COLOURS]);
    p->look = look;
}

static void new_line(pen *p)
{
    set_look(p, 0);
    p->starts = app_grow(p->starts, (size_t)p->lines + 1, sizeof *p->starts);
    p->starts[p->lines++] = p->out->n;
    p->column = 0;
}

static void put(pen *p, const char *s, size_t n, int columns, int look)
{
    if (p->column + columns > p->width) new_line(p);
    set_look(p, look);
    text_add(p->out, s, n);
    p->column += columns;
}

static void put_character(pen *p, const char *s, size_t n, int32_t cp, int look)
{
    char shown[8];
    if (cp == '\n') {
        put(p, "", 0, 0, look);
        new_line(p);
    } else if (cp == '\t') {
        put(p, "  ", 2, 2, look);
    } else if (cp >= 0 && (cp < 32 || cp == 127)) {
        snprintf(shown, sizeof shown, "^%c", cp == 127 ? '?' : (char)(cp + 64));
        put(p, shown, 2, 2, look);
    } else if (cp < 0 || (cp >= 0x80 && cp < 0xA0) || (cp >= 0x80 && !p->c->utf8)) {
        put(p, "?", 1, 1, look);
    } else {
        int columns = utf8proc_charwidth(cp);
        put(p, s, n, columns < 0 ? 0 : columns, look);
    }
}

static void put_cells(pen *p)
{
    const text *b = &p->c->bytes;
    bool utf8 = p->c->utf8;
    for (size_t i = 0; i < b->n;) {
        int look = p->c->looks[i];
        int32_t cp;
        size_t len = 1;
        if (look & MASK) {
            if (p->first_mask < 0) p->first_mask = p->lines - 1;
            put(p, utf8 ? "\xE2\x96\x91" : "#", utf8 ? 3 : 1, 1, look);
        } else if (look & END) {
            put(p, utf8 ? "\xC2\xB7" : ".", utf8 ? 2 : 1, 1, look);
        } else {
            len = text_character(b->p + i, b->n - i, &cp);
            put_character(p, b->p + i, len, cp, look);
        }
        i += len;
    }
}

static void put_status(pen *p)
{
    const live *c = p->c;
    int32_t written = 0;
    for (int32_t i = 0; i < c->n; i++) written += c->cells[i].token >= 0;
    char line[128];
    int n = snprintf(line, sizeof line, "pass %d  %d/%d tokens  %d rows  %.1f s", (int)c->step, (int)written, (int)c->n,
                     (int)c->rows, c->seconds);
    if (n > p->width) n = p->width;
    new_line(p);
    put(p, line, (size_t)n, n, DIM);
    set_look(p, 0);
}

void live_frame(live *c, int width, int height, bool colour, bool utf8, text *out)
{
    text body = {0};
    pen p = {.c = c, .out = &body, .width = width > 2 ? width - 1 : 1, .colour = colour, .first_mask = -1};
    c->utf8 = utf8;
    text_add(&body, "", 0);
    gather(c);
    new_line(&p);
    put_cells(&p);
    int cell_lines = p.lines, room = height > 3 ? height - 2 : 1;
    put_status(&p);
    /* too tall: the part around the first mask, and the status line */
    int from = 0, to = cell_lines;
    if (cell_lines > room) {
        from = (p.first_mask < 0 ? cell_lines : p.first_mask + 1) - room / 2;
        if (from > cell_lines - room) from = cell_lines - room;
        if (from < 0) from = 0;
        to = from + room;
    }
    for (int i = from; i < to; i++) {
        text_add(out, body.p + p.starts[i], p.starts[i + 1] - p.starts[i]);
        text_str(out, "\n");
    }
    text_add(out, body.p + p.starts[cell_lines], body.n - p.starts[cell_lines]);
    c->lines = to - from + 1;
    free(p.starts);
    text_free(&body);
}

/* ---------------------------------------------------------------- the screen */

static void write_all(const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(STDERR_FILENO, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return;
        p += k;
        n -= (size_t)k;
    }
}

static void screen_size(int *width, int *height)
{
    struct winsize w;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 && w.ws_row > 0;
    *width = known ? w.ws_col : 80;
    *height = known ? w.ws_row : 24;
}

/* Back to where the last frame began.  A terminal made narrower has wrapped its lines: then as many more. */
static void go_back(const live *c, int width, text *out)
{
    int up = c->lines - 1;
    if (c->width > width && width > 0) up = c->lines * ((c->width + width - 1) / width) - 1;
    if (c->lines && up > 0) text_fmt(out, "\x1b[%dA", up);
    if (c->lines) text_str(out, "\r\x1b[J");
}

void live_draw(live *c, bool now)
{
    int width, height;
    double t = app_seconds();
    if (!c->changed || (!now && t - c->drawn_at < FRAME_SECONDS)) return;
    screen_size(&width, &height);
    text_cut(&c->frame, 0);
    go_back(c, width, &c->frame);
    live_frame(c, width, height, c->colour, c->utf8, &c->frame);
    write_all(c->frame.p, c->frame.n);
    c->width = width;
    c->drawn_at = t;
    c->changed = false;
}

void live_clear(live *c)
{
    int width, height;
    if (!c->lines) return;
    screen_size(&width, &height);
    text_cut(&c->frame, 0);
    go_back(c, width, &c->frame);
    write_all(c->frame.p, c->frame.n);
    c->lines = 0;
}
