/* test_gguf_packed.c - packed files: what tools_pack writes is what the layout says, from one file or from shards;
 * models open from them with the right tensors packed; and files that are damaged or were never so are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "gguf_walk.h"
#include "model/model.h"
#include "scratch.h"
#include "tiny_gguf.h"
#include "tools.h"

static tiny_gguf *small_packed(void)
{
    tiny_opts o = tiny_smallest();
    tiny_gguf *t = tiny_llada(&o);
    tiny_pack(t);
    return t;
}

/* Opens from a copy that ends where the file ends, walks it, and opens the model; what the first refusal said. */
static llada_status try_bytes(const uint8_t *d, size_t len, llada_err *err)
{
    uint8_t *copy = malloc(len ? len : 1);
    gguf *g = NULL;
    model *m = NULL;
    assert_non_null(copy);
    memcpy(copy, d, len);
    *err = (llada_err){ .text = "" };
    llada_status st = gguf_open_memory(&g, copy, len, NULL, 0, err);
    if (st == LLADA_OK) {
        walk_gguf(g, 4096);
        st = model_open(&m, g, "x", NULL, err);
    }
    if (st) assert_true(strlen(err->text) > 10);
    model_close(&m);
    free(copy);
    return st;
}

static void says(const tiny_file *f, size_t len, const char *what)
{
    llada_err err;
    llada_status st = try_bytes(f->data, len, &err);
    if (st != LLADA_BAD_MODEL || !strstr(err.text, what)) fail_msg("wanted \"%s\", got %d \"%s\"", what, st, err.text);
}

/* ------------------------------------------------------------ good files */

static void models_open(void **state)
{
    static const uint32_t types[] = { QT_F32, QT_F16, QT_BF16, QT_Q8_0, QT_Q4_0, QT_Q5_1 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        tiny_opts o = tiny_defaults();
        o.type = types[i];
        tiny_gguf *t = tiny_llada(&o);
        tiny_pack(t);
        tiny_file f = tiny_bytes(t);
        gguf *g;
        model *m;
        llada_err err = { .text = "" };
        if (gguf_open_memory(&g, f.data, f.len, NULL, 0, &err)) fail_msg("%s", err.text);
        assert_true(gguf_packed(g));
        assert_int_equal(gguf_find(g, "output.weight")->type, types[i]);
        if (model_open(&m, g, "x", NULL, &err)) fail_msg("%s", err.text);
        int packed = 0;
        for (int k = 0; k < m->g.n_t; k++) {
            const tensor *w = &m->g.t[k];
            if (w->kind != T_WEIGHT) continue;
            bool matrix = w->n_rows > 1 && strcmp(w->name, "token_embd.weight");
            assert_int_equal(w->layout, matrix ? LAYOUT_T32 : LAYOUT_ROWS);
            assert_true(matrix == (w->row_bytes == 0));
            packed += matrix;
        }
        assert_int_equal(packed, 2 * 7 + 1);
        model_close(&m);
        tiny_file_free(&f);
        tiny_free(t);
    }
}

/* A tensor of the written file as tiny_pack has it. */
static void same_tensor(const gguf *g, tiny_gguf *want, const char *name)
{
    const gguf_tensor *t = gguf_find(g, name);
    const tiny_tensor *w = tiny_find_tensor(want, name);
    assert_true(t && w);
    assert_int_equal(t->type + (t->packed ? T32_TYPE : 0), w->type);
    assert_int_equal(t->bytes, w->bytes);
    assert_memory_equal(t->dims, w->dims, sizeof t->dims);
    assert_memory_equal(t->data, w->data, w->bytes);
    assert_int_equal((uintptr_t)t->data % 128, 0);
}

static void check_written(const char *path, tiny_gguf *rows)
{
    gguf *g;
    int64_t v = 0;
    llada_err err = { .text = "" };
    if (gguf_open(&g, path, true, NULL, 0, &err)) fail_msg("%s", err.text);
    assert_int_equal(gguf_n_tensors(g), rows->n_tensors);
    assert_int_equal(gguf_get_int(g, T32_KEY, 0, 9, &v, &err), LLADA_OK);
    assert_int_equal(v, 1);
    for (size_t i = 0; i < rows->n_keys; i++)
        if (strncmp(rows->keys[i].name, "split.", 6)) assert_true(gguf_has(g, rows->keys[i].name));
    tiny_pack(rows);
    for (size_t i = 0; i < rows->n_tensors; i++) same_tensor(g, rows, rows->tensors[i].name);
    gguf_close(&g);
}

