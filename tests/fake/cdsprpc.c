/* cdsprpc.c - a stand-in for the vendor's libcdsprpc.so: the same names, behind which the DSP code runs in this process
 * on the strict emulation.  FAKE_CDSPRPC in the environment says what goes wrong, "open=0x80000406" for instance: the
 * function's result.  Of messages, counted from 1:
 *
 *     call=N:RESULT, write=N:RESULT, read=N:RESULT   N goes by a call, or by the queue, and fails there
 *     hang=N     the DSP does not take N; it expires at once, no time passes.  STOP makes the DSP take it
 *     short=N, wrong=N, stale=N   N's reply is too short, is none of ours, is the one before
 *     longest=BYTES, patience=MICROSECONDS   what the queue takes, and what it must be asked with
 *
 * Compiled with FAKE_OLD it has neither rpcmem_alloc2 nor the queue, as older libraries.  A session that is closed
 * before its queue ends the program. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/npu/dsp/dsp.h"
#include "device/npu/dsp/emulate.h"
#include "device/npu/dsp/hexagon/hap.h"
#include "device/npu/dsp/hexagon/queue.h"
#include "device/npu/host_threads.h"
#include "device/npu/remote.h"

#define EXPORT __attribute__((visibility("default")))

enum { MAX_BUFFERS = 64, VTCM = 1 << 20, FIRST_FD = 100 };

typedef union {
    struct {
        void *at;
        size_t bytes;
    } buffer;
    uint64_t pad[2];
} remote_arg;

EXPORT int remote_session_control(uint32_t what, void *data, uint32_t bytes);
EXPORT int remote_handle_control(uint32_t what, void *data, uint32_t bytes);
EXPORT int remote_handle64_control(uint64_t handle, uint32_t what, void *data, uint32_t bytes);
EXPORT int remote_handle64_open(const char *uri, uint64_t *handle);
EXPORT int remote_handle64_close(uint64_t handle);
EXPORT int remote_handle64_invoke(uint64_t handle, uint32_t scalars, remote_arg *args);
EXPORT void *rpcmem_alloc(int heap, uint32_t flags, int bytes);
EXPORT void rpcmem_free(void *p);
EXPORT int rpcmem_to_fd(void *p);
EXPORT int fastrpc_mmap(int domain, int fd, void *at, int offset, size_t bytes, int flags);
EXPORT int fastrpc_munmap(int domain, int fd, void *at, size_t bytes);
#ifndef FAKE_OLD
EXPORT void *rpcmem_alloc2(int heap, uint32_t flags, size_t bytes);
EXPORT int dspqueue_create(int domain, uint32_t flags, uint32_t to_dsp, uint32_t to_host, queue_callback packet,
                           queue_callback error, void *context, dspqueue **end);
EXPORT int dspqueue_export(dspqueue *end, uint64_t *id);
#endif

static struct {
    void *at;
    size_t bytes;
    bool registered;
} buffers[MAX_BUFFERS];
static bool may_load;
static port machine;
static dsp program;
static host_threads threads;
static void *vtcm;
static unsigned messages;

static const char *value_of(const char *name)
{
    const char *all = getenv("FAKE_CDSPRPC"), *at = all ? strstr(all, name) : NULL;
    return at && at[strlen(name)] == '=' ? at + strlen(name) + 1 : "";
}

/* The planted result of a function; 0: none. */
static int planted(const char *function) { return (int)strtoul(value_of(function), NULL, 0); }

/* The same for the message at hand, whose number stands before it. */
static int planted_now(const char *function)
{
    char *end;
    if (strtoul(value_of(function), &end, 0) != messages) return 0;
    return *end == ':' ? (int)strtoul(end + 1, NULL, 0) : 1;
}

/* ------------------------------------------------------------ memory */

void *rpcmem_alloc(int heap, uint32_t flags, int bytes)
{
    if (heap != 25 || bytes <= 0 || planted("alloc")) return NULL;
    for (int i = 0; i < MAX_BUFFERS; i++)
        if (!buffers[i].at) {
            buffers[i].at = aligned_alloc(4096, ((size_t)bytes + 4095) / 4096 * 4096);
            buffers[i].bytes = (size_t)bytes;
            return buffers[i].at;
        }
    return NULL;
}
#ifndef FAKE_OLD
void *rpcmem_alloc2(int heap, uint32_t flags, size_t bytes) { return rpcmem_alloc(heap, flags, (int)bytes); }
#endif

void rpcmem_free(void *p)
{
    for (int i = 0; i < MAX_BUFFERS; i++)
        if (buffers[i].at == p) buffers[i].at = NULL;
    free(p);
}

