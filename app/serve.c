/* serve.c - `llada serve`: the server of server/ with a model, until a signal ends it. */
#include "commands.h"
#include "interrupt.h"
#include "model.h"

#ifdef HAVE_SERVER
#include "server/server.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define DRAIN_SECONDS 10

static server_opts options_of(const options *o)
{
    server_opts s;
    server_defaults(&s);
    if (o->host) s.host = o->host;
    if (o->port) s.port = (int)o->port;
    if (o->any_port) s.port = 0;
    s.key = o->api_key;
    s.hosts = o->allow_hosts.p;
    s.n_hosts = o->allow_hosts.n;
    s.origins = o->origins.p;
    s.n_origins = o->origins.n;
    s.metrics = o->metrics;
    if (o->queue) s.waiting = (int)o->queue;
    s.ctx = (int)o->ctx;
    s.threads = (int)o->threads;
    s.kv_f16 = o->kv == 2;
    s.cpu_mask = o->cpu_mask;
    if (o->max_tokens > 0) s.max_tokens = (int)o->max_tokens;
    s.seed = o->seed;
    return s;
}

/* Blocked in every thread from the start, so that only this waits for them. */
static int wait_for_signal(void)
{
    sigset_t set;
    int sig = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    while (sigwait(&set, &sig) != 0) {}
    return sig;
}

static void say_where(const server *s, const server_opts *so)
{
    bool v6 = strchr(so->host, ':') != NULL;
    app_note("llada serves at http://%s%s%s:%d/ (the page; the API is under /v1)%s", v6 ? "[" : "", so->host,
             v6 ? "]" : "", server_port(s), so->key ? "; an API key is asked for" : "");
}

static int serve(server *s, const server_opts *so, const options *o)
{
    app_model am = {0};
    llada_recipe r;
    int rc = app_model_open(&am, o, false);
    if (!rc) rc = app_recipe(o, NULL, &r);
    if (!rc) rc = app_recipe_fit(o, &am, &r);
    if (!rc) {
        server_model(s, am.m, &r);
        say_where(s, so);
        wait_for_signal();
        /* a second signal ends the program at once, as it does by default */
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        interrupt_unblock();
        if (!o->quiet) app_note("stopping: what runs and waits has %d seconds", DRAIN_SECONDS);
        server_drain(s, DRAIN_SECONDS);
    }
    server_close(&s);
    app_model_close(&am);
    return rc;
}

int cmd_serve(const options *o)
{
    server *s = NULL;
    char why[512];
    server_opts so = options_of(o);
    if (so.key && !*so.key) {
        app_error("the API key is empty");
        return EXIT_WRONG_USE;
    }
    interrupt_block();
    if (server_open(&s, &so, why, sizeof why)) return serve(s, &so, o);
    app_error("%s", why);
    return EXIT_WRONG_USE;
}

#else

int cmd_serve(const options *o)
{
    app_error("this program was built without its server (libmicrohttpd)");
    return EXIT_WRONG_USE;
}

#endif
