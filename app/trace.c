/* trace.c - `llada trace`: the report of a trace. */
#include "commands.h"
#include "util.h"

int cmd_trace(const options *o)
{
    (void)o;
    app_error("not yet");
    return EXIT_FAILED;
}
