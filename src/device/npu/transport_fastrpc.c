/* transport_fastrpc.c - the device's own DSP by the vendor's library, libcdsprpc.so, which is looked for when it is
 * wanted: nothing of it is needed to build or to run without an NPU.  Calls are synchronous; the library's queue, which
 * is quicker, is not used yet.  Names and numbers: the vendor's public headers.
 *
 * Tested against a stand-in of our own (tests/fake); it has not met a device yet. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "device/npu/transport.h"

enum {
    CDSP = 3,            /* domain */
    UNSIGNED_MODULE = 2, /* session control: code without the vendor's signature may be loaded */
    LATENCY = 1,         /* handle control: the processor is kept ready */
    DSP_INFO = 2,
    ARCH_VER = 6,
    SYSTEM_HEAP = 25,
    HEAP_FLAGS = 1,
    MAP_FD_DELAYED = 3, /* the DSP maps when it is told to, and unmaps */
    METHOD_MESSAGE = 2,
    VTCM = 8 << 20
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

typedef struct {
    npu_transport t;
    void *library; /* owned */
    uint64_t handle;
    bool open;
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
                { "fastrpc_munmap", &p->unmap, true } };
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
static uint32_t scalars(uint32_t method, uint32_t inputs, uint32_t outputs)
{
    return method << 24 | inputs << 16 | outputs << 8;
}

static llada_status fastrpc_call(npu_transport *t, const void *message, uint32_t bytes, npu_reply *reply,
                                 llada_err *err)
{
    fastrpc *p = (fastrpc *)t;
    remote_arg args[2] = { { .buffer = { (void *)message, bytes } }, { .buffer = { reply, sizeof *reply } } };
    if (!p->open) return llada_fail(err, LLADA_IO, "the NPU's session is closed");
    const int why = p->handle64_invoke(p->handle, scalars(METHOD_MESSAGE, 1, 1), args);
    if (why == 0) return LLADA_OK;
    return llada_fail(err, LLADA_IO, "the call to the NPU failed (0x%x)", (unsigned)why);
}

static void fastrpc_stop(npu_transport *t)
{
    fastrpc *p = (fastrpc *)t;
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
    snprintf(p->t.machine, sizeof p->t.machine, "Hexagon v%x", (unsigned)arch);
    if (p->t.budget == 0) p->t.budget = addresses(arch);
    return LLADA_OK;
}

llada_status npu_fastrpc_open(npu_transport **out, const char *library, const npu_settings *s, llada_err *err)
{
    fastrpc *p = mem_new(sizeof *p);
    llada_status st = LLADA_OK;
    if (!p) return llada_fail(err, LLADA_NO_MEMORY, "no memory for the NPU's record");
    p->t = (npu_transport){ .calls = &calls, .budget = s->budget, .vtcm = VTCM };
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
