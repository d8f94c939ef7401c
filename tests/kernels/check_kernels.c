/* check_kernels.c - every kernel, for every set of CPU features this machine has, against plain loops in double.
 *
 *   check_kernels [SEED]     operands lie against pages that can't be touched, at their end and at their beginning;
 *                            prints the seed, one line a kernel, and exits with 1 on a mismatch
 *   check_kernels --bench    GFLOP/s of the matrix products and GB/s of the others, one thread, by processor time
 *
 * Bounds, with u = 2^-24 (half a unit in the last place of a float):
 *   sums of n products   (n + 4) u sum |x y|, which holds for any order of adding
 *   products in integers the bits of the plain C kernels; those within (n + 8) u sum |x w| of the exact value
 *   unpacking            the same bits as format/quant.h (NaN for NaN)
 *   norm, rotation       4 u of the exact value, of |a cos| + |b sin|
 *   softmax              4 u (2 units in the last place) of exp, and half the smallest float; 0 for minus infinity
 *   gate                 16 u of the exact value, and 1e-36 (e^-x overflows before the value vanishes) */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/half.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "device/cpu/cpu.h"
#include "format/t32.h"

static const double U = 1.0 / (1 << 24);

/* ------------------------------------------------------------ memory between guards */

enum { MAX_REGIONS = 24 };
static struct {
    uint8_t *at;
    size_t bytes;
} regions[MAX_REGIONS];
static int n_regions;
static bool at_end; /* operands end at the upper guard, else they begin at the lower one */

static void *guarded(size_t bytes)
{
    size_t page = os_page_size(), body = (bytes + page - 1) / page * page + (bytes ? 0 : page);
    uint8_t *p = mmap(NULL, body + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED || n_regions == MAX_REGIONS || mprotect(p, page, PROT_NONE) ||
        mprotect(p + page + body, page, PROT_NONE)) {
        fprintf(stderr, "no memory for operands\n");
        exit(2);
    }
    regions[n_regions].at = p;
    regions[n_regions++].bytes = body + 2 * page;
    return at_end ? p + page + body - bytes : p + page;
}

static void release_all(void)
{
    while (n_regions) {
        n_regions--;
        munmap(regions[n_regions].at, regions[n_regions].bytes);
    }
}

/* ------------------------------------------------------------ operands and verdicts */

static rng source;
static const char *now; /* the kernel under test */
static long checks, failures;

static int below(int n) { return (int)rng_below(&source, (uint64_t)n); }

static float *floats(size_t n, double scale)
{
    float *p = guarded(n * sizeof *p);
    for (size_t i = 0; i < n; i++) p[i] = (float)(scale * (2 * rng_unit(&source) - 1));
    return p;
}

static uint16_t *halves(size_t n)
{
    uint16_t *p = guarded(n * sizeof *p);
    for (size_t i = 0; i < n; i++) p[i] = half_from_float((float)(2 * rng_unit(&source) - 1));
    return p;
}

static void wrong(const char *what, int i, double got, double want)
{
    if (failures++ < 20) printf("  %s: %s: value %d is %.9g, should be %.9g\n", now, what, i, got, want);
}

static void near_(const char *what, int i, double got, double want, double bound)
{
    checks++;
    if (!(fabs(got - want) <= bound)) wrong(what, i, got, want);
}

static void same_bits(const char *what, int i, float got, float want)
{
    checks++;
    if (memcmp(&got, &want, sizeof got) != 0 && !(isnan(got) && isnan(want))) wrong(what, i, got, want);
}

/* ------------------------------------------------------------ one function a signature */

