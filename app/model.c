/* model.c - opens models and sessions: the note on the built-in model, the look at free memory, the exit codes. */
#include "model.h"

#include "latency.h"
#include "profile.h"
#include "tools.h"

#include "interrupt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEFAULT_TOKENS = 128 };
#define GB 1e9
#define HUB "https://huggingface.co/mradermacher"

static const char using_builtin[] = "No model given (-m FILE): using tiny-llada, the 6 MB model that is built in.";
static const char about_builtin[] =
    "It was trained on arithmetic, short word problems, sorting, JSON extraction, word puzzles and short stories, and "
    "can do nothing else.\nGeneral models, made by others and not tried by us (8.5 and 8.1 GB; the same line again "
    "continues a broken download):\n"
    "  curl -L -C - -O " HUB "/LLaDA-8B-Instruct-GGUF/resolve/main/LLaDA-8B-Instruct.Q8_0.gguf\n"
    "  curl -L -C - -O " HUB "/Dream-v0-Instruct-7B-GGUF/resolve/main/Dream-v0-Instruct-7B.Q8_0.gguf";

/* ---------------------------------------------------------------- memory */

uint64_t app_memory_free(void) { return tools_free_memory(); }

/* Bytes of the file, or of all files of a split set ("-00001-of-00003.gguf"). */
static uint64_t model_bytes(const char *path)
{
    struct stat st;
    unsigned shard = 0, count = 0;
    int end = 0;
    size_t n = strlen(path);
    if (stat(path, &st) != 0) return 0;
    uint64_t bytes = (uint64_t)st.st_size;
    const char *tail = n > 20 ? path + n - 20 : "";
    bool split = sscanf(tail, "-%5u-of-%5u.gguf%n", &shard, &count, &end) == 2 && end == 20;
    if (!split || count < 2 || count > 1000) return bytes;
    bytes = 0;
    for (unsigned i = 1; i <= count; i++) {
        text name = {0};
        text_fmt(&name, "%.*s-%05u-of-%05u.gguf", (int)(n - 20), path, i, count);
        if (stat(name.p, &st) == 0) bytes += (uint64_t)st.st_size;
        text_free(&name);
    }
    return bytes;
}

/* A mapped file may be larger than memory (slow), one that is read may not; a budget must be there to be used. */
static int check_memory(const options *o)
{
    uint64_t need = model_bytes(o->model), left = app_memory_free();
    if (o->mem_budget) {
        if (!left || (uint64_t)o->mem_budget <= left || need <= left) return EXIT_FINE;
        app_error("--mem-budget: %.1f GB may be used, but only %.1f GB of memory are free", (double)o->mem_budget / GB,
                  (double)left / GB);
        return EXIT_WRONG_USE;
    }
    if (!left || need <= left) return EXIT_FINE;
    double offer = (double)left * 0.9 / (1 << 20);
    if (o->no_mmap) {
        app_error(
            "%s needs %.1f GB of memory and %.1f GB are free; with --mem-budget %.0fM what does not fit is read anew "
            "each pass",
            o->model, (double)need / GB, (double)left / GB, offer);
        return EXIT_WRONG_USE;
    }
    if (!o->quiet)
        app_note("note: %s has %.1f GB and %.1f GB of memory are free: every pass will read the disk again, slowly; "
                 "--mem-budget %.0fM keeps what fits and reads the rest ahead",
                 o->model, (double)need / GB, (double)left / GB, offer);
    return EXIT_FINE;
}

/* "residency,pipeline" to the bits of tools_model_open. */
static int read_without(const char *list, unsigned *bits)
{
    static const char *const names[] = {"residency", "layout", "pipeline"}; /* in the order of their bits */
    *bits = 0;
    for (const char *p = list; p && *p;) {
        size_t n = strcspn(p, ","), k = 0;
        while (k < 3 && (strlen(names[k]) != n || strncmp(names[k], p, n))) k++;
        if (k == 3) {
            app_error("--without: '%.*s' is none of residency, layout, pipeline", (int)n, p);
            return EXIT_WRONG_USE;
        }
        *bits |= 1u << k;
        p += n + (p[n] == ',');
    }
    return EXIT_FINE;
}

/* ---------------------------------------------------------------- models and sessions */

int app_model_open(app_model *am, const options *o, bool about)
{
    llada_model_opts mo;
    llada_err err = {0};
    *am = (app_model){.builtin = !o->model};
    unsigned without;
    int rc = o->model ? check_memory(o) : EXIT_FINE;
    if (!rc) rc = read_without(o->without, &without);
    if (rc) return rc;
    if (am->builtin && !o->quiet) app_note("%s", using_builtin);
    if (am->builtin && !o->quiet && about) app_note("%s", about_builtin);
    llada_model_opts_defaults(&mo);
    mo.use_mmap = !o->no_mmap;
    mo.chat_layout = o->chat_layout;
    mo.mem_budget = (uint64_t)o->mem_budget;
    if (o->mem_budget) mo.read_rate = profile_load(o->model).read_rate;
    mo.device = o->device;
    mo.transport = o->transport;
    mo.npu_memory = (uint64_t)o->npu_memory << 20;
    mo.npu_few_rows = o->npu_few_rows;
    llada_status st = tools_model_open(&am->m, o->model, &mo, without, &err);
    if (st) {
        const char *slash = o->model ? strrchr(o->model, '/') : NULL, *file = slash ? slash + 1 : o->model;
        bool named = !file || strstr(err.text, file);
        app_error("%s%s%s", named ? "" : o->model, named ? "" : ": ", err.text);
        /* a file that cannot be opened is one we cannot run */
        return st == LLADA_IO && o->model ? EXIT_WRONG_USE : app_exit_code(st);
    }
    am->info.size = sizeof am->info;
    llada_model_get_info(am->m, &am->info);
    llada_model_device(am->m, am->device, sizeof am->device);
    am->tell_device = o->device && strcmp(o->device, "cpu") != 0 && !o->quiet;
    if (am->tell_device) app_note("device: %s", am->device);
    return EXIT_FINE;
}

