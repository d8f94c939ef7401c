/* fuzz_http.c - bytes on a connection to a real server, over the loopback address.  The first byte says into how many
 * pieces the rest is cut, and whether an answer may begin before the client closes its side.  Whatever came, the server must answer or close, and soon; an
 * answer must begin as one of HTTP; and the server must still be there for the next. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/buf.h"
#include "server/server.h"

enum {
    PATIENCE = 60, /* seconds until an input counts as a hang: no machine is so busy */
    WAIT_MS = 30   /* one who has closed his side counts as gone, and gets no generation */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static server *place;
static llada_model *model;

static void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "fuzz_http: %s\n", what);
    abort();
}

static void end(void)
{
    server_close(&place);
    llada_model_close(&model);
}

/* A key locks nothing here, but has its header read. */
static void open_once(void)
{
    llada_recipe r;
    server_opts o;
    char why[512];
    static const char *const origins[] = {"http://app.example"};
    if (place) return;
    must(llada_model_open(&model, NULL, NULL, NULL) == LLADA_OK, "the model can't be opened");
    llada_recipe_defaults(&r);
    server_defaults(&o);
    o.port = 0;
    o.threads = 1;
    o.max_tokens = 2;
    o.metrics = true;
    o.key = "k";
    o.origins = origins;
    o.n_origins = 1;
    must(server_open(&place, &o, why, sizeof why), why);
    server_model(place, model, &r);
    atexit(end);
}

static int dial(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server_port(place))};
    struct linger now = {.l_onoff = 1}; /* closing resets: ports do not stay in use for a minute */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "nobody listens any more");
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* The server may have closed in the middle of it. */
static void send_piece(int fd, const uint8_t *p, size_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0) return;
        p += k;
        n -= (size_t)k;
    }
}

/* All that comes until the server closes. */
static void read_all(int fd, buf *out)
{
    double until = now_seconds() + PATIENCE;
    buf_str(out, "");
    while (true) {
        char piece[4096];
        struct pollfd p = {.fd = fd, .events = POLLIN};
        must(now_seconds() < until, "the server neither answers nor closes");
        if (poll(&p, 1, 1000) <= 0) continue;
        ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n <= 0) return;
        buf_add(out, piece, (size_t)n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    buf got = {0};
    if (size < 2) return 0;
    open_once();
    int fd = dial();
    size_t pieces = 1 + data[0] % 4, n = size - 1;
    for (size_t i = 0; i < pieces; i++) {
        size_t from = n * i / pieces, to = n * (i + 1) / pieces;
        send_piece(fd, data + 1 + from, to - from);
    }
    struct pollfd answer = {.fd = fd, .events = POLLIN};
    if (data[0] & 4) poll(&answer, 1, WAIT_MS);
    shutdown(fd, SHUT_WR);
    read_all(fd, &got);
    close(fd);
    must(!got.n || (got.n > 12 && !strncmp(got.p, "HTTP/1.", 7)), "an answer that is none of HTTP");
    buf_free(&got);
    return 0;
}