static void written_as_the_layout_says(void **state)
{
    static const uint32_t types[] = { QT_F32, QT_F16, QT_Q8_0, QT_Q4_0 };
    scratch dir;
    char in[160], out[160], again[160];
    llada_err err = { .text = "" };
    assert_true(scratch_open(&dir));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        tiny_opts o = tiny_defaults();
        o.type = types[i];
        tiny_gguf *t = tiny_llada(&o);
        if (i == 0) tiny_set_u32(t, "general.alignment", 32);
        strcpy(in, scratch_path(&dir, "in.gguf"));
        strcpy(out, scratch_path(&dir, "out.gguf"));
        strcpy(again, scratch_path(&dir, "again.gguf"));
        tiny_save(t, in);
        tools_pack_opts one = { .threads = 1 }, three = { .threads = 3 };
        if (tools_pack(in, out, &one, &err) || tools_pack(in, again, &three, &err)) fail_msg("%s", err.text);
        check_written(again, t);
        tiny_free(t);
        gguf *a, *b;
        assert_int_equal(gguf_open(&a, out, true, NULL, 0, &err) || gguf_open(&b, again, true, NULL, 0, &err), 0);
        for (uint64_t k = 0; k < gguf_n_tensors(a); k++)
            assert_memory_equal(gguf_tensor_at(a, k)->data, gguf_tensor_at(b, k)->data, gguf_tensor_at(a, k)->bytes);
        gguf_close(&a);
        gguf_close(&b);
    }
    scratch_close(&dir);
}

static void tied_heads_stay_rows(void **state)
{
    scratch dir;
    char in[160];
    llada_err err = { .text = "" };
    tiny_opts o = tiny_defaults();
    o.tied = true;
    tiny_gguf *t = tiny_llada(&o);
    assert_true(scratch_open(&dir));
    strcpy(in, scratch_path(&dir, "in.gguf"));
    tiny_save(t, in);
    const char *out = scratch_path(&dir, "out.gguf");
    if (tools_pack(in, out, &(tools_pack_opts){ .threads = 2 }, &err)) fail_msg("%s", err.text);
    check_written(out, t); /* tiny_pack leaves the embedding alone */
    tiny_free(t);
    scratch_close(&dir);
}

static void shards_become_one_file(void **state)
{
    enum { N = 3 };
    scratch dir;
    char first[200];
    llada_err err = { .text = "" };
    assert_true(scratch_open(&dir));
    tiny_gguf *t = tiny_llada(NULL);
    for (int i = N - 1; i >= 0; i--) {
        tiny_gguf *part = tiny_shard(t, i, N);
        char name[64];
        snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", i + 1, N);
        strcpy(first, scratch_path(&dir, name));
        tiny_save(part, first);
        tiny_free(part);
    }
    const char *out = scratch_path(&dir, "out.gguf");
    if (tools_pack(first, out, &(tools_pack_opts){ .threads = 2 }, &err)) fail_msg("%s", err.text);
    check_written(out, t);
    tiny_free(t);
    scratch_close(&dir);
}

/* ------------------------------------------------------------ refusals and failures */

static bool stop_at_third(void *user, const char *name, uint64_t done, uint64_t total)
{
    int *n = user;
    assert_true(done <= total);
    return ++*n < 3;
}

static void only_once_and_not_by_half(void **state)
{
    scratch dir;
    char in[160], packed[160], out[160];
    struct stat is;
    int n = 0;
    llada_err err = { .text = "" };
    assert_true(scratch_open(&dir));
    strcpy(in, scratch_path(&dir, "in.gguf"));
    strcpy(packed, scratch_path(&dir, "packed.gguf"));
    strcpy(out, scratch_path(&dir, "out.gguf"));
    tiny_gguf *t = tiny_llada(NULL);
    tiny_save(t, in);
    tiny_free(t);
    tools_pack_opts o = { .threads = 2 };
    assert_int_equal(tools_pack(in, packed, &o, &err), LLADA_OK);
    assert_int_equal(tools_pack(packed, out, &o, &err), LLADA_UNSUPPORTED);
    assert_non_null(strstr(err.text, "packed already"));
    tools_quantize_opts q = { .type = "q8_0", .threads = 1 };
    assert_int_equal(tools_quantize(packed, out, &q, &err), LLADA_UNSUPPORTED);
    assert_non_null(strstr(err.text, "quantise the file it was packed from"));
    o = (tools_pack_opts){ .threads = 1, .tick = stop_at_third, .user = &n };
    assert_int_equal(tools_pack(in, out, &o, &err), LLADA_CANCELLED);
    assert_int_equal(n, 3);
    assert_int_not_equal(stat(out, &is), 0);
    scratch_close(&dir);
}