static const int sizes[] = {
    1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 127, 128, 130, 255, 256, 257, 1000, 1024
};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void check_mm(const kern_table *t, int m, int n, int k, bool add)
{
    char what[80];
    size_t ldc = (size_t)(m + 3) / 4 * 4, ldx = (size_t)(k + below(3)), ldw = (size_t)(k + below(3));
    /* the last row ends where its k values end */
    float *x = floats((size_t)(m - 1) * ldx + (size_t)k, 1), *w = floats((size_t)(n - 1) * ldw + (size_t)k, 1);
    float *c = floats((size_t)n * ldc, 1), *one = floats(4, 1), *old = malloc((size_t)n * ldc * sizeof *old);

    snprintf(what, sizeof what, "m %d, n %d, k %d%s", m, n, k, add ? ", add" : "");
    memcpy(old, c, (size_t)n * ldc * sizeof *old);
    t->mm.fn(c, ldc, x, ldx, m, w, ldw, n, k, add);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            double sum = 0, size = 0, before = old[(size_t)j * ldc + (size_t)i];
            for (int p = 0; p < k; p++) {
                double v = (double)x[(size_t)i * ldx + (size_t)p] * w[(size_t)j * ldw + (size_t)p];
                sum += v;
                size += fabs(v);
            }
            float got = c[(size_t)j * ldc + (size_t)i];
            near_(what, j * m + i, got, add ? sum + before : sum, (k + 4) * U * (size + (add ? fabs(before) : 0)));
            one[0] = (float)before; /* the same product alone has the same bits */
            t->mm.fn(one, 4, x + (size_t)i * ldx, ldx, 1, w + (size_t)j * ldw, ldw, 1, k, add);
            same_bits("not as alone", j * m + i, got, one[0]);
        }
    free(old);
    release_all();
}

static void mm(const kern_table *t)
{
    static const int ms[] = { 1, 2, 3, 4, 5, 6, 7, 8, 33 }, ns[] = { 1, 2, 3, 4, 5, 6, 7, 11, 13, 48 };
    now = t->mm.name;
    for (size_t a = 0; a < sizeof ms / sizeof *ms; a++)
        for (size_t b = 0; b < sizeof ns / sizeof *ns; b++)
            for (int c = 0; c < N_SIZES; c++)
                if (sizes[c] < 100 || (a + b + (size_t)c) % 4 == 0)
                    check_mm(t, ms[a], ns[b], sizes[c], (a + b + (size_t)c) % 3 == 0);
}

/* Random bits for the 16-bit types (so NaN, infinities, subnormals too), packed random values for the others. */
static void unpack(const kern_table *t, int type)
{
    const quant_info *q = quant_get((uint32_t)type);
    now = t->unpack[type].name;
    for (int s = 0; s < N_SIZES; s++) {
        size_t n = (size_t)sizes[s] * (size_t)(q->block > 1 ? q->block : 1), bytes;
        if (!quant_row_bytes((uint32_t)type, n, &bytes)) continue;
        uint8_t *src = guarded(bytes);
        float *want = malloc(n * sizeof *want), *got = guarded(n * sizeof *got);
        for (size_t i = 0; i < bytes; i++) src[i] = (uint8_t)below(256);
        if (q->block > 1 && q->encode && s % 2) { /* half of the time sensible scales */
            float *f = floats(n, 3);
            q->encode(src, f, n);
        }
        q->decode(want, src, n);
        t->unpack[type].fn(got, src, n);
        for (size_t i = 0; i < n; i++) same_bits(q->name, (int)i, got[i], want[i]);
        free(want);
        release_all();
    }
}

static void norm(const kern_table *t)
{
    now = t->norm.name;
    for (int s = 0; s < N_SIZES; s++)
        for (int in_place = 0; in_place < 2; in_place++) {
            int n = sizes[s];
            float *x = floats((size_t)n, 5), *w = floats((size_t)n, 2), *out = in_place ? x : floats((size_t)n, 1);
            double sum = 0, *want = malloc((size_t)n * sizeof *want);
            for (int i = 0; i < n; i++) sum += (double)x[i] * x[i];
            for (int i = 0; i < n; i++) want[i] = x[i] / sqrt(sum / n + 1e-5f) * w[i];
            t->norm.fn(out, x, w, n, 1e-5f);
            for (int i = 0; i < n; i++) near_("norm", i, out[i], want[i], 4 * U * fabs(want[i]));
            free(want);
            release_all();
        }
}

