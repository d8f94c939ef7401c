/* port_device.c - port.h on the device.  HMX instructions are words with fixed registers, since no open assembler knows
 * them; three public sources agree on these words.  Nothing of this file has run on a device yet (docs/npu.md). */
#include "device/npu/dsp/hexagon/port_device.h"

#include <string.h>

#include "device/npu/dsp/hexagon/hap.h"

/* ------------------------------------------------------------ opening */

int port_open(port *m)
{
    resource_request want = { { 0 } };
    memset(m, 0, sizeof *m);
    power_request power = { .type = POWER_HMX, .hmx_up = 1 };
    (void)HAP_power_set(m, &power); /* where it is not known, HMX is up anyway or the self-test finds out */
    if (compute_resource_attr_init(&want)) return -1;
    compute_resource_attr_set_serialize(&want, 0);
    if (compute_resource_attr_set_vtcm_param(&want, VTCM_BYTES, 1)) return -1;
    compute_resource_attr_set_hmx_param(&want, 1);
    m->context = compute_resource_acquire(&want, 100000);
    if (!m->context) return -1;
    m->vtcm = compute_resource_attr_get_vtcm_ptr(&want);
    if (!m->vtcm) port_close(m);
    return m->context ? 0 : -1;
}

void port_close(port *m)
{
    if (m->context) compute_resource_release(m->context);
    m->context = 0;
}

void port_begin(port *m) { port_vtcm_free(m); }
uint32_t port_fault(const port *m) { return NPU_RULE_NONE; }
void port_touch(port *m, const void *p, uint32_t n) {}

/* ------------------------------------------------------------ buffers */

uint32_t port_map(port *m, uint32_t id, uint32_t bytes, uint32_t flags, port_buffer *b)
{
    enum { READ_WRITE = 3 };
#if __HEXAGON_ARCH__ >= 75
    void *p = HAP_mmap2(NULL, bytes, READ_WRITE, 0, (int)id, 0);
#else
    void *p = HAP_mmap(NULL, (int)bytes, READ_WRITE, 0, (int)id, 0);
#endif
    if (!p || p == (void *)-1) return NPU_MAP_FAILED;
    *b = (port_buffer){ .id = id, .bytes = bytes, .flags = flags, .at = p, .ddr = p };
    if (flags & NPU_BUFFER_DMA) b->at = NULL;
    m->mapped += bytes;
    return NPU_OK;
}

void port_unmap(port *m, port_buffer *b)
{
    if (!b->ddr) return;
#if __HEXAGON_ARCH__ >= 75
    HAP_munmap2((void *)b->ddr, b->bytes);
#else
    HAP_munmap((void *)b->ddr, (int)b->bytes);
#endif
    m->mapped -= b->bytes;
    b->at = NULL;
    b->ddr = NULL;
}

uint32_t port_mapped(const port *m) { return (uint32_t)(m->mapped >> 10); }

/* Cleaning before invalidating costs little and loses nothing. */
static void clean(const uint8_t *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 64) __asm__ volatile("dccleaninva(%0)" ::"r"(p + i) : "memory");
    __asm__ volatile("barrier" ::: "memory");
}

void port_invalidate(port *m, const port_buffer *b, uint32_t off, uint32_t n) { clean(b->at + off, n); }
void port_flush(port *m, const port_buffer *b, uint32_t off, uint32_t n) { clean(b->at + off, n); }

/* ------------------------------------------------------------ threads */

void port_sleep(port *m, _Atomic uint32_t *word, uint32_t value) { qurt_futex_wait(word, (int)value); }
void port_wake(port *m, _Atomic uint32_t *word) { qurt_futex_wake(word, MAX_THREADS + 1); }

static void begin_thread(void *arg)
{
    device_thread *t = arg;
    const bool ready = !t->vectors || qurt_hvx_lock(VECTORS_OF_128) == 0;
    atomic_store(&t->state, ready ? 1 : 2);
    port_wake(NULL, &t->state);
    if (ready) t->run(t->arg);
    if (ready && t->vectors) qurt_hvx_unlock();
    qurt_thread_exit(0);
}