static void failing_allocations(void **state)
{
    scratch dir;
    char in[160];
    struct stat is;
    llada_err err = { .text = "" };
    assert_true(scratch_open(&dir));
    strcpy(in, scratch_path(&dir, "in.gguf"));
    const char *out = scratch_path(&dir, "out.gguf");
    tiny_opts small = tiny_smallest();
    tiny_gguf *t = tiny_llada(&small);
    tiny_save(t, in);
    tiny_free(t);
    tools_pack_opts o = { .threads = 1 };
    uint64_t all = 0, refused = 0;
    for (uint64_t k = 0; k <= all; k++) {
        uint64_t before = mem_count();
        mem_fail_at(k);
        llada_status st = tools_pack(in, out, &o, &err);
        mem_fail_at(0);
        if (k == 0) all = mem_count() - before;
        refused += st != LLADA_OK;
        if (st) assert_int_equal(st, LLADA_NO_MEMORY);
        assert_int_equal(stat(out, &is) == 0, st == LLADA_OK);
        if (!st) assert_int_equal(remove(out), 0);
    }
    assert_true(refused > 30); /* a few can be done without, as PCRE2's compiled code */
    scratch_close(&dir);
}

/* ------------------------------------------------------------ hostile files */

static void every_prefix(void **state)
{
    tiny_gguf *t = small_packed();
    tiny_file f = tiny_bytes(t);
    const tiny_tensor *last = &t->tensors[t->n_tensors - 1];
    size_t whole = f.len - (32 - last->bytes % 32) % 32;
    for (size_t n = f.data_at - 4000; n < whole; n += n < f.data_at + 200 ? 1 : 61) says(&f, n, "cut short");
    llada_err err;
    assert_int_equal(try_bytes(f.data, f.len, &err), LLADA_OK);
    tiny_file_free(&f);
    tiny_free(t);
}

static const struct {
    const char *field;
    uint64_t v;
    const char *says;
} fields[] = {
    { "type of output.weight", T32_TYPE + 4, "tensor output.weight has type 1412641284, which is not supported" },
    { "type of output.weight", T32_TYPE + 31, "tensor output.weight has type 1412641311, which is not supported" },
    { "type of output.weight", T32_TYPE - 1, "which is not supported" },
    { "type of output.weight", T32_TYPE + 256, "which is not supported" },
    { "type of output.weight", T32_TYPE + QT_Q4_K, "rows of 32 values are not a multiple of Q4_K's block of 256" },
    { "type of output.weight", T32_TYPE + QT_F32, "cut short: tensor output.weight needs bytes" },
    { "type of output.weight", QT_Q8_0, "cut short: tensor output.weight needs bytes" },
    { "type of blk.0.attn_q.weight", T32_TYPE + QT_Q8_0, "overlap" },
    { "type of token_embd.weight", T32_TYPE + QT_Q4_0, "overlap" }, /* 300 rows take 320 */
    { "type of blk.0.attn_norm.weight", T32_TYPE + QT_F32, "overlap" },
    { "dim0 of output.weight", 0, "dimension 0 is 0" },
    { "dim0 of output.weight", 33, "rows of 33 values are not a multiple of Q4_0's block of 32" },
    { "dim0 of output.weight", 64, "cut short: tensor output.weight needs bytes" },
    { "dim0 of output.weight", 1ull << 63, "overflows" },
    { "dim0 of output.weight", UINT64_MAX - 31, "overflows" },
    { "dim1 of output.weight", 0, "dimension 1 is 0" },
    { "dim1 of output.weight", 321, "cut short: tensor output.weight needs bytes" },
    { "dim1 of output.weight", 299, "the vocabulary has 300 tokens but output.weight has 299 rows" },
    { "dim1 of output.weight", (1ull << 42) + 1, "cut short: tensor output.weight needs bytes" },
    { "dim1 of output.weight", 1ull << 63, "overflows" },
    { "dim1 of output.weight", UINT64_MAX, "overflows" },
    { "offset of output.weight", 1, "offset 1 is not a multiple of the alignment 32" },
};

static void one_field_wrong(void **state)
{
    tiny_gguf *t = small_packed();
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        tiny_file f = tiny_bytes(t);
        tiny_poke(&f, fields[i].field, fields[i].v);
        says(&f, f.len, fields[i].says);
        tiny_file_free(&f);
    }
    tiny_free(t);
}

