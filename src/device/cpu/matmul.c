/* matmul.c - the matrix product of a pass: threads take whole columns (weight rows); a thread decodes a panel of its
 * weight rows for a block of k into memory that stays in L2, and the kernel runs all rows of x over it.  The sums of a
 * column are added block by block in rising k, bias and residual last: out[i][j] depends on row i of x and row j of the
 * weights only. */
#include "device/cpu/cpu.h"

enum {
    IN_PLACE_ROWS = 8  /* float weights are read where they lie for so few rows; copied into the panel for more */
};
static const double SHARE_WORK = 40000; /* multiply-adds: about the cost of waking a thread */

void cpu_share(const device_ctx *c, double work, pool_fn fn, void *user)
{
    if (work < SHARE_WORK)
        fn(user, 0, 1);
    else
        pool_run(c->pool, fn, user);
}

typedef struct {
    const device_ctx *c;
    const tensor *w;
    const float *x, *bias, *residual;
    float *out;
    int m, n, k;
} job;

/* nr columns from j on, k columns from p on. */
static void unpack_panel(const job *b, float *panel, int j, int nr, int p, int k)
{
    const device_ctx *c = b->c;
    const quant_info *q = quant_get(b->w->type);
    kern_unpack_fn *unpack = c->k.unpack[b->w->type].fn;
    const uint8_t *from = (const uint8_t *)b->w->data + (size_t)p / (size_t)q->block * (size_t)q->bytes;

    for (int r = 0; r < nr; r++)
        unpack(panel + (size_t)r * c->panel_ld, from + (size_t)(j + r) * b->w->row_bytes, (size_t)k);
}

/* sums: [nr][sums_ld] -> out[i0 + i][j + r] for m rows. */
static void put(const job *b, const float *sums, int i0, int m, int j, int nr)
{
    for (int i = 0; i < m; i++) {
        size_t at = (size_t)(i0 + i) * (size_t)b->n + (size_t)j;
        for (int r = 0; r < nr; r++) {
            float v = sums[(size_t)r * b->c->sums_ld + (size_t)i];
            if (b->bias)
                v += b->bias[j + r];
            if (b->residual)
                v += b->residual[at + (size_t)r];
            b->out[at + (size_t)r] = v;
        }
    }
}

static void panel_columns(const job *b, const cpu_scratch *s, int i0, int m, int j, int nr)
{
    const device_ctx *c = b->c;
    const bool in_place =
        m <= IN_PLACE_ROWS && b->w->type == QT_F32 && (uintptr_t)b->w->data % sizeof(float) == 0;
    const float *x = b->x + (size_t)i0 * (size_t)b->k;

    for (int p = 0; p < b->k; p += c->k.mm.kc) {
        int k = b->k - p < c->k.mm.kc ? b->k - p : c->k.mm.kc;
        const float *w = s->panel;
        size_t ldw = c->panel_ld;
        if (in_place) {
            ldw = (size_t)b->k;
            w = (const float *)b->w->data + (size_t)j * ldw + (size_t)p;
        } else {
            unpack_panel(b, s->panel, j, nr, p, k);
        }
        c->k.mm.fn(s->sums, c->sums_ld, x + p, (size_t)b->k, m, w, ldw, nr, k, p > 0);
    }
    put(b, s->sums, i0, m, j, nr);
}

static void part(void *user, int t, int n)
{
    const job *b = user;
    const device_ctx *c = b->c;
    int lo, hi;

    pool_share(b->n, c->k.mm.nr, t, n, &lo, &hi);
    for (int i = 0; i < b->m; i += (int)c->sums_ld) {
        int m = b->m - i < (int)c->sums_ld ? b->m - i : (int)c->sums_ld;
        for (int j = lo; j < hi; j += c->k.mm.nb)
            panel_columns(b, &c->scratch[t], i, m, j, hi - j < c->k.mm.nb ? hi - j : c->k.mm.nb);
    }
}

void cpu_matmul(const device_ctx *c, float *out, const float *x, int m, const tensor *w, const float *bias,
                const float *residual)
{
    job b = { .c = c, .w = w, .x = x, .bias = bias, .residual = residual, .out = out, .m = m };

    b.n = (int)w->n_rows;
    b.k = (int)w->cols;
    if (m > 0)
        cpu_share(c, (double)m * b.n * b.k, part, &b);
}