int rpcmem_to_fd(void *p)
{
    for (int i = 0; i < MAX_BUFFERS; i++)
        if (buffers[i].at == p) return FIRST_FD + i;
    return -1;
}

/* Only delayed registrations: others would take addresses at once. */
int fastrpc_mmap(int domain, int fd, void *at, int offset, size_t bytes, int flags)
{
    const int i = fd - FIRST_FD;
    if (planted("mmap")) return planted("mmap");
    if (domain != 3 || flags != 3 || offset || i < 0 || i >= MAX_BUFFERS || buffers[i].at != at) return 0x8000040d;
    buffers[i].registered = true;
    return 0;
}

int fastrpc_munmap(int domain, int fd, void *at, size_t bytes)
{
    const int i = fd - FIRST_FD;
    if (i < 0 || i >= MAX_BUFFERS || buffers[i].at != at) return 0x8000040d;
    buffers[i].registered = false;
    return 0;
}

/* ------------------------------------------------------------ the DSP's side */

static uint8_t *attach(void *user, uint32_t id, uint32_t bytes)
{
    const uint32_t i = id - FIRST_FD;
    return i < MAX_BUFFERS && buffers[i].registered && buffers[i].bytes >= bytes ? buffers[i].at : NULL;
}
static void detach(void *user, uint32_t id, uint8_t *at, uint32_t bytes) {}
static void *take(void *user, uint32_t bytes) { return calloc(1, bytes); }
static void give(void *user, void *p, uint32_t bytes) { free(p); }

/* ------------------------------------------------------------ the queue */

enum { EXPIRED = (int)0x8000040c, BAD_PARAMETER = (int)0x8000040e, BAD_STATE = (int)0x8000040d, QUEUE_ID = 4711 };

