/* emulate.c - strict emulation: what the machine would do, and a fault for what it would not forgive.
 *
 * - Loads and stores go to a private copy of each buffer, which stands for the cache: invalidating copies from the
 *   host's memory, flushing to it.  Before the first invalidation a copy holds NaN.
 * - DMA moves nothing before it is waited for; until then the destination holds NaN.
 * - Accumulators hold NaN after they were stored, VTCM after it was given back.
 * - Buffers take from a budget of addresses, which can be set lower than any machine's.
 * - It is known which thread calls: what one has locked or started is not another's. */
#include "device/npu/dsp/emulate.h"

#include <string.h>

#include "device/npu/dsp/half.h"

enum { POISON = 0xff }; /* as halves and as floats: NaN */

static void broke(port *m, npu_rule rule)
{
    uint32_t none = NPU_RULE_NONE;
    atomic_compare_exchange_strong(&m->fault, &none, rule);
}

static bool aligned(const void *p, uintptr_t to) { return (uintptr_t)p % to == 0; }

void emulate_init(port *m, const emulate_world *world, void *vtcm, uint32_t vtcm_bytes, uint64_t budget)
{
    memset(m, 0, sizeof *m);
    atomic_init(&m->busy, 0);
    atomic_init(&m->fault, NPU_RULE_NONE);
    m->world = *world;
    m->vtcm = vtcm;
    m->vtcm_bytes = vtcm_bytes;
    m->budget = budget;
    memset(vtcm, POISON, vtcm_bytes);
}

/* ------------------------------------------------------------ threads */

static uintptr_t self(const port *m) { return m->world.threads.self(m->world.threads.user); }

void port_sleep(port *m, _Atomic uint32_t *word, uint32_t value)
{
    m->world.threads.sleep(m->world.threads.user, word, value);
}

void port_wake(port *m, _Atomic uint32_t *word) { m->world.threads.wake(m->world.threads.user, word); }

static void enter(port *m)
{
    uint32_t nobody = 0;
    if (atomic_compare_exchange_strong(&m->busy, &nobody, 1)) return;
    while (atomic_exchange(&m->busy, 2) != 0) port_sleep(m, &m->busy, 2);
}

static void leave(port *m)
{
    if (atomic_exchange(&m->busy, 0) == 2) port_wake(m, &m->busy);
}

static void begin_thread(void *arg)
{
    emulate_thread *t = arg;
    enter(t->m);
    t->self = self(t->m);
    leave(t->m);
    t->run(t->arg);
}

bool port_thread(port *m, uint32_t number, bool vectors, void (*run)(void *), void *arg)
{
    if (number > MAX_THREADS) return false;
    enter(m);
    m->thread[number] = (emulate_thread){ .m = m, .run = run, .arg = arg, .vectors = vectors };
    leave(m);
    return m->world.threads.start(m->world.threads.user, number, begin_thread, &m->thread[number]);
}

void port_join(port *m, uint32_t number)
{
    m->world.threads.join(m->world.threads.user, number);
    enter(m);
    m->thread[number].self = 0;
    leave(m);
}

/* The calling thread; NULL: one that nobody has told of. */
static emulate_thread *caller(port *m)
{
    const uintptr_t me = self(m);
    for (uint32_t i = 0; i <= MAX_THREADS; i++)
        if (m->thread[i].self == me) return &m->thread[i];
    return NULL;
}

void port_begin(port *m)
{
    atomic_store(&m->fault, NPU_RULE_NONE);
    enter(m);
    m->thread[MAX_THREADS] = (emulate_thread){ .self = self(m) };
    m->n_dma = 0;
    m->locked_by = 0;
    m->scaled = m->counting = false;
    leave(m);
    port_vtcm_free(m);
}

uint32_t port_fault(const port *m) { return atomic_load(&m->fault); }

/* ------------------------------------------------------------ buffers */

uint32_t port_map(port *m, uint32_t id, uint32_t bytes, uint32_t flags, port_buffer *b)
{
    if (m->mapped + bytes > m->budget) return NPU_NO_ADDRESS;
    uint8_t *ddr = m->world.attach(m->world.user, id, bytes);
    if (!ddr) return NPU_MAP_FAILED;
    *b = (port_buffer){ .id = id, .bytes = bytes, .flags = flags, .ddr = ddr };
    if (!(flags & NPU_BUFFER_DMA)) {
        b->at = m->world.take(m->world.user, bytes);
        if (!b->at) {
            m->world.detach(m->world.user, id, ddr, bytes);
            b->ddr = NULL;
            return NPU_MAP_FAILED;
        }
        memset(b->at, POISON, bytes);
    }
    m->mapped += bytes;
    return NPU_OK;
}

