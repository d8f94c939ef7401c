/* test_gguf_write.c - the GGUF writer: what it writes is what the reader finds; a copy of a file is that file; what
 * goes wrong leaves the old file, no new one and no scrap. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/mem.h"
#include "gguf_walk.h"
#include "scratch.h"
#include "tiny_gguf.h"

static uint8_t *slurp(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *len = (size_t)ftell(f);
    rewind(f);
    uint8_t *d = malloc(*len + 1);
    assert_non_null(d);
    assert_int_equal(fread(d, 1, *len, f), *len);
    fclose(f);
    return d;
}

static size_t files_in(const char *dir)
{
    DIR *d = opendir(dir);
    size_t n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

/* Keys, table and data of `from` into a new file, in pieces of `piece` bytes. */
static llada_status copy_file(const gguf *from, const char *path, size_t piece, llada_err *err)
{
    gguf_writer *w;
    llada_status st = gguf_writer_open(&w, path, err);
    for (uint64_t i = 0; !st && i < gguf_n_keys(from); i++) st = gguf_copy_key(w, from, i, err);
    for (uint64_t i = 0; !st && i < gguf_n_tensors(from); i++) {
        const gguf_tensor *t = gguf_tensor_at(from, i);
        st = gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, err);
    }
    for (uint64_t i = 0; !st && i < gguf_n_tensors(from); i++) {
        const gguf_tensor *t = gguf_tensor_at(from, i);
        for (size_t at = 0; !st && at < t->bytes; at += piece)
            st = gguf_write_data(w, t->data + at, t->bytes - at < piece ? t->bytes - at : piece, err);
    }
    if (!st) return gguf_writer_finish(&w, err);
    gguf_writer_discard(&w);
    return st;
}

static void a_copy_is_the_same_file(void **state)
{
    static const char *const files[] = { "models/tiny-llada-q8_0.gguf", "tests/fixtures/tiny-llada-f32.gguf" };
    scratch dir;
    assert_true(scratch_open(&dir));
    for (size_t i = 0; i < 2; i++) {
        gguf *g;
        llada_err err = { .text = "" };
        size_t a, b;
        assert_int_equal(gguf_open(&g, files[i], true, NULL, 0, &err), LLADA_OK);
        const char *path = scratch_path(&dir, "copy.gguf");
        if (copy_file(g, path, i ? SIZE_MAX / 2 : 70001, &err)) fail_msg("%s", err.text);
        uint8_t *x = slurp(files[i], &a), *y = slurp(path, &b);
        assert_int_equal(a, b);
        assert_memory_equal(x, y, a);
        free(x);
        free(y);
        gguf_close(&g);
    }
    assert_int_equal(files_in(dir.dir), 1);
    scratch_close(&dir);
}

/* Odd kinds, alignments and a split set. */
static void copies_of_odd_files(void **state)
{
    scratch dir;
    assert_true(scratch_open(&dir));
    for (uint32_t align = 1; align <= 4096; align *= 8) {
        tiny_gguf *t = tiny_llada(NULL);
        t->align = align;
        tiny_set_u32(t, "general.alignment", align);
        for (uint32_t kind = 0; kind < 13; kind++) {
            char key[16];
            snprintf(key, sizeof key, "odd.%u", kind);
            if (kind != GGUF_ARR) tiny_set_arr_of(t, key, kind, 5);
        }
        tiny_set_raw(t, "an.i64", GGUF_I64, "\1\2\3\4\5\6\7\x88", 8);
        tiny_file f = tiny_bytes(t);
        gguf *g;
        llada_err err = { .text = "" };
        size_t n;
        assert_int_equal(gguf_open_memory(&g, f.data, f.len, NULL, 0, &err), LLADA_OK);
        const char *path = scratch_path(&dir, "copy.gguf");
        if (copy_file(g, path, 1000, &err)) fail_msg("%s", err.text);
        uint8_t *d = slurp(path, &n);
        assert_int_equal(n, f.len);
        assert_memory_equal(d, f.data, n);
        free(d);
        gguf_close(&g);
        tiny_file_free(&f);
        tiny_free(t);
    }
    scratch_close(&dir);
}

