/* api.c - the public entry points: arguments are checked, then handed on.  What each does stands in llada.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "decode/decode.h"
#include "device/cpu/features.h"
#include "device/npu/npu.h"
#include "model/builtin.h"
#include "model/model.h"
#include "tools.h"
#include "tools_info.h"
#include "tools_machine.h"

struct llada_model {
    model *m;            /* owned */
    const device *dev;
    device_weights *w;   /* owned; dev's; borrows m's graph */
    char note[256];      /* why the CPU; the NPU has its own */
};

struct llada_session {
    decoder *d; /* owned */
};

const char *llada_version(void) { return LLADA_VERSION; }

const char *const *llada_cpu_features(size_t *n, uint64_t *found) { return cpu_features(n, found); }

/* Opens the way to the NPU, and closes it again. */
static bool npu_at(llada_device_info *out)
{
    npu_transport *t = NULL;
    llada_err why = {0};
    *out = (llada_device_info){.size = sizeof *out, .name = "npu"};
    out->usable = npu_transport_open(&t, &(npu_settings){0}, &why) == LLADA_OK;
    if (!out->usable) {
        snprintf(out->about, sizeof out->about, "%.255s", why.text);
        return true;
    }
    snprintf(out->about, sizeof out->about, "%s, %llu MiB of addresses; it is tested when a model is opened", t->machine,
             (unsigned long long)(t->budget >> 20));
    t->calls->close(&t);
    return true;
}

bool llada_device_at(size_t i, llada_device_info *out)
{
    size_t n, at = 0;
    uint64_t found = 0;
    const char *const *names = cpu_features(&n, &found);
    if (i > 1 || !out || out->size != sizeof *out) return false;
    if (i == 1) return npu_at(out);
    *out = (llada_device_info){.size = sizeof *out, .name = "cpu", .usable = true};
    out->threads = os_cores() < DECODE_MOST_THREADS ? os_cores() : DECODE_MOST_THREADS;
    for (size_t k = 0; k < n && at < sizeof out->about; k++)
        if (found >> k & 1)
            at += (size_t)snprintf(out->about + at, sizeof out->about - at, "%s%s", at ? " " : "", names[k]);
    if (at == 0) snprintf(out->about, sizeof out->about, "plain C");
    return true;
}

/* ---------------------------------------------------------------- models */

void llada_model_opts_defaults(llada_model_opts *o)
{
    *o = (llada_model_opts){.size = sizeof *o, .use_mmap = true};
}

/* The file's name without its folders: a title for models that carry none. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* What a model takes beside weights and sessions: its header in the page cache, the vocabulary and its indices made of
 * that, and the program itself. */
static size_t beside(const gguf *file) { return 4 * gguf_header_bytes(file) + (1 << 16); }

static device_memory memory_of(const llada_model *lm, const llada_model_opts *o, unsigned without)
{
    uint64_t budget = o->mem_budget < SIZE_MAX / 4 ? o->mem_budget : SIZE_MAX / 4;
    return (device_memory){.file = lm->m->file, .budget = (size_t)budget, .beside = beside(lm->m->file),
                           .read_rate = o->read_rate, .pass_seconds = o->pass_seconds, .without = without};
}

