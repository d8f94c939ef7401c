/* test_gguf.c - the GGUF reader on good files: what it finds, and how its getters treat every type. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "gguf_walk.h"
#include "scratch.h"
#include "tiny_gguf.h"

static gguf *open_tiny(const tiny_gguf *t, tiny_file *f)
{
    gguf *g = NULL;
    llada_err err = { .text = "" };
    char warn[256];
    *f = tiny_bytes(t);
    llada_status st = gguf_open_memory(&g, f->data, f->len, warn, sizeof warn, &err);
    if (st) fail_msg("%s", err.text);
    assert_string_equal(warn, "");
    return g;
}

static void finds_what_is_there(void **state)
{
    tiny_gguf *t = tiny_llada(NULL);
    for (uint32_t version = 2; version <= 3; version++) {
        t->version = version;
        tiny_file f;
        gguf *g = open_tiny(t, &f);
        assert_int_equal(gguf_version(g), version);
        assert_int_equal(gguf_file_bytes(g), f.len);
        assert_false(gguf_lost(g));
        assert_int_equal(gguf_n_keys(g), t->n_keys);
        for (size_t i = 0; i < t->n_keys; i++) {
            gguf_kind kind;
            assert_string_equal(gguf_key(g, i, &kind), t->keys[i].name);
            assert_int_equal(kind, t->keys[i].kind);
            assert_true(gguf_has(g, t->keys[i].name));
        }
        assert_null(gguf_key(g, t->n_keys, NULL));
        assert_int_equal(gguf_n_tensors(g), t->n_tensors);
        for (size_t i = 0; i < t->n_tensors; i++) {
            const tiny_tensor *want = &t->tensors[i];
            const gguf_tensor *got = gguf_tensor_at(g, i);
            assert_string_equal(got->name, want->name);
            assert_int_equal(got->n_dims, want->n_dims);
            assert_memory_equal(got->dims, want->dims, sizeof got->dims);
            assert_int_equal(got->bytes, want->bytes);
            assert_memory_equal(got->data, want->data, want->bytes);
            assert_ptr_equal(gguf_find(g, want->name), got);
        }
        assert_null(gguf_tensor_at(g, t->n_tensors));
        assert_null(gguf_find(g, "output"));
        assert_null(gguf_find(g, ""));
        assert_false(gguf_has(g, "general"));
        gguf_close(&g);
        assert_null(g);
        gguf_close(&g);
        tiny_file_free(&f);
    }
    tiny_free(t);
}

static void reads_values(void **state)
{
    tiny_gguf *t = tiny_llada(NULL);
    tiny_file f;
    gguf *g = open_tiny(t, &f);
    llada_err err;
    int64_t i;
    double d;
    bool b = true;
    gguf_str s, tokens[TINY_VOCAB];
    int64_t types[TINY_VOCAB];
    gguf_kind item;
    uint64_t n;
    assert_int_equal(gguf_get_int(g, "llada.embedding_length", 1, 64, &i, &err), LLADA_OK);
    assert_int_equal(i, 64);
    assert_int_equal(gguf_get_f64(g, "llada.rope.freq_base", &d, &err), LLADA_OK);
    assert_true(d == 500000.0);
    assert_int_equal(gguf_get_bool(g, "llada.attention.causal", &b, &err), LLADA_OK);
    assert_false(b);
    assert_int_equal(gguf_get_str(g, "general.architecture", &s, &err), LLADA_OK);
    assert_int_equal(s.len, 5);
    assert_memory_equal(s.s, "llada", 5);
    assert_int_equal(gguf_get_arr(g, "tokenizer.ggml.tokens", &item, &n, &err), LLADA_OK);
    assert_int_equal(item, GGUF_STR);
    assert_int_equal(n, TINY_VOCAB);
    assert_int_equal(gguf_arr_str(g, "tokenizer.ggml.tokens", tokens, n, &err), LLADA_OK);
    assert_memory_equal(tokens[TINY_MASK].s, "<|mdm_mask|>", 12);
    assert_int_equal(tokens[TINY_MASK].len, 12);
    assert_int_equal(gguf_arr_i64(g, "tokenizer.ggml.token_type", types, n, &err), LLADA_OK);
    assert_int_equal(types[0], 1);
    assert_int_equal(types[TINY_VOCAB - 1], 3);
    gguf_close(&g);
    tiny_file_free(&f);
    tiny_free(t);
}

/* Every integer kind at its ends, against ranges that just hold and just don't. */
static const struct {
    uint32_t kind;
    int bytes;
    uint64_t bits;
    int64_t lo, hi, is; /* is: when it fits */
    const char *says;   /* NULL: it fits */
} ints[] = {
    { GGUF_U8, 1, 255, 0, 255, 255, NULL },
    { GGUF_U8, 1, 255, 0, 254, 0, "is 255; 0 to 254" },
    { GGUF_I8, 1, 0x80, -128, 0, -128, NULL },
    { GGUF_I8, 1, 0x80, -127, 0, 0, "is -128" },
    { GGUF_U16, 2, 65535, 0, 65535, 65535, NULL },
    { GGUF_I16, 2, 0x8000, -32768, 0, -32768, NULL },
    { GGUF_U32, 4, 0xffffffff, 0, INT64_MAX, 0xffffffff, NULL },
    { GGUF_U32, 4, 0x80000000, 0, INT32_MAX, 0, "is 2147483648" },
    { GGUF_I32, 4, 0xffffffff, -1, 0, -1, NULL },
    { GGUF_I32, 4, 0xffffffff, 0, 10, 0, "is -1; 0 to 10" },
    { GGUF_U64, 8, INT64_MAX, 0, INT64_MAX, INT64_MAX, NULL },
    { GGUF_U64, 8, 1ull << 63, 0, INT64_MAX, 0, "is 9223372036854775808" },
    { GGUF_U64, 8, UINT64_MAX, INT64_MIN, INT64_MAX, 0, "is 18446744073709551615" },
    { GGUF_I64, 8, UINT64_MAX, -1, -1, -1, NULL },
    { GGUF_I64, 8, 1ull << 63, INT64_MIN, 0, INT64_MIN, NULL },
    { GGUF_BOOL, 1, 1, 0, 1, 0, "of type bool, but an integer" },
    { GGUF_F32, 4, 0x3f800000, 0, 1, 0, "of type f32, but an integer" },
    { GGUF_F64, 8, 0, 0, 1, 0, "of type f64, but an integer" },
    { GGUF_STR, 8, 0, 0, 1, 0, "of type string, but an integer" },
};

