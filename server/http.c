/* http.c - sockets, time-outs and limits, by libmicrohttpd, which only this file knows.
 *
 * Each connection has a thread, so that a large body, a slow reader or a long wait holds up nobody else.  The library's
 * time-outs are off, as they count any byte as life; a watchman thread closes sockets instead:
 *   reading  read_seconds from the opening, or from the last answer, to a whole request
 *   sending  stall_seconds in which the other side took nothing
 * Of more than MOST_CONNECTIONS, the one that has been idle longest makes room; if none is, the new one is refused. */
#include "routes.h"

#include <errno.h>
#include <linux/sockios.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_CONNECTIONS = 64, SPARE_CONNECTIONS = 16, /* spare: to be told that there is no room */
    MEMORY_PER_CONNECTION = 64 << 10,              /* headers, and a piece of the answer */
    STACK_BYTES = 1 << 20,
    MOST_BODIES = 64 << 20,                        /* bytes of all bodies being read */
    MOST_DISCARDED = 4 * ROUTES_MAX_BODY           /* a body up to this size is read to its end before it is refused */
};
#define IDLE_SECONDS 1.0 /* before a connection can be made to give way */
#define WATCH_SECONDS 0.1

typedef enum { CONN_FREE, CONN_READING, CONN_WORKING, CONN_SENDING } conn_state;

typedef struct {
    conn_state state;
    int fd;
    bool refused;  /* there was no room for it */
    bool closing;  /* was shut down */
    double since;  /* when the state, or what is still to send, last changed */
    int unsent;
} conn;

struct server {
    server_opts o;
    routes *r;
    struct MHD_Daemon *d;
    int port;
    atomic_size_t bodies;
    atomic_bool ending;
    pthread_t watchman;
    pthread_mutex_t lock;
    conn conns[MOST_CONNECTIONS + SPARE_CONNECTIONS]; /* under the lock */
};

/* One request and its answer; owned by the connection until on_completed. */
typedef struct {
    server *s;
    conn *c;
    bool discard; /* the body is too large, or there is no room for it */
    bool gone;
    size_t length;
    buf body;
    route_answer answer;
} exchange;

/* ---------------------------------------------------------------- connections */

static void set_state(server *s, conn *c, conn_state state)
{
    pthread_mutex_lock(&s->lock);
    c->state = state;
    c->since = now_seconds();
    c->unsent = -1;
    pthread_mutex_unlock(&s->lock);
}

static int count_open(const server *s)
{
    int n = 0;
    for (int i = 0; i < MOST_CONNECTIONS + SPARE_CONNECTIONS; i++)
        n += s->conns[i].state != CONN_FREE && !s->conns[i].closing && !s->conns[i].refused;
    return n;
}

/* The socket stays open until the library's thread has noticed; on_connection then frees the place. */
static void shut(conn *c, bool reset)
{
    struct linger now = {.l_onoff = 1};
    if (reset) setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    shutdown(c->fd, SHUT_RDWR);
    c->closing = true;
}

/* Lock held. */
static void make_room(server *s, conn *newest)
{
    conn *oldest = NULL;
    for (int i = 0; i < MOST_CONNECTIONS + SPARE_CONNECTIONS; i++) {
        conn *c = &s->conns[i];
        if (c == newest || c->state != CONN_READING || c->closing || c->refused) continue;
        if (!oldest || c->since < oldest->since) oldest = c;
    }
    if (oldest && now_seconds() - oldest->since > IDLE_SECONDS) shut(oldest, false);
    else newest->refused = true;
}

