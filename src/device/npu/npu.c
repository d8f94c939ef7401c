/* npu.c - the NPU device: opening, closing, and who runs a pass. */
#include "device/npu/npu.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/size.h"
#include "device/npu/inside.h"

/* ------------------------------------------------------------ weights */

static void say(device_weights *w, const char *what, const char *why)
{
    snprintf(w->note, sizeof w->note, "%s: %.180s; the CPU serves", what, why);
}

static void go_down(device_weights *w, const char *what, const char *why)
{
    say(w, what, why);
    if (w->t) w->t->calls->stop(w->t);
    atomic_store(&w->down, true);
}

void npu_note(const device_weights *w, char *buf, size_t cap)
{
    monitor_enter(w->lock);
    snprintf(buf, cap, "%s", w->note);
    monitor_leave(w->lock);
}

bool npu_serves(const device_weights *w) { return !atomic_load(&w->down); }
npu_counts npu_counted(const device_weights *w) { return w->counts; }

static void weights_close(device_weights **pw)
{
    device_weights *w = pw ? *pw : NULL;
    if (!w) return;
    if (w->cpu) device_cpu.weights_close(&w->cpu); /* reads what lies in the NPU's buffers */
    if (w->t) {
        npu_unpack(w);
        w->t->calls->close(&w->t);
    }
    monitor_close(&w->lock);
    mem_free(w);
    *pw = NULL;
}

llada_status npu_weights_open_on(device_weights **out, const graph *g, npu_transport **t, const char *why,
                                 llada_err *err)
{
    llada_status st;
    llada_err inner = { 0 };
    device_weights *w = mem_new(sizeof *w);
    if (!w) {
        if (t && *t) (*t)->calls->close(t);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for the record of the weights");
    }
    w->g = g;
    w->t = t ? *t : NULL;
    if (t) *t = NULL;
    atomic_init(&w->down, false);
    if ((st = monitor_open(&w->lock, err))) goto fail;
    if (!w->t)
        go_down(w, "the NPU can't be used", why);
    else if (npu_selftest(w, &inner))
        go_down(w, "the NPU failed its self-test", inner.text);
    else if (npu_pack(w, &inner) || npu_share(w, &inner))
        go_down(w, "the NPU can't be used", inner.text);
    else
        snprintf(w->note, sizeof w->note, "the NPU serves (%s, %s)", w->t->calls->name, w->t->machine);
    if ((st = device_cpu.weights_open(&w->cpu, w->shared.t ? &w->shared : g, err))) goto fail;
    *out = w;
    return LLADA_OK;
fail:
    weights_close(&w);
    return st;
}

llada_status npu_weights_open(device_weights **out, const graph *g, const npu_settings *s, llada_err *err)
{
    npu_transport *t = NULL;
    llada_err why = { 0 };
    llada_status st = npu_transport_open(&t, s, &why);
    if (st == LLADA_BAD_ARG) return llada_fail(err, st, "%s", why.text); /* a wrong name is the user's to correct */
    return npu_weights_open_on(out, g, &t, why.text, err);
}

static llada_status weights_open(device_weights **out, const graph *g, llada_err *err)
{
    return npu_weights_open(out, g, &(npu_settings){ .transport = NULL }, err);
}

/* ------------------------------------------------------------ contexts */

static void npu_close(device_ctx **pc)
{
    device_ctx *c = pc ? *pc : NULL;
    if (!c) return;
    if (c->cpu) device_cpu.close(&c->cpu);
    monitor_enter(c->w->lock);
    if (!atomic_load(&c->w->down) && npu_forget(c, NULL)) go_down(c->w, "the NPU failed", "it did not let a buffer go");
    npu_region_give(c->w, &c->work);
    npu_region_give(c->w, &c->kv);
    monitor_leave(c->w->lock);
    mem_free(c->t);
    mem_free(c->region);
    mem_free(c->is_rows);
    mem_free(c->ops);
    mem_free(c->message);
    mem_free(c);
    *pc = NULL;
}

/* The store of keys and values, rows of whole cache lines.  The line more keeps heads of neighbouring slots off the
 * same sets of a cache. */
static llada_status take_kv(device_ctx *c, device_limits *lim, llada_err *err)
{
    const graph *g = c->w->g;
    size_t bytes;
    c->kv_stride = npu_stride((uint32_t)(g->n_kv_head * g->head_dim)) + NPU_LINE / sizeof(uint16_t);
    if (!size_mul(c->kv_stride * sizeof(uint16_t), (size_t)lim->slots, &bytes) ||
        !size_mul(bytes, 2 * (size_t)g->n_layer, &bytes))
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for %d slots of keys and values", lim->slots);
    llada_status st = npu_region_take(c->w, &c->kv, bytes, 0, -1, err);
    if (st) return st;
    lim->kv_at = c->kv.s.at;
    lim->kv_stride = c->kv_stride;
    return LLADA_OK;
}

