/* test_npu_emulate.c - the strict emulation: mistakes planted in kernels, one at a time, are noticed, and the same
 * kernel without the mistake is not complained about; messages of strangers give a status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "device/npu/dsp/dsp.h"
#include "device/npu/dsp/emulate.h"
#include "device/npu/host_threads.h"
#include "device/npu/npu.h"
#include "format/quant.h"
#include "small_net.h"

enum { HOST_BYTES = 8192, VTCM = 1 << 18 };

typedef struct {
    port m;
    port_buffer b;
    host_threads threads;
    uint8_t *host; /* what the host sees of buffer 1 */
    void *memory;  /* of the VTCM */
} machine;

static uint8_t *attach(void *user, uint32_t id, uint32_t bytes)
{
    return id == 1 && bytes <= HOST_BYTES ? ((machine *)user)->host : NULL;
}
static void detach(void *user, uint32_t id, uint8_t *at, uint32_t bytes) {}
static void *take(void *user, uint32_t bytes) { return calloc(1, bytes); }
static void give(void *user, void *p, uint32_t bytes) { free(p); }

static machine *start(uint32_t flags)
{
    machine *t = calloc(1, sizeof *t);
    const emulate_world world = { t, attach, detach, take, give, host_threads_of(&t->threads) };
    t->host = calloc(1, HOST_BYTES);
    t->memory = malloc(VTCM + TILE_BYTES);
    uint8_t *vtcm = t->memory;
    emulate_init(&t->m, &world, vtcm + (TILE_BYTES - (uintptr_t)vtcm % TILE_BYTES), VTCM, 1 << 20);
    port_begin(&t->m);
    assert_int_equal(port_map(&t->m, 1, HOST_BYTES, flags, &t->b), NPU_OK);
    return t;
}

static uint32_t end(machine *t)
{
    const uint32_t fault = port_fault(&t->m);
    port_unmap(&t->m, &t->b);
    free(t->host);
    free(t->memory);
    free(t);
    return fault;
}

/* ------------------------------------------------------------ a product of two tiles, with a mistake or without */

typedef enum {
    RIGHT,
    ACTIVATION_MISALIGNED,
    WEIGHT_MISALIGNED,
    RESULT_MISALIGNED,
    TABLE_MISALIGNED,
    TOO_MANY_TILES,
    NO_TILES,
    OUTSIDE_VTCM,
    PAST_VTCM,
    NO_LOCK,
    LOCKED_TWICE,
    NOT_CLEARED,
    NO_SCALES,
    STORED_TWICE,
    BEFORE_DMA,
    TOUCHED_BEFORE_DMA,
    DMA_ONTO_DMA,
    DMA_PAST_BUFFER,
    DMA_OUTSIDE_VTCM,
    MISTAKES
} mistake;

static const uint32_t rules[MISTAKES] = {
    [ACTIVATION_MISALIGNED] = NPU_RULE_ALIGN,
    [WEIGHT_MISALIGNED] = NPU_RULE_ALIGN,
    [RESULT_MISALIGNED] = NPU_RULE_ALIGN,
    [TABLE_MISALIGNED] = NPU_RULE_ALIGN,
    [TOO_MANY_TILES] = NPU_RULE_RANGE,
    [NO_TILES] = NPU_RULE_RANGE,
    [OUTSIDE_VTCM] = NPU_RULE_VTCM,
    [PAST_VTCM] = NPU_RULE_VTCM,
    [NO_LOCK] = NPU_RULE_LOCK,
    [LOCKED_TWICE] = NPU_RULE_LOCK,
    [NOT_CLEARED] = NPU_RULE_STATE,
    [NO_SCALES] = NPU_RULE_STATE,
    [STORED_TWICE] = NPU_RULE_STATE,
    [BEFORE_DMA] = NPU_RULE_DMA,
    [TOUCHED_BEFORE_DMA] = NPU_RULE_DMA,
    [DMA_ONTO_DMA] = NPU_RULE_DMA,
    [DMA_PAST_BUFFER] = NPU_RULE_BUFFER,
    [DMA_OUTSIDE_VTCM] = NPU_RULE_VTCM,
};

static half elsewhere[TILE_VALUES];

