/* stream.c - see stream.h.  Parts are numbered as they are brought in, 0, 1, 2, ...; part number k lies in slot
 * k % slots.  filled counts those that are there, taken those that passes took, given those that are free again. */
#include "device/stream.h"

#include "base/mem.h"
#include "base/monitor.h"
#include "base/task.h"

/* A place in the endless sequence of passes. */
typedef struct {
    uint64_t pass;
    int round, i;
} place;

struct stream {
    monitor *m;   /* owned; guards all below */
    task *thread; /* owned */
    bool ahead, waited; /* waited: a pass wants what is not there */
    bool quit, reading;
    const stream_part *parts;
    int n, again, end, slots;
    uint8_t *room;
    size_t slot_bytes;
    uint64_t filled, taken, given;
    place at[STREAM_MAX_SLOTS]; /* what the slots hold */
    place next, want;           /* to be brought in next; to be taken next */
    uint64_t begun;             /* passes that have begun */
    int rounds;                 /* of the latest */
    bool failed;
    llada_err why;
    stream_stats stats;
};

/* The place behind p when a pass goes `rounds` times through [again, end). */
static place behind(const stream *s, place p, int rounds)
{
    p.i++;
    if (p.i == s->end && s->again < s->end && p.round + 1 < rounds) {
        p.i = s->again;
        p.round++;
    }
    if (p.i == s->n) p = (place){ .pass = p.pass + 1 };
    return p;
}

/* Passes over the rounds when there are none. */
static place settle(const stream *s, place p, int rounds)
{
    if (rounds > 0 || s->again == s->end || p.i != s->again) return p;
    p.i = s->end;
    return p.i < s->n ? p : (place){ .pass = p.pass + 1 };
}

static bool same(place a, place b) { return a.pass == b.pass && a.round == b.round && a.i == b.i; }

/* Where the thread may go on: false while it must wait. */
static bool may_read(stream *s)
{
    if (s->failed || s->n == 0 || s->filled - s->given >= (uint64_t)s->slots) return false;
    if (!s->ahead && !s->waited) return false;
    bool known = s->next.pass < s->begun; /* passes are numbered from 0 */
    if (known && s->next.pass + 1 == s->begun) s->next = settle(s, s->next, s->rounds);
    known = s->next.pass < s->begun;
    return known || s->again == s->end || s->next.i < s->again;
}

static void read_next(stream *s)
{
    const stream_part *p = &s->parts[s->next.i];
    int slot = (int)(s->filled % (uint64_t)s->slots);
    uint8_t *to = s->room + (size_t)slot * s->slot_bytes;
    llada_err why;
    s->reading = true;
    s->at[slot] = s->next;
    monitor_leave(s->m);
    double began = os_seconds();
    llada_status st = os_reader_read(p->from, to, p->at, p->bytes, &why);
    double took = os_seconds() - began;
    monitor_enter(s->m);
    s->reading = false;
    s->stats.transfer += took;
    if (st) {
        s->failed = true;
        llada_fail(&s->why, st, "tensor %.64s can't be read at byte %llu: %s", p->name, (unsigned long long)p->at,
                   why.text);
    } else {
        s->stats.bytes += p->bytes;
        s->stats.parts++;
        s->filled++;
        s->waited = false;
        s->next = behind(s, s->next, s->next.pass + 1 == s->begun ? s->rounds : 1);
    }
    monitor_wake(s->m);
}

static void work(void *user)
{
    stream *s = user;
    monitor_enter(s->m);
    while (!s->quit) {
        if (may_read(s)) read_next(s);
        else monitor_wait(s->m);
    }
    monitor_leave(s->m);
}

llada_status stream_open(stream **out, bool ahead, llada_err *err)
{
    llada_status st;
    stream *s = mem_new(sizeof *s);
    if (!s) return llada_fail(err, LLADA_NO_MEMORY, "no memory for the record of transfers");
    if ((st = monitor_open(&s->m, err)) != LLADA_OK || (st = task_open(&s->thread, err)) != LLADA_OK) {
        stream_close(&s);
        return st;
    }
    s->ahead = ahead;
    task_start(s->thread, work, s);
    *out = s;
    return LLADA_OK;
}

void stream_close(stream **sp)
{
    stream *s = sp ? *sp : NULL;
    if (!s) return;
    if (s->thread) {
        monitor_enter(s->m);
        s->quit = true;
        monitor_wake(s->m);
        monitor_leave(s->m);
        task_close(&s->thread);
    }
    monitor_close(&s->m);
    mem_free(s);
    *sp = NULL;
}

/* Drops what the slots hold; the thread is let finish its read first, which would write into one. */
static void restart(stream *s)
{
    s->failed = true; /* no further read begins */
    while (s->reading) monitor_wait(s->m);
    s->filled = s->taken = s->given = 0;
    s->next = s->want = (place){ .pass = s->begun };
    s->failed = s->waited = false;
}

void stream_set(stream *s, const stream_part *parts, int n, int again, int end, uint8_t *room, int slots,
                size_t slot_bytes)
{
    monitor_enter(s->m);
    restart(s);
    s->parts = parts;
    s->n = n;
    s->again = again;
    s->end = end;
    s->room = room;
    s->slots = slots;
    s->slot_bytes = slot_bytes;
    monitor_wake(s->m);
    monitor_leave(s->m);
}

void stream_begin(stream *s, int rounds)
{
    monitor_enter(s->m);
    if (s->failed || s->taken != s->given || !same(s->want, (place){ .pass = s->begun })) restart(s);
    s->begun++;
    s->rounds = rounds;
    s->want = settle(s, s->want, rounds);
    /* nothing is ahead: the thread may still stand before rounds that no pass went through */
    if (s->filled == s->taken && !s->reading) s->next = s->want;
    monitor_wake(s->m);
    monitor_leave(s->m);
}

llada_status stream_take(stream *s, int i, const atomic_bool *stop, const uint8_t **data, llada_err *err)
{
    llada_status st = LLADA_OK;
    monitor_enter(s->m);
    double began = os_seconds();
    s->waited = s->filled == s->taken;
    if (s->waited) monitor_wake(s->m);
    while (s->filled == s->taken && !s->failed && monitor_wait_unless(s->m, stop)) {
    }
    s->stats.stall += os_seconds() - began;
    int slot = (int)(s->taken % (uint64_t)s->slots);
    if (s->filled == s->taken && !s->failed) {
        st = llada_fail(err, LLADA_CANCELLED, "stopped before part %d of the weights", i);
    } else if (s->filled == s->taken) {
        st = llada_fail(err, s->why.status, "%s", s->why.text);
    } else if (s->want.i != i || !same(s->at[slot], s->want)) {
        st = llada_fail(err, LLADA_BAD_ARG, "part %d of the weights was asked for when part %d is next", i, s->want.i);
    } else {
        *data = s->room + (size_t)slot * s->slot_bytes + s->parts[i].at % OS_READ_ALIGN;
        s->taken++;
        s->want = settle(s, behind(s, s->want, s->rounds), s->rounds);
    }
    monitor_leave(s->m);
    return st;
}

void stream_give(stream *s)
{
    monitor_enter(s->m);
    s->given++;
    monitor_wake(s->m);
    monitor_leave(s->m);
}

void stream_get_stats(stream *s, stream_stats *out)
{
    monitor_enter(s->m);
    *out = s->stats;
    monitor_leave(s->m);
}
