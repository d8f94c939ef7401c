/* check_qmm.h - the part of check_kernels.c for products in integers: rows of x, panels of levels, sums.  The plain C
 * kernels are held against loops in double; all others must give the bits of the plain C ones. */

static const uint32_t grid_types[] = { QT_Q4_0, QT_Q4_1, QT_Q5_0, QT_Q5_1, QT_Q8_0,   QT_Q2_K,
                                       QT_Q3_K, QT_Q4_K, QT_Q5_K, QT_Q6_K, QT_IQ4_NL, QT_IQ4_XS };
enum { N_GRIDS = sizeof grid_types / sizeof *grid_types };

typedef struct {
    kern_qrows r;
    size_t k;
} qrows;

static qrows qrows_make(int m, size_t k)
{
    qrows x = { .k = k };
    x.r.q = guarded((size_t)m * k);
    x.r.scale = floats((size_t)m * k / QBLOCK, 1);
    x.r.sum32 = guarded((size_t)m * k / QBLOCK * sizeof(float));
    x.r.sum16 = guarded((size_t)m * k / QSUB * sizeof(float));
    for (size_t i = 0; i < (size_t)m * k; i++) x.r.q[i] = (int8_t)(below(4) ? below(255) - 127 : below(2) ? 127 : -127);
    for (size_t i = 0; i < (size_t)m * k / QSUB; i++) {
        int s = 0;
        for (size_t j = 0; j < QSUB; j++) s += x.r.q[i * QSUB + j];
        x.r.sum16[i] = (float)s;
        x.r.sum32[i / 2] = (i % 2 ? x.r.sum32[i / 2] : 0) + (float)s;
    }
    return x;
}

static kern_qpanel panel_make(const quant_grid *g, int k, bool random)
{
    const size_t n = (size_t)k / (size_t)g->sub * QCOLS;
    kern_qpanel w = { guarded((size_t)k * QCOLS), floats(n, 2), floats(n, 1) };
    for (size_t i = 0; random && i < (size_t)k * QCOLS; i++) {
        int top = (1 << g->bits) - 1;
        w.level[i] = (uint8_t)(below(4) ? below(top + 1) : below(2) ? top : 0);
    }
    return w;
}

/* What kern.h says, in double. */
static double q_exact(const qrows *x, int i, const kern_qpanel *w, int j, int k, const quant_grid *g, double *size)
{
    double sum = 0;
    for (int p = 0; p < k; p++) {
        const size_t b = (size_t)(p / g->sub) * QCOLS + (size_t)j;
        double scale = w->scale[b], level = w->level[((size_t)(p / 4) * QCOLS + (size_t)j) * 4 + (size_t)p % 4];
        double v = x->r.scale[((size_t)i * x->k + (size_t)p) / QBLOCK] * x->r.q[(size_t)i * x->k + (size_t)p];
        sum += v * (scale * (level - g->zero) - (g->low ? w->low[b] : 0));
        *size += fabs(v * scale * level) + fabs(v * scale * g->zero) + (g->low ? fabs(v * w->low[b]) : 0);
    }
    return sum;
}

static void check_qmm(const kern_table *t, const quant_grid *g, int m, int k, bool add)
{
    qrows x = qrows_make(m, (size_t)k + QBLOCK * (size_t)below(3));
    kern_qpanel w = panel_make(g, k, true);
    float *c = floats((size_t)m * QCOLS, 1), *ref = malloc((size_t)m * QCOLS * sizeof *ref);
    double *before = malloc((size_t)m * QCOLS * sizeof *before);
    char what[80];

    snprintf(what, sizeof what, "m %d, k %d, %d bits, %d a scale%s%s", m, k, g->bits, g->sub, g->low ? ", low" : "",
             add ? ", add" : "");
    memcpy(ref, c, (size_t)m * QCOLS * sizeof *ref);
    for (int i = 0; i < m * QCOLS; i++) before[i] = add ? c[i] : 0;
    t->qmm.fn(c, &x.r, x.k, m, &w, k, g, add);
    qmm_ref(ref, &x.r, x.k, m, &w, k, g, add);
    for (int i = 0; i < m * QCOLS; i++) {
        double size = fabs(before[i]), want = before[i] + q_exact(&x, i / QCOLS, &w, i % QCOLS, k, g, &size);
        same_bits(what, i, c[i], ref[i]);
        near_(what, i, ref[i], want, (k + 8) * U * size);
    }
    free(ref);
    free(before);
    release_all();
}

static void qmm(const kern_table *t)
{
    static const int ms[] = { 1, 2, 3, 4, 5, 6, 7, 13, 16, 35 }, blocks[] = { 1, 2, 3, 16 };
    now = t->qmm.name;
    for (int a = 0; a < N_GRIDS; a++)
        for (size_t b = 0; b < sizeof ms / sizeof *ms; b++)
            for (size_t c = 0; c < sizeof blocks / sizeof *blocks; c++)
                check_qmm(t, &quant_get(grid_types[a])->grid, ms[b], 32 * blocks[c], (a + (int)(b + c)) % 2);
}