static void converts_integers(void **state)
{
    for (size_t k = 0; k < sizeof ints / sizeof *ints; k++) {
        tiny_gguf *t = tiny_new();
        uint8_t raw[8];
        for (int i = 0; i < 8; i++) raw[i] = (uint8_t)(ints[k].bits >> (8 * i));
        tiny_set_raw(t, "a.key", ints[k].kind, raw, (size_t)ints[k].bytes);
        tiny_file f;
        gguf *g = open_tiny(t, &f);
        llada_err err = { .text = "" };
        int64_t v = 42;
        llada_status st = gguf_get_int(g, "a.key", ints[k].lo, ints[k].hi, &v, &err);
        if (ints[k].says) {
            assert_int_equal(st, LLADA_BAD_MODEL);
            assert_int_equal(v, 42);
            if (!strstr(err.text, ints[k].says) || !strstr(err.text, "a.key")) fail_msg("%zu: %s", k, err.text);
        } else {
            assert_int_equal(st, LLADA_OK);
            assert_int_equal(v, ints[k].is);
        }
        gguf_close(&g);
        tiny_file_free(&f);
        tiny_free(t);
    }
}

static void converts_numbers(void **state)
{
    static const struct {
        uint32_t kind;
        int bytes;
        uint64_t bits;
        double is;
    } nums[] = {
        { GGUF_F32, 4, 0x3fc00000, 1.5 },
        { GGUF_F64, 8, 0x3ff8000000000000, 1.5 },
        { GGUF_F32, 4, 0x7f800000, INFINITY },
        { GGUF_I32, 4, 0xffffffff, -1.0 },
        { GGUF_U64, 8, 1ull << 63, 9223372036854775808.0 },
        { GGUF_U8, 1, 7, 7.0 },
    };
    for (size_t k = 0; k < sizeof nums / sizeof *nums; k++) {
        tiny_gguf *t = tiny_new();
        uint8_t raw[8];
        for (int i = 0; i < 8; i++) raw[i] = (uint8_t)(nums[k].bits >> (8 * i));
        tiny_set_raw(t, "a.key", nums[k].kind, raw, (size_t)nums[k].bytes);
        tiny_file f;
        gguf *g = open_tiny(t, &f);
        double d = 0;
        assert_int_equal(gguf_get_f64(g, "a.key", &d, NULL), LLADA_OK);
        assert_true(d == nums[k].is);
        gguf_close(&g);
        tiny_file_free(&f);
        tiny_free(t);
    }
}

