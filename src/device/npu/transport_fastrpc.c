/* transport_fastrpc.c - the device's own DSP by the vendor's library, libcdsprpc.so, which is looked for when it is
 * wanted: nothing of it is needed to build or to run without an NPU.  Messages go by the library's queue, where a reply
 * is waited for only so long; where there is no queue, by synchronous calls, which end when the DSP ends them.  Names
 * and numbers: the vendor's public headers.
 *
 * Tested against a stand-in of our own (tests/fake); it has not met a device yet. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "device/npu/remote.h"
#include "device/npu/transport.h"

enum {
    CDSP = 3,            /* domain */
    UNSIGNED_MODULE = 2, /* session control: code without the vendor's signature may be loaded */
    KILL = 6,            /* session control: ends all that this process runs on the DSP */
    LATENCY = 1,         /* handle control: the processor is kept ready */
    DSP_INFO = 2,
    ARCH_VER = 6,
    SYSTEM_HEAP = 25,
    HEAP_FLAGS = 1,
    MAP_FD_DELAYED = 3, /* the DSP maps when it is told to, and unmaps */
    VTCM = 8 << 20,
    PATIENCE = 10,
    MOST_PATIENCE = 4000,               /* seconds: the library counts microseconds in 32 bits */
    QUEUE_TO_DSP = 4 * NPU_MAX_MESSAGE, /* room for the longest message wherever the last one ended */
    QUEUE_TO_HOST = 16 << 10
};

typedef struct {
    int domain, enable;
} unsigned_module;

typedef struct {
    uint32_t enable, microseconds;
} latency;

typedef struct {
    uint32_t domain, attribute, value;
} dsp_info;

typedef union {
    struct {
        void *at;
        size_t bytes;
    } buffer;
    struct {
        int32_t fd;
        uint32_t offset;
    } file;
} remote_arg;

typedef struct dspqueue dspqueue;
typedef void (*queue_callback)(dspqueue *end, int error, void *context);

typedef struct {
    npu_transport t;
    void *library; /* owned */
    uint64_t handle;
    bool open;
    dspqueue *queue; /* owned; NULL: synchronous calls */
    bool lost;       /* a message that went by the queue may still be under way */
    double patience;
    int (*session_control)(uint32_t what, void *data, uint32_t bytes);
    int (*handle_control)(uint32_t what, void *data, uint32_t bytes);
    int (*handle64_control)(uint64_t handle, uint32_t what, void *data, uint32_t bytes);
    int (*handle64_open)(const char *uri, uint64_t *handle);
    int (*handle64_close)(uint64_t handle);
    int (*handle64_invoke)(uint64_t handle, uint32_t scalars, remote_arg *args);
    void *(*alloc2)(int heap, uint32_t flags, size_t bytes); /* NULL: an older library */
    void *(*alloc)(int heap, uint32_t flags, int bytes);
    void (*release)(void *p);
    int (*to_fd)(void *p);
    int (*map)(int domain, int fd, void *at, int offset, size_t bytes, int flags);
    int (*unmap)(int domain, int fd, void *at, size_t bytes);
    /* times in microseconds */
    int (*queue_create)(int domain, uint32_t flags, uint32_t to_dsp, uint32_t to_host, queue_callback packet,
                        queue_callback error, void *context, dspqueue **end);
    int (*queue_export)(dspqueue *end, uint64_t *id);
    int (*queue_write)(dspqueue *end, uint32_t flags, uint32_t n_buffers, queue_buffer *buffers, uint32_t bytes,
                       const uint8_t *message, uint32_t patience);
    int (*queue_read)(dspqueue *end, uint32_t *flags, uint32_t most_buffers, uint32_t *n_buffers, queue_buffer *buffers,
                      uint32_t room, uint32_t *bytes, uint8_t *message, uint32_t patience);
    int (*queue_close)(dspqueue *end);
} fastrpc;

/* ------------------------------------------------------------ the library */