static void on_connection(void *cls, struct MHD_Connection *mc, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    server *s = cls;
    pthread_mutex_lock(&s->lock);
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*context) *(conn *)*context = (conn){.state = CONN_FREE};
    } else {
        int i = 0;
        while (i < MOST_CONNECTIONS + SPARE_CONNECTIONS - 1 && s->conns[i].state != CONN_FREE) i++;
        conn *c = &s->conns[i];
        *c = (conn){.state = CONN_READING, .since = now_seconds(), .unsent = -1};
        c->fd = MHD_get_connection_info(mc, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        *context = c;
        if (count_open(s) > MOST_CONNECTIONS) make_room(s, c);
    }
    routes_connections(s->r, count_open(s));
    pthread_mutex_unlock(&s->lock);
}

/* A place whose time is up is closed.  Lock held. */
static void watch(const server *s, conn *c, double now)
{
    int unsent = 0;
    if (c->closing) return;
    if (c->state == CONN_READING && now - c->since > s->o.read_seconds) shut(c, false);
    if (c->state != CONN_SENDING) return;
    if (ioctl(c->fd, SIOCOUTQ, &unsent) == 0 && unsent != c->unsent) {
        c->unsent = unsent;
        c->since = now;
    }
    if (now - c->since > s->o.stall_seconds) shut(c, true);
}

static void *watch_all(void *user)
{
    server *s = user;
    struct timespec pause = {.tv_nsec = (long)(WATCH_SECONDS * 1e9)};
    while (!atomic_load(&s->ending)) {
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&s->lock);
        double now = now_seconds();
        for (int i = 0; i < MOST_CONNECTIONS + SPARE_CONNECTIONS; i++)
            if (s->conns[i].state != CONN_FREE) watch(s, &s->conns[i], now);
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
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
    set_state(f->s, f->c, CONN_WORKING);
    long n = stream_read(f->stream, p, most);
    set_state(f->s, f->c, CONN_SENDING);
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

static void add_headers(struct MHD_Response *m, const route_answer *a)
{
    char number[16];
    MHD_add_response_header(m, "Content-Type", a->type);
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
    add_headers(m, &x->answer);
    if (close_after) MHD_add_response_header(m, "Connection", "close");
    else if (add) MHD_add_response_header(m, "Keep-Alive", "timeout=8");
    routes_answered(x->s->r, (int)status);
    set_state(x->s, x->c, CONN_SENDING);
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
                           .body = x->body.p ? x->body.p : "", .n_body = x->body.n, .fd = x->c->fd};
}

