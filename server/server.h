/* server.h - the HTTP server behind `llada serve`, as the program sees it.  docs/server.md is its manual.
 *
 *     door.c      who is connected: listening, places, time-outs
 *     http.c      requests and answers on a connection: the only file that knows libmicrohttpd
 *     routes.c    which request is answered by what; guard.c who may ask (Host, Origin, key)
 *     openai.c    request JSON -> a generation; texts.c its prompt and canvas; fields.c typed fields, refused by name
 *     queue.c     the worker, its session, the jobs waiting for it
 *     job.c       what is known of a running job: cells of the canvas, settled text, counters
 *     answer.c    settled tokens -> text that may be shown: whole characters, stop strings
 *     reply.c     a job -> response JSON; stream.c a running job -> server-sent events
 *     tokens.c    /tokenize, /detokenize; about.c the model and the recipes; metrics.c counters
 *     page.c      the page, as bytes in the program */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "llada.h"

typedef struct server server;

typedef struct {
    const char *host;         /* an address or a name; "127.0.0.1" */
    int port;                 /* 0: any free one */
    const char *key;          /* NULL: none is asked for; required beyond loopback */
    const char *const *hosts; /* further names that may stand in a Host header; borrowed, until server_close */
    size_t n_hosts;
    const char *const *origins; /* pages of these may use the server (CORS); borrowed, until server_close */
    size_t n_origins;
    bool metrics;             /* GET /metrics */
    int waiting;              /* most requests waiting for the one that runs */
    int ctx;                  /* most positions of prompt and canvas; 0: what the model was trained for */
    int threads;              /* as in llada_session_opts */
    bool kv_f16;
    uint64_t cpu_mask;
    int max_tokens;           /* where a request does not say */
    int64_t seed;             /* where a request does not say; -1: a random one each time */
    double read_seconds;      /* from a connection's opening, or its last answer, to a whole request */
    double stall_seconds;     /* for how long a client may take nothing of its answer */
} server_opts;

void server_defaults(server_opts *o);

/* Listens; until server_model every generation is answered 503.  All strings of o are borrowed, until server_close.
 * False leaves a sentence in why. */
bool server_open(server **out, const server_opts *o, char *why, size_t cap);
/* m: borrowed, until server_close.  r: what a request begins with; copied. */
void server_model(server *s, const llada_model *m, const llada_recipe *r);
int server_port(const server *s);
/* No new work; what runs and waits may go on for so long, then it is stopped.  Returns when all is done. */
void server_drain(server *s, double seconds);
void server_close(server **s); /* NULL-safe; clears *s */

#endif
