/* http.c - requests and answers, by libmicrohttpd, which only this file knows.  Clients come in by the door (door.h).
 *
 * Each connection has a thread, so that a large body, a slow reader or a long wait holds up nobody else.  The library's
 * own time-outs are off, as they count any byte as life. */
#include "routes.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "door.h"
#include "guard.h"

enum {
    MEMORY_PER_CONNECTION = 64 << 10,              /* headers, and a piece of the answer */
    STACK_BYTES = 1 << 20,
    MOST_BODIES = 64 << 20,                        /* bytes of all bodies being read */
    MOST_DISCARDED = 4 * ROUTES_MAX_BODY,          /* a body of unknown length is read this far before it is cut */
    SHORT_BODY = 64 << 10                          /* one that is refused is read up to this, to keep its connection */
};

struct server {
    server_opts o;
    routes *r;
    door *door;
    struct MHD_Daemon *d;
    atomic_size_t bodies;
};

/* One request and its answer; owned by the connection until on_completed. */
typedef struct {
    server *s;
    conn *c;
    bool discard; /* the body: it is too large, or there is no room for it, or the answer is there already */
    size_t length;
    buf body;
    route_answer answer;
} exchange;

/* ---------------------------------------------------------------- connections */

static bool let_in(void *user, int fd)
{
    server *s = user;
    struct sockaddr_storage a = {.ss_family = AF_INET};
    socklen_t n = sizeof a;
    getpeername(fd, (struct sockaddr *)&a, &n);
    return MHD_add_connection(s->d, fd, (struct sockaddr *)&a, n) == MHD_YES;
}

static void told(void *user, int open, bool refused)
{
    server *s = user;
    routes_connections(s->r, open);
    if (refused) routes_answered(s->r, 503);
}

