/* test_safetensors.c - the reader of checkpoints: good files, every prefix of one, and a table of headers that lie.
 * Inputs end where their memory ends, so that a sanitizer sees every read past them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "checkpoint.h"
#include "format/safetensors.h"

#define T(name, dtype, shape, from, to) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static llada_status open_bytes(const char *header, size_t data, safetensors **s, uint8_t **bytes, llada_err *err)
{
    size_t len;
    *bytes = safetensors_bytes(header, data, &len);
    *err = (llada_err){ .text = "" };
    return st_open_memory(s, *bytes, len, err);
}

/* ------------------------------------------------------------ good files */

static void good(void **state)
{
    safetensors *s;
    uint8_t *b;
    llada_err err;
    const char *h = "{ \"__metadata__\" : {\"format\":\"p\\\"t\", \"\":\"\\u0000\"} ,\n"
                    T("b.weight", "F16", "[2,3]", 4, 16)
                    ",\t" T("a", "F32", "[]", 0, 4) "," T("c", "BF16", "[ 1, 2 ,1,3 ]", 16, 28) "}   ";
    assert_int_equal(open_bytes(h, 28, &s, &b, &err), LLADA_OK);
    assert_int_equal(st_n_tensors(s), 3);
    const gguf_tensor *t = st_find(s, "b.weight");
    assert_non_null(t);
    assert_int_equal(t->type, QT_F16);
    assert_int_equal(t->n_dims, 2);
    assert_true(t->dims[0] == 3 && t->dims[1] == 2 && t->dims[2] == 1);
    assert_int_equal(t->bytes, 12);
    assert_int_equal(t->data[0], 4);
    t = st_find(s, "a");
    assert_true(t->n_dims == 1 && t->dims[0] == 1 && t->bytes == 4 && t->data[0] == 0);
    t = st_find(s, "c");
    assert_true(t->n_dims == 4 && t->dims[0] == 3 && t->dims[1] == 1 && t->dims[2] == 2 && t->dims[3] == 1);
    assert_null(st_find(s, "d"));
    assert_int_equal(st_file_of(s, t), 0);
    st_forget(s, t); /* memory: nothing happens */
    assert_int_equal(t->data[0], 16);
    st_close(&s);
    free(b);
    assert_int_equal(open_bytes("{}", 0, &s, &b, &err), LLADA_OK);
    assert_int_equal(st_n_tensors(s), 0);
    st_close(&s);
    free(b);
}

/* ------------------------------------------------------------ every prefix */

static void every_prefix(void **state)
{
    size_t len;
    const char *h = "{\"__metadata__\":{\"a\":\"b\"}," T("x", "F32", "[2]", 0, 8) ","
                    T("y", "BF16", "[1,2]", 8, 12) "}";
    uint8_t *whole = safetensors_bytes(h, 12, &len);
    for (size_t n = 0; n < len; n++) {
        uint8_t *b = malloc(n ? n : 1);
        safetensors *s;
        llada_err err = { .text = "" };
        memcpy(b, whole, n);
        assert_int_equal(st_open_memory(&s, b, n, &err), LLADA_BAD_MODEL);
        assert_null(s);
        if (!strstr(err.text, n < 8 ? "not safetensors" : "cut short")) fail_msg("%zu bytes: %s", n, err.text);
        free(b);
    }
    free(whole);
}

/* The header's length is right, but it ends too early: the scanner must say so at any place. */
static void every_short_header(void **state)
{
    const char *h = "{\"__metadata__\":{\"a\":\"b\\n\"}," T("x", "F32", "[2]", 0, 8) "}";
    for (size_t n = 0; n < strlen(h); n++) {
        char *part = strndup(h, n);
        safetensors *s;
        uint8_t *b;
        llada_err err;
        if (open_bytes(part, 0, &s, &b, &err) != LLADA_BAD_MODEL || s) fail_msg("%s", part);
        assert_true(strlen(err.text) > 10);
        free(part);
        free(b);
    }
}

/* ------------------------------------------------------------ headers that lie */