static void no_version(tiny_gguf *t) { tiny_drop_key(t, T32_KEY); }
static void version_0(tiny_gguf *t) { tiny_set_u32(t, T32_KEY, 0); }
static void version_2(tiny_gguf *t) { tiny_set_u32(t, T32_KEY, 2); }
static void version_text(tiny_gguf *t) { tiny_set_str(t, T32_KEY, "1"); }
static void version_huge(tiny_gguf *t) { tiny_set_raw(t, T32_KEY, GGUF_U64, "\xff\xff\xff\xff\xff\xff\xff\xff", 8); }
static void packed_embedding(tiny_gguf *t) { tiny_pack_tensor(t, "token_embd.weight"); }
static void packed_norm(tiny_gguf *t) { tiny_pack_tensor(t, "blk.0.ffn_norm.weight"); }

/* Two matrices of 16 rows would share a stripe. */
static void half_stripes(tiny_gguf *t)
{
    tiny_tensor *x = tiny_find_tensor(t, "blk.0.attn_q.weight");
    x->n_dims = 3;
    x->dims[1] = 16;
    x->dims[2] = 2;
}

static void whole_stripes(tiny_gguf *t)
{
    half_stripes(t);
    tiny_find_tensor(t, "blk.0.attn_q.weight")->dims[1] = 32;
    tiny_find_tensor(t, "blk.0.attn_q.weight")->dims[2] = 1;
    tiny_find_tensor(t, "blk.0.attn_q.weight")->n_dims = 4;
}

static const struct {
    const char *what;
    void (*make)(tiny_gguf *t);
    const char *says; /* NULL: opens */
} things[] = {
    { "no version", no_version, "key t32.version is missing" },
    { "version 0", version_0, "packed in version 0 of the layout, but this program reads version 1" },
    { "version 2", version_2, "packed in version 2 of the layout, but this program reads version 1" },
    { "version as text", version_text, "key t32.version is of type string" },
    { "version of 2^64", version_huge, "key t32.version" },
    { "the embedding packed", packed_embedding, "token_embd.weight): packed, but read row by row" },
    { "a norm packed", packed_norm, "blk.0.ffn_norm.weight): packed, but read row by row" },
    { "matrices that share a stripe", half_stripes, "its matrices have 16 rows, not a multiple of 32" },
    { "dimensions of 1 at the end", whole_stripes, NULL },
};

static void one_thing_wrong(void **state)
{
    for (size_t i = 0; i < sizeof things / sizeof *things; i++) {
        llada_err err;
        tiny_gguf *t = small_packed();
        things[i].make(t);
        tiny_file f = tiny_bytes(t);
        if (things[i].says) says(&f, f.len, things[i].says);
        else assert_int_equal(try_bytes(f.data, f.len, &err), LLADA_OK);
        tiny_file_free(&f);
        tiny_free(t);
    }
}

/* Every number of the table of tensors set to every edge: nothing may crash. */
static void every_field_every_edge(void **state)
{
    static const uint64_t edges[] = { 0, 1, 2, 3, 31, 33, 64, 65535, 0x80000000u, 0xffffffffu, T32_TYPE, T32_TYPE + 30,
                                      (1ull << 42) + 1, (1ull << 61) + 1, 1ull << 63, UINT64_MAX - 31, UINT64_MAX };
    tiny_gguf *t = small_packed();
    tiny_file f = tiny_bytes(t);
    llada_err err;
    size_t refused = 0, tried = 0;
    for (size_t m = 0; m < f.n_marks; m++) {
        uint8_t saved[8];
        if (!strstr(f.marks[m].what, ".weight") && !strstr(f.marks[m].what, T32_KEY)) continue;
        memcpy(saved, f.data + f.marks[m].at, (size_t)f.marks[m].width);
        for (size_t e = 0; e < sizeof edges / sizeof *edges; e++, tried++) {
            tiny_poke_mark(&f, &f.marks[m], edges[e]);
            refused += try_bytes(f.data, f.len, &err) != LLADA_OK;
        }
        memcpy(f.data + f.marks[m].at, saved, (size_t)f.marks[m].width);
    }
    assert_int_equal(try_bytes(f.data, f.len, &err), LLADA_OK);
    assert_true(tried > 800 && refused > tried / 2);
    tiny_file_free(&f);
    tiny_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_open),          cmocka_unit_test(written_as_the_layout_says),
        cmocka_unit_test(tied_heads_stay_rows), cmocka_unit_test(shards_become_one_file),
        cmocka_unit_test(failing_allocations),  cmocka_unit_test(only_once_and_not_by_half),
        cmocka_unit_test(every_prefix),         cmocka_unit_test(one_field_wrong),
        cmocka_unit_test(one_thing_wrong),      cmocka_unit_test(every_field_every_edge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