/* Of the same priority as the thread that messages come on. */
bool port_thread(port *m, uint32_t number, bool vectors, void (*run)(void *), void *arg)
{
    if (number > MAX_THREADS) return false;
    thread_attributes a = { .name = "llada", .bus_priority = 255, .time_test = 0xfffe, .detached = 1 };
    device_thread *t = &m->thread[number];
    a.priority = (uint16_t)qurt_thread_get_priority(qurt_thread_get_id());
    a.stack = t->stack;
    a.stack_bytes = STACK_BYTES;
    t->vectors = vectors;
    t->run = run;
    t->arg = arg;
    atomic_store(&t->state, 0);
    if (qurt_thread_create(&t->id, &a, begin_thread, t)) return false;
    while (atomic_load(&t->state) == 0) port_sleep(m, &t->state, 0);
    if (atomic_load(&t->state) == 1) return true;
    port_join(m, number);
    return false;
}

void port_join(port *m, uint32_t number)
{
    int result;
    (void)qurt_thread_join(m->thread[number].id, &result);
}

/* ------------------------------------------------------------ VTCM and DMA */

void *port_vtcm(port *m, uint32_t bytes, uint32_t align)
{
    const uint32_t at = (m->used + align - 1) & ~(align - 1);
    if (at > VTCM_BYTES || bytes > VTCM_BYTES - at) return NULL;
    m->used = at + bytes;
    return m->vtcm + at;
}

void port_vtcm_free(port *m) { m->used = 0; }
uint32_t port_vtcm_left(const port *m) { return VTCM_BYTES - m->used; }

void port_dma(port *m, void *dst, const port_buffer *b, uint32_t off, uint32_t n)
{
    /* length in 24 bits; bits 28 to 30: the source may be in any cache, the destination is not, order is kept */
    m->dma = (dma_descriptor){ .control = (n & 0xffffff) | 7u << 28, .src = b->ddr + off, .dst = dst };
    __asm__ volatile("release(%0):at\n\tdmstart(%0)" ::"r"(&m->dma) : "memory");
}

void port_dma_wait(port *m)
{
    uint32_t status;
    __asm__ volatile("%0 = dmwait" : "=r"(status)::"memory");
}

/* ------------------------------------------------------------ HMX */

void port_hmx_lock(port *m) { compute_resource_hmx_lock(m->context); }
void port_hmx_unlock(port *m) { compute_resource_hmx_unlock(m->context); }

/* bias = mxmem2(r0) */
void port_hmx_scale(port *m, const uint32_t *table)
{
    register const void *r0 __asm__("r0") = table;
    __asm__ volatile(".word 0x9200c3fe" ::"r"(r0) : "memory");
}

/* mxclracc.hf */
void port_hmx_clear(port *m) { __asm__ volatile(".word 0xa6e0c013" ::: "memory"); }

/* { activation.hf = mxmem(r0, r1):deep; weight.hf = mxmem(r2, r3) } */
void port_hmx_mac(port *m, const half *act, const half *wgt, uint32_t n)
{
    register const void *r0 __asm__("r0") = act;
    register uint32_t r1 __asm__("r1") = n * TILE_BYTES - 1;
    register const void *r2 __asm__("r2") = wgt;
    register uint32_t r3 __asm__("r3") = n * TILE_BYTES - 1;
    __asm__ volatile(".word 0x920041e2\n\t.word 0x9202e3ef" ::"r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}

/* mxmem(r0, r1):after.hf = acc */
void port_hmx_store(port *m, half *out)
{
    register void *r0 __asm__("r0") = out;
    register uint32_t r1 __asm__("r1") = 0;
    __asm__ volatile(".word 0xa6e0e104" ::"r"(r0), "r"(r1) : "memory");
}
