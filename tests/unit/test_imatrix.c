/* test_imatrix.c - importance matrices: both kinds of file are read, anything else is refused with a sentence, and
 * quantising with one brings the weighed error down. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format/gguf.h"
#include "format/imatrix.h"
#include "scratch.h"
#include "tools.h"

#define FIXTURES LLADA_SOURCE_DIR "/tests/fixtures/"

/* ------------------------------------------------------------ the older kind */

typedef struct {
    uint8_t b[4096];
    size_t n;
} bytes;

static void put_i32(bytes *b, int32_t v)
{
    for (int i = 0; i < 4; i++) b->b[b->n++] = (uint8_t)((uint32_t)v >> (8 * i));
}

static void put_entry(bytes *b, const char *name, int32_t calls, const float *v, int n)
{
    put_i32(b, (int32_t)strlen(name));
    memcpy(b->b + b->n, name, strlen(name));
    b->n += strlen(name);
    put_i32(b, calls);
    put_i32(b, n);
    memcpy(b->b + b->n, v, (size_t)n * 4);
    b->n += (size_t)n * 4;
}

static llada_status open_bytes(imatrix **m, const void *b, size_t n, llada_err *err)
{
    scratch s;
    assert_true(scratch_open(&s) && scratch_write(&s, "m", b, n));
    llada_status st = imatrix_open(m, s.path, err);
    scratch_close(&s);
    return st;
}

static void reads_the_older_kind(void **state)
{
    static const float a[3] = { 2, 4, 0 }, c[2] = { 1, 1 };
    bytes b = { .n = 0 };
    imatrix *m;
    uint64_t n;
    llada_err err = { .text = "" };
    put_i32(&b, 2);
    put_entry(&b, "blk.0.attn_q.weight", 4, a, 3);
    put_entry(&b, "output.weight", 0, c, 2);
    size_t whole = b.n;
    put_i32(&b, 7);
    put_i32(&b, 3);
    memcpy(b.b + b.n, "txt", 3); /* chunks and the name of the text: not needed */
    b.n += 3;
    if (open_bytes(&m, b.b, b.n, &err)) fail_msg("%s", err.text);
    assert_int_equal(imatrix_n(m), 2);
    const float *w = imatrix_find(m, "blk.0.attn_q.weight", &n);
    assert_int_equal(n, 3);
    assert_true(w[0] == 0.5f && w[1] == 1 && w[2] == 0);
    w = imatrix_find(m, "output.weight", &n);
    assert_true(n == 2 && w[0] == 1 && w[1] == 1); /* no calls: all alike */
    assert_null(imatrix_find(m, "blk.0.attn_q", &n));
    imatrix_close(&m);
    imatrix_close(&m);
    for (size_t k = 0; k < whole; k++) {
        if (!open_bytes(&m, b.b, k, &err)) fail_msg("%zu of %zu bytes were enough", k, whole);
        assert_null(m);
        assert_true(err.text[0]);
    }
}

static const struct {
    const char *what;
    int32_t entries, len, calls, n; /* what the file says of one entry named "a" with one number */
    float v;
} bad[] = {
    { "no entries", 0, 1, 1, 1, 1 },           { "less than none", -1, 1, 1, 1, 1 },
    { "too many", INT32_MAX, 1, 1, 1, 1 },     { "no name", 1, 0, 1, 1, 1 },
    { "a name of -1", 1, -1, 1, 1, 1 },        { "a long name", 1, INT32_MAX, 1, 1, 1 },
    { "calls of -1", 1, 1, -1, 1, 1 },         { "no numbers", 1, 1, 1, 0, 1 },
    { "numbers -1", 1, 1, 1, -1, 1 },          { "numbers of 4 GB", 1, 1, 1, 1 << 30, 1 },
    { "negative", 1, 1, 1, 1, -1 },            { "NaN", 1, 1, 1, 1, NAN },
    { "infinite", 1, 1, 1, 1, INFINITY },
};

static void refuses_the_older_kind(void **state)
{
    imatrix *m;
    llada_err err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bytes b = { .n = 0 };
        put_i32(&b, bad[i].entries);
        put_i32(&b, bad[i].len);
        b.b[b.n++] = 'a';
        put_i32(&b, bad[i].calls);
        put_i32(&b, bad[i].n);
        memcpy(b.b + b.n, &bad[i].v, 4);
        b.n += 4;
        if (open_bytes(&m, b.b, b.n, &err) != LLADA_BAD_MODEL) fail_msg("%s was read", bad[i].what);
    }
    bytes twice = { .n = 0 };
    put_i32(&twice, 2);
    put_entry(&twice, "a", 1, (float[1]){ 1 }, 1);
    put_entry(&twice, "a", 1, (float[1]){ 1 }, 1);
    assert_int_equal(open_bytes(&m, twice.b, twice.n, &err), LLADA_BAD_MODEL);
    assert_non_null(strstr(err.text, "a is there twice"));
    static const char *const others[] = { "", "abc", "\x1f\x8b\x08\0\0",
                                          "<!DOCTYPE html><html><body>no</body></html>" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_not_equal(open_bytes(&m, others[i], strlen(others[i]), &err), LLADA_OK);
    assert_int_equal(imatrix_open(&m, FIXTURES, &err), LLADA_IO);
    assert_int_equal(imatrix_open(&m, FIXTURES "none", &err), LLADA_IO);
}