static void rope(const kern_table *t, int style)
{
    now = t->rope[style].name;
    for (int s = 0; s < N_SIZES; s++) {
        int half = sizes[s];
        float *x = floats(2 * (size_t)half, 3), *cs = floats(2 * (size_t)half, 1);
        float *old = malloc(2 * (size_t)half * sizeof *old);
        memcpy(old, x, 2 * (size_t)half * sizeof *old);
        t->rope[style].fn(x, cs, half);
        for (int i = 0; i < half; i++) {
            int ia = style ? i : 2 * i, ib = style ? i + half : 2 * i + 1;
            double a = old[ia], b = old[ib], c = cs[i], sn = cs[half + i];
            near_("first", i, x[ia], a * c - b * sn, 4 * U * (fabs(a * c) + fabs(b * sn)));
            near_("second", i, x[ib], b * c + a * sn, 4 * U * (fabs(b * c) + fabs(a * sn)));
        }
        free(old);
        release_all();
    }
}

static void swiglu(const kern_table *t)
{
    static const float edges[] = { 0,      -0.0f,  1e-40f, -1e-40f, 87,   -87,   88.8f,
                                   -88.8f, -89.5f, -104,   -200,    1000, -1000, 3e38f };
    now = t->swiglu.name;
    for (int s = 0; s < N_SIZES; s++)
        for (int alias = 0; alias < 3; alias++) {
            size_t n = (size_t)sizes[s];
            float *a = floats(n, s % 3 ? 12 : 120), *b = floats(n, 2);
            float *out = alias == 0 ? floats(n, 1) : alias == 1 ? a : b;
            double *want = malloc(n * sizeof *want);
            for (size_t i = 0; i < n; i += 3)
                if (s % 2) a[i] = edges[below(sizeof edges / sizeof *edges)];
            for (size_t i = 0; i < n; i++) want[i] = a[i] / (1 + exp(-(double)a[i])) * b[i];
            t->swiglu.fn(out, a, b, n);
            for (size_t i = 0; i < n; i++)
                if (fabs(want[i]) < FLT_MAX) near_("gate", (int)i, out[i], want[i], 16 * U * fabs(want[i]) + 1e-36);
            free(want);
            release_all();
        }
    float bad[2] = { NAN, 1 }, ones[2] = { 1, NAN };
    t->swiglu.fn(bad, bad, ones, 2);
    same_bits("NaN", 0, bad[0], NAN);
    same_bits("NaN", 1, bad[1], NAN);
}