struct dspqueue {
    bool open, full;
    uint32_t bytes;
    uint8_t packet[NPU_MAX_MESSAGE]; /* that this end will read */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* under the lock */
static dspqueue host_end, dsp_end;
static bool hangs, stops, killed;
static npu_reply before; /* the reply that was read last */

static queue served;

static void change(bool *what, bool to)
{
    pthread_mutex_lock(&lock);
    *what = to;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

#ifndef FAKE_OLD
int dspqueue_create(int domain, uint32_t flags, uint32_t to_dsp, uint32_t to_host, queue_callback packet,
                    queue_callback error, void *context, dspqueue **end)
{
    if (planted("create")) return planted("create");
    if (domain != 3 || flags || to_dsp <= NPU_MAX_MESSAGE || to_host <= sizeof(npu_reply) || packet)
        return BAD_PARAMETER;
    host_end.open = true;
    *end = &host_end;
    return 0;
}

int dspqueue_export(dspqueue *end, uint64_t *id)
{
    if (planted("export")) return planted("export");
    *id = QUEUE_ID;
    return 0;
}
#endif

EXPORT int dspqueue_import(uint64_t id, queue_callback packet, queue_callback error, void *context, dspqueue **end)
{
    if (planted("import")) return planted("import");
    if (id != QUEUE_ID || dsp_end.open) return BAD_PARAMETER;
    host_end.full = dsp_end.full = hangs = stops = killed = false;
    dsp_end.open = true;
    *end = &dsp_end;
    return 0;
}

EXPORT int dspqueue_close(dspqueue *end)
{
    if (end == &host_end && dsp_end.open && !killed) return BAD_PARAMETER;
    end->open = false;
    return 0;
}

/* What the host writes; 0: nothing is wrong with it. */
static int look_at_message(uint32_t bytes, uint32_t patience)
{
    if (planted("longest") && bytes > (uint32_t)planted("longest")) return BAD_PARAMETER;
    if (planted("patience") && patience != (uint32_t)planted("patience")) return BAD_STATE;
    messages++;
    hangs = planted_now("hang");
    return planted_now("write");
}

EXPORT int dspqueue_write(dspqueue *end, uint32_t flags, uint32_t n_buffers, queue_buffer *refs, uint32_t bytes,
                          const uint8_t *message, uint32_t patience)
{
    dspqueue *other = end == &host_end ? &dsp_end : &host_end;
    pthread_mutex_lock(&lock);
    int why = bytes > sizeof other->packet || n_buffers ? BAD_PARAMETER : other->full ? EXPIRED : 0;
    if (why == 0 && end == &host_end) why = look_at_message(bytes, patience);
    if (why == 0) {
        memcpy(other->packet, message, bytes);
        other->bytes = bytes;
        other->full = true;
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return why;
}

/* Why an end's reader gets nothing now; 0: it waits, or there is a packet. */
static int nothing(const dspqueue *end)
{
    if (end == &dsp_end) return killed ? BAD_STATE : stops && !end->full ? EXPIRED : 0;
    return hangs ? EXPIRED : planted_now("read");
}

/* What the host reads. */
static void spoil(npu_reply *reply, uint32_t *bytes)
{
    if (planted_now("short")) *bytes -= 8;
    if (planted_now("wrong")) reply->magic ^= 1;
    if (planted_now("stale")) *reply = before;
    before = *reply;
}

EXPORT int dspqueue_read(dspqueue *end, uint32_t *flags, uint32_t most_buffers, uint32_t *n_buffers, queue_buffer *refs,
                         uint32_t room, uint32_t *bytes, uint8_t *message, uint32_t patience)
{
    int why;
    pthread_mutex_lock(&lock);
    while ((why = nothing(end)) == 0 && (!end->full || (end == &dsp_end && hangs))) pthread_cond_wait(&changed, &lock);
    if (why == 0 && end->bytes > room) why = BAD_PARAMETER;
    if (why == 0) {
        memcpy(message, end->packet, end->bytes);
        *bytes = end->bytes;
        *flags = *n_buffers = 0;
        end->full = false;
        if (end == &host_end) spoil((npu_reply *)(void *)message, bytes);
    }
    pthread_mutex_unlock(&lock);
    return why;
}

/* ------------------------------------------------------------ sessions */

/* A message that hangs is never taken when what runs on the DSP ends. */
static int end_process(const void *data, uint32_t bytes)
{
    if (planted("kill")) return planted("kill");
    if (bytes != sizeof(int) || *(const int *)data != 3) return BAD_PARAMETER;
    change(&killed, true);
    return 0;
}

int remote_session_control(uint32_t what, void *data, uint32_t bytes)
{
    if (what == 6) return end_process(data, bytes);
    if (planted("unsigned")) return planted("unsigned");
    may_load = what == 2 && bytes == 8 && ((const int *)data)[0] == 3 && ((const int *)data)[1] == 1;
    return may_load ? 0 : 0x80000414;
}

int remote_handle_control(uint32_t what, void *data, uint32_t bytes)
{
    uint32_t *info = data;
    if (what != 2 || bytes != 12 || info[0] != 3 || info[1] != 6) return 0x80000414;
    if (planted("info")) return planted("info");
    info[2] = planted("arch") ? (uint32_t)planted("arch") : 0x8c75; /* generation in the low byte */
    return 0;
}

int remote_handle64_control(uint64_t handle, uint32_t what, void *data, uint32_t bytes) { return 0; }

int remote_handle64_open(const char *uri, uint64_t *handle)
{
    const emulate_world world = { NULL, attach, detach, take, give, host_threads_of(&threads) };
    if (planted("open")) return planted("open");
    if (!may_load) return 0x80000406; /* unsigned code, not allowed before */
    if (strncmp(uri, "file:///libllada_npu-v", 22) ||
        !strstr(uri, "llada_npu_skel_handle_invoke&_modver=1.0&_dom=cdsp"))
        return 0x80000602;
    vtcm = aligned_alloc(TILE_BYTES, VTCM);
    emulate_init(&machine, &world, vtcm, VTCM, UINT64_C(3) << 30);
    if (!dsp_open(&program, &machine, 0)) return 0x80000402;
    messages = 0;
    *handle = 77;
    return 0;
}

int remote_handle64_close(uint64_t handle)
{
    if (handle != 77 || !vtcm) return 1;
    if (host_end.open || (dsp_end.open && !killed)) abort();
    queue_close(&served);
    dsp_close(&program);
    free(vtcm);
    vtcm = NULL;
    return 0;
}

static int start(const remote_arg *id)
{
    if (planted("start")) return planted("start");
    return id->buffer.bytes == sizeof(uint64_t) ? queue_open(&served, &program, *(const uint64_t *)id->buffer.at) : 1;
}

static int stop(void)
{
    change(&hangs, false);
    change(&stops, true);
    queue_close(&served);
    return 0;
}

static int message(const remote_arg *args)
{
    if (served.end || args[1].buffer.bytes != sizeof(npu_reply)) return 1;
    messages++;
    const int why = planted_now("call");
    if (why == 0) dsp_run(&program, args[0].buffer.at, (uint32_t)args[0].buffer.bytes, args[1].buffer.at);
    return why;
}

int remote_handle64_invoke(uint64_t handle, uint32_t scalars, remote_arg *args)
{
    if (handle != 77 || !vtcm) return 20;
    switch (scalars) {
    case REMOTE_MESSAGE << 24 | 1 << 16 | 1 << 8: return message(args);
    case REMOTE_START << 24 | 1 << 16: return start(args);
    case REMOTE_STOP << 24: return stop();
    default: return 20;
    }
}