/* Activations all 1, weights all 2 (they come by DMA): every result is 64. */
static void product(machine *t, mistake which)
{
    port *m = &t->m;
    half *act = port_vtcm(m, 34 * TILE_BYTES, TILE_BYTES), *wgt = port_vtcm(m, 34 * TILE_BYTES, TILE_BYTES);
    half *out = port_vtcm(m, 2 * TILE_BYTES, TILE_BYTES);
    uint32_t *table = port_vtcm(m, 1024, 256);
    for (int i = 0; i < 34 * TILE_VALUES; i++) act[i] = 0x3c00;
    for (int i = 0; i < 64 + 64; i++) table[i] = i % 64 < 32 ? 0x3c00 : 0;
    for (int i = 0; i < HOST_BYTES / 2; i++) ((half *)(void *)t->host)[i] = 0x4000;

    port_dma(m, which == DMA_OUTSIDE_VTCM ? (void *)elsewhere : wgt, &t->b,
             which == DMA_PAST_BUFFER ? HOST_BYTES - 128 : 0, TILE_BYTES);
    if (which == DMA_ONTO_DMA) port_dma(m, wgt + 64, &t->b, 0, TILE_BYTES);
    if (which == TOUCHED_BEFORE_DMA) port_touch(m, wgt + TILE_VALUES - 1, 4);
    if (which != BEFORE_DMA) port_dma_wait(m);
    if (which == TOO_MANY_TILES || which == WEIGHT_MISALIGNED)
        for (int i = 0; i < 34 * TILE_VALUES; i++) wgt[i] = 0x4000;

    if (which != NO_LOCK) port_hmx_lock(m);
    if (which == LOCKED_TWICE) port_hmx_lock(m);
    if (which != NO_SCALES) port_hmx_scale(m, which == TABLE_MISALIGNED ? table + 32 : table);
    if (which != NOT_CLEARED) port_hmx_clear(m);
    const half *a = which == ACTIVATION_MISALIGNED ? act + 64 : which == OUTSIDE_VTCM ? elsewhere : act;
    const half *w = which == WEIGHT_MISALIGNED ? wgt + 32 : which == PAST_VTCM ? out + 2 * TILE_VALUES : wgt;
    port_hmx_mac(m, a, w, which == TOO_MANY_TILES ? 33 : which == NO_TILES ? 0 : 1);
    port_hmx_store(m, which == RESULT_MISALIGNED ? out + 64 : out);
    if (which == STORED_TWICE) port_hmx_store(m, out);
    if (which != NO_LOCK) port_hmx_unlock(m);
    if (which == RIGHT)
        for (int i = 0; i < TILE_VALUES; i++) assert_int_equal(out[i], half_from_float(64));
}

static void mistakes_are_noticed(void **state)
{
    for (int which = RIGHT; which < MISTAKES; which++) {
        machine *t = start(NPU_BUFFER_DMA);
        product(t, (mistake)which);
        const uint32_t fault = end(t);
        if (fault != rules[which]) fail_msg("mistake %d: rule %u, not %u", which, fault, rules[which]);
    }
}

/* ------------------------------------------------------------ mistakes between threads */

/* A message's thread that holds the HMX lock and has DMA under way, and what another does meanwhile. */
typedef enum {
    FROM_ITS_THREAD, /* nothing */
    CLEARS,
    SCALES,
    MULTIPLIES,
    STORES,
    UNLOCKS,
    LOCKS_TOO,
    READS_EARLY,
    WAITS_FOR_ANOTHER, /* whose bytes are not there after that */
    LOCKS_WITH_VECTORS,
    LOCKS_AFTER_VECTORS, /* a context that was taken on the way */
    LOCKS_WITHOUT,
    ACTS
} act;

static const struct {
    uint32_t rule;
    bool vectors; /* the other thread has a vector context */
} acts[ACTS] = {
    [CLEARS] = { NPU_RULE_LOCK, false },
    [SCALES] = { NPU_RULE_LOCK, false },
    [MULTIPLIES] = { NPU_RULE_LOCK, false },
    [STORES] = { NPU_RULE_LOCK, false },
    [UNLOCKS] = { NPU_RULE_LOCK, false },
    [LOCKS_TOO] = { NPU_RULE_LOCK, false },
    [READS_EARLY] = { NPU_RULE_DMA, true },
    [WAITS_FOR_ANOTHER] = { NPU_RULE_DMA, true },
    [LOCKS_WITH_VECTORS] = { NPU_RULE_LOCK, true },
    [LOCKS_AFTER_VECTORS] = { NPU_RULE_LOCK, false },
};

