/* test_app_overload.c - clients that leave, stall, dribble or come in crowds: the worker is free within a pass, others
 * do not wait, everybody gets an answer, nothing leaks.  Numbers are printed; a promise that is a time is asserted ten
 * times over.  All traffic stays on the loopback address.  LLADA_LONG_TESTS=1: the full counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <sys/resource.h>

#include "http_client.h"

#define CHAT "/v1/chat/completions"
/* Many passes: more than any test waits for. */
#define LONG "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell a story.\"}],\"max_tokens\":256,\"stream\":%s," \
             "\"llada\":{\"recipe\":\"vanilla\",\"early\":false}}"
#define SHORT "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":4}"

enum { QUEUE = 16 };

static bool full_counts(void) { return getenv("LLADA_LONG_TESTS") != NULL; }

static int open_place(void **state)
{
    static place p;
    server_opts o = place_opts();
    o.metrics = true;
    o.read_seconds = 2;
    o.stall_seconds = 2;
    place_open(&p, &o);
    *state = &p;
    return 0;
}

static int close_place(void **state)
{
    place_close(*state);
    return 0;
}

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

static long resident_kb(void)
{
    long pages = 0, skip = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%ld %ld", &skip, &pages) != 2) pages = 0;
    if (f) fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int running_of(const place *p, int *waiting)
{
    json_t *o = call_json(p->port, "/props", NULL, 200);
    int n = (int)json_integer_value(json_object_get(o, "running"));
    *waiting = (int)json_integer_value(json_object_get(o, "waiting"));
    json_decref(o);
    return n;
}

static double metric(const place *p, const char *name)
{
    reply r;
    char line[80];
    call(p->port, "/metrics", NULL, &r);
    snprintf(line, sizeof line, "\nllada_%s ", name);
    const char *at = strstr(r.body.p, line);
    assert_non_null(at);
    double v = strtod(at + strlen(line), NULL);
    reply_free(&r);
    return v;
}

static double seconds_until_idle(const place *p)
{
    double began = now_seconds();
    int waiting = 1;
    while (running_of(p, &waiting) + waiting > 0) {
        if (now_seconds() - began > 200) fail_msg("the worker is still busy after 200 s");
        usleep(2000);
    }
    return now_seconds() - began;
}

static void until_running(const place *p)
{
    int waiting;
    while (!running_of(p, &waiting)) usleep(1000);
}

/* ---------------------------------------------------------------- clients that leave */

typedef enum { AFTER_CONNECT, IN_HEADERS, IN_BODY, QUEUED, RUNNING, RUNNING_RST, RUNNING_HALF, N_PHASES } phase;
static const char *const phase_names[] = {"after connecting", "in the headers", "in the body", "in line", "while it runs",
                                          "by reset", "by half-close"};

static void leave(int fd, phase ph)
{
    struct linger now = {.l_onoff = 1};
    char c;
    if (ph == RUNNING_RST) setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    if (ph == RUNNING_HALF) {
        shutdown(fd, SHUT_WR);
        while (recv(fd, &c, 1, 0) > 0) {}
    }
    close(fd);
}

static int begin_leaving(const place *p, phase ph, bool stream)
{
    char body[256];
    buf q = {0};
    snprintf(body, sizeof body, LONG, stream ? "true" : "false");
    put_request(&q, "POST", CHAT, "", body, strlen(body));
    size_t head = (size_t)(strstr(q.p, "\r\n\r\n") - q.p) + 4;
    size_t n = ph == AFTER_CONNECT ? 0 : ph == IN_HEADERS ? head / 2 : ph == IN_BODY ? head + 20 : q.n;
    int fd = dial(p->port);
    send_all(fd, q.p, n);
    buf_free(&q);
    return fd;
}

/* Descriptors more than before, when the listening thread has had time to collect what clients left. */
static int files_left(int before)
{
    double began = now_seconds();
    while (open_files() > before && now_seconds() - began < 10) usleep(20000);
    return open_files() - before;
}

static void clients_leave(void **state)
{
    const place *p = *state;
    int rounds = full_counts() ? 100 : 4;
    json_decref(call_json(p->port, CHAT, SHORT, 200));
    for (int ph = 0; ph < N_PHASES; ph++) {
        double worst = 0;
        int before = open_files();
        seconds_until_idle(p); /* a job is counted just after its answer */
        double done = metric(p, "requests_done_total");
        for (int i = 0; i < rounds; i++) {
            int blocker = ph == QUEUED ? begin_leaving(p, RUNNING, false) : -1;
            if (blocker >= 0) until_running(p);
            int fd = begin_leaving(p, (phase)ph, i % 2);
            if (ph >= RUNNING) until_running(p);
            leave(fd, (phase)ph);
            if (blocker >= 0) close(blocker);
            double took = ph >= QUEUED ? seconds_until_idle(p) : 0;
            if (took > worst) worst = took;
        }
        double ran = metric(p, "requests_done_total") - done;
        json_decref(call_json(p->port, CHAT, SHORT, 200));
        int leaked = files_left(before);
        print_message("%3d clients left %-17s the worker was free after %4.0f ms at most; %d descriptors more\n", rounds,
                      phase_names[ph], worst * 1e3, leaked);
        assert_true(leaked <= 4);
        assert_true(ran == 0); /* none was run to its end for nobody; its time is the machine's */
    }
}

/* Dead entries are taken out of the line, so that those who came again find room. */
static void dead_entries(void **state)
{
    const place *p = *state;
    int fds[QUEUE], blocker = begin_leaving(p, RUNNING, false), waiting = 0;
    until_running(p);
    for (int i = 0; i < QUEUE; i++) fds[i] = send_request(p->port, CHAT, SHORT);
    while (waiting < QUEUE) running_of(p, &waiting);
    json_decref(call_json(p->port, CHAT, SHORT, 503));
    for (int i = 0; i < QUEUE; i++) close(fds[i]);
    int again = send_request(p->port, CHAT, SHORT);
    reply r;
    usleep(50000);
    close(blocker);
    read_reply(again, 30, &r);
    close(again);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    seconds_until_idle(p);
}

/* ---------------------------------------------------------------- crowds */

enum { CROWD = 200 };

typedef struct {
    int fd[CROWD], good, refused;
    double sent[CROWD], slowest, sum; /* seconds */
} crowd_book;

/* Takes the answers that have come. */
static void collect(crowd_book *b, int n)
{
    for (int i = 0; i < n; i++) {
        struct pollfd f = {.fd = b->fd[i], .events = POLLIN};
        reply r;
        if (b->fd[i] < 0 || poll(&f, 1, 0) <= 0) continue;
        double took = now_seconds() - b->sent[i];
        read_reply(b->fd[i], 5, &r);
        close(b->fd[i]);
        b->fd[i] = -1;
        if (r.status == 200) {
            b->good++;
        } else {
            if (r.status != 503) fail_msg("client %d: status %d", i, r.status);
            assert_non_null(strstr(r.head, "Retry-After: "));
            b->refused++;
            b->sum += took;
            if (took > b->slowest) b->slowest = took;
        }
        reply_free(&r);
    }
}

static void crowd(void **state)
{
    const place *p = *state;
    static crowd_book b;
    int blocker = begin_leaving(p, RUNNING, true); /* holds the worker until all have been told */
    until_running(p);
    for (int i = 0; i < CROWD; i++) {
        b.fd[i] = send_request(p->port, CHAT, SHORT);
        b.sent[i] = now_seconds();
        collect(&b, i + 1);
    }
    double until = now_seconds() + 60;
    while (b.good + b.refused < CROWD && now_seconds() < until) {
        collect(&b, CROWD);
        if (b.refused < CROWD - QUEUE || blocker < 0) continue;
        close(blocker);
        blocker = -1;
    }
    print_message("%d at once: %d answered, %d refused with Retry-After, after %.1f ms in the mean and %.1f ms at most\n",
                  CROWD, b.good, b.refused, b.sum / b.refused * 1e3, b.slowest * 1e3);
    assert_int_equal(b.good, QUEUE);
    assert_int_equal(b.refused, CROWD - QUEUE);
    assert_true(b.sum / b.refused < 0.5);
    seconds_until_idle(p);
}

/* Once the line is full: how long a refusal takes, one client after the other, whatever is asked. */
static void full_line(void **state)
{
    const place *p = *state;
    enum { N = 50 };
    int fds[QUEUE + 1], waiting = 0;
    double sum = 0, worst = 0;
    buf large = {0};
    buf_str(&large, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < 300000; i++) buf_str(&large, "word ");
    buf_str(&large, "\"}]}");
    fds[0] = begin_leaving(p, RUNNING, false);
    until_running(p);
    for (int i = 1; i <= QUEUE; i++) fds[i] = send_request(p->port, CHAT, SHORT);
    while (waiting < QUEUE) running_of(p, &waiting);
    for (int i = 0; i < N; i++) {
        double began = now_seconds();
        reply r;
        call(p->port, CHAT, i % 5 ? SHORT : large.p, &r);
        double took = now_seconds() - began;
        assert_int_equal(r.status, 503);
        assert_non_null(strstr(r.head, "Retry-After: "));
        reply_free(&r);
        sum += took;
        if (took > worst) worst = took;
    }
    print_message("a full line: %d requests, 1.5 MB or short, refused after %.1f ms in the mean and %.1f ms at most\n",
                  N, sum / N * 1e3, worst * 1e3);
    assert_true(sum / N < 0.5);
    for (int i = 0; i <= QUEUE; i++) close(fds[i]);
    buf_free(&large);
    seconds_until_idle(p);
}

/* However they come, all of them get an answer: there are more than the places, and than those on their way out. */
static void everybody_is_answered(void **state)
{
    static const struct { const char *how; int n, pause_ms; size_t body; bool halves; } ways[] = {
        {"at once", 400, 0, 0, false},
        {"the body behind the headers", 200, 0, 0, true},
        {"with 100 KiB each", 100, 0, 100 << 10, false},
        {"silent for a while", 200, 1300, 0, false},
    };
    const place *p = *state;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        static int fds[400];
        int good = 0, refused = 0, n = ways[w].n;
        buf q = {0}, body = {0};
        buf_str(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":4");
        for (size_t i = body.n; i < ways[w].body; i++) buf_str(&body, " ");
        buf_str(&body, "}");
        put_request(&q, "POST", CHAT, "", body.p, body.n);
        size_t head = q.n - body.n;
        for (int i = 0; i < n; i++) {
            fds[i] = dial(p->port);
            if (ways[w].pause_ms == 0) send_all(fds[i], q.p, ways[w].halves ? head : q.n);
        }
        usleep((useconds_t)ways[w].pause_ms * 1000);
        for (int i = 0; i < n && (ways[w].pause_ms || ways[w].halves); i++)
            send_all(fds[i], q.p + (ways[w].halves ? head : 0), q.n - (ways[w].halves ? head : 0));
        for (int i = 0; i < n; i++) {
            reply r;
            read_reply(fds[i], 60, &r);
            close(fds[i]);
            if (r.status != 200 && r.status != 503) fail_msg("%s: client %d got status %d", ways[w].how, i, r.status);
            if (r.status == 503) assert_non_null(strstr(r.head, "Retry-After: "));
            *(r.status == 200 ? &good : &refused) += 1;
            reply_free(&r);
        }
        print_message("%d clients, %s: %d answered, %d refused\n", n, ways[w].how, good, refused);
        assert_true(good >= 1 && good + refused == n);
        buf_free(&q);
        buf_free(&body);
    }
    seconds_until_idle(p);
}

