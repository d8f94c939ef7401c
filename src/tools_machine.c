/* tools_machine.c - what this machine can do at most: bytes read from memory, and the matrix kernels with operands that
 * stay in the first cache.  Measured on all threads at once, so that the figures are what passes share. */
#include <string.h>

#include "base/compiler.h"
#include "base/mem.h"
#include "base/os.h"
#include "device/cpu/cpu.h"
#include "tools_machine.h"

enum { READ_BYTES = 256 << 20, ROWS = 24, CHUNK = 64 }; /* read: much more than caches hold */
static const double LEAST_SECONDS = 0.02;

typedef struct {
    kern_table k;
    double seconds;
    uint8_t *memory;    /* READ_BYTES, shared */
    float *floats;      /* per thread: x, w, c */
    size_t each;        /* floats a thread */
    double *work;       /* [threads] of one measurement */
    double *took;
} bench;

/* Sums over memory; the sum is used, so that the reads can't be left out. */
static void read_part(void *user, int t, int n)
{
    bench *b = user;
    const size_t lo = (size_t)READ_BYTES / (size_t)n * (size_t)t, hi = (size_t)READ_BYTES / (size_t)n * (size_t)(t + 1);
    uint64_t sum = 0;
    double began = os_seconds();

    do {
        for (size_t i = lo; i + CHUNK <= hi; i += CHUNK) {
            uint64_t v[CHUNK / 8];
            memcpy(v, b->memory + i, sizeof v);
            for (int j = 0; j < CHUNK / 8; j++) sum += v[j];
            PREFETCH(b->memory + (i + 16 * CHUNK < hi ? i + 16 * CHUNK : i));
        }
        b->work[t] += (double)(hi - lo);
        b->took[t] = os_seconds() - began;
    } while (b->took[t] < b->seconds);
    b->floats[(size_t)t * b->each] = (float)(sum & 1);
}

static void float_part(void *user, int t, int n)
{
    bench *b = user;
    const int m = b->k.mm.mr, nr = b->k.mm.nr, k = 256;
    float *x = b->floats + (size_t)t * b->each, *w = x + m * k, *c = w + nr * k;
    const size_t ldc = (size_t)(m + 3) / 4 * 4;
    double began = os_seconds();

    do {
        for (int i = 0; i < 200; i++) b->k.mm.fn(c, ldc, x, (size_t)k, m, w, (size_t)k, nr, k, false);
        b->work[t] += 200.0 * 2 * m * nr * k;
        b->took[t] = os_seconds() - began;
    } while (b->took[t] < b->seconds);
}

static void integer_part(void *user, int t, int n)
{
    bench *b = user;
    float *at = b->floats + (size_t)t * b->each, *c = at + 2 * QCOLS * Q_KC / QBLOCK;
    const kern_qpanel w = { (uint8_t *)(c + ROWS * QCOLS), at, at + QCOLS * Q_KC / QBLOCK };
    float *of_rows = (float *)(void *)(w.level + QCOLS * Q_KC);
    const kern_qrows x = { (int8_t *)(of_rows + ROWS * Q_KC / 8), of_rows, of_rows + ROWS * Q_KC / QBLOCK,
                           of_rows + 2 * ROWS * Q_KC / QBLOCK };
    double began = os_seconds();

    do {
        for (int i = 0; i < 20; i++)
            b->k.qmm.fn(c, &x, Q_KC, ROWS, &w, Q_KC, &quant_get(QT_Q4_0)->grid, false);
        b->work[t] += 20.0 * 2 * ROWS * QCOLS * Q_KC;
        b->took[t] = os_seconds() - began;
    } while (b->took[t] < b->seconds);
}

static double measure(bench *b, pool *p, pool_fn fn)
{
    double rate = 0;

    for (int t = 0; t < pool_threads(p); t++) b->work[t] = b->took[t] = 0;
    pool_run(p, fn, b);
    for (int t = 0; t < pool_threads(p); t++) rate += b->work[t] / b->took[t];
    return rate * 1e-9;
}

llada_status tools_machine(tools_limits *out, int threads, uint64_t cpu_mask, double seconds, llada_err *err)
{
    bench b = { .seconds = seconds > LEAST_SECONDS ? seconds : LEAST_SECONDS, .each = 32768 };
    pool *p = NULL;
    llada_status st;

    kern_fill(&b.k, cpu_mask);
    if ((st = pool_open(&p, threads, err)) != LLADA_OK) return st;
    const size_t n = (size_t)pool_threads(p);
    b.memory = mem_new(READ_BYTES);
    b.floats = mem_array(n, b.each * sizeof *b.floats);
    b.work = mem_array(2 * n, sizeof *b.work);
    if (b.memory && b.floats && b.work) {
        b.took = b.work + n;
        for (size_t i = 0; i < READ_BYTES; i += 4096) b.memory[i] = 1; /* pages of its own, not the zero page */
        *out = (tools_limits){ .read_gbs = measure(&b, p, read_part),
                               .float_gflops = measure(&b, p, float_part),
                               .integer_gops = measure(&b, p, integer_part),
                               .float_kernel = b.k.mm.name,
                               .integer_kernel = b.k.qmm.name,
                               .threads = (int)n };
    } else {
        st = llada_fail(err, LLADA_NO_MEMORY, "no memory for %d MiB to read", READ_BYTES >> 20);
    }
    mem_free(b.memory);
    mem_free(b.floats);
    mem_free(b.work);
    pool_close(&p);
    return st;
}

/* Matrices of a pass; of experts those that serve one row, which is what few rows read at least. */
void machine_pass_work(const graph *g, tools_work *out)
{
    *out = (tools_work){ 0 };
    for (int i = 0; i < g->n_ops; i++) {
        const op *o = &g->ops[i];
        if (o->kind != OP_MATMUL && o->kind != OP_SCORE && o->kind != OP_EXPERTS) continue;
        const tensor *w = &g->t[o->weight];
        const quant_info *q = quant_get(w->type);
        const double share = o->kind == OP_EXPERTS ? (double)o->used / o->experts : 1;
        const double values = share * (double)w->n_rows * (double)w->cols;
        out->bytes += values / q->block * q->bytes;
        *(q->levels ? &out->integers : &out->floats) += values;
    }
}