void port_unmap(port *m, port_buffer *b)
{
    if (!b->ddr) return;
    if (b->at) m->world.give(m->world.user, b->at, b->bytes);
    m->world.detach(m->world.user, b->id, (uint8_t *)b->ddr, b->bytes);
    m->mapped -= b->bytes;
    b->at = NULL;
    b->ddr = NULL;
}

uint32_t port_mapped(const port *m) { return (uint32_t)(m->mapped >> 10); }

/* A cache operation on these bytes can be done. */
static bool lines_ok(port *m, const port_buffer *b, uint32_t off, uint32_t n)
{
    if (off > b->bytes || n > b->bytes - off || !b->at) {
        broke(m, NPU_RULE_BUFFER);
        return false;
    }
    /* part of a line would take what the other side wrote beside it along */
    if (off % NPU_LINE != 0 || n % NPU_LINE != 0) {
        broke(m, NPU_RULE_ALIGN);
        return false;
    }
    return true;
}

void port_invalidate(port *m, const port_buffer *b, uint32_t off, uint32_t n)
{
    if (lines_ok(m, b, off, n)) memcpy(b->at + off, b->ddr + off, n);
}

void port_flush(port *m, const port_buffer *b, uint32_t off, uint32_t n)
{
    if (lines_ok(m, b, off, n)) memcpy((uint8_t *)b->ddr + off, b->at + off, n);
}

/* ------------------------------------------------------------ VTCM and DMA */

void *port_vtcm(port *m, uint32_t bytes, uint32_t align)
{
    uint32_t at = (m->vtcm_used + align - 1) / align * align;
    if (at > m->vtcm_bytes || bytes > m->vtcm_bytes - at) return NULL;
    m->vtcm_used = at + bytes;
    return m->vtcm + at;
}

void port_vtcm_free(port *m)
{
    memset(m->vtcm, POISON, m->vtcm_used);
    m->vtcm_used = 0;
}

uint32_t port_vtcm_left(const port *m) { return m->vtcm_bytes - m->vtcm_used; }

/* n bytes at p lie in what was given out of VTCM. */
static bool in_vtcm(const port *m, const void *p, uint32_t n)
{
    uintptr_t at = (uintptr_t)p, lo = (uintptr_t)m->vtcm;
    return at >= lo && at - lo <= m->vtcm_used && n <= m->vtcm_used - (at - lo);
}

static bool under_way(const port *m, const void *p, uint32_t n)
{
    const uint8_t *at = p;
    for (uint32_t i = 0; i < m->n_dma; i++)
        if (at < m->dma[i].dst + m->dma[i].n && m->dma[i].dst < at + n) return true;
    return false;
}

void port_touch(port *m, const void *p, uint32_t n)
{
    if (!in_vtcm(m, p, n)) broke(m, NPU_RULE_VTCM);
    enter(m);
    emulate_thread *t = caller(m);
    if (t) t->vectors = true;
    if (under_way(m, p, n)) broke(m, NPU_RULE_DMA);
    leave(m);
}

void port_dma(port *m, void *dst, const port_buffer *b, uint32_t off, uint32_t n)
{
    if (!in_vtcm(m, dst, n)) {
        broke(m, NPU_RULE_VTCM);
    } else if (!b->ddr || off > b->bytes || n > b->bytes - off) {
        broke(m, NPU_RULE_BUFFER);
    } else if (!aligned(dst, NPU_LINE)) {
        broke(m, NPU_RULE_ALIGN);
    } else {
        enter(m);
        if (m->n_dma == MAX_DMA || under_way(m, dst, n)) {
            broke(m, NPU_RULE_DMA);
        } else {
            memset(dst, POISON, n);
            m->dma[m->n_dma++] = (emulate_dma){ .dst = dst, .src = b->ddr + off, .n = n, .by = self(m) };
        }
        leave(m);
    }
}