static void refuses_by_name(void **state)
{
    tiny_gguf *t = tiny_llada(NULL);
    tiny_file f;
    gguf *g = open_tiny(t, &f);
    llada_err err;
    int64_t i[TINY_VOCAB];
    float x[TINY_VOCAB];
    double d;
    bool b;
    gguf_str s;
    gguf_kind item;
    uint64_t n;
    assert_int_equal(gguf_get_int(g, "no.such", 0, 1, i, &err), LLADA_BAD_MODEL);
    assert_string_equal(err.text, "key no.such is missing");
    assert_int_equal(gguf_get_f64(g, "general.name", &d, &err), LLADA_BAD_MODEL);
    assert_string_equal(err.text, "key general.name is of type string, but a number is wanted");
    assert_int_equal(gguf_get_bool(g, "llada.block_count", &b, &err), LLADA_BAD_MODEL);
    assert_string_equal(err.text, "key llada.block_count is of type u32, but bool is wanted");
    assert_int_equal(gguf_get_str(g, "tokenizer.ggml.tokens", &s, &err), LLADA_BAD_MODEL);
    assert_string_equal(err.text, "key tokenizer.ggml.tokens is of type array of string, but string is wanted");
    assert_int_equal(gguf_get_arr(g, "general.name", &item, &n, &err), LLADA_BAD_MODEL);
    assert_string_equal(err.text, "key general.name is of type string, but an array is wanted");
    assert_int_equal(gguf_arr_f32(g, "tokenizer.ggml.token_type", x, TINY_VOCAB, &err), LLADA_BAD_MODEL);
    assert_string_equal(err.text, "key tokenizer.ggml.token_type is of type array of i32, but array of f32 is wanted");
    assert_int_equal(gguf_arr_i64(g, "tokenizer.ggml.token_type", i, TINY_VOCAB - 1, &err), LLADA_BAD_MODEL);
    assert_string_equal(err.text, "key tokenizer.ggml.token_type has 300 items, but 299 are wanted");
    gguf_close(&g);
    tiny_file_free(&f);
    tiny_free(t);
}

