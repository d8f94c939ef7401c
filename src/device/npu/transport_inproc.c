/* transport_inproc.c - the DSP code in this process: what sanitizers and a debugger look at. */
#include <string.h>

#include "base/mem.h"
#include "device/npu/dsp/dsp.h"
#include "device/npu/dsp/emulate.h"
#include "device/npu/host_threads.h"
#include "device/npu/transport.h"

enum { MAX_SHARED = 256, VTCM = 8 << 20 };
static const uint64_t ADDRESSES = UINT64_C(3) << 30;

typedef struct {
    npu_transport t;
    port m;
    dsp d;
    host_threads threads;
    void *vtcm_memory;
    npu_shared shared[MAX_SHARED]; /* id - 1 is the place; at NULL: free */
} inproc;

/* ------------------------------------------------------------ what the emulation asks for */

static uint8_t *attach(void *user, uint32_t id, uint32_t bytes)
{
    inproc *p = user;
    if (id < 1 || id > MAX_SHARED || !p->shared[id - 1].at || p->shared[id - 1].bytes < bytes) return NULL;
    return p->shared[id - 1].at;
}

static void detach(void *user, uint32_t id, uint8_t *at, uint32_t bytes) {}

static void *take_private(void *user, uint32_t bytes) { return mem_new(bytes); }
static void give_private(void *user, void *p, uint32_t bytes) { mem_free(p); }

/* ------------------------------------------------------------ the transport */

static void release(inproc *p)
{
    for (int i = 0; i < MAX_SHARED; i++) mem_free(p->shared[i].own);
    mem_free(p->vtcm_memory);
    mem_free(p);
}

static void inproc_close(npu_transport **t)
{
    inproc *p = t ? (inproc *)*t : NULL;
    if (!p) return;
    dsp_close(&p->d);
    release(p);
    *t = NULL;
}

static void inproc_stop(npu_transport *t) {} /* its threads work only while a call waits for them */

/* mem_new aligns to half a cache line of the DSP; it looks at more. */
static void *align(void *p, uintptr_t to) { return (uint8_t *)p + (to - (uintptr_t)p % to) % to; }

static llada_status inproc_take(npu_transport *t, uint32_t bytes, npu_shared *out, llada_err *err)
{
    inproc *p = (inproc *)t;
    uint32_t i = 0;
    while (i < MAX_SHARED && p->shared[i].at) i++;
    void *own = i < MAX_SHARED ? mem_new((size_t)bytes + NPU_LINE) : NULL;
    if (!own) return llada_fail(err, LLADA_NO_MEMORY, "no memory for a shared buffer of %u bytes", (unsigned)bytes);
    p->shared[i] = (npu_shared){ .id = i + 1, .at = align(own, NPU_LINE), .bytes = bytes, .own = own };
    *out = p->shared[i];
    return LLADA_OK;
}

static void inproc_give(npu_transport *t, npu_shared *b)
{
    inproc *p = (inproc *)t;
    if (!b->at) return;
    mem_free(b->own);
    p->shared[b->id - 1] = (npu_shared){ 0 };
    *b = (npu_shared){ 0 };
}

static llada_status inproc_call(npu_transport *t, const void *message, uint32_t bytes, npu_reply *reply, llada_err *err)
{
    inproc *p = (inproc *)t;
    dsp_run(&p->d, message, bytes, reply);
    return LLADA_OK;
}

static const npu_transport_calls calls = { "inproc", inproc_close, inproc_stop, inproc_take, inproc_give, inproc_call };

llada_status npu_inproc_open(npu_transport **out, const npu_settings *s, llada_err *err)
{
    const uint32_t vtcm = s->vtcm ? s->vtcm : VTCM;
    inproc *p = mem_new(sizeof *p);
    if (p) p->vtcm_memory = mem_new((size_t)vtcm + TILE_BYTES);
    if (!p || !p->vtcm_memory) {
        mem_free(p);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for an emulated DSP with %u bytes of VTCM", (unsigned)vtcm);
    }
    const emulate_world world = { p, attach, detach, take_private, give_private, host_threads_of(&p->threads) };
    p->t = (npu_transport){ .calls = &calls, .budget = s->budget ? s->budget : ADDRESSES, .vtcm = vtcm };
    memcpy(p->t.machine, NPU_EMULATED, sizeof NPU_EMULATED);
    emulate_init(&p->m, &world, align(p->vtcm_memory, TILE_BYTES), vtcm, p->t.budget);
    if (!dsp_open(&p->d, &p->m, s->contexts)) {
        release(p);
        return llada_fail(err, LLADA_NO_MEMORY, "the system gave no thread for an emulated HMX unit");
    }
    *out = &p->t;
    return LLADA_OK;
}