void port_dma_wait(port *m)
{
    enter(m);
    uint32_t left = 0;
    for (uint32_t i = 0; i < m->n_dma; i++) {
        if (m->dma[i].by == self(m))
            memcpy(m->dma[i].dst, m->dma[i].src, m->dma[i].n);
        else
            m->dma[left++] = m->dma[i];
    }
    m->n_dma = left;
    leave(m);
}

/* ------------------------------------------------------------ HMX */

void port_hmx_lock(port *m)
{
    enter(m);
    const emulate_thread *t = caller(m);
    if (m->locked_by || (t && t->vectors)) broke(m, NPU_RULE_LOCK);
    m->locked_by = self(m);
    leave(m);
}

/* The calling thread holds the lock.  If not, nothing is done: the unit is another's. */
static bool locked(port *m)
{
    enter(m);
    const bool mine = m->locked_by == self(m);
    leave(m);
    if (!mine) broke(m, NPU_RULE_LOCK);
    return mine;
}

void port_hmx_unlock(port *m)
{
    if (!locked(m)) return;
    m->scaled = m->counting = false;
    enter(m);
    m->locked_by = 0;
    leave(m);
}

static bool operand_ok(port *m, const void *p, uint32_t n, uint32_t align)
{
    if (!locked(m)) return false;
    if (!in_vtcm(m, p, n)) {
        broke(m, NPU_RULE_VTCM);
        return false;
    }
    if (!aligned(p, align)) broke(m, NPU_RULE_ALIGN);
    enter(m);
    const bool early = under_way(m, p, n);
    leave(m);
    if (early) broke(m, NPU_RULE_DMA);
    return true;
}

void port_hmx_scale(port *m, const uint32_t *table)
{
    if (!operand_ok(m, table, 256, 256)) return;
    for (int i = 0; i < TILE; i++) {
        m->scale[i] = widen((uint16_t)table[i]);
        m->bias[i] = widen((uint16_t)(table[i] >> 16));
    }
    m->scaled = true;
}

void port_hmx_clear(port *m)
{
    if (!locked(m)) return;
    memset(m->acc, 0, sizeof m->acc);
    m->counting = true;
}

static uint32_t place(uint32_t row, uint32_t col) { return row / 2 * 64 + col * 2 + (row & 1); }

/* Sums of floats, each row's products in rising k.  A product with zero is left out: of finite weights it is nothing,
 * and most passes fill only part of their last tile. */
static void multiply(float *acc, const half *act, const half *wgt)
{
    float w[TILE_VALUES]; /* [k][column] */
    for (uint32_t k = 0; k < TILE; k++)
        for (uint32_t c = 0; c < TILE; c++) w[k * TILE + c] = widen(wgt[place(k, c)]);
    for (uint32_t r = 0; r < TILE; r++)
        for (uint32_t k = 0; k < TILE; k++) {
            const half h = act[place(r, k)];
            if (!(h & 0x7fff)) continue;
            const float a = widen(h);
            for (uint32_t c = 0; c < TILE; c++) acc[r * TILE + c] += a * w[k * TILE + c];
        }
}

void port_hmx_mac(port *m, const half *act, const half *wgt, uint32_t n)
{
    if (n < 1 || n > MAX_TILES) broke(m, NPU_RULE_RANGE);
    if (n < 1 || n > MAX_TILES) return;
    bool here = operand_ok(m, act, n * TILE_BYTES, TILE_BYTES) && operand_ok(m, wgt, n * TILE_BYTES, NPU_LINE);
    if (!here) return;
    if (!m->counting) broke(m, NPU_RULE_STATE);
    for (uint32_t i = 0; i < n; i++) multiply(m->acc, act + i * TILE_VALUES, wgt + i * TILE_VALUES);
}

void port_hmx_store(port *m, half *out)
{
    if (!operand_ok(m, out, TILE_BYTES, TILE_BYTES)) return;
    if (!m->counting || !m->scaled) broke(m, NPU_RULE_STATE);
    for (uint32_t r = 0; r < TILE; r++)
        for (uint32_t c = 0; c < TILE; c++) out[place(r, c)] = narrow(m->acc[r * TILE + c] * m->scale[c] + m->bias[c]);
    memset(m->acc, POISON, sizeof m->acc);
    m->counting = false;
}