void app_memory_note(const app_model *am, const options *o)
{
    llada_memory m = {.size = sizeof m};
    llada_model_memory(am->m, &m);
    if (!m.budget || o->quiet) return;
    text t = {0};
    text_fmt(&t, "memory: %.1f of %.1f MB; ", (double)m.total / 1e6, (double)m.budget / 1e6);
    if (m.slots)
        text_fmt(&t, "%.1f MB of weights stay, a pass reads %.1f MB%s, overlap %.0f %%", (double)m.held / 1e6,
                 (double)m.streamed / 1e6, m.direct ? "" : " through the page cache", 100 * m.overlap);
    else
        text_str(&t, "the weights stay");
    app_note("%s", t.p);
    text_free(&t);
}

/* Says what became of the device meanwhile. */
void app_model_close(app_model *am)
{
    char now[sizeof am->device] = "";
    if (am->m && am->tell_device) llada_model_device(am->m, now, sizeof now);
    if (now[0] && strcmp(now, am->device) != 0) app_note("device: %s", now);
    llada_model_close(&am->m);
}

int app_session_open(llada_session **s, const app_model *am, const llada_recipe *r, const options *o, int64_t ctx)
{
    llada_session_opts so;
    llada_err err = {0};
    llada_session_opts_defaults(&so);
    so.ctx = (int32_t)(o->ctx ? o->ctx : ctx);
    if (o->threads) so.threads = (int32_t)o->threads;
    if (o->kv) so.kv_f16 = o->kv == 2;
    so.cpu_mask = o->cpu_mask;
    llada_latency table[LLADA_MAX_LATENCY];
    if (r->bucket == 0) {
        so.n_latency = latency_load(am, o, table);
        so.latency = so.n_latency ? table : NULL;
        if (!so.n_latency && !o->quiet)
            app_note("note: bucket=auto, but nothing was measured yet (llada bench forward --save); rows go in 32s");
    }
    interrupt_block();
    llada_status st = llada_session_open(s, am->m, r, &so, &err);
    interrupt_unblock();
    if (st) return app_fail(&err);
    if (o->threads && !o->quiet && llada_session_threads(*s) < o->threads)
        app_note("note: %d of %d threads could be started", (int)llada_session_threads(*s), (int)o->threads);
    interrupt_session(*s);
    return EXIT_FINE;
}

void app_session_close(llada_session **s)
{
    interrupt_session(NULL);
    llada_session_close(s);
}

int app_recipe(const options *o, const char *spec, llada_recipe *r)
{
    char why[512];
    if (opt_recipe(o, spec, r, why, sizeof why)) {
        app_error("%s", why);
        return EXIT_WRONG_USE;
    }
    const char *note = opt_recipe_note(o, r);
    if (note && !o->quiet) app_note("%s", note);
    return EXIT_FINE;
}

void app_note_context(const app_model *am, const options *o, int64_t positions)
{
    if (o->quiet || am->info.n_ctx <= 0 || positions <= am->info.n_ctx) return;
    app_note("note: prompt and canvas may take %lld positions, and the model was trained for %d", (long long)positions,
             (int)am->info.n_ctx);
}

int app_recipe_fit(const options *o, const app_model *am, llada_recipe *r)
{
    llada_recipe own;
    llada_recipe_for(&own, am->m);
    if (am->info.causal && !o->quiet)
        app_note("note: %s is an autoregressive model: it writes from left to right, one token a pass (recipe ar)",
                 am->info.name);
    if (opt_recipe_named(o) || !strcmp(own.name, r->name)) return EXIT_FINE;
    return app_recipe(o, own.name, r);
}

int32_t app_canvas_size(const options *o, const llada_recipe *r, int32_t *max_tokens)
{
    *max_tokens = o->max_tokens >= 0 ? (int32_t)o->max_tokens : r->gen ? -1 : DEFAULT_TOKENS;
    return r->gen && *max_tokens != 0 ? r->gen : *max_tokens;
}

int app_detokenize(const app_model *am, const int32_t *ids, size_t n, bool special, text *out)
{
    llada_err err = {0};
    size_t len = 0;
    if (llada_detokenize(am->m, ids, n, special, NULL, 0, &len, &err)) return app_fail(&err);
    char *buf = app_new(len + 1, 1);
    llada_status st = llada_detokenize(am->m, ids, n, special, buf, len, &len, &err);
    if (!st) text_add(out, buf, len);
    free(buf);
    return st ? app_fail(&err) : EXIT_FINE;
}