/* A context's buffers, the vectors and any one group must be mapped together. */
static llada_status room_ok(const device_ctx *c, llada_err *err)
{
    const device_weights *w = c->w;
    uint64_t group = 0;
    for (int i = 0; i < w->n_groups; i++) group = w->groups[i].s.bytes > group ? w->groups[i].s.bytes : group;
    const uint64_t all = (uint64_t)c->work.s.bytes + c->kv.s.bytes + w->vectors.s.bytes + group;
    if (all <= w->t->budget) return LLADA_OK;
    return llada_fail(err, LLADA_NO_MEMORY, "a session needs %llu bytes mapped at a time, and there are %llu",
                      (unsigned long long)all, (unsigned long long)w->t->budget);
}

/* Buffers and operators for the DSP.  What is missing here makes the CPU serve this context; nothing else changes. */
static llada_status open_on_npu(device_ctx *c, device_limits *lim, llada_err *err)
{
    llada_status st = take_kv(c, lim, err);
    if (st == LLADA_OK) st = device_cpu.open(&c->cpu, c->w->cpu, lim, err);
    if (st == LLADA_OK) st = npu_lay_out(c, err);
    return st ? st : room_ok(c, err);
}

static llada_status npu_open(device_ctx **out, device_weights *w, const device_limits *lim, llada_err *err)
{
    llada_err why = { 0 };
    llada_status st = LLADA_OK;
    device_ctx *c = mem_new(sizeof *c);
    if (!c) return llada_fail(err, LLADA_NO_MEMORY, "no memory for a context");
    c->w = w;
    c->lim = *lim;
    c->lim.kv_f16 =
        true; /* what the NPU computes with; also when the CPU serves, so that the text does not depend on it */
    c->main = lim->kv_of;
    atomic_init(&c->host_wrote_kv, false);
    device_limits own = c->lim;
    if (c->main) own.kv_of = c->main->cpu;
    monitor_enter(w->lock);
    const bool wanted = !c->main && !atomic_load(&w->down) && lim->max_rows > 0 && lim->slots > 0;
    c->on_npu = wanted && open_on_npu(c, &own, &why) == LLADA_OK;
    if (wanted && !c->on_npu) {
        say(w, "the NPU can't be used for a session", why.text);
        if (c->cpu) device_cpu.close(&c->cpu);
        npu_region_give(w, &c->work);
        npu_region_give(w, &c->kv);
        own.kv_at = NULL;
    }
    if (!c->cpu) st = device_cpu.open(&c->cpu, w->cpu, &own, err);
    monitor_leave(w->lock);
    if (st) {
        npu_close(&c);
        return st;
    }
    c->bytes += device_cpu.bytes(c->cpu);
    *out = c;
    return LLADA_OK;
}

/* ------------------------------------------------------------ passes */

/* The DSP runs the layers.  False: it failed, and everything it read is as it was. */
static bool run_layers(device_ctx *c, const pass *p)
{
    llada_err why = { 0 };
    monitor_enter(c->w->lock);
    if (!atomic_load(&c->w->down) && npu_step(c, p, &why)) go_down(c->w, "the NPU failed", why.text);
    const bool done = !atomic_load(&c->w->down);
    monitor_leave(c->w->lock);
    return done;
}

/* A pass that failed is run again by the CPU from its beginning: the keys and values of earlier passes lie in the store
 * that both use, and those of this pass are written again. */
static llada_status npu_run(device_ctx *c, const pass *p, llada_err *err)
{
    llada_status st;
    if (!c->on_npu || atomic_load(&c->w->down)) {
        st = device_cpu.run(c->cpu, p, err);
        if (c->main) atomic_store(&c->main->host_wrote_kv, true);
        return st;
    }
    if ((st = cpu_check(c->cpu, p, err)) || (st = cpu_run_ops(c->cpu, p, 0, c->w->first, err))) return st;
    if (!run_layers(c, p)) return device_cpu.run(c->cpu, p, err);
    return cpu_run_ops(c->cpu, p, c->w->end, c->w->g->n_ops, err);
}

static int npu_threads(const device_ctx *c) { return device_cpu.threads(c->cpu); }
static size_t npu_bytes(const device_ctx *c) { return c->bytes; }

const device device_npu = { "npu", weights_open, weights_close, npu_open, npu_close, npu_run, npu_threads, npu_bytes,
                            NULL,  NULL };