typedef struct {
    port *m;
    act which;
    half *tile, *chunk;
    uint32_t *table;
} other;

static void act_on(void *arg)
{
    const other *o = arg;
    port *m = o->m;
    switch (o->which) {
    case CLEARS: port_hmx_clear(m); break;
    case SCALES: port_hmx_scale(m, o->table); break;
    case MULTIPLIES: port_hmx_mac(m, o->tile, o->tile, 1); break;
    case STORES: port_hmx_store(m, o->tile); break;
    case UNLOCKS: port_hmx_unlock(m); break;
    case WAITS_FOR_ANOTHER: port_dma_wait(m); /* fall through */
    case READS_EARLY: port_touch(m, o->chunk + 64, 128); break;
    case LOCKS_AFTER_VECTORS: port_touch(m, o->tile, 128); /* fall through */
    case LOCKS_TOO:
    case LOCKS_WITH_VECTORS:
    case LOCKS_WITHOUT: port_hmx_lock(m); break;
    default: break;
    }
}

static uint32_t with_another(act which)
{
    machine *t = start(NPU_BUFFER_DMA);
    port *m = &t->m;
    other o = { .m = m, .which = which };
    o.tile = port_vtcm(m, TILE_BYTES, TILE_BYTES);
    o.chunk = port_vtcm(m, TILE_BYTES, TILE_BYTES);
    o.table = port_vtcm(m, 256, 256);
    memset(o.tile, 0, TILE_BYTES);
    memset(o.table, 0, 256);
    const bool locks = which < LOCKS_WITH_VECTORS;
    if (locks) port_hmx_lock(m);
    port_dma(m, o.chunk, &t->b, 0, TILE_BYTES);
    assert_true(port_thread(m, 0, acts[which].vectors, act_on, &o));
    port_join(m, 0);
    port_dma_wait(m);
    port_touch(m, o.chunk, TILE_BYTES);
    if (locks) { /* and what is one's own stays so */
        port_hmx_scale(m, o.table);
        port_hmx_clear(m);
        port_hmx_mac(m, o.tile, o.chunk, 1);
        port_hmx_store(m, o.tile);
        port_hmx_unlock(m);
    }
    return end(t);
}

static void mistakes_between_threads(void **state)
{
    for (int which = FROM_ITS_THREAD; which < ACTS; which++) {
        const uint32_t fault = with_another((act)which);
        if (fault != acts[which].rule) fail_msg("act %d: rule %u, not %u", which, fault, acts[which].rule);
    }
}

/* Two threads break a rule each, over and over: one of the two is noted, and stays. */
static void breaks(void *arg)
{
    other *o = arg;
    for (int i = 0; i < 1000; i++) {
        if (o->which == CLEARS)
            port_hmx_clear(o->m);
        else
            port_touch(o->m, o->chunk, 128);
    }
}

static void the_first_fault_stays(void **state)
{
    machine *t = start(NPU_BUFFER_DMA);
    other both[2] = { { .m = &t->m, .which = CLEARS }, { .m = &t->m, .which = READS_EARLY } };
    both[1].chunk = port_vtcm(&t->m, TILE_BYTES, TILE_BYTES);
    port_dma(&t->m, both[1].chunk, &t->b, 0, TILE_BYTES);
    for (uint32_t i = 0; i < 2; i++) assert_true(port_thread(&t->m, i, false, breaks, &both[i]));
    uint32_t first;
    while ((first = port_fault(&t->m)) == NPU_RULE_NONE) {
    }
    assert_true(first == NPU_RULE_LOCK || first == NPU_RULE_DMA);
    for (uint32_t i = 0; i < 2; i++) port_join(&t->m, i);
    assert_int_equal(end(t), first);
}

/* Before the wait the destination holds NaN, so that code which is not vigilant computes nonsense too. */
static void dma_completes_at_wait(void **state)
{
    machine *t = start(NPU_BUFFER_DMA);
    half *to = port_vtcm(&t->m, 256, 128);
    memset(t->host, 1, HOST_BYTES);
    port_dma(&t->m, to, &t->b, 0, 256);
    for (int i = 0; i < 128; i++) assert_int_equal(to[i] & 0x7c00, 0x7c00);
    port_dma_wait(&t->m);
    for (int i = 0; i < 128; i++) assert_int_equal(to[i], 0x0101);
    assert_int_equal(end(t), NPU_RULE_NONE);
}