/* ------------------------------------------------------------ GGUF */

typedef struct {
    const char *type, *sums, *counts; /* NULL: left out */
    uint64_t cols, parts, n_counts;
    float sum, count;
} file_of;

static void write_gguf(const char *path, const file_of *f)
{
    gguf_writer *w;
    llada_err err;
    uint64_t dims[2] = { f->cols, f->parts }, counts[2] = { 1, f->n_counts };
    float v[64];
    assert_int_equal(gguf_writer_open(&w, path, &err), LLADA_OK);
    if (f->type) assert_int_equal(gguf_put_str(w, "general.type", f->type, strlen(f->type), &err), LLADA_OK);
    if (f->sums) assert_int_equal(gguf_add_tensor(w, f->sums, QT_F32, 2, dims, &err), LLADA_OK);
    if (f->counts) assert_int_equal(gguf_add_tensor(w, f->counts, QT_F32, 2, counts, &err), LLADA_OK);
    for (size_t i = 0; i < f->cols * f->parts; i++) v[i] = f->sum * (float)(i + 1);
    if (f->sums) assert_int_equal(gguf_write_data(w, v, f->cols * f->parts * 4, &err), LLADA_OK);
    for (size_t i = 0; i < f->n_counts; i++) v[i] = i ? f->count : 2 * f->count;
    if (f->counts) assert_int_equal(gguf_write_data(w, v, f->n_counts * 4, &err), LLADA_OK);
    assert_int_equal(gguf_writer_finish(&w, &err), LLADA_OK);
}

#define SUMS "t.weight.in_sum2"
#define COUNTS "t.weight.counts"

static void reads_gguf(void **state)
{
    static const struct {
        file_of f;
        const char *says; /* NULL: it is read */
    } rows[] = {
        { { "imatrix", SUMS, COUNTS, 4, 2, 2, 2, 4 }, NULL },
        { { "imatrix", SUMS, COUNTS, 4, 1, 1, 2, 0 }, NULL },
        { { "model", SUMS, COUNTS, 4, 1, 1, 2, 4 }, "general.type does not say" },
        { { NULL, SUMS, COUNTS, 4, 1, 1, 2, 4 }, "general.type does not say" },
        { { "imatrix", SUMS, NULL, 4, 1, 1, 2, 4 }, "no count for each of 1 parts" },
        { { "imatrix", NULL, COUNTS, 4, 1, 1, 2, 4 }, "is empty" },
        { { "imatrix", ".in_sum2", COUNTS, 4, 1, 1, 2, 4 }, "is empty" },
        { { "imatrix", SUMS, COUNTS, 4, 2, 1, 2, 4 }, "no count for each of 2 parts" },
        { { "imatrix", SUMS, COUNTS, 4, 1, 1, -2, 4 }, "weight 0 of t.weight is" },
        { { "imatrix", SUMS, COUNTS, 4, 1, 1, NAN, 4 }, "weight 0 of t.weight is" },
        { { "imatrix", SUMS, COUNTS, 4, 1, 1, 2, -1 }, "has the count -2" },
        { { "imatrix", SUMS, COUNTS, 4, 1, 1, 2, NAN }, "has the count" },
        { { "imatrix", SUMS, COUNTS, 4, 1, 1, FLT_MAX, 1e-30f }, "weight 0 of t.weight is inf" },
    };
    scratch s;
    char path[128];
    assert_true(scratch_open(&s));
    snprintf(path, sizeof path, "%s/m.gguf", s.dir);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        imatrix *m;
        llada_err err = { .text = "" };
        uint64_t n;
        write_gguf(path, &rows[i].f);
        llada_status st = imatrix_open(&m, path, &err);
        if (rows[i].says && (st != LLADA_BAD_MODEL || !strstr(err.text, rows[i].says)))
            fail_msg("row %zu: %d \"%s\"", i, st, err.text);
        if (rows[i].says) continue;
        if (st) fail_msg("row %zu: %s", i, err.text);
        const float *w = imatrix_find(m, "t.weight", &n);
        assert_int_equal(n, rows[i].f.cols * rows[i].f.parts);
        assert_true(w[0] == (rows[i].f.count > 0 ? 0.25f : 1) && (n < 8 || w[7] == 4)); /* 2 / 8; 16 / 4 */
        imatrix_close(&m);
    }
    scratch_close(&s);
}

/* ------------------------------------------------------------ quantising with one */

typedef struct {
    double weighed[64];
    int n, used;
} sums;

static void gather(void *user, const tools_quantized *t)
{
    sums *s = user;
    s->weighed[s->n++] = t->weighed;
    s->used += t->weighed >= 0;
}

