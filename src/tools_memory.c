/* tools_memory.c - the memory runtime seen from outside: what a budget would do, and what the machine's storage and
 * memory can do. */
#include <string.h>

#include "base/mem.h"
#include "base/os_reader.h"
#include "tools_info.h"
#include "device/weight_plan.h"

/* ---------------------------------------------------------------- rates */

enum { PIECE = 8 << 20, PIECES = 4, COPY = 64 << 20 };
static const double READ_SECONDS = 2, COPY_SECONDS = 0.1;

/* The file is gone through once, into as many places as the memory runtime has slots: reads into one place only are
 * quicker, as it stays in the processor's cache.  What is already in the page cache is read from the storage all the
 * same where reads are direct. */
static llada_status measure_reads(const char *path, const os_file *f, uint8_t *room, tools_rates *out, llada_err *err)
{
    os_reader *r;
    llada_status st = os_reader_open(&r, path, f, err);
    if (st) return st;
    out->direct = os_reader_direct(r);
    double began = os_seconds();
    for (uint64_t at = 0; st == LLADA_OK && at < f->len && out->seconds < READ_SECONDS; at += PIECE) {
        size_t n = f->len - at < PIECE ? (size_t)(f->len - at) : PIECE;
        st = os_reader_read(r, room + at % (PIECES * (uint64_t)PIECE), at, n, err);
        out->read_bytes += n;
        out->seconds = os_seconds() - began;
    }
    os_reader_close(&r);
    if (out->seconds > 0) out->read_rate = (double)out->read_bytes / out->seconds;
    return st;
}

static void measure_copies(uint8_t *room, tools_rates *out)
{
    double began = os_seconds(), took = 0;
    uint64_t n = 0;
    do {
        memcpy(room, room + COPY, COPY);
        room[COPY] ^= room[n % COPY]; /* so that no copy can be left out */
        n += COPY;
        took = os_seconds() - began;
    } while (took < COPY_SECONDS);
    out->copy_rate = (double)n / took;
}

llada_status tools_measure(const char *path, tools_rates *out, llada_err *err)
{
    os_file f;
    *out = (tools_rates){.read_rate = 0};
    llada_status st = os_map(&f, path, true, err);
    if (st) return st;
    uint8_t *raw = mem_new(2 * (size_t)COPY + OS_READ_ALIGN);
    if (raw) {
        uint8_t *room = raw + OS_READ_ALIGN - (uintptr_t)raw % OS_READ_ALIGN;
        os_large_pages(raw, 2 * (size_t)COPY + OS_READ_ALIGN); /* as the memory runtime has them */
        memset(room, 1, 2 * (size_t)COPY); /* pages are there before anything is timed */
        st = measure_reads(path, &f, room, out, err);
        if (st == LLADA_OK) measure_copies(room, out);
    } else {
        st = llada_fail(err, LLADA_NO_MEMORY, "no memory to measure with");
    }
    mem_free(raw);
    os_unmap(&f);
    return st;
}

/* ---------------------------------------------------------------- plans */

/* "blk.7.ffn_down.weight" -> "ffn_down". */
static void group_name(char *out, size_t cap, const char *name)
{
    const char *from = name, *end;
    if (!strncmp(name, "blk.", 4) && (end = strchr(name + 4, '.')) != NULL) from = end + 1;
    end = strchr(from, '.');
    size_t n = end ? (size_t)(end - from) : strlen(from);
    n = n < cap ? n : cap - 1;
    memcpy(out, from, n);
    out[n] = 0;
}

static void add_group(tools_plan *out, const char *of, size_t bytes, bool held)
{
    char name[sizeof out->group[0].name];
    int k = 0, most = (int)(sizeof out->group / sizeof out->group[0]);
    group_name(name, sizeof name, of);
    while (k < out->n_groups && strcmp(out->group[k].name, name)) k++;
    if (k == most) k--; /* the last one takes the rest */
    if (k == out->n_groups) {
        memcpy(out->group[k].name, name, sizeof name);
        out->n_groups++;
    }
    *(held ? &out->group[k].held : &out->group[k].streamed) += bytes;
}

static void tell(const model *m, const weight_plan *p, tools_plan *out)
{
    const residency *r = &p->r;
    for (int i = 0; i < p->n; i++) add_group(out, m->g.t[p->part[i].id].name, p->part[i].room, r->held[i]);
    out->use.total = p->total;
    out->use.held = r->held_bytes + (p->table_held ? p->whole_table.room : 0);
    out->use.streamed = r->stream_bytes;
    out->use.slots = r->slots;
    out->use.slot_bytes = r->slot_bytes;
    out->use.parts = p->n;
    out->use.held_parts = r->n_held;
    out->contexts = p->contexts;
    out->fixed = p->fixed;
    out->table_held = p->table < 0 || p->table_held;
    out->seconds = r->seconds;
    out->read = r->read;
    out->compute = r->compute;
}

llada_status info_memory_plan(const model *m, const llada_recipe *r, int ctx, bool kv_f16, const device_memory *mem,
                              tools_plan *out, llada_err *err)
{
    weight_plan p;
    tools_memory session;
    *out = (tools_plan){.use = {.size = sizeof out->use, .budget = mem->budget}, .read_rate = mem->read_rate};
    llada_status st = info_session_bytes(m, r, ctx, kv_f16, &session, err);
    if (st) return st;
    out->work = session.work;
    out->work_sum = session.sum;
    out->work_live = session.live;
    st = weight_plan_make(&p, &m->g, mem, session.kv + session.work, 0, err);
    if (st) return st;
    tell(m, &p, out);
    weight_plan_free(&p);
    return LLADA_OK;
}
