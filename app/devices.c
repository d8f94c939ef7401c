/* devices.c - `llada devices`: what passes can run on here. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "profile.h"
#include "util.h"

static void print_json(void)
{
    llada_device_info d = {.size = sizeof d};
    for (size_t i = 0; llada_device_at(i, &d); i++) {
        json_t *one = json_pack("{s:s, s:b, s:i, s:s}", "name", d.name, "usable", d.usable, "threads", d.threads, "about",
                                d.about);
        char *s = json_dumps(one, 0);
        if (s) out_write(s, strlen(s));
        out_write("\n", 1);
        free(s);
        json_decref(one);
    }
}

static void print_table(void)
{
    text t = {0};
    llada_device_info d = {.size = sizeof d};
    for (size_t i = 0; llada_device_at(i, &d); i++) {
        text_fmt(&t, "%-8s %s", d.name, d.usable ? "" : "not usable: ");
        if (d.threads) text_fmt(&t, "%d threads, ", (int)d.threads);
        text_fmt(&t, "%s\n", d.about);
    }
    out_write(t.p, t.n);
    text_free(&t);
}

int cmd_devices(const options *o)
{
    if (o->profile) return profile_run(o);
    if (o->json) print_json();
    else print_table();
    return EXIT_FINE;
}