static const struct {
    const char *header;
    size_t data;
    const char *says;
} lies[] = {
    /* not the JSON of a header */
    { "[]", 0, "the header's object" },
    { "{]", 0, "a string was wanted" },
    { "{} x", 0, "the end of the header" },
    { "{\"a\":1}", 0, "a tensor's object" },
    { "{\"a\":{}}", 0, "a string was wanted" },
    { "{\"a\":{\"dtype\":\"F32\"}}", 0, "lacks its shape" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "lacks its two data_offsets" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "lacks its two data_offsets" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "more than 2 numbers" },
    { "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "there twice" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4, "none of dtype" },
    { "{" T("a", "F32", "[1,]", 0, 4) "}", 4, "a whole number" },
    { "{" T("a", "F32", "[1", 0, 4) "}", 4, "" },
    { "{" T("a", "F32", "[-1]", 0, 4) "}", 4, "a whole number" },
    { "{" T("a", "F32", "[1.0]", 0, 4) "}", 4, "a comma or the end of the list" },
    { "{" T("a", "F32", "[1e3]", 0, 4) "}", 4, "a comma or the end of the list" },
    { "{" T("a", "F32", "[01]", 0, 4) "}", 4, "without zeros in front" },
    { "{" T("a", "F32", "[[1]]", 0, 4) "}", 4, "a whole number" },
    { "{" T("a", "F32", "[null]", 0, 4) "}", 4, "a whole number" },
    { "{" T("a", "F32", "[\"1\"]", 0, 4) "}", 4, "a whole number" },
    { "{" T("a", "F32", "[1,1,1,1,1]", 0, 4) "}", 4, "more than 4 numbers" },
    { "{" T("a", "F32", "[18446744073709551616]", 0, 4) "}", 4, "too large" },
    { "{" T("a", "F32", "[99999999999999999999999]", 0, 4) "}", 4, "too large" },
    { "{\"__metadata__\":[]}", 0, "an object of strings" },
    { "{\"__metadata__\":{\"a\":1}}", 0, "a string was wanted" },
    { "{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "a string was wanted" },
    { "{\"a\nb\":1}", 0, "a character of a string" },
    /* names */
    { "{" T("", "F32", "[1]", 0, 4) "}", 4, "tensor name" },
    { "{" T("a\\u0062", "F32", "[1]", 0, 4) "}", 4, "tensor name" },
    { "{" T("\xc3\xa9", "F32", "[1]", 0, 4) "}", 4, "tensor name" },
    { "{" T("\x1b[31m", "F32", "[1]", 0, 4) "}", 4, "" },
    { "{" T("a", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 4, 8) "}", 8, "a is there twice" },
    /* types */
    { "{" T("a", "F64", "[1]", 0, 8) "}", 8, "stored as F64" },
    { "{" T("a", "f32", "[1]", 0, 4) "}", 4, "stored as f32" },
    { "{" T("a", "I64", "[1]", 0, 8) "}", 8, "stored as I64" },
    { "{" T("a", "F8_E4M3", "[4]", 0, 4) "}", 4, "stored as F8_E4M3" },
    { "{" T("a", "", "[1]", 0, 4) "}", 4, "stored as" },
    { "{" T("a", "\x7f\xff", "[1]", 0, 4) "}", 4, "stored as ?" },
    { "{" T("a", "F32F32F32F32F32F32F32F32", "[1]", 0, 4) "}", 4, "stored as ?" },
    /* shapes and offsets */
    { "{" T("a", "F32", "[0]", 0, 0) "}", 0, "empty or overflows" },
    { "{" T("a", "F32", "[0,7]", 0, 0) "}", 0, "empty or overflows" },
    { "{" T("a", "F32", "[4294967296,4294967296]", 0, 0) "}", 0, "empty or overflows" },
    { "{" T("a", "F32", "[4611686018427387904]", 0, 0) "}", 0, "empty or overflows" },
    { "{" T("a", "F32", "[18446744073709551615]", 0, 4) "}", 4, "empty or overflows" },
    { "{" T("a", "F32", "[2]", 0, 4) "}", 4, "takes 8 bytes, but its offsets are 0 to 4" },
    { "{" T("a", "F16", "[2]", 0, 8) "}", 8, "takes 4 bytes" },
    { "{" T("a", "F32", "[1]", 4, 0) "}", 4, "offsets are 4 to 0" },
    { "{" T("a", "F32", "[1]", 18446744073709551612, 0) "}", 4, "offsets are 18446744073709551612 to 0" },
    { "{" T("a", "F32", "[1]", 18446744073709551611, 18446744073709551615) "}", 4,
      "cut short: tensor a ends at byte 1844" },
    { "{" T("a", "F32", "[1]", 0, 4) "}", 3, "cut short: tensor a ends at byte 4 of the data, which has 3" },
    { "{" T("a", "F32", "[1]", 4, 8) "}", 8, "a hole" },
    { "{" T("a", "F32", "[1]", 0, 4) "}", 5, "but the file at byte" },
    { "{}", 1, "but the file at byte" },
    { "{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 0, 4) "}", 4, "they overlap" },
    { "{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[1]", 4, 8) "}", 8, "they overlap" },
    { "{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 8, 12) "}", 12, "a hole" },
};

static void refuses(void **state)
{
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        safetensors *s;
        uint8_t *b;
        llada_err err;
        llada_status st = open_bytes(lies[i].header, lies[i].data, &s, &b, &err);
        if (st == LLADA_OK || s || !err.text[0] || !strstr(err.text, lies[i].says))
            fail_msg("%s: wanted \"%s\", got %d \"%s\"", lies[i].header, lies[i].says, st, err.text);
        free(b);
    }
}