/* A function's address as POSIX lets one have it. */
static bool find(const fastrpc *p, const char *name, void *function)
{
    void *at = dlsym(p->library, name);
    memcpy(function, &at, sizeof at);
    return at != NULL;
}

/* The name of a function that is needed and missing; NULL: all are there. */
static const char *load(fastrpc *p)
{
    const struct {
        const char *name;
        void *to;
        bool needed;
    } all[] = { { "remote_session_control", &p->session_control, true },
                { "remote_handle_control", &p->handle_control, true },
                { "remote_handle64_control", &p->handle64_control, false },
                { "remote_handle64_open", &p->handle64_open, true },
                { "remote_handle64_close", &p->handle64_close, true },
                { "remote_handle64_invoke", &p->handle64_invoke, true },
                { "rpcmem_alloc2", &p->alloc2, false },
                { "rpcmem_alloc", &p->alloc, true },
                { "rpcmem_free", &p->release, true },
                { "rpcmem_to_fd", &p->to_fd, true },
                { "fastrpc_mmap", &p->map, true },
                { "fastrpc_munmap", &p->unmap, true },
                { "dspqueue_create", &p->queue_create, false },
                { "dspqueue_export", &p->queue_export, false },
                { "dspqueue_write", &p->queue_write, false },
                { "dspqueue_read", &p->queue_read, false },
                { "dspqueue_close", &p->queue_close, false } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!find(p, all[i].name, all[i].to) && all[i].needed) return all[i].name;
    return NULL;
}

/* ------------------------------------------------------------ buffers */

static llada_status fastrpc_take(npu_transport *t, uint32_t bytes, npu_shared *out, llada_err *err)
{
    fastrpc *p = (fastrpc *)t;
    void *at = p->alloc2            ? p->alloc2(SYSTEM_HEAP, HEAP_FLAGS, bytes)
               : bytes <= INT32_MAX ? p->alloc(SYSTEM_HEAP, HEAP_FLAGS, (int)bytes)
                                    : NULL;
    if (!at) return llada_fail(err, LLADA_NO_MEMORY, "the NPU's library gave no buffer of %u bytes", (unsigned)bytes);
    const int fd = p->to_fd(at);
    const int why = fd < 0 ? fd : p->map(CDSP, fd, at, 0, bytes, MAP_FD_DELAYED);
    if (why) {
        p->release(at);
        return llada_fail(err, LLADA_IO, "the NPU's library did not register a buffer of %u bytes (0x%x)",
                          (unsigned)bytes, (unsigned)why);
    }
    memset(at, 0, bytes);
    *out = (npu_shared){ .id = (uint32_t)fd, .at = at, .bytes = bytes };
    return LLADA_OK;
}

static void fastrpc_give(npu_transport *t, npu_shared *b)
{
    fastrpc *p = (fastrpc *)t;
    if (!b->at) return;
    (void)p->unmap(CDSP, (int)b->id, b->at, b->bytes);
    p->release(b->at);
    *b = (npu_shared){ 0 };
}

/* ------------------------------------------------------------ calls */

/* Method in bits 24 to 28, then numbers of input and output buffers. */
static int invoke(fastrpc *p, remote_method method, uint32_t inputs, uint32_t outputs, remote_arg *args)
{
    return p->handle64_invoke(p->handle, (uint32_t)method << 24 | inputs << 16 | outputs << 8, args);
}

static llada_status call(fastrpc *p, const void *message, uint32_t bytes, npu_reply *reply, llada_err *err)
{
    remote_arg args[2] = { { .buffer = { (void *)message, bytes } }, { .buffer = { reply, sizeof *reply } } };
    const int why = invoke(p, REMOTE_MESSAGE, 1, 1, args);
    if (why == 0) return LLADA_OK;
    return llada_fail(err, LLADA_IO, "the call to the NPU failed (0x%x)", (unsigned)why);
}

/* ------------------------------------------------------------ the queue */