/* The arrays of a tokenizer, stored as each of the 13 kinds: which getter takes which. */
static void arrays_of_every_kind(void **state)
{
    static const char *const keys[] = { "tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type",
                                        "tokenizer.ggml.merges" };
    const tiny_opts small = tiny_smallest();
    for (size_t k = 0; k < 4; k++)
        for (uint32_t kind = 0; kind < 13; kind++)
            for (uint64_t n = TINY_VOCAB - 1; n <= TINY_VOCAB + 1; n++) {
                tiny_gguf *t = tiny_llada(&small);
                tiny_set_arr_of(t, keys[k], kind, n);
                tiny_file f = tiny_bytes(t);
                gguf *g;
                llada_err err = { .text = "" };
                llada_status st = gguf_open_memory(&g, f.data, f.len, NULL, 0, &err);
                if (kind == GGUF_ARR) {
                    assert_int_equal(st, LLADA_BAD_MODEL);
                    assert_non_null(strstr(err.text, "array of arrays"));
                    assert_non_null(strstr(err.text, keys[k]));
                    assert_null(g);
                } else {
                    static gguf_str s[TINY_VOCAB + 1];
                    static int64_t i[TINY_VOCAB + 1];
                    static float x[TINY_VOCAB + 1];
                    bool number = kind == GGUF_F32 || kind == GGUF_F64;
                    bool integer = kind != GGUF_STR && kind != GGUF_BOOL && !number;
                    assert_int_equal(st, LLADA_OK);
                    assert_int_equal(gguf_arr_str(g, keys[k], s, n, &err) == LLADA_OK, kind == GGUF_STR);
                    assert_int_equal(gguf_arr_i64(g, keys[k], i, n, &err) == LLADA_OK, integer);
                    assert_int_equal(gguf_arr_f32(g, keys[k], x, n, &err) == LLADA_OK, number);
                    if (kind == GGUF_STR) assert_int_equal(s[1].len, 1);
                    if (integer) assert_int_equal(i[1], 1);
                    if (number) assert_true(x[0] == 0.0f && x[1] == 1.0f);
                    gguf_close(&g);
                }
                tiny_file_free(&f);
                tiny_free(t);
            }
}

static void item_too_large(void **state)
{
    tiny_gguf *t = tiny_new();
    uint8_t raw[16] = { 0 };
    raw[15] = 0x80;
    tiny_set_arr(t, "a", GGUF_U64, 2, raw, 16);
    tiny_file f;
    gguf *g = open_tiny(t, &f);
    llada_err err;
    int64_t i[2];
    assert_int_equal(gguf_arr_i64(g, "a", i, 2, &err), LLADA_BAD_MODEL);
    assert_non_null(strstr(err.text, "item 1 is 9223372036854775808"));
    gguf_close(&g);
    tiny_file_free(&f);
    tiny_free(t);
}

static void alignment_is_obeyed(void **state)
{
    const tiny_opts small = tiny_smallest();
    for (uint32_t a = 1; a <= 65536; a *= 2) {
        tiny_gguf *t = tiny_llada(&small);
        t->align = a;
        tiny_set_u32(t, "general.alignment", a);
        tiny_file f;
        gguf *g = open_tiny(t, &f);
        const gguf_tensor *x = gguf_find(g, "blk.0.ffn_down.weight");
        assert_memory_equal(x->data, tiny_find_tensor(t, x->name)->data, x->bytes);
        gguf_close(&g);
        tiny_file_free(&f);
        tiny_free(t);
    }
}

/* 100,000 keys: lookup and the search for doubles must not be quadratic (this would take a minute). */
static void many_keys(void **state)
{
    enum { N = 100000 };
    char *d = calloc(1, 24 + N * 32), *p = d + 24;
    assert_non_null(d);
    memcpy(d, "GGUF\3", 5);
    uint32_t n = N;
    memcpy(d + 16, &n, 4);
    for (int i = 0; i < N; i++) {
        p[0] = 10;
        snprintf(p + 8, 11, "k.%08d", (int)((unsigned)i * 7919u % N));
        memset(p + 18, 0, 8);
        p[18] = GGUF_U32;
        p += 26;
    }
    memset(p, 0, 32);
    gguf *g;
    llada_err err;
    assert_int_equal(gguf_open_memory(&g, d, (size_t)(p - d) + 32, NULL, 0, &err), LLADA_OK);
    for (int i = 0; i < N; i++) {
        char key[16];
        int64_t v;
        snprintf(key, sizeof key, "k.%08d", i);
        assert_int_equal(gguf_get_int(g, key, 0, 0, &v, NULL), LLADA_OK);
    }
    gguf_close(&g);
    free(d);
}