/* Lengths of the header itself. */
static void refuses_lengths(void **state)
{
    static const uint64_t lengths[] = { 3, 4, 100, (100u << 20) + 1, 1u << 31, 1ull << 32, (1ull << 42) + 1, 1ull << 63,
                                        UINT64_MAX - 7, UINT64_MAX };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t b[10] = { 0, 0, 0, 0, 0, 0, 0, 0, '{', '}' };
        safetensors *s;
        llada_err err = { .text = "" };
        for (int k = 0; k < 8; k++) b[k] = (uint8_t)(lengths[i] >> (8 * k));
        assert_int_equal(st_open_memory(&s, b, sizeof b, &err), LLADA_BAD_MODEL);
        assert_non_null(strstr(err.text, lengths[i] > 100u << 20 ? "the limit is" : "cut short"));
    }
}

/* A header of nothing but open brackets costs no stack. */
static void deep(void **state)
{
    enum { N = 1 << 20 };
    char *h = malloc(N + 1);
    for (const char *c = "{["; *c; c++) {
        safetensors *s;
        uint8_t *b;
        llada_err err;
        memset(h, *c, N);
        h[N] = 0;
        assert_int_equal(open_bytes(h, 0, &s, &b, &err), LLADA_BAD_MODEL);
        free(b);
    }
    free(h);
}

/* ------------------------------------------------------------ several files, failing memory */

static void several_files(void **state)
{
    static const char *const headers[] = { "{" T("a", "F32", "[1]", 0, 4) "}", "{" T("b", "F32", "[1]", 0, 4) "}",
                                           "{" T("a", "F32", "[2]", 0, 8) "}", "{}" };
    static const size_t data[] = { 4, 4, 8, 0 };
    scratch d;
    char paths[5][512];
    const char *list[5];
    safetensors *s;
    llada_err err = { .text = "" };
    assert_true(scratch_open(&d));
    for (size_t i = 0; i < 4; i++) {
        size_t len;
        char name[16];
        uint8_t *b = safetensors_bytes(headers[i], data[i], &len);
        snprintf(name, sizeof name, "%zu.st", i);
        assert_non_null(scratch_write(&d, name, b, len));
        snprintf(paths[i], sizeof paths[i], "%s", d.path);
        free(b);
        list[i] = paths[i];
    }
    const char *two[] = { list[3], list[0], list[1] };
    assert_int_equal(st_open(&s, two, 3, &err), LLADA_OK);
    assert_int_equal(st_n_tensors(s), 2);
    assert_int_equal(st_file_of(s, st_find(s, "a")), 1);
    assert_int_equal(st_file_of(s, st_find(s, "b")), 2);
    st_forget(s, st_find(s, "b"));
    assert_int_equal(st_find(s, "b")->data[3], 3);
    st_close(&s);
    assert_int_equal(st_open(&s, list, 3, &err), LLADA_BAD_MODEL);
    assert_non_null(strstr(err.text, "2.st: tensor a is there twice"));
    snprintf(paths[4], sizeof paths[4], "%s/none.st", d.dir);
    list[1] = paths[4];
    assert_int_equal(st_open(&s, list, 2, &err), LLADA_IO);
    list[1] = d.dir;
    assert_int_equal(st_open(&s, list, 2, &err), LLADA_IO);
    for (uint64_t k = 1;; k++) {
        mem_fail_at(k);
        llada_status st = st_open(&s, two, 3, &err);
        mem_fail_at(0);
        assert_true(k < 100);
        if (st == LLADA_OK) break;
        assert_int_equal(st, LLADA_NO_MEMORY);
        assert_null(s);
    }
    st_close(&s);
    scratch_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good),    cmocka_unit_test(every_prefix),    cmocka_unit_test(every_short_header),
        cmocka_unit_test(refuses), cmocka_unit_test(refuses_lengths), cmocka_unit_test(deep),
        cmocka_unit_test(several_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