/* NULL, or why messages go by calls. */
static const char *open_queue(fastrpc *p, int *why)
{
    uint64_t id;
    remote_arg arg = { .buffer = { &id, sizeof id } };
    const char *failed = NULL;
    *why = 0;
    if (!p->queue_create || !p->queue_export || !p->queue_write || !p->queue_read || !p->queue_close)
        return "the library has no queue";
    if ((*why = p->queue_create(CDSP, 0, QUEUE_TO_DSP, QUEUE_TO_HOST, NULL, NULL, NULL, &p->queue))) {
        p->queue = NULL;
        return "it made no queue";
    }
    if ((*why = p->queue_export(p->queue, &id)))
        failed = "it exported no queue";
    else if ((*why = invoke(p, REMOTE_START, 1, 0, &arg)))
        failed = "the DSP refused the queue";
    if (!failed) return NULL;
    (void)p->queue_close(p->queue);
    p->queue = NULL;
    return failed;
}

/* The DSP's end first: the library closes no queue that is open there.  STOP returns after the message at hand, which a
 * device that hangs never ends; so what runs there is ended before, if a reply is missing and the system does that. */
static void close_queue(fastrpc *p)
{
    int cdsp = CDSP;
    if (!p->queue) return;
    if (!p->lost || p->session_control(KILL, &cdsp, sizeof cdsp)) (void)invoke(p, REMOTE_STOP, 0, 0, NULL);
    (void)p->queue_close(p->queue);
    p->queue = NULL;
    p->lost = false;
}

static uint32_t patience(const fastrpc *p) { return (uint32_t)(p->patience * 1e6); }

static llada_status no_reply(fastrpc *p, int why, llada_err *err)
{
    p->lost = true;
    if (queue_failed_as(why, QUEUE_EXPIRED))
        return llada_fail(err, LLADA_IO, "the NPU did not answer for %g seconds", p->patience);
    return llada_fail(err, LLADA_IO, "the queue to the NPU failed (0x%x)", (unsigned)why);
}

static llada_status read_reply(fastrpc *p, uint32_t seq, npu_reply *reply, llada_err *err)
{
    uint32_t flags, n_buffers, bytes;
    queue_buffer none;
    const int why =
        p->queue_read(p->queue, &flags, 1, &n_buffers, &none, sizeof *reply, &bytes, (uint8_t *)reply, patience(p));
    if (why) return no_reply(p, why, err);
    p->lost = bytes != sizeof *reply || reply->seq != seq;
    if (bytes == sizeof *reply) return LLADA_OK;
    return llada_fail(err, LLADA_IO, "the NPU's reply has %u bytes, not %zu", (unsigned)bytes, sizeof *reply);
}

/* A message that the queue does not take, because it is too long, ends its use: on the DSP, messages come on one thread
 * or on the other. */
static llada_status fastrpc_call(npu_transport *t, const void *message, uint32_t bytes, npu_reply *reply,
                                 llada_err *err)
{
    fastrpc *p = (fastrpc *)t;
    if (!p->open) return llada_fail(err, LLADA_IO, "the NPU's session is closed");
    if (!p->queue) return call(p, message, bytes, reply, err);
    const int why = p->queue_write(p->queue, 0, 0, NULL, bytes, message, patience(p));
    if (why == 0) return read_reply(p, ((const npu_head *)message)->seq, reply, err);
    if (!queue_failed_as(why, QUEUE_BAD_PARAMETER)) return no_reply(p, why, err);
    close_queue(p);
    return call(p, message, bytes, reply, err);
}

static void fastrpc_stop(npu_transport *t)
{
    fastrpc *p = (fastrpc *)t;
    close_queue(p);
    if (p->open) (void)p->handle64_close(p->handle);
    p->open = false;
}

static void fastrpc_close(npu_transport **t)
{
    fastrpc *p = t ? (fastrpc *)*t : NULL;
    if (!p) return;
    fastrpc_stop(&p->t);
    if (p->library) dlclose(p->library);
    mem_free(p);
    *t = NULL;
}