/* On "auto" an NPU that does not serve leaves no trace but the reason. */
static llada_status open_weights(llada_model *lm, const llada_model_opts *o, unsigned without, llada_err *err)
{
    const char *name = o->device ? o->device : "auto";
    const bool only_npu = !strcmp(name, "npu"), only_cpu = !strcmp(name, "cpu");
    const npu_settings s = {.transport = o->transport, .budget = o->npu_memory, .few_rows = o->npu_few_rows};
    llada_err why = {.text = "the CPU was asked for"};
    npu_transport *t = NULL;
    llada_status st = LLADA_OK;
    if (!only_npu && !only_cpu && strcmp(name, "auto") != 0)
        return llada_fail(err, LLADA_BAD_ARG, "'%.40s' is no device: there are cpu, npu and auto", name);
    if (o->mem_budget && only_npu)
        return llada_fail(err, LLADA_UNSUPPORTED, "a memory budget is kept by the CPU device alone, not by the NPU, which "
                                                  "holds all weights and maps as many as its own memory limit allows");
    if (o->mem_budget) snprintf(why.text, sizeof why.text, "a memory budget is kept by the CPU device alone");
    if (!only_cpu && !o->mem_budget)
        st = npu_transport_open(&t, &s, &why);
    /* a wrong name is the caller's to correct */
    if (st == LLADA_BAD_ARG || st == LLADA_NO_MEMORY) return llada_fail(err, st, "%s", why.text);
    snprintf(lm->note, sizeof lm->note, "%s", why.text);
    lm->dev = &device_cpu;
    if (t || only_npu) {
        if ((st = npu_weights_open_on(&lm->w, &lm->m->g, &t, why.text, err))) return st;
        lm->dev = &device_npu;
        if (only_npu || npu_serves(lm->w)) return LLADA_OK;
        npu_note(lm->w, lm->note, sizeof lm->note);
        device_npu.weights_close(&lm->w);
        lm->dev = &device_cpu;
    }
    if (!o->mem_budget) return device_cpu.weights_open(&lm->w, &lm->m->g, err);
    device_memory mem = memory_of(lm, o, without);
    return device_cpu.weights_within(&lm->w, &lm->m->g, &mem, err);
}

llada_status llada_model_open(llada_model **out, const char *path, const llada_model_opts *opts, llada_err *err)
{
    return tools_model_open(out, path, opts, 0, err);
}

llada_status tools_model_open(llada_model **out, const char *path, const llada_model_opts *opts, unsigned without,
                              llada_err *err)
{
    llada_model_opts o;
    llada_model_opts_defaults(&o);
    if (!out) return llada_fail(err, LLADA_BAD_ARG, "no place for the model: out is NULL");
    if (opts && opts->size != sizeof o)
        return llada_fail(err, LLADA_BAD_ARG, "the model options' size is %zu, not %zu", opts->size, sizeof o);
    if (opts) o = *opts;
    gguf *file = NULL;
    char warn[256] = "";
    llada_status st;
    if (path)
        st = gguf_open(&file, path, o.use_mmap || o.mem_budget, warn, sizeof warn, err);
    else
        st = gguf_open_memory(&file, llada_builtin_begin, (size_t)(llada_builtin_end - llada_builtin_begin), warn,
                              sizeof warn, err);
    if (st) return st;
    llada_model *lm = mem_new(sizeof *lm);
    if (!lm) {
        gguf_close(&file);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for the model");
    }
    if ((st = model_open(&lm->m, file, path ? base_name(path) : "tiny-llada", o.chat_layout, err))) goto fail;
    if (warn[0]) memcpy(lm->m->warn, warn, sizeof warn);
    if ((st = open_weights(lm, &o, without, err))) goto fail;
    *out = lm;
    return LLADA_OK;
fail:
    llada_model_close(&lm);
    return st;
}

void llada_model_close(llada_model **mp)
{
    if (!mp || !*mp) return;
    if ((*mp)->w) (*mp)->dev->weights_close(&(*mp)->w);
    model_close(&(*mp)->m);
    mem_free(*mp);
    *mp = NULL;
}

void llada_model_get_info(const llada_model *lm, llada_model_info *out)
{
    const model *m = lm->m;
    *out = (llada_model_info){
        .size = sizeof *out, .name = m->title, .arch = m->arch->name, .chat_layout = m->chat ? chat_name(m->chat) : NULL,
        .n_params = m->n_params, .file_bytes = gguf_file_bytes(m->file), .n_layer = m->n_layer, .n_embd = m->n_embd,
        .n_head = m->n_head, .n_head_kv = m->n_head_kv, .n_ff = m->n_ff, .n_vocab = m->n_vocab, .n_ctx = m->n_ctx,
        .mask_id = m->mask, .eos_id = m->eos, .eot_id = m->eot, .bos_id = m->bos, .warning = m->warn,
        .causal = m->arch->causal, .shift_logits = m->arch->shift_logits || m->arch->causal, .n_expert = m->n_expert,
        .n_expert_used = m->n_expert_used,
    };
}

