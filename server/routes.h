/* routes.h - requests to answers, without a socket: what http.c carries. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "queue.h"
#include "server.h"
#include "stream.h"

enum { ROUTES_MAX_BODY = 8 << 20 };

typedef struct {
    const char *method, *path;                    /* borrowed, like all here */
    const char *host, *origin, *type, *authorization; /* headers; NULL: not there */
    const char *body;
    size_t n_body;
    int fd;
} route_request;

typedef struct {
    int status;
    const char *type;         /* static; a Content-Type */
    const char *allow;        /* static; an Allow header; NULL: none */
    const char *cors;         /* the page of which origin may read this; borrowed from the options; NULL: only ours */
    bool preflight;           /* it may also ask */
    int retry_after;          /* seconds; 0: no such header */
    bool page;                /* part of the page: with its security policy */
    const char *bytes;        /* static; NULL: body */
    size_t n_bytes;
    buf body;                 /* owned */
    stream *stream;           /* owned; then there is no body */
} route_answer;

typedef struct routes routes;

routes *routes_open(const server_opts *o);
void routes_model(routes *r, const llada_model *m, const llada_recipe *recipe);
void routes_connections(routes *r, int n); /* for the metrics */
void routes_drain(routes *r, double seconds);
void routes_close(routes **r);

/* What headers decide: false: answered.  A body, if there is one, has not been read. */
bool routes_check(routes *r, const route_request *q, route_answer *a);
/* The whole request is there.  Waits for the generation, unless it is streamed; false: the client has gone. */
bool routes_handle(routes *r, const route_request *q, route_answer *a);
void routes_refuse(routes *r, route_answer *a, int status, const char *code, const char *message);
void routes_free(route_answer *a);
void routes_answered(routes *r, int status);

#endif
