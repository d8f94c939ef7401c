/* matmul.c - the matrix product of a pass: threads take whole columns (weight rows); a thread decodes a panel of its
 * weight rows for a block of k into memory that stays in L2, and the kernel runs all rows of x over it.  The sums of a
 * column are added block by block in rising k, bias and residual last: out[i][j] depends on row i of x and row j of the
 * weights only. */
#include "device/cpu/cpu.h"
#include "device/cpu/product.h"

static const double SHARE_WORK = 40000; /* multiply-adds: about the cost of waking a thread */

void cpu_share(const device_ctx *c, double work, pool_fn fn, void *user)
{
    if (work < SHARE_WORK)
        fn(user, 0, 1);
    else
        pool_run(c->pool, fn, user);
}

/* Float weights that lie well are used where they are. */
static bool in_place(const tensor *w)
{
    return w->type == QT_F32 && w->layout == LAYOUT_ROWS && (uintptr_t)w->data % sizeof(float) == 0;
}

/* Column j, k values from p (where a tile begins) on, out of tiles.  A tile's row is unpacked as the GGUF block it was,
 * so that both layouts give the same bits. */
static void unpack_tiles(const product *b, float *to, int j, int p, int k)
{
    const t32_shape *s = &b->t32;
    uint8_t room[T32_BLOCK];

    for (size_t done = 0, left; (left = (size_t)k - done) > 0; done += left < s->tile_k ? left : s->tile_k) {
        const uint8_t *tile = t32_tile(s, b->w->data, (size_t)j / T32_ROWS, ((size_t)p + done) / s->tile_k);
        b->c->k.unpack[s->type].fn(to + done, t32_block(s, tile, (size_t)j % T32_ROWS, room),
                                   left < s->tile_k ? left : s->tile_k);
    }
}

/* nr columns from j on, k columns from p on. */
static void unpack_panel(const product *b, float *panel, int j, int nr, int p, int k)
{
    kern_unpack_fn *unpack = b->c->k.unpack[b->w->type].fn;

    if (b->w->layout == LAYOUT_T32) {
        for (int r = 0; r < nr; r++) unpack_tiles(b, panel + (size_t)r * b->c->panel_ld, j + r, p, k);
        return;
    }
    for (int r = 0; r < nr; r++) unpack(panel + (size_t)r * b->c->panel_ld, product_packed(b, j + r, p), (size_t)k);
}

/* sums: [nr][sums_ld] -> out[i0 + i][j + r] for m rows. */
static void put(const product *b, const float *sums, int i0, int m, int j, int nr)
{
    for (int i = 0; i < m; i++) {
        size_t at = (size_t)(i0 + i) * b->ld + (size_t)j;
        for (int r = 0; r < nr; r++) {
            float v = sums[(size_t)r * b->c->sums_ld + (size_t)i];
            if (b->bias) v += b->bias[j + r];
            if (b->residual) v += b->residual[at + (size_t)r];
            b->out[at + (size_t)r] = v;
        }
    }
}

/* Columns j..j+nr-1 of m rows; hi: where this thread's columns end. */
static void panel_columns(const product *b, const cpu_scratch *s, int i0, int m, int j, int nr, int hi)
{
    const kern_mm *mm = &b->c->k.mm;
    const float *x = b->x + (size_t)i0 * (size_t)b->k;

    for (int p = 0; p < b->k; p += mm->kc) {
        int k = b->k - p < mm->kc ? b->k - p : mm->kc;
        const float *w = s->panel;
        size_t ldw = b->c->panel_ld;
        product_ahead next = product_ahead_of(b, j, nr, p, mm->kc, hi);
        if (in_place(b->w)) {
            ldw = (size_t)b->k;
            w = (const float *)b->w->data + (size_t)j * ldw + (size_t)p;
        } else {
            unpack_panel(b, s->panel, j, nr, p, k);
        }
        for (int i = 0; i < m; i += mm->mr) {
            int rows = m - i < mm->mr ? m - i : mm->mr;
            product_fetch(&next, i + rows, m);
            mm->fn(s->sums + i, b->c->sums_ld, x + (size_t)i * (size_t)b->k + p, (size_t)b->k, rows, w, ldw, nr, k,
                   p > 0);
        }
    }
    put(b, s->sums, i0, m, j, nr);
}

static void part(void *user, int t, int n)
{
    const product *b = user;
    const device_ctx *c = b->c;
    /* rows of w that lie a power of two apart share cache sets: fewer at a time where they are not copied */
    const int nb = in_place(b->w) ? c->k.mm.nb / 2 : c->k.mm.nb, most = (int)c->sums_ld;
    int lo, hi;

    pool_share(b->n, c->k.mm.nr, t, n, &lo, &hi);
    for (int i = 0; i < b->m; i += most)
        for (int j = lo; j < hi; j += nb)
            panel_columns(b, &c->scratch[t], i, b->m - i < most ? b->m - i : most, j, hi - j < nb ? hi - j : nb, hi);
}

bool cpu_in_integers(const tensor *w) { return quant_get(w->type)->levels; }

void cpu_ready_rows(const device_ctx *c, const float *x, int m, const tensor *w)
{
    if (m > 0 && cpu_in_integers(w)) cpu_qrows(c, x, m, (int)w->cols);
}

void cpu_matmul(const device_ctx *c, float *out, const float *x, int m, const tensor *w)
{
    cpu_ready_rows(c, x, m, w);
    cpu_matmul_rows(c, out, (size_t)w->n_rows, x, m, w, NULL, NULL);
}

void cpu_matmul_rows(const device_ctx *c, float *out, size_t ld, const float *x, int m, const tensor *w,
                     const float *bias, const float *residual)
{
    product b = { .c = c, .w = w, .x = x, .bias = bias, .residual = residual, .out = out, .ld = ld, .m = m };

    b.n = (int)w->n_rows;
    b.k = (int)w->cols;
    if (w->layout == LAYOUT_T32) (void)t32_shape_of(&b.t32, w->type, (uint64_t)b.n, (uint64_t)b.k);
    if (m < 1) return;
    if (cpu_in_integers(w))
        cpu_qmatmul(&b);
    else
        cpu_share(c, (double)m * b.n * b.k, part, &b);
}
