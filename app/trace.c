/* trace.c - `llada trace`: a run as a page to look at. */
#include "trace.h"

#include "commands.h"

int cmd_trace(const options *o)
{
    trace_file t;
    text page = {0};
    if (!o->arg) {
        app_error("trace needs a file that run --trace wrote: llada trace FILE -o report.html");
        return EXIT_WRONG_USE;
    }
    if (!o->out && out_is_terminal()) {
        app_error("trace writes a page: say where with -o report.html");
        return EXIT_WRONG_USE;
    }
    int rc = trace_load(&t, o->arg);
    if (!rc) trace_html(&t, &page);
    if (!rc && o->out) rc = file_write(o->out, page.p, page.n);
    else if (!rc) out_write(page.p, page.n);
    text_free(&page);
    trace_free(&t);
    return rc;
}