static void softmax(const kern_table *t)
{
    now = t->softmax.name;
    for (int s = 0; s < N_SIZES; s++)
        for (int kind = 0; kind < 3; kind++) {
            int n = sizes[s], top = below(n);
            float *x = floats((size_t)n, 1);
            double *want = malloc((size_t)n * sizeof *want), sum = 0;
            for (int i = 0; i < n; i++) /* the largest is 0, so that exp's argument is exact */
                x[i] = kind == 0 ? -fabsf(x[i]) * 8 : -fabsf(x[i]) * 110;
            if (kind == 2)
                for (int i = 0; i < n; i += 2) x[i] = i % 4 ? -INFINITY : -FLT_MAX;
            x[top] = 0;
            for (int i = 0; i < n; i++) sum += want[i] = exp((double)x[i]);
            float got = t->softmax.fn(x, n);
            for (int i = 0; i < n; i++) /* halfway between subnormals counts as right both ways */
                near_("exp", i, x[i], want[i], 4 * U * want[i] + (want[i] > 0 ? 0.51 * 1.4e-45 : 0));
            near_("sum", 0, got, sum, (n + 4) * U * sum);
            free(want);
            release_all();
        }
    for (int n = 1; n <= 40; n++) { /* a shift changes little; NaN anywhere shows in the sum */
        float *x = floats((size_t)n, 1), x0 = x[0];
        double sum = 0, max = x0;
        for (int i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
        for (int i = 0; i < n; i++) sum += exp(x[i] - max);
        near_("shifted sum", n, t->softmax.fn(x, n), sum, (2 * n + 8) * U * sum);
        x = floats((size_t)n, 1);
        x[below(n)] = NAN;
        same_bits("sum with NaN", n, t->softmax.fn(x, n), NAN);
        release_all();
    }
}

/* A store of `slots` slots, the last of which ends at the guard; *as_float: the same values. */
static void *make_store(int kind, int slots, size_t stride, int d, float **as_float)
{
    size_t n = (size_t)(slots - 1) * stride + (size_t)d;
    void *store = kind == KV_F16 ? (void *)halves(n) : (void *)floats(n, 1);
    *as_float = malloc(n * sizeof **as_float);
    for (size_t i = 0; i < n; i++)
        (*as_float)[i] = kind == KV_F16 ? half_to_float(((uint16_t *)store)[i]) : ((float *)store)[i];
    return store;
}

static int32_t *some_slots(int n, int slots)
{
    int32_t *p = guarded((size_t)n * sizeof *p);
    for (int i = 0; i < n; i++) p[i] = i == 0 ? slots - 1 : below(slots);
    return p;
}

static const int columns[] = { 1, 2, 3, 4, 5, 7, 8, 33, 130 };
enum { N_COLUMNS = sizeof columns / sizeof *columns, SLOTS = 40 };

static void check_dots(const kern_table *t, int kind, int n, int d)
{
    float *v, scale = 0.3f;
    size_t stride = (size_t)(d + below(4));
    void *store = make_store(kind, SLOTS, stride, d, &v);
    float *q = floats((size_t)d, 1), *s = floats((size_t)n, 1), one;
    int32_t *slot = some_slots(n, SLOTS);

    t->dots[kind].fn(s, q, store, stride, slot, n, d, scale);
    for (int c = 0; c < n; c++) {
        double sum = 0, size = 0;
        for (int i = 0; i < d; i++) {
            double p = (double)q[i] * v[(size_t)slot[c] * stride + (size_t)i];
            sum += p;
            size += fabs(p);
        }
        near_("column", c, s[c], sum * scale, (d + 5) * U * size * scale);
        t->dots[kind].fn(&one, q, store, stride, slot + c, 1, d, scale);
        same_bits("not as alone", c, s[c], one);
    }
    free(v);
    release_all();
}

static void dots(const kern_table *t, int kind)
{
    now = t->dots[kind].name;
    for (int a = 0; a < N_COLUMNS; a++)
        for (int b = 0; b < N_SIZES && sizes[b] <= 257; b++) check_dots(t, kind, columns[a], sizes[b]);
}

static void check_mix(const kern_table *t, int kind, int n, int d)
{
    float *v, scale = 0.7f;
    size_t stride = (size_t)(d + below(4));
    void *store = make_store(kind, SLOTS, stride, d, &v);
    float *p = floats((size_t)n, 1), *out = floats((size_t)d, 1);
    int32_t *slot = some_slots(n, SLOTS);

    t->mix[kind].fn(out, p, store, stride, slot, n, d, scale);
    for (int i = 0; i < d; i++) {
        double sum = 0, size = 0;
        for (int c = 0; c < n; c++) {
            double x = (double)p[c] * v[(size_t)slot[c] * stride + (size_t)i];
            sum += x;
            size += fabs(x);
        }
        near_("value", i, out[i], sum * scale, (n + 5) * U * size * scale);
    }
    free(v);
    release_all();
}

static void mix(const kern_table *t, int kind)
{
    now = t->mix[kind].name;
    for (int a = 0; a < N_COLUMNS; a++)
        for (int b = 0; b < N_SIZES && sizes[b] <= 257; b++) check_mix(t, kind, columns[a], sizes[b]);
}

static void half(const kern_table *t)
{
    now = t->half.name;
    for (int s = 0; s < N_SIZES; s++) {
        size_t n = (size_t)sizes[s];
        float *x = guarded(n * sizeof *x);
        uint16_t *h = guarded(n * sizeof *h);
        for (size_t i = 0; i < n; i++) { /* any bits; 2^-25 to 2^16; the ties among those */
            uint32_t any = (uint32_t)rng_next(&source), bits = 0x33000000u + (uint32_t)below(0x14800000);
            if (i % 3 == 2) bits = (bits & ~0x1fffu) | 0x1000u;
            bits = i % 3 ? bits | (any & 0x80000000u) : any;
            memcpy(x + i, &bits, sizeof bits);
        }
        t->half.fn(h, x, n);
        for (size_t i = 0; i < n; i++)
            same_bits("half", (int)i, half_to_float(h[i]), half_to_float(half_from_float(x[i])));
        release_all();
    }
}

#include "check_qmm.h"

/* ------------------------------------------------------------ all of a table */

static void run_check(const char *name, const kern_table *t, void (*fn)(const kern_table *),
                      void (*fn_kind)(const kern_table *, int), int kind)
{
    long checks_before = checks, failures_before = failures;

    for (int end = 0; end < 2; end++) {
        at_end = end;
        if (fn)
            fn(t);
        else
            fn_kind(t, kind);
    }
    printf("%-4s %-22s %ld values\n", failures == failures_before ? "ok" : "BAD", name, checks - checks_before);
}

/* Runs what is new against `seen`, the table of the set of features before. */
static void check_table(const kern_table *t, const kern_table *seen)
{
    struct {
        const char *name;
        void (*fn)(const kern_table *);
        void (*fn_kind)(const kern_table *, int);
        int kind;
        bool fresh;
    } list[] = {
        { t->mm.name, mm, NULL, 0, t->mm.fn != seen->mm.fn },
        { t->quantize.name, quantize, NULL, 0, t->quantize.fn != seen->quantize.fn },
        { t->weave.name, weave, NULL, 0, t->weave.fn != seen->weave.fn },
        { t->qmm.name, qmm, NULL, 0, t->qmm.fn != seen->qmm.fn },
        { t->norm.name, norm, NULL, 0, t->norm.fn != seen->norm.fn },
        { t->rope[0].name, NULL, rope, 0, t->rope[0].fn != seen->rope[0].fn },
        { t->rope[1].name, NULL, rope, 1, t->rope[1].fn != seen->rope[1].fn },
        { t->swiglu.name, swiglu, NULL, 0, t->swiglu.fn != seen->swiglu.fn },
        { t->softmax.name, softmax, NULL, 0, t->softmax.fn != seen->softmax.fn },
        { t->dots[KV_F32].name, NULL, dots, KV_F32, t->dots[KV_F32].fn != seen->dots[KV_F32].fn },
        { t->dots[KV_F16].name, NULL, dots, KV_F16, t->dots[KV_F16].fn != seen->dots[KV_F16].fn },
        { t->mix[KV_F32].name, NULL, mix, KV_F32, t->mix[KV_F32].fn != seen->mix[KV_F32].fn },
        { t->mix[KV_F16].name, NULL, mix, KV_F16, t->mix[KV_F16].fn != seen->mix[KV_F16].fn },
        { t->half.name, half, NULL, 0, t->half.fn != seen->half.fn },
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].fresh) run_check(list[i].name, t, list[i].fn, list[i].fn_kind, list[i].kind);
    for (int type = 0; type < QT_COUNT; type++) {
        kern_expand_fn *rows = t->expand[type].fn;
        kern_expand_tiles_fn *tiles = t->expand_tiles[type].fn;
        if (t->unpack[type].fn && t->unpack[type].fn != quant_get((uint32_t)type)->decode &&
            t->unpack[type].fn != seen->unpack[type].fn)
            run_check(t->unpack[type].name, t, NULL, unpack, type);
        if (t->levels[type].fn && t->levels[type].fn != quant_get((uint32_t)type)->levels &&
            t->levels[type].fn != seen->levels[type].fn)
            run_check(t->levels[type].name, t, NULL, levels, type);
        if (rows && rows != seen->expand[type].fn) run_check(t->expand[type].name, t, NULL, expand, type);
        if (tiles && tiles != seen->expand_tiles[type].fn)
            run_check(t->expand_tiles[type].name, t, NULL, expand_tiles, type);
        if (t->row_tiles[type].fn && t->row_tiles[type].fn != seen->row_tiles[type].fn)
            run_check(t->row_tiles[type].name, t, NULL, row_tiles, type);
    }
}