/* Those who came and went at once hold no place, whether their threads have noticed or not. */
static void passers_by(void **state)
{
    const place *p = *state;
    for (int i = 0; i < 300; i++) {
        int fd = dial(p->port);
        if (i % 2) send_all(fd, "GET /he", 7);
        close(fd);
        if (i % 10 == 9) json_decref(call_json(p->port, "/health", NULL, 200));
    }
}

static double health_seconds(const place *p)
{
    double began = now_seconds();
    json_decref(call_json(p->port, "/health", NULL, 200));
    return now_seconds() - began;
}

static void idle_connections(void **state)
{
    const place *p = *state;
    enum { N = 64 };
    int fds[N];
    for (int i = 0; i < N; i++) fds[i] = dial(p->port);
    usleep(1200000);
    double took = health_seconds(p);
    print_message("64 idle connections: /health after %.1f ms\n", took * 1e3);
    assert_true(took < 1);
    for (int i = 0; i < N; i++) close(fds[i]);
}

/* While the worker is busy, and while large bodies are read. */
static void health_does_not_wait(void **state)
{
    const place *p = *state;
    int blocker = begin_leaving(p, RUNNING, false);
    until_running(p);
    size_t n = 4 << 20;
    buf q = {0}, body = {0};
    buf_str(&body, "{\"content\":\"");
    for (size_t i = 0; i < n; i += 5) buf_str(&body, "word ");
    buf_str(&body, "\"}");
    put_request(&q, "POST", "/tokenize", "", body.p, body.n);
    int fd = dial(p->port);
    send_all(fd, q.p, q.n);
    double worst = 0;
    for (int i = 0; i < 20; i++) {
        double took = health_seconds(p);
        if (took > worst) worst = took;
    }
    reply r;
    read_reply(fd, 30, &r);
    close(fd);
    close(blocker);
    print_message("/health beside a running generation and 4 MiB being tokenized: %.1f ms at most\n", worst * 1e3);
    assert_int_equal(r.status, 200);
    assert_true(worst < 1);
    reply_free(&r);
    buf_free(&q);
    buf_free(&body);
    seconds_until_idle(p);
}