static void vtcm_ends_and_is_wiped(void **state)
{
    machine *t = start(0);
    half *first = port_vtcm(&t->m, VTCM - 1024, TILE_BYTES);
    assert_non_null(first);
    assert_null(port_vtcm(&t->m, 2048, 128));
    assert_int_equal(port_vtcm_left(&t->m), 1024);
    first[7] = 0x3c00;
    port_vtcm_free(&t->m);
    assert_int_equal(first[7] & 0x7c00, 0x7c00);
    assert_int_equal(end(t), NPU_RULE_NONE);
}

/* ------------------------------------------------------------ cache */

static void a_forgotten_flush_shows(void **state)
{
    machine *t = start(0);
    port_invalidate(&t->m, &t->b, 0, HOST_BYTES);
    t->b.at[300] = 42;
    assert_int_equal(t->host[300], 0); /* the host sees nothing yet */
    port_flush(&t->m, &t->b, 256, 128);
    assert_int_equal(t->host[300], 42);
    assert_int_equal(end(t), NPU_RULE_NONE);
}

static void a_forgotten_invalidation_shows(void **state)
{
    machine *t = start(0);
    assert_int_equal(t->b.at[300], 0xff); /* NaN, if anything */
    port_invalidate(&t->m, &t->b, 0, HOST_BYTES);
    t->host[300] = 42;
    assert_int_equal(t->b.at[300], 0); /* still what was there */
    port_invalidate(&t->m, &t->b, 256, 128);
    assert_int_equal(t->b.at[300], 42);
    assert_int_equal(end(t), NPU_RULE_NONE);
}

static void parts_of_lines_and_other_memory(void **state)
{
    static const struct {
        uint32_t off, n, flags, rule;
    } bad[] = { { 64, 128, 0, NPU_RULE_ALIGN },
                { 0, 100, 0, NPU_RULE_ALIGN },
                { HOST_BYTES - 128, 256, 0, NPU_RULE_BUFFER },
                { 0xffffff80u, 256, 0, NPU_RULE_BUFFER },
                { 0, 128, NPU_BUFFER_DMA, NPU_RULE_BUFFER } };
    for (size_t i = 0; i < 2 * (sizeof bad / sizeof *bad); i++) {
        machine *t = start(bad[i / 2].flags);
        (i % 2 ? port_flush : port_invalidate)(&t->m, &t->b, bad[i / 2].off, bad[i / 2].n);
        assert_int_equal(end(t), bad[i / 2].rule);
    }
}

static void addresses_end(void **state)
{
    machine *t = start(0);
    port_buffer more;
    t->m.budget = HOST_BYTES + 4095;
    assert_int_equal(port_map(&t->m, 1, 4096, 0, &more), NPU_NO_ADDRESS);
    t->m.budget++;
    assert_int_equal(port_map(&t->m, 1, 4096, 0, &more), NPU_OK);
    assert_int_equal(port_mapped(&t->m), 12);
    port_unmap(&t->m, &more);
    assert_int_equal(port_map(&t->m, 2, 4096, 0, &more), NPU_MAP_FAILED);
    assert_int_equal(end(t), NPU_RULE_NONE);
}

/* ------------------------------------------------------------ messages */

/* A transport that keeps the last message it was given. */
typedef struct {
    npu_transport t;
    npu_transport *inner;
    uint32_t bytes;
    uint32_t words[NPU_MAX_MESSAGE / 4];
} listener;

static void listener_close(npu_transport **t)
{
    listener *l = (listener *)*t;
    l->inner->calls->close(&l->inner);
    free(l);
    *t = NULL;
}
static void listener_stop(npu_transport *t) {}
static llada_status listener_take(npu_transport *t, uint32_t bytes, npu_shared *out, llada_err *err)
{
    npu_transport *inner = ((listener *)t)->inner;
    return inner->calls->take(inner, bytes, out, err);
}
static void listener_give(npu_transport *t, npu_shared *b)
{
    npu_transport *inner = ((listener *)t)->inner;
    inner->calls->give(inner, b);
}
static llada_status listener_call(npu_transport *t, const void *message, uint32_t bytes, npu_reply *reply,
                                  llada_err *err)
{
    listener *l = (listener *)t;
    memcpy(l->words, message, bytes);
    l->bytes = bytes;
    return l->inner->calls->call(l->inner, message, bytes, reply, err);
}
static const npu_transport_calls listener_calls = { "listener",    listener_close, listener_stop,
                                                    listener_take, listener_give,  listener_call };

