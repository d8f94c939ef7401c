/* door.c - the listening socket, the places, and the thread that watches over them (door.h).
 *
 *   reading, body   read_seconds from the opening, or from the last answer, to a whole request
 *   sending         stall_seconds in which the other side took nothing
 *   leaving         LINGER_SECONDS for the other side to close, while what it still sends is thrown away
 *
 * When all places are taken, one who has been idle gives way. */
#include "door.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    WATCH_MS = 100,
    MOST_THROWN_AWAY = 32 << 20 /* bytes sent by one who has been answered */
};
#define LINGER_SECONDS 2.0
#define IDLE_SECONDS 1.0 /* without a request, before a connection can be made to give way */
#define BODY_SECONDS 2.0 /* the same, with a request that does not come to its end */

struct conn {
    conn_state state;
    int fd;         /* the server's descriptor; known by, not used */
    int own;        /* the door's; owned */
    bool shut;      /* ended by the door; the server has not noticed yet, or never knew it */
    double since;   /* when the state, or what is still to send, last changed */
    int unsent;
    size_t thrown;  /* bytes, since it is leaving */
};

struct door {
    door_opts o;
    int fd, wake;    /* listening, -1: not any more; what ends the thread's poll */
    int port;
    bool started;
    pthread_t thread;
    pthread_mutex_t threshold; /* held while somebody is let in; taken before the lock */
    pthread_mutex_t lock;
    /* under the lock */
    bool stop, end;
    conn conns[DOOR_MOST_CONNS];
};

/* ---------------------------------------------------------------- places; the lock is held in all of these */

static bool inside(const conn *c) { return c->state != CONN_FREE && c->state != CONN_LEAVING && !c->shut; }

static int count_inside(const door *d)
{
    int n = 0;
    for (int i = 0; i < DOOR_MOST_CONNS; i++) n += inside(&d->conns[i]);
    return n;
}

static void tell(door *d, bool refused) { d->o.told(d->o.user, count_inside(d), refused); }

static void release(conn *c)
{
    close(c->own);
    *c = (conn){.state = CONN_FREE};
}

static bool is_leaving(const conn *c, double seconds) { return c->state == CONN_LEAVING; }

/* Whose side is closed is gone; whose request has come, and only waits for its thread, is not idle. */
static bool is_idle(const conn *c, double seconds)
{
    struct pollfd p = {.fd = c->own, .events = POLLRDHUP};
    int unread = 0;
    if ((c->state != CONN_READING && c->state != CONN_BODY) || c->shut) return false;
    if (poll(&p, 1, 0) > 0) return true;
    if (ioctl(c->own, FIONREAD, &unread) == 0 && unread > 0) return false;
    return seconds >= (c->state == CONN_BODY ? BODY_SECONDS : IDLE_SECONDS);
}

/* The one who has been so for longest. */
static conn *oldest(door *d, bool (*is)(const conn *c, double seconds))
{
    conn *found = NULL;
    double now = now_seconds();
    for (int i = 0; i < DOOR_MOST_CONNS; i++) {
        conn *c = &d->conns[i];
        if ((!found || c->since < found->since) && is(c, now - c->since)) found = c;
    }
    return found;
}

/* A free place, at the cost of one who has had his answer for longest; NULL: none. */
static conn *place(door *d)
{
    for (int i = 0; i < DOOR_MOST_CONNS; i++)
        if (d->conns[i].state == CONN_FREE) return &d->conns[i];
    conn *c = oldest(d, is_leaving);
    if (c) release(c);
    return c;
}