/* ---------------------------------------------------------------- slow ones */

/* Sends a byte now and then; returns after how many seconds the server had enough. */
static double dribble(const place *p, const char *start)
{
    int fd = dial(p->port);
    double began = now_seconds();
    char c;
    send_all(fd, start, strlen(start));
    while (now_seconds() - began < 60) {
        struct pollfd f = {.fd = fd, .events = POLLIN};
        if (poll(&f, 1, 200) > 0 && recv(fd, &c, 1, 0) <= 0) break;
        if (!send_all(fd, "x", 1)) break;
    }
    close(fd);
    return now_seconds() - began;
}

static void slow_senders(void **state)
{
    const place *p = *state;
    double head = dribble(p, "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
    double body = dribble(p, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                             "Content-Length: 1000000\r\n\r\n{\"content\":\"");
    print_message("a byte at a time, with 2 s allowed: headers cut after %.1f s, a body after %.1f s\n", head, body);
    assert_true(head >= 1.9 && head < 20 && body >= 1.9 && body < 20);
}

/* Asks for a large answer and reads a byte now and then, or nothing. */
static int slow_reader(const place *p)
{
    buf q = {0}, body = {0};
    buf_str(&body, "{\"content\":\"");
    for (int i = 0; i < 1500000; i++) buf_str(&body, "1 ");
    buf_str(&body, "\"}");
    put_request(&q, "POST", "/tokenize", "", body.p, body.n);
    int fd = dial(p->port), small = 1024;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    send_all(fd, q.p, q.n);
    buf_free(&q);
    buf_free(&body);
    return fd;
}

static void slow_readers(void **state)
{
    const place *p = *state;
    double alone = 0, beside = 0;
    int n = 5;
    for (int i = 0; i < n; i++) {
        double began = now_seconds();
        json_decref(call_json(p->port, CHAT, SHORT, 200));
        alone += now_seconds() - began;
    }
    int fd = slow_reader(p);
    char c;
    assert_int_equal(recv(fd, &c, 1, 0), 1);
    double began_stall = now_seconds();
    for (int i = 0; i < n; i++) {
        double began = now_seconds();
        json_decref(call_json(p->port, CHAT, SHORT, 200));
        beside += now_seconds() - began;
    }
    struct pollfd f = {.fd = fd, .events = 0}; /* only that it ends */
    while (!(f.revents & (POLLERR | POLLHUP)) && now_seconds() - began_stall < 60) poll(&f, 1, 100);
    double cut = now_seconds() - began_stall;
    close(fd);
    print_message("an answer takes %.0f ms, and %.0f ms beside a reader that stalls, who is cut after %.1f s (2 s allowed)\n",
                  alone / n * 1e3, beside / n * 1e3, cut);
    assert_true(cut >= 1.5 && cut < 30);
}

/* ---------------------------------------------------------------- flat */

static void flat(void **state)
{
    const place *p = *state;
    int rounds = full_counts() ? 1000 : 20;
    for (int i = 0; i < rounds / 4 + 1; i++) json_decref(call_json(p->port, CHAT, SHORT, 200));
    long memory = resident_kb();
    int files = open_files();
    for (int i = 0; i < rounds; i++) json_decref(call_json(p->port, CHAT, SHORT, 200));
    for (int i = 0; i < rounds; i++) {
        int fd = begin_leaving(p, RUNNING, i % 2);
        if (i % 4 == 0) until_running(p);
        close(fd);
    }
    seconds_until_idle(p);
    json_decref(call_json(p->port, CHAT, SHORT, 200));
    long more = resident_kb() - memory;
    print_message("%d answers, then %d clients that left: %ld KiB (%.1f %%) and %d descriptors more than before\n",
                  rounds, rounds, more, 100.0 * (double)more / (double)memory, open_files() - files);
    assert_true(open_files() - files <= 4);
    assert_true(more < memory / 10); /* promised: 1 % */
}

/* ---------------------------------------------------------------- the end */

static void drain(void **state)
{
    place p;
    reply r;
    server_opts o = place_opts();
    place_open(&p, &o);
    int fd = send_request(p.port, CHAT, SHORT), waiting = 0;
    while (running_of(&p, &waiting) + waiting == 0 && now_seconds() > 0) {
        struct pollfd f = {.fd = fd, .events = POLLIN};
        if (poll(&f, 1, 1)) break;
    }
    server_drain(p.s, 30); /* what runs may end */
    read_reply(fd, 5, &r);
    close(fd);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    place_close(&p);
    place_open(&p, &o);
    fd = begin_leaving(&p, RUNNING, false);
    until_running(&p);
    double began = now_seconds();
    server_drain(p.s, 1); /* what takes longer is told so */
    double took = now_seconds() - began;
    read_reply(fd, 5, &r);
    close(fd);
    print_message("draining with 1 s allowed took %.1f s\n", took);
    assert_int_equal(r.status, 503);
    assert_true(took >= 0.9 && took < 20);
    reply_free(&r);
    place_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_leave), cmocka_unit_test(dead_entries), cmocka_unit_test(crowd),
        cmocka_unit_test(full_line), cmocka_unit_test(everybody_is_answered),
        cmocka_unit_test(passers_by), cmocka_unit_test(idle_connections),
        cmocka_unit_test(health_does_not_wait), cmocka_unit_test(slow_senders),
        cmocka_unit_test(slow_readers), cmocka_unit_test(flat), cmocka_unit_test(drain),
    };
    return cmocka_run_group_tests(tests, open_place, close_place);
}