/* The squared error of a block that is rounded to multiples of d. */
static double squared_error(const float *x, double d)
{
    double sum = 0;
    for (int i = 0; i < QBLOCK; i++) {
        const double off = x[i] - d * rint(x[i] / d);
        sum += off * off;
    }
    return sum;
}

/* None of the scales that come into question leaves less. */
static void best_scale(const float *x, float scale)
{
    double most = 0, least = INFINITY;
    for (int i = 0; i < QBLOCK; i++) most = fmax(most, fabs(x[i]));
    for (int i = 0; i < QSCALES; i++) least = fmin(least, squared_error(x, most / (127 - i)));
    near_("error of the scale", 0, squared_error(x, scale), least, 1e-4 * least + 1e-9 * most * most);
}

static void quantize(const kern_table *t)
{
    now = t->quantize.name;
    for (int kind = 0; kind < 8; kind++)
        for (size_t k = QBLOCK; k <= 4 * QBLOCK; k += QBLOCK) {
            float *x = floats(k, kind == 1 ? 1e-36 : kind == 2 ? 1e30 : 3);
            kern_qrows got = { guarded(k), floats(k / QBLOCK, 1), floats(k / QBLOCK, 1), floats(k / QSUB, 1) };
            int8_t want[4 * QBLOCK];
            float scale[4], sum32[4], sum16[8];
            const size_t at = (size_t)below((int)k);
            if (kind == 3) memset(x, 0, k * sizeof *x);
            if (kind == 4) x[at] = NAN;
            if (kind == 5) x[at] = -INFINITY;
            if (kind == 6) x[at] = FLT_MAX;
            if (kind == 7) /* ties */
                for (size_t i = 0; i < k; i++) x[i] = i % QBLOCK ? (float)below(254) - 126.5f : 127;
            t->quantize.fn(got.q, got.scale, got.sum32, got.sum16, x, k);
            quantize_ref(want, scale, sum32, sum16, x, k);
            for (size_t i = 0; i < k; i++) {
                const float d = scale[i / QBLOCK];
                same_bits("value", (int)i, got.q[i], want[i]);
                if (kind < 4 || kind == 7) near_("rounding", (int)i, d * (double)want[i], x[i], 0.5001 * d + 1e-30);
            }
            for (size_t i = 0; i < k / QBLOCK; i++) {
                const bool bad = (kind == 4 || kind == 5) && i == at / QBLOCK;
                same_bits("scale", (int)i, got.scale[i], scale[i]);
                same_bits("sum of 32", (int)i, got.sum32[i], sum32[i]);
                near_("finite", (int)i, isfinite(scale[i]) != 0, !bad, 0);
                if (kind == 0 || kind == 7) best_scale(x + i * QBLOCK, scale[i]);
            }
            for (size_t i = 0; i < k / QSUB; i++) {
                int s = 0;
                for (size_t j = 0; j < QSUB; j++) s += want[i * QSUB + j];
                same_bits("sum of 16", (int)i, got.sum16[i], sum16[i]);
                near_("sum", (int)i, sum16[i], s, 0);
            }
            release_all();
        }
}

/* Random bits, so any scales: the same as quant_info.levels. */
static void levels(const kern_table *t, int type)
{
    const quant_info *q = quant_get((uint32_t)type);
    now = t->levels[type].name;
    for (int blocks = 1; blocks <= 5; blocks++) {
        const size_t n = (size_t)(blocks * q->block), subs = n / (size_t)q->grid.sub;
        uint8_t *src = guarded((size_t)(blocks * q->bytes)), *got = guarded(n), *want = malloc(n);
        float *scale = floats(subs, 1), *low = floats(subs, 1), *scales = malloc(2 * subs * sizeof *scales);
        for (int i = 0; i < blocks * q->bytes; i++) src[i] = (uint8_t)below(256);
        t->levels[type].fn(got, scale, low, src, n);
        q->levels(want, scales, scales + subs, src, n);
        for (size_t i = 0; i < n; i++) near_("level", (int)i, got[i], want[i], 0);
        for (size_t i = 0; i < subs; i++) {
            same_bits("scale", (int)i, scale[i], scales[i]);
            if (q->grid.low) same_bits("low", (int)i, low[i], scales[subs + i]);
        }
        free(want);
        free(scales);
        release_all();
    }
}