/* One word of a pass's message at a time becomes something else: a status, never a crash.  Which words are tried is
 * drawn anew for each value, so that the test stays short. */
static void strangers_to(const net_shape *shape)
{
    static const uint32_t values[] = { 0, 1, 2, 63, 127, 128, 0x7fffffff, 0x80000000, 0xffffff80, 0xffffffff };
    net *m = net_make(shape);
    listener *l = calloc(1, sizeof *l);
    npu_transport *t = &l->t;
    device_weights *w = NULL;
    device_ctx *c = NULL;
    llada_err err;
    net_pass q;
    float logits[NET_ROWS * 40];
    const device_limits lim = {
        .max_rows = NET_ROWS, .max_want = NET_ROWS, .slots = NET_SLOTS, .max_pos = NET_POS, .threads = 1
    };
    assert_int_equal(npu_inproc_open(&l->inner, &(npu_settings){ .vtcm = VTCM }, &err), LLADA_OK);
    l->t = *l->inner;
    l->t.calls = &listener_calls;
    assert_int_equal(npu_weights_open_on(&w, &m->g, &t, "", &err), LLADA_OK);
    assert_int_equal(device_npu.open(&c, w, &lim, &err), LLADA_OK);
    net_ask(&q, m, net_all, 3, 3);
    q.p.logits = logits;
    assert_int_equal(device_npu.run(c, &q.p, &err), LLADA_OK);
    assert_true(npu_serves(w));

    const uint32_t bytes = l->bytes;
    uint32_t *kept = malloc(bytes);
    memcpy(kept, l->words, bytes);
    rng r;
    rng_seed(&r, 5);
    npu_reply reply;
    int refused = 0, tried = 0;
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
        for (uint32_t i = 0; i < bytes / 4; i += 1 + (uint32_t)rng_below(&r, 7)) {
            const uint32_t was = kept[i];
            kept[i] = values[v];
            assert_int_equal(l->inner->calls->call(l->inner, kept, bytes, &reply, &err), LLADA_OK);
            kept[i] = was;
            tried++;
            refused += reply.status != NPU_OK;
        }
    for (uint32_t n = 0; n < bytes; n += 1 + (uint32_t)rng_below(&r, 40)) { /* cut short */
        assert_int_equal(l->inner->calls->call(l->inner, kept, n, &reply, &err), LLADA_OK);
        assert_int_equal(reply.status, NPU_BAD_MESSAGE);
    }
    assert_int_equal(l->inner->calls->call(l->inner, kept, bytes, &reply, &err), LLADA_OK);
    assert_int_equal(reply.status, NPU_OK); /* and nothing was broken by all that */
    if (refused < tried / 2) fail_msg("only %d of %d changes were noticed", refused, tried);
    free(kept);
    device_npu.close(&c);
    device_npu.weights_close(&w);
    net_free(m);
}

static void messages_of_strangers(void **state)
{
    static const net_shape plain = { "tiny", 2, 1, 8, 16, 16, 40, .bias = true, .type = QT_F16 };
    static const net_shape experts = { "experts", 2, 1, 16, 32, 32, 40, .experts = 3, .used = 2, .type = QT_Q8_0 };
    strangers_to(&plain);
    strangers_to(&experts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_noticed),
        cmocka_unit_test(mistakes_between_threads),
        cmocka_unit_test(the_first_fault_stays),
        cmocka_unit_test(dma_completes_at_wait),
        cmocka_unit_test(vtcm_ends_and_is_wiped),
        cmocka_unit_test(a_forgotten_flush_shows),
        cmocka_unit_test(a_forgotten_invalidation_shows),
        cmocka_unit_test(parts_of_lines_and_other_memory),
        cmocka_unit_test(addresses_end),
        cmocka_unit_test(messages_of_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