static void a_copied_set_is_one_file(void **state)
{
    scratch dir;
    gguf *g;
    llada_err err = { .text = "" };
    assert_true(scratch_open(&dir));
    tiny_gguf *t = tiny_llada(NULL);
    for (int i = 0; i < 2; i++) {
        tiny_gguf *s = tiny_shard(t, i, 2);
        tiny_save(s, scratch_path(&dir, i ? "m-00002-of-00002.gguf" : "m-00001-of-00002.gguf"));
        tiny_free(s);
    }
    assert_int_equal(gguf_open(&g, dir.path, true, NULL, 0, &err), LLADA_OK);
    if (copy_file(g, scratch_path(&dir, "whole.gguf"), 4096, &err)) fail_msg("%s", err.text);
    gguf_close(&g);
    size_t n;
    uint8_t *d = slurp(dir.path, &n);
    tiny_file f = tiny_bytes(t);
    assert_int_equal(n, f.len);
    assert_memory_equal(d, f.data, n);
    free(d);
    tiny_file_free(&f);
    tiny_free(t);
    scratch_close(&dir);
}

static void put_is_get(void **state)
{
    static const gguf_str words[] = { { "one", 3 }, { "", 0 }, { "a\0b", 3 } };
    static const int32_t ints[] = { 1, -1, INT32_MIN };
    static const float floats[] = { 0.5f, -0.0f };
    static const uint64_t dims[] = { 3, 2 };
    static const float data[] = { 1, 2, 3, 4, 5, 6 };
    scratch dir;
    gguf_writer *w;
    gguf *g;
    llada_err err = { .text = "" };
    assert_true(scratch_open(&dir));
    const char *path = scratch_path(&dir, "new.gguf");
    assert_int_equal(gguf_writer_open(&w, path, &err), LLADA_OK);
    assert_int_equal(gguf_put_u32(w, "a.u32", UINT32_MAX, &err), LLADA_OK);
    assert_int_equal(gguf_put_f32(w, "a.f32", 0.25f, &err), LLADA_OK);
    assert_int_equal(gguf_put_bool(w, "a.bool", true, &err), LLADA_OK);
    assert_int_equal(gguf_put_str(w, "a.str", "text", 4, &err), LLADA_OK);
    assert_int_equal(gguf_put_str_arr(w, "a.strs", words, 3, &err), LLADA_OK);
    assert_int_equal(gguf_put_i32_arr(w, "a.i32s", ints, 3, &err), LLADA_OK);
    assert_int_equal(gguf_put_f32_arr(w, "a.f32s", floats, 2, &err), LLADA_OK);
    assert_int_equal(gguf_put_str_arr(w, "a.none", NULL, 0, &err), LLADA_OK);
    assert_int_equal(gguf_add_tensor(w, "t", QT_F32, 2, dims, &err), LLADA_OK);
    assert_int_equal(gguf_write_data(w, data, sizeof data, &err), LLADA_OK);
    assert_int_equal(gguf_writer_finish(&w, &err), LLADA_OK);
    assert_null(w);

    char warn[128];
    if (gguf_open(&g, path, true, warn, sizeof warn, &err)) fail_msg("%s", err.text);
    assert_string_equal(warn, "");
    int64_t i, is[3];
    double d;
    bool b = false;
    gguf_str s, ss[3];
    float fs[2];
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_n_keys(g), 8);
    assert_int_equal(gguf_get_int(g, "a.u32", 0, INT64_MAX, &i, &err), LLADA_OK);
    assert_int_equal(i, UINT32_MAX);
    assert_int_equal(gguf_get_f64(g, "a.f32", &d, &err), LLADA_OK);
    assert_true(d == 0.25);
    assert_int_equal(gguf_get_bool(g, "a.bool", &b, &err), LLADA_OK);
    assert_true(b);
    assert_int_equal(gguf_get_str(g, "a.str", &s, &err), LLADA_OK);
    assert_memory_equal(s.s, "text", 4);
    assert_int_equal(gguf_arr_str(g, "a.strs", ss, 3, &err), LLADA_OK);
    assert_int_equal(ss[2].len, 3);
    assert_memory_equal(ss[2].s, "a\0b", 3);
    assert_int_equal(gguf_arr_i64(g, "a.i32s", is, 3, &err), LLADA_OK);
    assert_int_equal(is[2], INT32_MIN);
    assert_int_equal(gguf_arr_f32(g, "a.f32s", fs, 2, &err), LLADA_OK);
    assert_memory_equal(fs, floats, sizeof fs);
    assert_int_equal(gguf_arr_str(g, "a.none", ss, 0, &err), LLADA_OK);
    const gguf_tensor *t = gguf_find(g, "t");
    assert_int_equal(t->dims[1], 2);
    assert_memory_equal(t->data, data, sizeof data);
    gguf_close(&g);
    scratch_close(&dir);
}