/* Checks what each of n tables adds to the one before it; `from`: the first that is checked.  Returns the exit
 * status. */
static int check_tables(const kern_table *t, int from, int n, uint64_t seed)
{
    const kern_table none = { 0 };

    printf("seed %llu\n", (unsigned long long)seed);
    for (int i = from; i < n; i++) {
        rng_seed(&source, seed);
        check_table(&t[i], i ? &t[i - 1] : &none);
    }
    printf("%ld values checked, %ld wrong\n", checks, failures);
    return failures ? 1 : 0;
}

#ifndef CHECK_TABLES_ONLY /* else another program's tables are checked: see check_avx512_emulated.c */

/* The tables a mask selects, in rising order; returns how many. */
static int all_tables(kern_table *t, int cap)
{
    size_t n;
    uint64_t found;
    int count = 0;
    const char *const *names = cpu_features(&n, &found);

    kern_fill(&t[count++], 0);
    for (size_t i = 0; i < n; i++) {
        printf("%s: %s\n", names[i], found >> i & 1 ? "yes" : "not on this machine, not checked");
        if ((found >> i & 1) && count < cap) kern_fill(&t[count++], ((uint64_t)2 << i) - 1);
    }
    return count;
}

/* ------------------------------------------------------------ benchmark */

/* Processor time of this process: other programs on the machine count less than on the clock. */
static double seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* Seconds of a matrix product as the device makes it, on one thread. */
static double time_mm(const kern_table *t, uint32_t type, int m, int n, int k, double least)
{
    size_t bytes = 0, ld = (size_t)t->mm.kc + 16, rows = (size_t)(m + 3) / 4 * 4;
    quant_row_bytes(type, (uint64_t)k, &bytes);
    tensor w = { .type = type, .n_rows = n, .cols = k, .row_bytes = bytes };
    float *x = mem_array((size_t)m * (size_t)k, sizeof *x), *out = mem_array((size_t)m * (size_t)n, sizeof *out);
    float *scales = mem_array(4 * QCOLS * Q_KC / QSUB + (size_t)m * (size_t)k / 8, sizeof *scales);
    uint8_t *levels = mem_array(2 * QCOLS * Q_KC + (size_t)m * (size_t)k, 1);
    cpu_scratch s = { .panel = mem_array((size_t)t->mm.nb * ld, sizeof(float)),
                      .sums = mem_array((size_t)(t->mm.nb > QCOLS ? t->mm.nb : QCOLS) * rows, sizeof(float)),
                      .qpanel = { levels, scales, scales + QCOLS * Q_KC / QSUB },
                      .qlevel = levels + QCOLS * Q_KC,
                      .qrow = scales + 2 * QCOLS * Q_KC / QSUB };
    float *of_rows = scales + 4 * QCOLS * Q_KC / QSUB;
    device_ctx c = { .k = *t, .scratch = &s, .panel_ld = ld, .sums_ld = rows };
    c.qx = (kern_qrows){ (int8_t *)levels + 2 * QCOLS * Q_KC, of_rows, of_rows + m * k / QBLOCK,
                         of_rows + 2 * m * k / QBLOCK };
    void *data = mem_new(bytes * (size_t)n);
    double best = 1e9, begin = seconds();

    if (pool_open(&c.pool, 1, NULL) != LLADA_OK || !x || !out || !s.panel || !s.sums || !data || !scales || !levels)
        exit(2);
    memset(data, 1, bytes * (size_t)n);
    w.data = data;
    do {
        double t0 = seconds();
        cpu_matmul(&c, out, x, m, &w);
        double took = seconds() - t0;
        best = took < best ? took : best;
    } while (seconds() - begin < least);
    pool_close(&c.pool);
    mem_free(data), mem_free(x), mem_free(out), mem_free(s.panel), mem_free(s.sums), mem_free(scales);
    mem_free(levels);
    return best;
}