static void real_files(void **state)
{
    gguf *a, *b;
    llada_err err = { .text = "" };
    char warn[256] = "x";
    for (int use_mmap = 0; use_mmap < 2; use_mmap++) {
        if (gguf_open(&a, "tests/fixtures/tiny-llada-f32.gguf", use_mmap, warn, sizeof warn, &err) ||
            gguf_open(&b, "models/tiny-llada-q8_0.gguf", use_mmap, NULL, 0, &err))
            fail_msg("%s", err.text);
        assert_string_equal(warn, "");
        assert_int_equal(gguf_n_tensors(a), 57);
        assert_int_equal(gguf_n_keys(a), 29);
        assert_false(gguf_lost(a));
        float x[256], y[256];
        const gguf_tensor *ta = gguf_find(a, "blk.3.attn_q.weight"), *tb = gguf_find(b, "blk.3.attn_q.weight");
        assert_int_equal(ta->type, QT_F32);
        assert_int_equal(tb->type, QT_Q8_0);
        quant_get(ta->type)->decode(x, ta->data, 256);
        quant_get(tb->type)->decode(y, tb->data, 256);
        float peak = 0;
        for (int i = 0; i < 256; i++) peak = fmaxf(peak, fabsf(x[i]));
        for (int i = 0; i < 256; i++) assert_true(fabsf(x[i] - y[i]) <= peak / 127);
        assert_true(walk_gguf(b, 1 << 20) != 0);
        gguf_close(&a);
        gguf_close(&b);
    }
}

static void cut_while_mapped(void **state)
{
    scratch dir;
    assert_true(scratch_open(&dir));
    const char *path = scratch_path(&dir, "a model \xe6\xa8\xa1\xe5\x9e\x8b \xf0\x9f\x99\x82.gguf");
    tiny_gguf *t = tiny_llada(NULL);
    gguf *g;
    llada_err err = { .text = "" };
    for (int use_mmap = 0; use_mmap < 2; use_mmap++) {
        tiny_save(t, path);
        if (gguf_open(&g, path, use_mmap, NULL, 0, &err)) fail_msg("%s", err.text);
        assert_false(gguf_lost(g));
        assert_int_equal(truncate(path, 1000), 0);
        assert_int_equal(gguf_lost(g), use_mmap);
        gguf_close(&g);
    }
    assert_int_equal(gguf_open(&g, path, true, NULL, 0, &err), LLADA_BAD_MODEL);
    assert_non_null(strstr(err.text, "\xe6\xa8\xa1\xe5\x9e\x8b \xf0\x9f\x99\x82.gguf: cut short"));
    tiny_free(t);
    scratch_close(&dir);
}

static void every_allocation_fails(void **state)
{
    tiny_gguf *t = tiny_llada(NULL);
    tiny_file f = tiny_bytes(t);
    gguf *g = NULL;
    llada_err err;
    uint64_t k = 0;
    llada_status st;
    do {
        mem_fail_at(++k);
        st = gguf_open_memory(&g, f.data, f.len, NULL, 0, &err);
        mem_fail_at(0);
        if (st) {
            assert_int_equal(st, LLADA_NO_MEMORY);
            assert_null(g);
            assert_non_null(strstr(err.text, "memory"));
        }
    } while (st && k < 1000);
    assert_true(k > 5);
    assert_int_equal(st, LLADA_OK);
    gguf_close(&g);
    tiny_file_free(&f);
    tiny_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_is_there), cmocka_unit_test(reads_values),
        cmocka_unit_test(converts_integers),   cmocka_unit_test(converts_numbers),
        cmocka_unit_test(refuses_by_name),     cmocka_unit_test(arrays_of_every_kind),
        cmocka_unit_test(item_too_large),      cmocka_unit_test(alignment_is_obeyed),
        cmocka_unit_test(many_keys),           cmocka_unit_test(real_files),
        cmocka_unit_test(cut_while_mapped),    cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