static void weave(const kern_table *t)
{
    now = t->weave.name;
    for (int k = 4; k <= 512; k += k < 40 ? 4 : 59 * 4) {
        const size_t ld = (size_t)k + (size_t)below(5);
        uint8_t *level = guarded((QCOLS - 1) * ld + (size_t)k), *panel = guarded((size_t)k * QCOLS);
        for (size_t i = 0; i < (QCOLS - 1) * ld + (size_t)k; i++) level[i] = (uint8_t)below(256);
        t->weave.fn(panel, level, ld, k);
        for (size_t j = 0; j < QCOLS; j++)
            for (size_t p = 0; p < (size_t)k; p++)
                near_("level", (int)p, panel[(p / 4 * QCOLS + j) * 4 + p % 4], level[j * ld + p], 0);
        release_all();
    }
}

/* Expanded panels hold what quant_info.levels gives for each row. */
static void check_expand(const kern_table *t, uint32_t type, int k, bool tiles)
{
    const quant_info *q = quant_get(type);
    const size_t row = (size_t)(k / q->block * q->bytes), gap = (size_t)below(3);
    uint8_t *src = guarded(31 * (row + gap) + row), *rows = malloc(32 * row), level[512];
    float scale[32], low[32];
    kern_qpanel w = panel_make(&q->grid, k, false);
    t32_shape s;

    for (size_t i = 0; i < 31 * (row + gap) + row; i++) src[i] = (uint8_t)below(256);
    for (size_t j = 0; j < 32; j++) memcpy(rows + j * row, src + j * (row + gap), row);
    if (tiles && t32_shape_of(&s, type, 32, (uint64_t)k)) {
        uint8_t *packed = guarded(s.bytes);
        t32_pack(&s, packed, rows, 0, 1);
        t->expand_tiles[type].fn(&w, packed, k);
    } else {
        t->expand[type].fn(&w, src, row + gap, k);
    }
    for (size_t j = 0; j < 32; j++) {
        q->levels(level, scale, low, rows + j * row, (size_t)k);
        for (size_t p = 0; p < (size_t)k; p++)
            near_("level", (int)p, w.level[(p / 4 * QCOLS + j) * 4 + p % 4], level[p], 0);
        for (size_t b = 0; b < (size_t)(k / q->grid.sub); b++) {
            same_bits("scale", (int)b, w.scale[b * QCOLS + j], scale[b]);
            if (q->grid.low) same_bits("low", (int)b, w.low[b * QCOLS + j], low[b]);
        }
    }
    free(rows);
    release_all();
}

static void expand(const kern_table *t, int type)
{
    now = t->expand[type].name;
    for (int k = quant_get((uint32_t)type)->block; k <= 512; k *= 2) check_expand(t, (uint32_t)type, k, false);
}

static void expand_tiles(const kern_table *t, int type)
{
    now = t->expand_tiles[type].name;
    for (int k = quant_get((uint32_t)type)->block; k <= 512; k *= 2) check_expand(t, (uint32_t)type, k, true);
}

/* One row straight from tiles has the bits of tiles expanded by the definition and multiplied by qmm_ref. */
static void row_tiles(const kern_table *t, int type)
{
    const quant_info *q = quant_get((uint32_t)type);
    now = t->row_tiles[type].name;
    for (int k = q->block; k <= 2048; k *= 2) {
        const size_t row = (size_t)(k / q->block * q->bytes);
        uint8_t *rows = malloc(32 * row), *level = malloc((size_t)k);
        float *scale = malloc((size_t)k * sizeof *scale), *low = malloc((size_t)k * sizeof *low), want[QCOLS];
        float *got = floats(QCOLS, 1), *values = floats((size_t)k, 1);
        qrows x = qrows_make(1, (size_t)k);
        kern_qpanel w = panel_make(&q->grid, k, false);
        t32_shape s;
        for (size_t j = 0; j < 32; j++) {
            for (int i = 0; i < k; i++) values[i] = (float)(2 * rng_unit(&source) - 1);
            q->encode(rows + j * row, values, (size_t)k);
            q->levels(level, scale, low, rows + j * row, (size_t)k);
            for (size_t p = 0; p < (size_t)k; p++) w.level[(p / 4 * QCOLS + j) * 4 + p % 4] = level[p];
            for (size_t b = 0; b < (size_t)(k / q->grid.sub); b++) w.scale[b * QCOLS + j] = scale[b];
        }
        if (!t32_shape_of(&s, (uint32_t)type, 32, (uint64_t)k)) abort();
        uint8_t *tiles = guarded(s.bytes);
        t32_pack(&s, tiles, rows, 0, 1);
        t->row_tiles[type].fn(got, &x.r, tiles, k);
        qmm_ref(want, &x.r, x.k, 1, &w, k, &q->grid, false);
        for (int j = 0; j < QCOLS; j++) same_bits("column", j, got[j], want[j]);
        free(rows), free(level), free(scale), free(low);
        release_all();
    }
}