/* The headers are there. */
static enum MHD_Result begin(server *s, struct MHD_Connection *mc, const char *url, const char *method, void **context)
{
    exchange *x = buf_new(1, sizeof *x);
    *context = x;
    x->s = s;
    x->c = MHD_get_connection_info(mc, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    const char *length = header(mc, "Content-Length");
    unsigned long long n = length ? strtoull(length, NULL, 10) : 0;
    route_request q = request_of(x, mc, url, method);
    if (x->c->refused) {
        routes_refuse(s->r, &x->answer, 503, "overloaded", "there are too many connections");
        return send_answer(x, mc, true);
    }
    if (!routes_check(s->r, &q, &x->answer)) return send_answer(x, mc, n > 0 || header(mc, "Transfer-Encoding"));
    x->discard = n > ROUTES_MAX_BODY;
    if (n <= MOST_DISCARDED && !(x->discard && header(mc, "Expect"))) return MHD_YES;
    routes_refuse(s->r, &x->answer, 413, "too_large", "the body is larger than 8 MiB");
    return send_answer(x, mc, true);
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

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mc, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n, void **context)
{
    server *s = cls;
    exchange *x = *context;
    if (!x) return begin(s, mc, url, method, context);
    if (*n) {
        size_t given = *n;
        *n = 0;
        return take(x, data, given);
    }
    set_state(s, x->c, CONN_WORKING);
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

static void on_completed(void *cls, struct MHD_Connection *mc, void **context, enum MHD_RequestTerminationCode why)
{
    exchange *x = *context;
    if (!x) return;
    set_state(x->s, x->c, CONN_READING);
    drop_body(x);
    routes_free(&x->answer);
    free(x);
    *context = NULL;
}

/* ---------------------------------------------------------------- listening */

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24) == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static int port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
    if (a.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
    return ntohs(((struct sockaddr_in *)&a)->sin_port);
}

/* -1: why tells. */
static int listen_at(const server_opts *o, char *why, size_t cap)
{
    char port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    int on = 1, fd = -1;
    snprintf(port, sizeof port, "%d", o->port);
    int rc = getaddrinfo(o->host, port, &hints, &list);
    if (rc) {
        snprintf(why, cap, "--host %.200s: %s", o->host, gai_strerror(rc));
        return -1;
    }
    if (!is_loopback(list->ai_addr) && !o->key) {
        snprintf(why, cap, "--host %.200s can be reached from other machines: give an --api-key, or LLADA_API_KEY",
                 o->host);
    } else if ((fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0 ||
               setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
               bind(fd, list->ai_addr, list->ai_addrlen) || listen(fd, 256)) {
        snprintf(why, cap, "cannot listen at %.200s port %d: %s", o->host, o->port, strerror(errno));
        if (fd >= 0) close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    return fd;
}

/* ---------------------------------------------------------------- life */

void server_defaults(server_opts *o)
{
    *o = (server_opts){.host = "127.0.0.1", .port = 8080, .waiting = 16, .cpu_mask = UINT64_MAX, .max_tokens = 128,
                       .read_seconds = 10, .stall_seconds = 30};
}

bool server_open(server **out, const server_opts *o, char *why, size_t cap)
{
    int fd = listen_at(o, why, cap);
    if (fd < 0) return false;
    server *s = buf_new(1, sizeof *s);
    s->o = *o;
    s->port = port_of(fd);
    pthread_mutex_init(&s->lock, NULL);
    s->r = routes_open(&s->o);
    bool watched = pthread_create(&s->watchman, NULL, watch_all, s) == 0;
    if (watched)
        s->d = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
                                    MHD_USE_ITC,
                                0, NULL, NULL, on_request, s, MHD_OPTION_LISTEN_SOCKET, fd,
                                MHD_OPTION_CONNECTION_LIMIT, (unsigned)(MOST_CONNECTIONS + SPARE_CONNECTIONS),
                                MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY_PER_CONNECTION,
                                MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
                                MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
                                MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_END);
    if (s->d) {
        *out = s;
        return true;
    }
    snprintf(why, cap, "the server's threads could not be started");
    close(fd);
    atomic_store(&s->ending, true);
    if (watched) pthread_join(s->watchman, NULL);
    routes_close(&s->r);
    free(s);
    return false;
}

void server_model(server *s, const llada_model *m, const llada_recipe *r) { routes_model(s->r, m, r); }

int server_port(const server *s) { return s->port; }

/* Answers that are ready still go out. */
static void let_finish(server *s, double seconds)
{
    struct timespec pause = {.tv_nsec = 10000000};
    double until = now_seconds() + seconds;
    for (bool busy = true; busy && now_seconds() < until;) {
        busy = false;
        pthread_mutex_lock(&s->lock);
        for (int i = 0; i < MOST_CONNECTIONS + SPARE_CONNECTIONS; i++)
            busy |= s->conns[i].state == CONN_WORKING || s->conns[i].state == CONN_SENDING;
        pthread_mutex_unlock(&s->lock);
        if (busy) nanosleep(&pause, NULL);
    }
}

void server_drain(server *s, double seconds)
{
    int fd = MHD_quiesce_daemon(s->d);
    if (fd >= 0) close(fd);
    routes_drain(s->r, seconds);
    let_finish(s, 1);
}

void server_close(server **sp)
{
    server *s = *sp;
    if (!s) return;
    routes_drain(s->r, 0);
    MHD_stop_daemon(s->d);
    atomic_store(&s->ending, true);
    pthread_join(s->watchman, NULL);
    routes_close(&s->r);
    pthread_mutex_destroy(&s->lock);
    free(s);
    *sp = NULL;
}