/* The server notices, and calls conn_left. */
static void shut(conn *c, bool reset)
{
    struct linger now = {.l_onoff = 1};
    if (reset) setsockopt(c->own, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    shutdown(c->own, SHUT_RDWR);
    c->shut = true;
}

static bool make_room(door *d)
{
    if (count_inside(d) < DOOR_PLACES) return true;
    conn *c = oldest(d, is_idle);
    if (c) shut(c, false);
    return c != NULL;
}

/* Throws away what has come; true: the other side has closed, or had enough time. */
static bool has_left(conn *c, double now)
{
    char piece[16384];
    ssize_t n = 1;
    for (int i = 0; i < 16 && n > 0; i++) {
        n = recv(c->own, piece, sizeof piece, MSG_DONTWAIT);
        if (n > 0) c->thrown += (size_t)n;
    }
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return true;
    return c->thrown > MOST_THROWN_AWAY || now - c->since > LINGER_SECONDS;
}

static void leave(conn *c)
{
    shutdown(c->own, SHUT_WR);
    c->state = CONN_LEAVING;
    c->since = now_seconds();
    c->shut = false;
    if (has_left(c, c->since)) release(c);
}

static void watch(door *d, conn *c, double now)
{
    const server_opts *o = d->o.o;
    int unsent = 0;
    if (c->shut || c->state == CONN_FREE || c->state == CONN_WORKING) return;
    if (c->state == CONN_LEAVING) {
        if (has_left(c, now)) release(c);
        return;
    }
    if (c->state != CONN_SENDING) {
        if (now - c->since > o->read_seconds) shut(c, false);
        return;
    }
    if (ioctl(c->own, SIOCOUTQ, &unsent) == 0 && unsent != c->unsent) {
        c->unsent = unsent;
        c->since = now;
    }
    if (now - c->since > o->stall_seconds) shut(c, true);
}

/* ---------------------------------------------------------------- coming in */

/* The lock is held; c is a place of state CONN_FREE. */
static void turn_away(door *d, conn *c, int own)
{
    *c = (conn){.fd = -1, .own = own};
    /* a new socket's buffer has room for it */
    (void)!send(own, d->o.full.p, d->o.full.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    leave(c);
    tell(d, true);
}

/* False: nobody can come in at the moment. */
static bool accept_one(door *d)
{
    pthread_mutex_lock(&d->threshold);
    pthread_mutex_lock(&d->lock);
    conn *c = place(d);
    int own = c && !d->stop ? accept4(d->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
    int fd = own >= 0 && make_room(d) ? fcntl(own, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd >= 0) {
        *c = (conn){.state = CONN_READING, .fd = fd, .own = own, .since = now_seconds(), .unsent = -1};
        tell(d, false);
    } else if (own >= 0) {
        turn_away(d, c, own);
    }
    pthread_mutex_unlock(&d->lock);
    if (fd >= 0 && !d->o.let_in(d->o.user, fd)) conn_left(d, c);
    pthread_mutex_unlock(&d->threshold);
    return own >= 0;
}

/* Waits until something happens, and lets go whom it can; whether somebody is at the door. */
static bool wait(door *d, bool listen)
{
    struct pollfd p[2 + DOOR_MOST_CONNS];
    uint64_t woken;
    p[0] = (struct pollfd){.fd = d->wake, .events = POLLIN};
    p[1] = (struct pollfd){.fd = listen ? d->fd : -1, .events = POLLIN};
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < DOOR_MOST_CONNS; i++)
        p[2 + i] = (struct pollfd){.fd = d->conns[i].state == CONN_LEAVING ? d->conns[i].own : -1, .events = POLLIN};
    pthread_mutex_unlock(&d->lock);
    poll(p, 2 + DOOR_MOST_CONNS, WATCH_MS);
    if (p[0].revents) (void)!read(d->wake, &woken, sizeof woken);
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < DOOR_MOST_CONNS; i++) {
        conn *c = &d->conns[i];
        if (p[2 + i].revents && c->state == CONN_LEAVING && has_left(c, now_seconds())) release(c);
    }
    pthread_mutex_unlock(&d->lock);
    return p[1].revents != 0;
}

static void *keep(void *user)
{
    door *d = user;
    double watched = 0;
    for (bool listen = true, end = false; !end;) {
        bool knocks = wait(d, listen);
        listen = !knocks || accept_one(d);
        pthread_mutex_lock(&d->lock);
        double now = now_seconds();
        bool due = now - watched >= WATCH_MS * 1e-3;
        for (int i = 0; i < DOOR_MOST_CONNS && due; i++) watch(d, &d->conns[i], now);
        if (due) watched = now;
        listen &= !d->stop;
        end = d->end;
        pthread_mutex_unlock(&d->lock);
    }
    return NULL;
}

static void wake(door *d)
{
    uint64_t one = 1;
    (void)!write(d->wake, &one, sizeof one); /* full: it is awake */
}

/* ---------------------------------------------------------------- the server's side */

conn *door_conn(door *d, int fd)
{
    conn *found = NULL;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < DOOR_MOST_CONNS && !found; i++)
        if (d->conns[i].state != CONN_FREE && d->conns[i].state != CONN_LEAVING && d->conns[i].fd == fd)
            found = &d->conns[i];
    pthread_mutex_unlock(&d->lock);
    return found;
}