static void on_connection(void *cls, struct MHD_Connection *mc, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    server *s = cls;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) conn_left(s->door, *context);
    else *context = door_conn(s->door, MHD_get_connection_info(mc, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
}

/* ---------------------------------------------------------------- answers */

typedef struct {
    stream *stream; /* owned */
    server *s;
    conn *c;
} feed;

static ssize_t feed_read(void *cls, uint64_t pos, char *p, size_t most)
{
    feed *f = cls;
    conn_is(f->s->door, f->c, CONN_WORKING);
    long n = stream_read(f->stream, p, most);
    conn_is(f->s->door, f->c, CONN_SENDING);
    return n > 0 ? (ssize_t)n : n == 0 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void feed_free(void *cls)
{
    feed *f = cls;
    stream_free(f->stream);
    free(f);
}

static struct MHD_Response *make_response(exchange *x)
{
    route_answer *a = &x->answer;
    struct MHD_Response *m;
    if (a->stream) {
        feed *f = buf_new(1, sizeof *f);
        *f = (feed){a->stream, x->s, x->c};
        a->stream = NULL;
        m = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, MEMORY_PER_CONNECTION / 4, feed_read, f, feed_free);
        if (!m) feed_free(f);
        return m;
    }
    if (a->bytes) return MHD_create_response_from_buffer(a->n_bytes, (void *)a->bytes, MHD_RESPMEM_PERSISTENT);
    m = MHD_create_response_from_buffer(a->body.n, a->body.p, MHD_RESPMEM_MUST_FREE);
    if (m) a->body = (buf){0};
    return m;
}

/* Any header of a request is fine: the page is one we trust. */
static void add_cors(struct MHD_Response *m, const route_answer *a)
{
    MHD_add_response_header(m, "Access-Control-Allow-Origin", a->cors);
    MHD_add_response_header(m, "Access-Control-Expose-Headers", "Retry-After");
    if (!a->preflight) return;
    MHD_add_response_header(m, "Access-Control-Allow-Methods", "GET, POST");
    MHD_add_response_header(m, "Access-Control-Allow-Headers", "*, Authorization"); /* the star is not for that one */
    MHD_add_response_header(m, "Access-Control-Max-Age", "600");
}

static void add_headers(struct MHD_Response *m, const route_answer *a, bool cors)
{
    char number[16];
    if (a->type) MHD_add_response_header(m, "Content-Type", a->type);
    if (a->cors) add_cors(m, a);
    if (cors) MHD_add_response_header(m, "Vary", "Origin");
    MHD_add_response_header(m, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(m, "Cross-Origin-Resource-Policy", "same-origin");
    MHD_add_response_header(m, "Cache-Control", a->page ? "no-cache" : "no-store");
    if (a->allow) MHD_add_response_header(m, "Allow", a->allow);
    if (a->retry_after) {
        snprintf(number, sizeof number, "%d", a->retry_after);
        MHD_add_response_header(m, "Retry-After", number);
    }
    if (a->status == 401) MHD_add_response_header(m, "WWW-Authenticate", "Bearer");
    if (!a->page) return;
    MHD_add_response_header(m, "Content-Security-Policy",
                            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    MHD_add_response_header(m, "Referrer-Policy", "no-referrer");
}

static enum MHD_Result send_answer(exchange *x, struct MHD_Connection *mc, bool close_after)
{
    unsigned status = (unsigned)x->answer.status;
    bool add = !x->answer.stream;
    struct MHD_Response *m = make_response(x);
    if (!m) return MHD_NO;
    add_headers(m, &x->answer, x->s->o.n_origins > 0);
    if (close_after) MHD_add_response_header(m, "Connection", "close");
    else if (add) MHD_add_response_header(m, "Keep-Alive", "timeout=8");
    routes_answered(x->s->r, (int)status);
    conn_is(x->s->door, x->c, CONN_SENDING);
    enum MHD_Result done = MHD_queue_response(mc, status, m);
    MHD_destroy_response(m);
    return done;
}

/* ---------------------------------------------------------------- requests */

static const char *header(struct MHD_Connection *mc, const char *name)
{
    return MHD_lookup_connection_value(mc, MHD_HEADER_KIND, name);
}

static route_request request_of(exchange *x, struct MHD_Connection *mc, const char *url, const char *method)
{
    return (route_request){.method = method, .path = url, .host = header(mc, "Host"), .origin = header(mc, "Origin"),
                           .type = header(mc, "Content-Type"), .authorization = header(mc, "Authorization"),
                           .body = x->body.p ? x->body.p : "", .n_body = x->body.n, .fd = conn_socket(x->c)};
}

/* No path of ours has an escape in it; undone, "/%00x" would be "/". */
static size_t keep_escapes(void *cls, struct MHD_Connection *mc, char *s) { return strlen(s); }

/* The headers are there, and may be enough for an answer.  A short body is read to its end before that is sent: it is
 * on its way already, and its connection can be kept. */
static enum MHD_Result begin(server *s, struct MHD_Connection *mc, const char *url, const char *method, void **context)
{
    exchange *x = buf_new(1, sizeof *x);
    *context = x;
    x->s = s;
    x->c = MHD_get_connection_info(mc, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    conn_is(s->door, x->c, CONN_BODY);
    const char *length = header(mc, "Content-Length");
    bool waits = header(mc, "Expect"), endless = header(mc, "Transfer-Encoding");
    unsigned long long n = length ? strtoull(length, NULL, 10) : 0;
    route_request q = request_of(x, mc, url, method);
    if (routes_check(s->r, &q, &x->answer)) {
        if (n <= ROUTES_MAX_BODY) return MHD_YES;
        routes_refuse(s->r, &x->answer, 413, "too_large", "the body is larger than 8 MiB");
    }
    x->discard = true;
    return n <= SHORT_BODY && !waits && !endless ? MHD_YES : send_answer(x, mc, true);
}

static enum MHD_Result take(exchange *x, const char *p, size_t n)
{
    x->length += n;
    if (x->length > ROUTES_MAX_BODY || atomic_load(&x->s->bodies) + n > MOST_BODIES) x->discard = true;
    if (x->length > MOST_DISCARDED) return MHD_NO;
    if (x->discard) return MHD_YES;
    buf_add(&x->body, p, n);
    atomic_fetch_add(&x->s->bodies, n);
    return MHD_YES;
}

static void drop_body(exchange *x)
{
    atomic_fetch_sub(&x->s->bodies, x->body.n);
    buf_free(&x->body);
}

/* The whole request is there. */
static enum MHD_Result end(exchange *x, struct MHD_Connection *mc, const char *url, const char *method)
{
    server *s = x->s;
    conn_is(s->door, x->c, CONN_WORKING);
    if (x->answer.status) return send_answer(x, mc, false);
    if (x->discard) {
        bool large = x->length > ROUTES_MAX_BODY;
        if (large) routes_refuse(s->r, &x->answer, 413, "too_large", "the body is larger than 8 MiB");
        else routes_refuse(s->r, &x->answer, 503, "overloaded", "too many large bodies are being read");
        drop_body(x);
        return send_answer(x, mc, true);
    }
    route_request q = request_of(x, mc, url, method);
    bool here = routes_handle(s->r, &q, &x->answer);
    drop_body(x);
    return here ? send_answer(x, mc, false) : MHD_NO;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mc, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n, void **context)
{
    exchange *x = *context;
    if (!x) return begin(cls, mc, url, method, context);
    if (!*n) return end(x, mc, url, method);
    size_t given = *n;
    *n = 0;
    return take(x, data, given);
}

static void on_completed(void *cls, struct MHD_Connection *mc, void **context, enum MHD_RequestTerminationCode why)
{
    exchange *x = *context;
    if (!x) return;
    conn_is(x->s->door, x->c, CONN_READING);
    drop_body(x);
    routes_free(&x->answer);
    free(x);
    *context = NULL;
}

/* ---------------------------------------------------------------- life */

void server_defaults(server_opts *o)
{
    *o = (server_opts){.host = "127.0.0.1", .port = 8080, .waiting = 16, .cpu_mask = UINT64_MAX, .max_tokens = 128,
                       .read_seconds = 10, .stall_seconds = 30};
}

/* What the door sends to whom there is no place for: he may not even have said yet what he wants. */
static buf no_place(server *s)
{
    route_answer a = {0};
    buf out = {0};
    routes_refuse(s->r, &a, 503, "overloaded", "there are too many connections");
    buf_fmt(&out, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: %s\r\nContent-Length: %zu\r\nRetry-After: %d\r\n"
                  "Cache-Control: no-store\r\nConnection: close\r\n\r\n", a.type, a.body.n, a.retry_after);
    buf_add(&out, a.body.p, a.body.n);
    routes_free(&a);
    return out;
}

static bool start(server *s)
{
    s->d = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
                                MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC,
                            0, NULL, NULL, on_request, s,
                            MHD_OPTION_CONNECTION_LIMIT, (unsigned)DOOR_MOST_CONNS,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY_PER_CONNECTION,
                            MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
                            MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,
                            MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
                            MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_END);
    return s->d && door_start(s->door);
}

bool server_open(server **out, const server_opts *o, char *why, size_t cap)
{
    for (size_t i = 0; i < o->n_origins; i++) {
        if (guard_is_origin(o->origins[i])) continue;
        snprintf(why, cap, "--cors %.200s: it must be as a browser sends it, like https://example.org or "
                 "http://localhost:3000", o->origins[i]);
        return false;
    }
    server *s = buf_new(1, sizeof *s);
    s->o = *o;
    s->r = routes_open(&s->o);
    s->door = door_open(&(door_opts){&s->o, no_place(s), let_in, told, s}, why, cap);
    if (s->door && start(s)) {
        *out = s;
        return true;
    }
    if (s->door) snprintf(why, cap, "the server's threads could not be started");
    server_close(&s);
    return false;
}

void server_model(server *s, const llada_model *m, const llada_recipe *r) { routes_model(s->r, m, r); }

int server_port(const server *s) { return door_port(s->door); }

/* Answers that are ready still go out. */
static void let_finish(server *s, double seconds)
{
    struct timespec pause = {.tv_nsec = 10000000};
    double until = now_seconds() + seconds;
    while (door_busy(s->door) && now_seconds() < until) nanosleep(&pause, NULL);
}

void server_drain(server *s, double seconds)
{
    door_stop(s->door);
    routes_drain(s->r, seconds);
    let_finish(s, 1);
}

void server_close(server **sp)
{
    server *s = *sp;
    if (!s) return;
    if (s->door) door_stop(s->door);
    routes_drain(s->r, 0);
    if (s->d) MHD_stop_daemon(s->d);
    door_close(&s->door);
    routes_close(&s->r);
    free(s);
    *sp = NULL;
}