/* ------------------------------------------------------------ refusals */

static const uint64_t dims_32[2] = { 32, 2 };
static const uint8_t zeros[64];

static llada_status late_key(gguf_writer *w, llada_err *err)
{
    gguf_write_data(w, zeros, 0, err);
    return gguf_put_u32(w, "late", 1, err);
}

static llada_status late_alignment(gguf_writer *w, llada_err *err)
{
    gguf_write_data(w, zeros, 0, err);
    return gguf_put_u32(w, "general.alignment", 64, err);
}

static llada_status late_tensor(gguf_writer *w, llada_err *err)
{
    gguf_write_data(w, zeros, 0, err);
    return gguf_add_tensor(w, "late", QT_F32, 2, dims_32, err);
}

static llada_status key_twice(gguf_writer *w, llada_err *err)
{
    gguf_put_bool(w, "twice", true, err);
    gguf_put_u32(w, "twice", 1, err);
    return gguf_write_data(w, zeros, 0, err);
}

static llada_status tensor_twice(gguf_writer *w, llada_err *err)
{
    gguf_add_tensor(w, "twice", QT_F32, 1, dims_32, err);
    gguf_add_tensor(w, "twice", QT_F16, 1, dims_32, err);
    return gguf_write_data(w, zeros, 0, err);
}

static llada_status empty_key(gguf_writer *w, llada_err *err) { return gguf_put_u32(w, "", 1, err); }
static llada_status odd_key(gguf_writer *w, llada_err *err) { return gguf_put_u32(w, "a\nb", 1, err); }
static llada_status align_3(gguf_writer *w, llada_err *err) { return gguf_put_u32(w, "general.alignment", 3, err); }
static llada_status align_f32(gguf_writer *w, llada_err *err) { return gguf_put_f32(w, "general.alignment", 32, err); }

static llada_status long_name(gguf_writer *w, llada_err *err)
{
    char name[65];
    memset(name, 'n', 64);
    name[64] = 0;
    return gguf_add_tensor(w, name, QT_F32, 1, dims_32, err);
}

static llada_status no_type(gguf_writer *w, llada_err *err) { return gguf_add_tensor(w, "t", 4, 1, dims_32, err); }
static llada_status no_dims(gguf_writer *w, llada_err *err) { return gguf_add_tensor(w, "t", 0, 0, dims_32, err); }
static llada_status part_block(gguf_writer *w, llada_err *err) { return gguf_add_tensor(w, "t", 12, 1, dims_32, err); }

static llada_status huge(gguf_writer *w, llada_err *err)
{
    const uint64_t dims[4] = { 1ull << 62, 4, 1, 1 };
    return gguf_add_tensor(w, "t", QT_F32, 4, dims, err);
}