static const npu_transport_calls calls = { "fastrpc",    fastrpc_close, fastrpc_stop,
                                           fastrpc_take, fastrpc_give,  fastrpc_call };

/* ------------------------------------------------------------ opening */

/* What one session can map, by generation of the DSP. */
static uint64_t addresses(uint32_t arch)
{
    const uint64_t mib = UINT64_C(1) << 20;
    return arch >= 0x75 ? 3200 * mib : 2000 * mib;
}

/* Opens the queue if there is one, and names the machine with how it is spoken to. */
static void choose_way(fastrpc *p, unsigned arch)
{
    int why;
    char *to = p->t.machine;
    const char *no_queue = open_queue(p, &why);
    if (!no_queue)
        snprintf(to, sizeof p->t.machine, "Hexagon v%x by queue", arch);
    else if (why)
        snprintf(to, sizeof p->t.machine, "Hexagon v%x by calls, %s (0x%x)", arch, no_queue, (unsigned)why);
    else
        snprintf(to, sizeof p->t.machine, "Hexagon v%x by calls, %s", arch, no_queue);
}

static llada_status open_session(fastrpc *p, llada_err *err)
{
    char uri[160];
    dsp_info info = { .domain = CDSP, .attribute = ARCH_VER };
    unsigned_module allow = { CDSP, 1 };
    latency quick = { 1, 100 };
    int why = p->handle_control(DSP_INFO, &info, sizeof info);
    const uint32_t arch = info.value & 0xff;
    if (why) return llada_fail(err, LLADA_UNSUPPORTED, "the NPU does not say what it is (0x%x)", (unsigned)why);
    if (arch < 0x73)
        return llada_fail(err, LLADA_UNSUPPORTED, "the NPU is a Hexagon v%x; v73 and later are known", (unsigned)arch);
    if ((why = p->session_control(UNSIGNED_MODULE, &allow, sizeof allow)))
        return llada_fail(err, LLADA_UNSUPPORTED, "the NPU takes no code without a signature (0x%x)", (unsigned)why);
    const unsigned skel = arch >= 0x81 ? 0x81 : arch >= 0x79 ? 0x79 : arch >= 0x75 ? 0x75 : 0x73;
    snprintf(uri, sizeof uri, "file:///libllada_npu-v%x.so?llada_npu_skel_handle_invoke&_modver=1.0&_dom=cdsp", skel);
    if ((why = p->handle64_open(uri, &p->handle)))
        return llada_fail(err, LLADA_UNSUPPORTED, "the NPU did not open libllada_npu-v%x.so (0x%x)", skel,
                          (unsigned)why);
    p->open = true;
    if (p->handle64_control) (void)p->handle64_control(p->handle, LATENCY, &quick, sizeof quick);
    choose_way(p, arch);
    if (p->t.budget == 0) p->t.budget = addresses(arch);
    return LLADA_OK;
}

llada_status npu_fastrpc_open(npu_transport **out, const char *library, const npu_settings *s, llada_err *err)
{
    fastrpc *p = mem_new(sizeof *p);
    llada_status st = LLADA_OK;
    if (!p) return llada_fail(err, LLADA_NO_MEMORY, "no memory for the NPU's record");
    p->t = (npu_transport){ .calls = &calls, .budget = s->budget, .vtcm = VTCM };
    p->patience = s->patience > 0 ? s->patience : PATIENCE;
    if (p->patience > MOST_PATIENCE) p->patience = MOST_PATIENCE;
    p->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const char *missing = p->library ? load(p) : NULL;
    if (!p->library)
        st = llada_fail(err, LLADA_UNSUPPORTED, "there is no NPU here that we can use: %.80s is not found", library);
    else if (missing)
        st = llada_fail(err, LLADA_UNSUPPORTED, "%.80s lacks the function %s", library, missing);
    if (st == LLADA_OK) st = open_session(p, err);
    if (st == LLADA_OK) {
        *out = &p->t;
        return LLADA_OK;
    }
    npu_transport *t = &p->t;
    fastrpc_close(&t);
    return st;
}