/* One entry a matrix, whose first columns matter a hundred times more; parts: one for each expert. */
static void write_for(const char *model, const char *path, bool by_expert, uint64_t more_cols)
{
    gguf *g;
    gguf_writer *w;
    llada_err err;
    char name[128];
    assert_int_equal(gguf_open(&g, model, true, NULL, 0, &err), LLADA_OK);
    assert_int_equal(gguf_writer_open(&w, path, &err), LLADA_OK);
    assert_int_equal(gguf_put_str(w, "general.type", "imatrix", 7, &err), LLADA_OK);
    for (int data = 0; data < 2; data++)
        for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
            const gguf_tensor *t = gguf_tensor_at(g, i);
            uint64_t parts = by_expert ? t->dims[2] : 1, dims[2] = { t->dims[0] + more_cols, parts };
            uint64_t counts[2] = { 1, parts };
            if (t->n_dims < 2) continue;
            size_t n = (size_t)(dims[0] * parts);
            float *v = malloc(n * sizeof *v), one = 1;
            for (size_t k = 0; k < n; k++) v[k] = k % dims[0] < dims[0] / 4 ? 100 : 1;
            snprintf(name, sizeof name, "%s.in_sum2", t->name);
            if (!data) assert_int_equal(gguf_add_tensor(w, name, QT_F32, 2, dims, &err), LLADA_OK);
            else assert_int_equal(gguf_write_data(w, v, n * 4, &err), LLADA_OK);
            snprintf(name, sizeof name, "%s.counts", t->name);
            if (!data) assert_int_equal(gguf_add_tensor(w, name, QT_F32, 2, counts, &err), LLADA_OK);
            for (uint64_t k = 0; data && k < parts; k++) assert_int_equal(gguf_write_data(w, &one, 4, &err), LLADA_OK);
            free(v);
        }
    assert_int_equal(gguf_writer_finish(&w, &err), LLADA_OK);
    gguf_close(&g);
}

static void weighs_errors(void **state)
{
    static const struct {
        const char *model, *type;
        bool by_expert;
    } rows[] = { { "net-llada.gguf", "q4_0", false }, { "net-dream.gguf", "q4_0", false },
                 { "net-llada-moe.gguf", "q4_0", true } };
    scratch s;
    char matrix[128], one[128], two[128], model[256];
    llada_err err = { .text = "" };
    assert_true(scratch_open(&s));
    snprintf(matrix, sizeof matrix, "%s/m.gguf", s.dir);
    snprintf(one, sizeof one, "%s/one.gguf", s.dir);
    snprintf(two, sizeof two, "%s/two.gguf", s.dir);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sums with = { .n = 0 };
        snprintf(model, sizeof model, FIXTURES "%s", rows[i].model);
        write_for(model, matrix, rows[i].by_expert, 0);
        tools_quantize_opts o = { .type = rows[i].type, .threads = 2, .imatrix = matrix, .report = gather,
                                  .user = &with, .allow_requantize = true };
        if (tools_quantize(model, one, &o, &err)) fail_msg("row %zu: %s", i, err.text);
        assert_true(with.used > 0);
        o.threads = 1;
        o.report = NULL;
        if (tools_quantize(model, two, &o, &err)) fail_msg("row %zu: %s", i, err.text);
        gguf *a, *b;
        gguf_str name;
        assert_int_equal(gguf_open(&a, one, true, NULL, 0, &err), LLADA_OK);
        assert_int_equal(gguf_open(&b, two, true, NULL, 0, &err), LLADA_OK);
        for (uint64_t k = 0; k < gguf_n_tensors(a); k++) /* whatever the number of threads */
            assert_memory_equal(gguf_tensor_at(a, k)->data, gguf_tensor_at(b, k)->data, gguf_tensor_at(a, k)->bytes);
        assert_int_equal(gguf_get_str(a, "quantize.imatrix.file", &name, &err), LLADA_OK);
        assert_memory_equal(name.s, "m.gguf", name.len);
        gguf_close(&a);
        gguf_close(&b);
    }
    write_for(FIXTURES "net-llada.gguf", matrix, false, 32);
    tools_quantize_opts o = { .type = "q4_0", .threads = 1, .imatrix = matrix };
    assert_int_equal(tools_quantize(FIXTURES "net-llada.gguf", one, &o, &err), LLADA_BAD_MODEL);
    assert_non_null(strstr(err.text, "it is another model's"));
    write_gguf(matrix, &(file_of){ "imatrix", SUMS, COUNTS, 4, 1, 1, 2, 4 });
    assert_int_equal(tools_quantize(FIXTURES "net-llada.gguf", one, &o, &err), LLADA_BAD_MODEL);
    assert_non_null(strstr(err.text, "none of the 1 tensors"));
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(reads_the_older_kind),
                                        cmocka_unit_test(refuses_the_older_kind), cmocka_unit_test(reads_gguf),
                                        cmocka_unit_test(weighs_errors) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