static llada_status zero_dim(gguf_writer *w, llada_err *err)
{
    const uint64_t dims[2] = { 32, 0 };
    return gguf_add_tensor(w, "t", QT_F32, 2, dims, err);
}

static llada_status too_much(gguf_writer *w, llada_err *err)
{
    gguf_add_tensor(w, "t", QT_Q8_0, 1, dims_32, err);
    gguf_write_data(w, zeros, 30, err);
    return gguf_write_data(w, zeros, 5, err);
}

static llada_status data_without_tensor(gguf_writer *w, llada_err *err) { return gguf_write_data(w, zeros, 1, err); }

static llada_status across_tensors(gguf_writer *w, llada_err *err)
{
    gguf_add_tensor(w, "t", QT_Q4_0, 1, dims_32, err);
    gguf_add_tensor(w, "u", QT_Q4_0, 1, dims_32, err);
    return gguf_write_data(w, zeros, 36, err);
}

static const struct {
    llada_status (*make)(gguf_writer *w, llada_err *err);
    const char *says;
} refusals[] = {
    { late_key, "key late comes after the tensor data has begun" },
    { late_alignment, "key general.alignment comes after the tensor data has begun" },
    { late_tensor, "tensor late is declared after the tensor data has begun" },
    { key_twice, "key twice was written twice" },
    { tensor_twice, "tensor twice was declared twice" },
    { empty_key, "1 to 65535 printable" },
    { odd_key, "printable ASCII" },
    { align_3, "general.alignment is 3, not a power of two" },
    { align_f32, "general.alignment must be an integer" },
    { long_name, "has 64 bytes; 1 to 63" },
    { no_type, "unknown type 4" },
    { no_dims, "0 dimensions" },
    { part_block, "32 x 1 x 1 x 1 is not a shape that Q4_K can hold" },
    { huge, "4611686018427387904 x 4 x 1 x 1 is not a shape that F32 can hold" },
    { zero_dim, "32 x 0 x 1 x 1 is not a shape" },
    { too_much, "tensor t takes 34 bytes, 30 were written and 5 more given" },
    { data_without_tensor, "1 bytes more than the 0 tensors take" },
    { across_tensors, "tensor t takes 18 bytes, 0 were written and 36 more given" },
};

static void refuses_misuse(void **state)
{
    scratch dir;
    assert_true(scratch_open(&dir));
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        gguf_writer *w;
        llada_err err = { .text = "" };
        assert_int_equal(gguf_writer_open(&w, scratch_path(&dir, "new.gguf"), &err), LLADA_OK);
        llada_status st = refusals[i].make(w, &err);
        if (st != LLADA_BAD_ARG || !strstr(err.text, refusals[i].says))
            fail_msg("wanted \"%s\", got %d \"%s\"", refusals[i].says, st, err.text);
        gguf_writer_discard(&w);
        assert_null(w);
        gguf_writer_discard(&w);
        assert_int_equal(files_in(dir.dir), 0);
    }
    scratch_close(&dir);
}

static void refuses_to_finish_half_a_file(void **state)
{
    scratch dir;
    assert_true(scratch_open(&dir));
    assert_non_null(scratch_write(&dir, "model.gguf", "old", 3));
    for (size_t n = 0; n < 34; n += 33) {
        gguf_writer *w;
        llada_err err = { .text = "" };
        assert_int_equal(gguf_writer_open(&w, scratch_path(&dir, "model.gguf"), &err), LLADA_OK);
        assert_int_equal(gguf_add_tensor(w, "t", QT_Q8_0, 1, dims_32, &err), LLADA_OK);
        assert_int_equal(gguf_write_data(w, zeros, n, &err), LLADA_OK);
        assert_int_equal(gguf_writer_finish(&w, &err), LLADA_BAD_ARG);
        assert_null(w);
        char want[64];
        snprintf(want, sizeof want, "tensor t has %zu of its 34 bytes", n);
        assert_string_equal(err.text, want);
        size_t len;
        uint8_t *d = slurp(dir.path, &len);
        assert_int_equal(len, 3);
        assert_memory_equal(d, "old", 3);
        free(d);
        assert_int_equal(files_in(dir.dir), 1);
    }
    scratch_close(&dir);
}

