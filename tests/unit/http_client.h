/* http_client.h - a server in this process and a client that can misbehave, for the tests of server/. */
#ifndef TESTS_HTTP_CLIENT_H
#define TESTS_HTTP_CLIENT_H

#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "llada.h"
#include "server/buf.h"
#include "server/server.h"

typedef struct {
    llada_model *m;
    server *s;
    int port;
} place;

static inline void place_open(place *p, const server_opts *o)
{
    llada_recipe r;
    llada_err err;
    char why[512] = "";
    assert_int_equal(llada_model_open(&p->m, NULL, NULL, &err), LLADA_OK);
    llada_recipe_defaults(&r);
    if (!server_open(&p->s, o, why, sizeof why)) fail_msg("%s", why);
    server_model(p->s, p->m, &r);
    p->port = server_port(p->s);
}

static inline void place_close(place *p)
{
    server_close(&p->s);
    llada_model_close(&p->m);
}

static inline server_opts place_opts(void)
{
    server_opts o;
    server_defaults(&o);
    o.port = 0;
    o.threads = 1;
    return o;
}

static inline int dial(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* False: the other side has closed. */
static inline bool send_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

typedef struct {
    int status;      /* 0: no answer came */
    char head[4096]; /* headers */
    buf body;
} reply;

static inline void reply_free(reply *r)
{
    buf_free(&r->body);
    r->status = 0;
}

/* Reads to the end of the connection, at most so long. */
static inline void read_reply(int fd, double seconds, reply *r)
{
    buf all = {0};
    double until = now_seconds() + seconds;
    memset(r, 0, sizeof *r);
    buf_str(&all, "");
    while (now_seconds() < until) {
        char piece[16384];
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 100) == 0) continue;
        ssize_t k = recv(fd, piece, sizeof piece, 0);
        if (k <= 0) break;
        buf_add(&all, piece, (size_t)k);
    }
    char *end = strstr(all.p, "\r\n\r\n");
    if (end && sscanf(all.p, "HTTP/1.%*d %d", &r->status) == 1) {
        size_t n = (size_t)(end + 2 - all.p);
        snprintf(r->head, sizeof r->head, "%.*s", (int)(n < 4095 ? n : 4095), all.p);
        buf_add(&r->body, end + 4, all.n - n - 2);
    }
    buf_free(&all);
}

/* A request of HTTP/1.0: the answer comes unchunked and the connection ends behind it.  more: further header lines. */
static inline void put_request(buf *out, const char *method, const char *path, const char *more, const char *body, size_t n)
{
    buf_fmt(out, "%s %s HTTP/1.0\r\n%s", method, path, strstr(more, "Host:") ? "" : "Host: localhost\r\n");
    if (body && !strstr(more, "Content-Type:")) buf_str(out, "Content-Type: application/json\r\n");
    if (body) buf_fmt(out, "Content-Length: %zu\r\n", n);
    buf_fmt(out, "%s\r\n", more);
    if (body) buf_add(out, body, n);
}

static inline int send_request(int port, const char *path, const char *body)
{
    buf q = {0};
    int fd = dial(port);
    put_request(&q, body ? "POST" : "GET", path, "", body, body ? strlen(body) : 0);
    send_all(fd, q.p, q.n);
    buf_free(&q);
    return fd;
}

static inline void call_with(int port, const char *method, const char *path, const char *more, const char *body, size_t n,
                             reply *r)
{
    buf q = {0};
    int fd = dial(port);
    put_request(&q, method, path, more, body, n);
    send_all(fd, q.p, q.n);
    read_reply(fd, 60, r);
    close(fd);
    buf_free(&q);
}

static inline void call(int port, const char *path, const char *body, reply *r)
{
    call_with(port, body ? "POST" : "GET", path, "", body, body ? strlen(body) : 0, r);
}

/* The answer's JSON; the caller's. */
static inline json_t *call_json(int port, const char *path, const char *body, int status)
{
    reply r;
    call(port, path, body, &r);
    if (r.status != status) fail_msg("%s %.200s: %d %.300s", path, body ? body : "", r.status, r.body.p ? r.body.p : "");
    json_t *o = json_loadb(r.body.p, r.body.n, 0, NULL);
    assert_non_null(o);
    reply_free(&r);
    return o;
}

static inline const char *text_at(json_t *o, const char *path) /* "choices.0.message.content" */
{
    char name[64];
    for (const char *p = path; *p; p += *p == '.') {
        size_t n = strcspn(p, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        o = json_is_array(o) ? json_array_get(o, (size_t)atoi(name)) : json_object_get(o, name);
        p += n;
    }
    return json_string_value(o);
}

/* Joins the deltas of a stream, or takes the last draft; finish[16] gets the reason. */
static inline void join_stream(const char *events, bool replace, buf *text, char *finish)
{
    bool done = false;
    buf_str(text, "");
    for (const char *p = events; (p = strstr(p, "data: ")); p++) {
        p += 6;
        size_t n = strcspn(p, "\n");
        if (!strncmp(p, "[DONE]", 6)) {
            done = true;
            continue;
        }
        assert_false(done);
        json_t *o = json_loadb(p, n, 0, NULL);
        assert_non_null(o);
        const char *piece = text_at(o, "choices.0.delta.content"), *why = text_at(o, "choices.0.finish_reason");
        if (!piece) piece = text_at(o, "choices.0.text");
        if (!piece) piece = text_at(o, "content");
        if (!why) why = text_at(o, "finish_reason");
        if (replace && piece && (*piece || !json_object_get(o, "usage"))) text->n = 0;
        if (piece) buf_str(text, piece);
        if (why) snprintf(finish, 16, "%s", why);
        json_decref(o);
    }
    assert_true(done);
}

static inline char *with_field(const char *body, const char *field) /* body without its last brace, field, brace */
{
    buf b = {0};
    buf_add(&b, body, strlen(body) - 1);
    buf_fmt(&b, ",%s}", field);
    return b.p;
}

#endif
