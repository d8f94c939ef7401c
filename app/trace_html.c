/* trace_html.c - the report: one HTML file with no script and nothing from elsewhere. */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1b1b;--soft:#667;--mask:#e4e6ea;--line:#1769aa;--deep:#0d3f69;"
    "--rev:#a1469f}"
    "@media(prefers-color-scheme:dark){:root{--bg:#15171a;--fg:#e2e4e8;--soft:#99a;--mask:#2a2d33;--line:#6db3f2;"
    "--deep:#3c86c6;--rev:#dd95d8}}"
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
    ".text .edit{border-color:#7b1fa2}.key i{display:inline-block;width:1.1em;height:.8em;margin:0 .35em 0 1em}"
    ".bars span{display:inline-block;margin-right:1em}.bars i{margin-left:0}i.pass{background:var(--line)}"
    "i.whole{background:var(--deep)}i.rev{background:var(--rev)}"
    "i.rides{background:linear-gradient(var(--line) 55%,var(--rev) 55%)}"
    ".sums{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.6rem,1fr));gap:.5rem;margin:.6rem 0}"
    ".sums div{border:1px solid var(--mask);border-radius:6px;padding:.35rem .8rem}"
    ".sums dt,.sums dd{margin:0;font-size:.8rem;color:var(--soft)}"
    ".sums strong{display:block;font-size:1.15rem;font-weight:600;color:var(--fg)}"
    ".lanes{position:relative;margin-bottom:.6rem}.lanes>span{position:absolute;left:0;line-height:22px;"
    "font-size:.8rem;color:var(--soft);background:var(--bg);padding-right:.5rem;pointer-events:none}"
    ".scroll:focus-visible{outline:2px solid var(--line);outline-offset:3px}"
    ".lane{fill:var(--mask);opacity:.45}.tick{stroke:var(--soft);opacity:.35}"
    "svg .pass{fill:var(--line)}svg .whole{fill:var(--deep)}svg .rev{fill:var(--rev)}svg g:hover .pass,"
    "svg g:hover .rev{opacity:.8}svg .in{fill:var(--bg);text-anchor:middle;font-weight:600}"
    "td{font-variant-numeric:tabular-nums}";

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
        rows += trace_rows(t, p);
        tiles += (trace_rows(t, p) + TRACE_TILE - 1) / TRACE_TILE * TRACE_TILE;
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
                 TRACE_TILE);
        put_row(out, "tiles filled", value);
    }
    put_number(out, "commits", count[MARK_COMMIT]);
    put_number(out, "drafts", count[MARK_DRAFT]);
    put_number(out, "edits", count[MARK_EDIT]);
    put_number(out, "re-masks and dropped drafts", count[MARK_REMASK] + count[MARK_DROP]);
    text_str(out, "</table>\n");
}

/* The answer as it stood at the end, up to the first end token. */
static void put_text(const trace_file *t, const trace_cell *last, text *out)
{
    text_str(out, "<h2>Text</h2>\n<div class=\"text\">");
    for (int32_t p = 0; p < t->gen; p++) {
        const trace_cell *r = &last[p];
        if (r->state != CELL_MASK && trace_is_end(t, r->token)) break;
        text_fmt(out, "<span class=\"c%d%s\" title=\"position %d, since step %d, confidence %.4f\">",
                 trace_shade(r->confidence), r->edited ? " edit" : "", (int)p, (int)r->since, r->confidence);
        const char *s = r->state == CELL_MASK ? "\xE2\x96\x91" : trace_piece(t, r->token);
        text_markup(out, s, strlen(s));
        text_str(out, "</span>");
    }
    text_str(out, "</div>\n");
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
    trace_cell *last = app_new((size_t)t->gen, sizeof *last);
    text map = {0};
    trace_map(t, last, &map); /* drawn first: the text is what it leaves */
    text_str(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
             "content=\"width=device-width, initial-scale=1\">\n<title>llada trace</title>\n<style>");
    text_str(out, style);
    text_str(out, "</style>\n</head>\n<body>\n<h1>How the answer came to be</h1>\n");
    put_sums(t, out);
    put_text(t, last, out);
    trace_timeline(t, out);
    text_fmt(out, "<h2>Positions and steps</h2>\n<p>Each column is a position, each line a step.  Point at a "
             "rectangle for its token.  On the right: %s.</p>\n", t->n_passes && t->passes[0].known
             ? "rows of the pass, over the tiles of 32 rows they need" : "tokens written by the pass");
    put_legend(out);
    text_add(out, map.p, map.n);
    put_settings(t, out);
    text_str(out, "</body>\n</html>\n");
    text_free(&map);
    free(last);
}