/* A limit on the size of files stands for a full disk: at every place where it can strike. */
static void disk_full(void **state)
{
    scratch dir;
    gguf *g;
    llada_err err;
    struct rlimit old, now;
    assert_true(scratch_open(&dir));
    tiny_gguf *t = tiny_llada(NULL);
    tiny_file f = tiny_bytes(t);
    assert_int_equal(gguf_open_memory(&g, f.data, f.len, NULL, 0, &err), LLADA_OK);
    assert_non_null(scratch_write(&dir, "model.gguf", "old", 3));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    for (size_t room = 0; room < f.len; room += room < 32768 ? 1021 : 100003) {
        now = old;
        now.rlim_cur = room;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
        llada_status st = copy_file(g, scratch_path(&dir, "model.gguf"), 4096, &err);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(st, LLADA_IO);
        assert_non_null(strstr(err.text, "model.gguf"));
        size_t len;
        uint8_t *d = slurp(dir.path, &len);
        assert_int_equal(len, 3);
        free(d);
        assert_int_equal(files_in(dir.dir), 1);
    }
    signal(SIGXFSZ, before);
    gguf_close(&g);
    tiny_file_free(&f);
    tiny_free(t);
    scratch_close(&dir);
}

static void no_place_to_write(void **state)
{
    scratch dir;
    gguf_writer *w = NULL;
    llada_err err;
    assert_true(scratch_open(&dir));
    assert_int_equal(gguf_writer_open(&w, scratch_path(&dir, "none/new.gguf"), &err), LLADA_IO);
    assert_null(w);
    assert_int_equal(gguf_writer_open(&w, dir.dir, &err), LLADA_IO);
    assert_null(w);
    scratch_close(&dir);
}

static void every_allocation_fails(void **state)
{
    scratch dir;
    gguf *g;
    llada_err err;
    uint64_t k = 0, before;
    llada_status st;
    assert_true(scratch_open(&dir));
    const tiny_opts small = tiny_smallest();
    tiny_gguf *t = tiny_llada(&small);
    for (int i = 0; i < 60; i++) { /* so that lists and arena have to grow */
        char key[64];
        snprintf(key, sizeof key, "a.rather.long.name.that.fills.the.arena.quickly.%d", i);
        tiny_set_u32(t, key, 1);
    }
    tiny_file f = tiny_bytes(t);
    assert_int_equal(gguf_open_memory(&g, f.data, f.len, NULL, 0, &err), LLADA_OK);
    do {
        mem_fail_at(++k);
        before = mem_count();
        st = copy_file(g, scratch_path(&dir, "new.gguf"), 100000, &err);
        mem_fail_at(0);
        if (!st && mem_count() - before < k) break; /* it got all it asked for */
        if (!st) {                                  /* looking for what killed writers left is done without */
            assert_int_equal(unlink(scratch_path(&dir, "new.gguf")), 0);
            continue;
        }
        assert_int_equal(st, LLADA_NO_MEMORY);
        assert_non_null(strstr(err.text, "memory"));
        assert_int_equal(files_in(dir.dir), 0);
    } while (k < 1000);
    assert_int_equal(st, LLADA_OK);
    assert_true(k > 8);
    gguf_close(&g);
    tiny_file_free(&f);
    tiny_free(t);
    scratch_close(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_is_the_same_file),
        cmocka_unit_test(copies_of_odd_files),
        cmocka_unit_test(a_copied_set_is_one_file),
        cmocka_unit_test(put_is_get),
        cmocka_unit_test(refuses_misuse),
        cmocka_unit_test(refuses_to_finish_half_a_file),
        cmocka_unit_test(disk_full),
        cmocka_unit_test(no_place_to_write),
        cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
