/* transport_loopback.c - the DSP program in an emulator of the Hexagon scalar core and vectors, as a process of its
 * own.  Buffers are files in memory that both map; the other process opens ours by number. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "device/npu/ring.h"
#include "device/npu/transport.h"

enum { VTCM = 8 << 20, PATIENCE = 120 };
static const uint64_t ADDRESSES = UINT64_C(3) << 30;
static const char emulator[] = "qemu-hexagon";

typedef struct {
    npu_transport t;
    npu_ring *ring; /* owned */
    int ring_file;
    pid_t child; /* 0: none */
    double patience;
} loopback;

/* ------------------------------------------------------------ shared memory */

/* A file in memory of so many bytes, mapped; -1: the system refused. */
static int share(size_t bytes, void **at)
{
    const int file = (int)syscall(SYS_memfd_create, "llada-npu", 1 /* closed in programs that are started */);
    if (file < 0) return -1;
    *at = ftruncate(file, (off_t)bytes) ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (*at != MAP_FAILED) return file;
    close(file);
    return -1;
}

static llada_status loopback_take(npu_transport *t, uint32_t bytes, npu_shared *out, llada_err *err)
{
    void *at;
    const int file = share(bytes, &at);
    if (file < 0)
        return llada_fail(err, LLADA_NO_MEMORY, "no shared memory of %u bytes: %s", (unsigned)bytes, os_why(errno));
    *out = (npu_shared){ .id = (uint32_t)file, .at = at, .bytes = bytes };
    return LLADA_OK;
}

static void loopback_give(npu_transport *t, npu_shared *b)
{
    if (!b->at) return;
    munmap(b->at, b->bytes);
    close((int)b->id);
    *b = (npu_shared){ 0 };
}

/* ------------------------------------------------------------ the process */

static long futex(uint32_t *word, int what, uint32_t value, const struct timespec *patience)
{
    return syscall(SYS_futex, word, what, value, patience, NULL, 0);
}

static bool ended(loopback *p)
{
    if (p->child && waitpid(p->child, NULL, WNOHANG) == p->child) p->child = 0;
    return !p->child;
}

static void loopback_stop(npu_transport *t)
{
    loopback *p = (loopback *)t;
    if (ended(p)) return;
    kill(p->child, SIGKILL);
    while (waitpid(p->child, NULL, 0) < 0 && errno == EINTR) {
    }
    p->child = 0;
}

static void loopback_close(npu_transport **t)
{
    loopback *p = t ? (loopback *)*t : NULL;
    if (!p) return;
    loopback_stop(&p->t);
    if (p->ring) munmap(p->ring, sizeof *p->ring);
    if (p->ring_file >= 0) close(p->ring_file);
    mem_free(p);
    *t = NULL;
}

static llada_status start(loopback *p, const char *program, uint32_t n_contexts, llada_err *err)
{
    char own[16], ring[16], vtcm[16], budget[16], contexts[16];
    snprintf(own, sizeof own, "%ld", (long)getpid());
    snprintf(ring, sizeof ring, "%d", p->ring_file);
    snprintf(vtcm, sizeof vtcm, "%u", (unsigned)p->t.vtcm);
    snprintf(budget, sizeof budget, "%u", (unsigned)(p->t.budget >> 20));
    snprintf(contexts, sizeof contexts, "%u", (unsigned)n_contexts);
    char *const args[] = { (char *)emulator, (char *)program, own, ring, vtcm, budget, contexts, NULL };
    char *const environment[] = { NULL };
    const int why = posix_spawnp(&p->child, emulator, NULL, NULL, args, environment);
    if (why == 0) return LLADA_OK;
    p->child = 0;
    return llada_fail(err, LLADA_UNSUPPORTED, "%s can't be started: %s", emulator, os_why(why));
}

/* A moment that is long for a message and short for a person, in seconds; then it is looked whether the other process
 * lives. */
static const double MOMENT = 0.1;

static llada_status loopback_call(npu_transport *t, const void *message, uint32_t bytes, npu_reply *reply,
                                  llada_err *err)
{
    loopback *p = (loopback *)t;
    npu_ring *r = p->ring;
    if (ended(p)) return llada_fail(err, LLADA_IO, "the emulated DSP is gone");
    memcpy(r->message, message, bytes);
    r->bytes = bytes;
    const uint32_t asked = ++r->asked; /* a system call follows: the other side sees it all */
    atomic_thread_fence(memory_order_seq_cst);
    futex(&r->asked, FUTEX_WAKE, 1, NULL);
    const double until = os_seconds() + p->patience;
    for (uint32_t got; (got = *(volatile uint32_t *)&r->answered) != asked;) {
        const double left = until - os_seconds();
        if (left <= 0) return llada_fail(err, LLADA_IO, "the emulated DSP did not answer for %g seconds", p->patience);
        const struct timespec wait = { .tv_nsec = (long)(1e9 * (left < MOMENT ? left : MOMENT)) };
        futex(&r->answered, FUTEX_WAIT, got, &wait);
        if (*(volatile uint32_t *)&r->answered == asked) break;
        if (ended(p)) return llada_fail(err, LLADA_IO, "the emulated DSP ended in the middle of a message");
    }
    atomic_thread_fence(memory_order_seq_cst);
    *reply = r->reply;
    return LLADA_OK;
}

static const npu_transport_calls calls = { "loopback",    loopback_close, loopback_stop,
                                           loopback_take, loopback_give,  loopback_call };

llada_status npu_loopback_open(npu_transport **out, const char *program, const npu_settings *s, llada_err *err)
{
    void *ring = NULL;
    loopback *p = mem_new(sizeof *p);
    if (!p) return llada_fail(err, LLADA_NO_MEMORY, "no memory for the loopback's record");
    p->t = (npu_transport){ .calls = &calls, .budget = s->budget ? s->budget : ADDRESSES };
    p->t.budget = p->t.budget >> 20 << 20; /* told in MiB */
    p->t.vtcm = s->vtcm ? s->vtcm : VTCM;
    p->patience = s->patience > 0 ? s->patience : PATIENCE;
    memcpy(p->t.machine, NPU_EMULATED, sizeof NPU_EMULATED);
    p->ring_file = share(sizeof *p->ring, &ring);
    p->ring = p->ring_file < 0 ? NULL : ring;
    llada_status st = LLADA_OK;
    if (p->ring_file < 0) st = llada_fail(err, LLADA_NO_MEMORY, "no shared memory: %s", os_why(errno));
    if (st == LLADA_OK && access(program, R_OK))
        st = llada_fail(err, LLADA_IO, "the DSP program %.200s can't be read: %s", program, os_why(errno));
    if (st == LLADA_OK) st = start(p, program, s->contexts, err);
    if (st == LLADA_OK) {
        *out = &p->t;
        return LLADA_OK;
    }
    npu_transport *t = &p->t;
    loopback_close(&t);
    return st;
}
