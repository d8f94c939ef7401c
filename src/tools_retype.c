/* tools_retype.c - rows from one type to another (tools_retype.h).  The result does not depend on the number of
 * threads: each row is encoded alone, and its errors are added up in the order of rows. */
#include "tools_retype.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum { BATCH_BYTES = 4 << 20, BATCH_ROWS = 4096 };

struct retype {
    pool *threads;
    float *values;    /* owned: [threads][2][max_cols] */
    uint64_t max_cols;
    uint8_t *out;     /* owned: [cap] bytes of a batch */
    size_t cap;
    retype_error *each; /* owned: [BATCH_ROWS] */
    uint8_t *broken;  /* owned: [BATCH_ROWS] */
    /* the batch */
    const retype_job *job;
    uint64_t first;
    int n;
    size_t from_bytes, to_bytes; /* of a row */
};

llada_status retype_open(retype **out, int threads, uint64_t max_cols, llada_err *err)
{
    size_t floats;
    retype *r = mem_new(sizeof *r);
    llada_status st = LLADA_NO_MEMORY;
    *out = NULL;
    if (r && !(st = pool_open(&r->threads, threads, err))) {
        r->max_cols = max_cols;
        bool fits = max_cols < SIZE_MAX / 8 && size_mul((size_t)max_cols, 2 * sizeof(float), &r->cap) &&
                    size_mul(r->cap, (size_t)pool_threads(r->threads), &floats);
        if (fits && r->cap < BATCH_BYTES) r->cap = BATCH_BYTES;
        r->values = fits ? mem_new(floats) : NULL;
        r->out = fits ? mem_new(r->cap) : NULL;
        r->each = mem_array(BATCH_ROWS, sizeof *r->each);
        r->broken = mem_array(BATCH_ROWS, sizeof *r->broken);
        if (!r->values || !r->out || !r->each || !r->broken) st = LLADA_NO_MEMORY;
    }
    if (st) {
        retype_close(&r);
        return llada_fail(err, st, "no memory for rows of %llu values", (unsigned long long)max_cols);
    }
    *out = r;
    return LLADA_OK;
}

void retype_close(retype **rp)
{
    retype *r = *rp;
    if (!r) return;
    if (r->threads) pool_close(&r->threads);
    mem_free(r->values);
    mem_free(r->out);
    mem_free(r->each);
    mem_free(r->broken);
    mem_free(r);
    *rp = NULL;
}

/* Where row i of the new tensor stands in the old one. */
static const uint8_t *source_row(const retype *r, uint64_t i)
{
    const retype_job *j = r->job;
    uint64_t part = i / j->part_rows, row = i % j->part_rows;
    if (j->heads) {
        uint64_t width = j->part_rows / j->heads, in_head = row % width;
        row = row - in_head + in_head % 2 * (width / 2) + in_head / 2;
    }
    return j->parts[part] + (size_t)row * r->from_bytes;
}

static bool finite_row(const float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

static void encode_row(retype *r, int i, float *old, float *new)
{
    const retype_job *j = r->job;
    const uint8_t *from = source_row(r, r->first + (uint64_t)i);
    uint8_t *to = r->out + (size_t)i * r->to_bytes;
    const quant_info *a = quant_get(j->from), *b = quant_get(j->to);
    const float *w = j->weights ? j->weights + (r->first + (uint64_t)i) / j->weight_rows * j->cols : NULL;
    retype_error e = { 0 };
    r->each[i] = e;
    a->decode(old, from, (size_t)j->cols);
    if (!finite_row(old, j->cols)) {
        r->broken[i] = 1;
        return;
    }
    if (j->from == j->to) {
        memcpy(to, from, r->to_bytes);
        return;
    }
    if (w && b->weigh) b->weigh(to, old, w, (size_t)j->cols);
    else b->encode(to, old, (size_t)j->cols);
    b->decode(new, to, (size_t)j->cols);
    if (!finite_row(new, j->cols)) r->broken[i] = 2;
    for (uint64_t k = 0; k < j->cols; k++) {
        double d = (double)new[k] - (double)old[k];
        double x2 = (double)old[k] * (double)old[k], u = w ? (double)w[k] : 0;
        e.err2 += d * d;
        e.sum2 += x2;
        e.weighed_err2 += u * d * d;
        e.weighed2 += u * x2;
    }
    r->each[i] = e;
}

static void encode_share(void *user, int t, int n)
{
    retype *r = user;
    int lo, hi;
    float *mine = r->values + (size_t)t * 2 * (size_t)r->max_cols;
    pool_share(r->n, 1, t, n, &lo, &hi);
    for (int i = lo; i < hi; i++) encode_row(r, i, mine, mine + r->max_cols);
}

static llada_status check_batch(const retype *r, retype_error *e, llada_err *err)
{
    for (int i = 0; i < r->n; i++) {
        unsigned long long row = (unsigned long long)(r->first + (uint64_t)i);
        if (r->broken[i] == 1)
            return llada_fail(err, LLADA_BAD_MODEL, "tensor %.64s: a value of row %llu is not a finite number",
                              r->job->name, row);
        if (r->broken[i])
            return llada_fail(err, LLADA_BAD_MODEL, "tensor %.64s: a value of row %llu is too large for %s",
                              r->job->name, row, quant_get(r->job->to)->name);
        e->err2 += r->each[i].err2;
        e->sum2 += r->each[i].sum2;
        e->weighed_err2 += r->each[i].weighed_err2;
        e->weighed2 += r->each[i].weighed2;
    }
    return LLADA_OK;
}

llada_status retype_run(retype *r, const retype_job *j, gguf_writer *w, retype_error *e, tools_tick tick, void *user,
                      uint64_t done, uint64_t total, llada_err *err)
{
    uint64_t n = j->part_rows * j->n_parts; /* the tensor's rows: the reader has checked the product */
    *e = (retype_error){ 0 };
    r->job = j;
    if (j->cols > r->max_cols || !quant_row_bytes(j->from, j->cols, &r->from_bytes) ||
        !quant_row_bytes(j->to, j->cols, &r->to_bytes) || !quant_get(j->from)->decode || !quant_get(j->to)->encode)
        return llada_fail(err, LLADA_BAD_ARG, "tensor %.64s: rows of %llu values can't be stored as type %u", j->name,
                          (unsigned long long)j->cols, j->to);
    uint64_t most = r->cap / r->to_bytes < BATCH_ROWS ? r->cap / r->to_bytes : BATCH_ROWS;
    llada_status st = LLADA_OK;
    for (r->first = 0; r->first < n && !st; r->first += (uint64_t)r->n) {
        if (tick && !tick(user, j->name, done + r->first * r->to_bytes, total))
            return llada_fail(err, LLADA_CANCELLED, "stopped at tensor %.64s", j->name);
        r->n = (int)(n - r->first < most ? n - r->first : most);
        memset(r->broken, 0, (size_t)r->n);
        pool_run(r->threads, encode_share, r);
        if ((st = check_batch(r, e, err))) break;
        st = gguf_write_data(w, r->out, (size_t)r->n * r->to_bytes, err);
    }
    return st;
}