void llada_model_memory(const llada_model *lm, llada_memory *out)
{
    device_memory_use u;
    if (lm->dev->memory)
        lm->dev->memory(lm->w, &u);
    else
        u = (device_memory_use){0};
    *out = (llada_memory){
        .size = sizeof *out, .budget = u.budget, .total = u.total, .held = u.held, .streamed = u.stream,
        .slot_bytes = u.slot_bytes, .slots = u.slots, .parts = u.parts, .held_parts = u.held_parts, .direct = u.direct,
        .bytes_read = u.bytes, .transfer_seconds = u.transfer, .stall_seconds = u.stall, .passes = u.passes,
        .overlap = u.transfer > u.stall ? 1 - u.stall / u.transfer : 0,
    };
}

const char *llada_model_device(const llada_model *lm, char *buf, size_t cap)
{
    const bool npu = lm->dev == &device_npu;
    if (npu && buf && cap) npu_note(lm->w, buf, cap);
    if (!npu && buf && cap) snprintf(buf, cap, "%s", lm->note);
    return npu && npu_serves(lm->w) ? "npu" : "cpu";
}

/* ---------------------------------------------------------------- text */

llada_status llada_tokenize(const llada_model *m, const char *text, size_t len, bool special, int32_t *ids, size_t cap,
                            size_t *n, llada_err *err)
{
    if (!m || !n || (!text && len) || (!ids && cap))
        return llada_fail(err, LLADA_BAD_ARG, "tokenize: model, text, ids or n is NULL");
    return tok_encode(m->m->tok, text, len, special, ids, cap, n, err);
}

llada_status llada_detokenize(const llada_model *m, const int32_t *ids, size_t n, bool special, char *buf, size_t cap,
                              size_t *len, llada_err *err)
{
    if (!m || !len || (!ids && n) || (!buf && cap))
        return llada_fail(err, LLADA_BAD_ARG, "detokenize: model, ids, buf or len is NULL");
    return tok_decode(m->m->tok, ids, n, special, buf, cap, len, err);
}

llada_status llada_chat(const llada_model *m, const llada_message *msgs, size_t n_msgs, int32_t *ids, size_t cap, size_t *n,
                        llada_err *err)
{
    if (!m || !n || !msgs || !n_msgs || (!ids && cap))
        return llada_fail(err, LLADA_BAD_ARG, "chat: model, messages, ids or n is NULL or empty");
    return chat_encode(m->m->chat, m->m->tok, msgs, n_msgs, ids, cap, n, err);
}

/* ---------------------------------------------------------------- sessions */

void llada_session_opts_defaults(llada_session_opts *o)
{
    *o = (llada_session_opts){.size = sizeof *o, .cpu_mask = UINT64_MAX};
}

void llada_recipe_for(llada_recipe *r, const llada_model *lm)
{
    const model_arch *a = lm->m->arch;
    if (a->causal)
        llada_recipe_named(r, "ar", NULL);
    else if (a == &arch_dream)
        llada_recipe_named(r, "dream", NULL);
    else
        llada_recipe_defaults(r);
}

void llada_request_defaults(llada_request *q) { *q = (llada_request){.size = sizeof *q, .max_tokens = -1}; }

llada_status llada_session_open(llada_session **out, const llada_model *lm, const llada_recipe *r,
                                const llada_session_opts *opts, llada_err *err)
{
    llada_session_opts o;
    llada_recipe def;
    llada_session_opts_defaults(&o);
    if (!out || !lm) return llada_fail(err, LLADA_BAD_ARG, "session: out or model is NULL");
    if (opts && opts->size != sizeof o)
        return llada_fail(err, LLADA_BAD_ARG, "the session options' size is %zu, not %zu", opts->size, sizeof o);
    if (opts) o = *opts;
    if (!r) {
        llada_recipe_for(&def, lm);
        r = &def;
    }
    llada_status st = recipe_check(r, err);
    if (st) return st;
    if (o.threads < 0 || o.threads > LLADA_MAX_THREADS)
        return llada_fail(err, LLADA_BAD_ARG, "%d threads; it can be 0..%d", o.threads, LLADA_MAX_THREADS);
    int gen = r->gen > 0 ? r->gen : DECODE_DEFAULT_GEN;
    decoder_limits lim = {.ctx = o.ctx ? o.ctx : 512 + gen, .threads = o.threads, .kv_f16 = o.kv_f16,
                          .cpu_mask = o.cpu_mask, .latency = o.latency, .n_latency = o.n_latency};
    llada_session *s = mem_new(sizeof *s);
    if (!s) return llada_fail(err, LLADA_NO_MEMORY, "no memory for the session");
    st = decoder_open(&s->d, lm->m, lm->dev, lm->w, r, &lim, err);
    if (st) {
        mem_free(s);
        return st;
    }
    *out = s;
    return LLADA_OK;
}