static void bench(const kern_table *t)
{
    static const uint32_t types[] = { QT_F32, QT_F16, QT_BF16, QT_Q8_0, QT_Q4_0, QT_Q4_K, QT_Q6_K };
    static const int rows[] = { 1, 4, 8, 32, 128 };
    const int n = 4096, k = 4096;

    printf("%s, %d x %d, one thread:\n", t->mm.name, n, k);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!t->unpack[types[i]].fn) continue;
        printf("  %-6s", quant_get(types[i])->name);
        for (size_t j = 0; j < sizeof rows / sizeof *rows; j++) {
            double s = time_mm(t, types[i], rows[j], n, k, 0.3);
            printf("  %3d rows %6.1f GFLOP/s %7.2f ms", rows[j], 2.0 * rows[j] * n * k / s * 1e-9, s * 1e3);
        }
        printf("\n");
    }
    /* the innermost loop with operands that stay in the first cache: the ceiling of the above */
    float *x = calloc(4 * 512, sizeof *x), *w = calloc(12 * 512, sizeof *w), c[12 * 4];
    double best = 1e9;
    for (int r = 0; r < 100; r++) {
        double t0 = seconds();
        for (int i = 0; i < 1000; i++) t->mm.fn(c, 4, x, 512, 4, w, 512, t->mm.nr, 512, false);
        double s = (seconds() - t0) / 1000;
        best = s < best ? s : best;
    }
    printf("  one tile in the first cache: %.1f GFLOP/s\n", 2.0 * 4 * t->mm.nr * 512 / best * 1e-9);
    free(x), free(w);

    float *row = calloc(12288, sizeof *row), *other = calloc(12288, sizeof *other);
    struct {
        const char *name;
        double seconds, bytes;
    } rest[3] = { { t->norm.name, 1e9, 4096 * 12 },
                  { t->swiglu.name, 1e9, 12288 * 12 },
                  { t->softmax.name, 1e9, 4096 * 8 } };
    for (int r = 0; r < 3 * 50; r++) {
        double t0 = seconds();
        for (int i = 0; i < 100; i++)
            if (r % 3 == 0)
                t->norm.fn(row, other, other, 4096, 1e-5f);
            else if (r % 3 == 1)
                t->swiglu.fn(row, other, other, 12288);
            else
                t->softmax.fn(row, 4096);
        double s = (seconds() - t0) / 100;
        rest[r % 3].seconds = s < rest[r % 3].seconds ? s : rest[r % 3].seconds;
    }
    for (int i = 0; i < 3; i++) printf("  %-16s %6.1f GB/s\n", rest[i].name, rest[i].bytes / rest[i].seconds * 1e-9);
    free(row), free(other);
}

int main(int argc, char **argv)
{
    static kern_table t[8];
    int n = all_tables(t, 8);

    if (argc < 2 || strcmp(argv[1], "--bench") != 0)
        return check_tables(t, 0, n, argc > 1 ? strtoull(argv[1], NULL, 0) : 1);
    for (int i = 0; i < n; i++) bench(&t[i]);
    return 0;
}

#endif