int conn_socket(const conn *c) { return c->own; }

void conn_is(door *d, conn *c, conn_state state)
{
    pthread_mutex_lock(&d->lock);
    bool request = c->state == CONN_READING && state == CONN_BODY; /* its time goes on */
    c->state = state;
    if (!request) c->since = now_seconds();
    c->unsent = -1;
    pthread_mutex_unlock(&d->lock);
}

void conn_left(door *d, conn *c)
{
    pthread_mutex_lock(&d->lock);
    if (c->shut) release(c);
    else leave(c);
    tell(d, false);
    pthread_mutex_unlock(&d->lock);
    wake(d);
}

bool door_busy(door *d)
{
    bool busy = false;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < DOOR_MOST_CONNS; i++)
        busy |= d->conns[i].state == CONN_WORKING || d->conns[i].state == CONN_SENDING;
    pthread_mutex_unlock(&d->lock);
    return busy;
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

static void say_why(const server_opts *o, int error, char *why, size_t cap)
{
    const char *hint = error == EADDRINUSE ? "; something listens there already: another --port, or --any-port"
                       : error == EACCES   ? "; ports below 1024 are the system's: another --port, or --any-port"
                                           : "";
    snprintf(why, cap, "cannot listen at %.200s port %d: %s%s", o->host, o->port, strerror(error), hint);
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
    } else if ((fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0 ||
               setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
               bind(fd, list->ai_addr, list->ai_addrlen) || listen(fd, SOMAXCONN)) {
        say_why(o, errno, why, cap);
        if (fd >= 0) close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    return fd;
}

/* ---------------------------------------------------------------- life */

door *door_open(const door_opts *o, char *why, size_t cap)
{
    door *d = buf_new(1, sizeof *d);
    d->o = *o;
    d->fd = listen_at(o->o, why, cap);
    d->wake = d->fd < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&d->threshold, NULL);
    pthread_mutex_init(&d->lock, NULL);
    if (d->fd >= 0 && d->wake < 0) snprintf(why, cap, "cannot make an eventfd: %s", strerror(errno));
    if (d->wake < 0) door_close(&d);
    else d->port = port_of(d->fd);
    return d;
}

bool door_start(door *d)
{
    d->started = pthread_create(&d->thread, NULL, keep, d) == 0;
    return d->started;
}

int door_port(const door *d) { return d->port; }

void door_stop(door *d)
{
    pthread_mutex_lock(&d->threshold);
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_mutex_unlock(&d->lock);
    pthread_mutex_unlock(&d->threshold);
    shutdown(d->fd, SHUT_RDWR); /* who knocks is refused by the system from now on */
    wake(d);
}

void door_close(door **dp)
{
    door *d = *dp;
    if (!d) return;
    if (d->started) {
        pthread_mutex_lock(&d->lock);
        d->stop = d->end = true;
        pthread_mutex_unlock(&d->lock);
        wake(d);
        pthread_join(d->thread, NULL);
    }
    for (int i = 0; i < DOOR_MOST_CONNS; i++)
        if (d->conns[i].state != CONN_FREE) release(&d->conns[i]);
    if (d->fd >= 0) close(d->fd);
    if (d->wake >= 0) close(d->wake);
    buf_free(&d->o.full);
    pthread_mutex_destroy(&d->threshold);
    pthread_mutex_destroy(&d->lock);
    free(d);
    *dp = NULL;
}