void llada_session_close(llada_session **sp)
{
    if (!sp || !*sp) return;
    decoder_close(&(*sp)->d);
    mem_free(*sp);
    *sp = NULL;
}

int32_t llada_session_threads(const llada_session *s) { return decoder_threads(s->d); }

llada_status llada_begin(llada_session *s, const llada_request *q, llada_err *err)
{
    if (!s || !q) return llada_fail(err, LLADA_BAD_ARG, "begin: session or request is NULL");
    return decoder_begin(s->d, q, err);
}

llada_status llada_step(llada_session *s, bool *done, llada_err *err)
{
    if (!s || !done) return llada_fail(err, LLADA_BAD_ARG, "step: session or done is NULL");
    return decoder_step(s->d, done, err);
}

llada_status llada_get_result(llada_session *s, llada_result *out, llada_err *err)
{
    if (!s || !out) return llada_fail(err, LLADA_BAD_ARG, "result: session or out is NULL");
    return decoder_result(s->d, out, err);
}

llada_status llada_generate(llada_session *s, const llada_request *q, llada_result *out, llada_err *err)
{
    if (!s || !q || !out) return llada_fail(err, LLADA_BAD_ARG, "generate: session, request or out is NULL");
    llada_status st = decoder_begin(s->d, q, err);
    bool done = false;
    while (st == LLADA_OK && !done) st = decoder_step(s->d, &done, err);
    return st ? st : decoder_result(s->d, out, err);
}

void llada_cancel(llada_session *s)
{
    if (s) decoder_cancel(s->d);
}

llada_status llada_logits(llada_session *s, const int32_t *ids, int32_t n, float *out, llada_err *err)
{
    if (!s || !ids || !out) return llada_fail(err, LLADA_BAD_ARG, "logits: session, ids or out is NULL");
    return decoder_logits(s->d, ids, n, out, err);
}

llada_status llada_likelihood(llada_session *s, const int32_t *prompt, int32_t n_prompt, const int32_t *answer,
                              int32_t n_answer, int32_t samples, double cfg, uint64_t seed, double *out, llada_err *err)
{
    if (!s || (!prompt && n_prompt) || !answer || !out)
        return llada_fail(err, LLADA_BAD_ARG, "likelihood: session, prompt, answer or out is NULL");
    return decoder_likelihood(s->d, prompt, n_prompt, answer, n_answer, samples, cfg, seed, out, err);
}

/* ---------------------------------------------------------------- tools.h */

llada_status tools_schedule(llada_session *s, const int32_t *per_pass, int n, llada_err *err)
{
    return decoder_schedule(s->d, per_pass, n, err);
}

uint64_t tools_free_memory(void) { return os_free_memory(); }

llada_status tools_forward(llada_session *s, int n, llada_err *err) { return decoder_forward(s->d, n, err); }

void tools_pass_work(const llada_model *m, tools_work *out) { machine_pass_work(&m->m->g, out); }

llada_status tools_memory_plan(const llada_model *m, const llada_recipe *r, int ctx, bool kv_f16, uint64_t budget,
                               double read_rate, double pass_seconds, tools_plan *out, llada_err *err)
{
    llada_model_opts o;
    llada_model_opts_defaults(&o);
    o.mem_budget = budget;
    o.read_rate = read_rate;
    o.pass_seconds = pass_seconds;
    device_memory mem = memory_of(m, &o, 0);
    return info_memory_plan(m->m, r, ctx, kv_f16, &mem, out, err);
}

llada_status tools_session_bytes(const llada_model *m, const llada_recipe *r, int ctx, bool kv_f16, tools_memory *out,
                                 llada_err *err)
{
    return info_session_bytes(m->m, r, ctx, kv_f16, out, err);
}
