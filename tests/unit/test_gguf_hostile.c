/* test_gguf_hostile.c - the GGUF reader on files that are cut, damaged or made to harm.  The promise: a sentence that
 * names the field or the byte offset, little memory, little time, never a crash (sanitizers watch). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "gguf_walk.h"
#include "scratch.h"
#include "tiny_gguf.h"

static tiny_gguf *small_model(void)
{
    tiny_opts o = tiny_smallest();
    return tiny_llada(&o);
}

/* Opens from a copy that ends where the file ends, so that a sanitizer sees every read past it; walks what opens. */
static llada_status try_bytes(const uint8_t *d, size_t len, llada_err *err)
{
    uint8_t *copy = malloc(len ? len : 1);
    gguf *g = NULL;
    char warn[128];
    assert_non_null(copy);
    if (len) memcpy(copy, d, len);
    *err = (llada_err){ .text = "" };
    llada_status st = gguf_open_memory(&g, copy, len, warn, sizeof warn, err);
    if (st) {
        assert_int_equal(st, LLADA_BAD_MODEL);
        assert_null(g);
        assert_true(strlen(err->text) > 10);
    } else {
        walk_gguf(g, 4096);
    }
    gguf_close(&g);
    free(copy);
    return st;
}

static void says(const uint8_t *d, size_t len, const char *what)
{
    llada_err err;
    llada_status st = try_bytes(d, len, &err);
    if (st != LLADA_BAD_MODEL || !strstr(err.text, what)) fail_msg("wanted \"%s\", got %d \"%s\"", what, st, err.text);
}

static void every_prefix(void **state)
{
    tiny_gguf *t = small_model();
    tiny_file f = tiny_bytes(t);
    const tiny_tensor *last = &t->tensors[t->n_tensors - 1];
    size_t whole = f.len - (32 - last->bytes % 32) % 32; /* the last padding may be missing */
    llada_err err;
    for (size_t n = 0; n <= f.len; n++) {
        llada_status st = try_bytes(f.data, n, &err);
        if (n >= whole) {
            assert_int_equal(st, LLADA_OK);
            continue;
        }
        const char *want = n < 4 ? "not GGUF" : "cut short";
        if (!strstr(err.text, want)) fail_msg("prefix of %zu bytes: %d %s", n, st, err.text);
    }
    tiny_file_free(&f);
    tiny_free(t);
}

/* ------------------------------------------------------------ other kinds of file */

static const struct {
    const char *bytes;
    size_t len;
    const char *says;
} not_gguf[] = {
    { "", 0, "not GGUF: the file is empty" },
    { "GGU", 3, "not GGUF: the file has only 3 bytes" },
    { "<!DOCTYPE html><html>", 21, "web page" },
    { "\r\n  <HTML lang=en>", 18, "web page" },
    { "<?xml version=\"1.0\"?>", 21, "web page" },
    { "\x1f\x8b\x08\0\0\0\0\0", 8, "gzip" },
    { "PK\3\4\x14\0\0\0", 8, "zip" },
    { "\x28\xb5\x2f\xfd\x04\0", 6, "zstd" },
    { "\xfd"
      "7zXZ\0\0",
      7, "xz" },
    { "version https://git-lfs\n", 24, "Git LFS" },
    { "lmgg\1\0\0\0", 8, "old ggml format" },
    { "fmgg\1\0\0\0", 8, "old ggmf format" },
    { "tjgg\3\0\0\0", 8, "old ggjt format" },
    { "algg\1\0\0\0", 8, "ggla" },
    { "\x08\0\0\0\0\0\0\0{\"a\":{}}", 16, "safetensors" },
    { "some text that is no model", 26, "begins with bytes 73 6f 6d 65" },
    { "GGUF", 4, "cut short: the version needs 4 bytes at byte 4" },
    { "GGUF\3\0\0\0", 8, "cut short: the header needs 24 bytes at byte 0, but the file ends at byte 8" },
    { "GGUF\0\0\0\0", 8, "version 0;" },
    { "GGUF\1\0\0\0", 8, "version 1;" },
    { "GGUF\4\0\0\0", 8, "version 4;" },
    { "GGUF\0\0\0\3", 8, "big-endian GGUF: convert it" },
    { "GGUF\0\0\0\2", 8, "big-endian GGUF: convert it" },
    { "FUGG\0\0\0\3", 8, "big-endian GGUF: convert it" },
    /* version 3, no tensors, one key of length 0: 37 bytes that once ended another reader */
    { "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 37, "empty key at byte 24" },
    /* no keys, one tensor with an empty name */
    { "GGUF\3\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
      "\0\0\0\0\0\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
      60, "empty tensor name at byte 24" },
};

static void other_files(void **state)
{
    for (size_t i = 0; i < sizeof not_gguf / sizeof *not_gguf; i++)
        says((const uint8_t *)not_gguf[i].bytes, not_gguf[i].len, not_gguf[i].says);
    /* v3 with nothing in it is a file all the same; what is missing is for the caller to say */
    llada_err err;
    assert_int_equal(try_bytes((const uint8_t *)"GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, &err), LLADA_OK);
}

/* ------------------------------------------------------------ one field wrong */

static const uint64_t edges[] = { 0,
                                  1,
                                  2,
                                  3,
                                  4,
                                  5,
                                  7,
                                  8,
                                  9,
                                  12,
                                  13,
                                  31,
                                  33,
                                  64,
                                  255,
                                  65535,
                                  65536,
                                  0x7fffffff,
                                  0x80000000u,
                                  0xfffffffeu,
                                  0xffffffffu,
                                  1ull << 32,
                                  (1ull << 42) + 1,
                                  (1ull << 61) + 1,
                                  INT64_MAX,
                                  1ull << 63,
                                  UINT64_MAX - 1,
                                  UINT64_MAX };

/* Every number of the header set to every edge: nothing may crash; what still opens must be walkable. */
static void every_field_every_edge(void **state)
{
    tiny_gguf *t = small_model();
    tiny_set_u32(t, "general.alignment", 32);
    tiny_file f = tiny_bytes(t);
    llada_err err;
    size_t refused = 0;
    for (size_t m = 0; m < f.n_marks; m++) {
        uint8_t saved[8];
        memcpy(saved, f.data + f.marks[m].at, (size_t)f.marks[m].width);
        for (size_t e = 0; e < sizeof edges / sizeof *edges; e++) {
            tiny_poke_mark(&f, &f.marks[m], edges[e]);
            refused += try_bytes(f.data, f.len, &err) != LLADA_OK;
        }
        memcpy(f.data + f.marks[m].at, saved, (size_t)f.marks[m].width);
    }
    assert_int_equal(try_bytes(f.data, f.len, &err), LLADA_OK);
    assert_true(refused > f.n_marks * 10);
    tiny_file_free(&f);
    tiny_free(t);
}

static const struct {
    const char *field;
    uint64_t v;
    const char *says;
} fields[] = {
    { "tensor count", 1ull << 63, "promises 9223372036854775808 tensors" },
    { "tensor count", UINT64_MAX, "promises 18446744073709551615 tensors" },
    { "tensor count", (1ull << 42) + 1, "promises 4398046511105 tensors" },
    { "tensor count", 3000, "cut short: the header promises 3000 tensors, but only" },
    { "key count", 20000, "cut short: the header promises 20000 keys, but only" },
    { "key count", 1ull << 63, "promises 9223372036854775808 keys" },
    { "key count", UINT64_MAX, "promises 18446744073709551615 keys" },
    { "key count", 1, "tensor general.type has 8 dimensions" }, /* the keys behind are read as tensors */
    { "key length of general.type", 0, "empty key" },
    { "key length of general.type", 65536, "key of 65536 bytes" },
    { "key length of general.type", UINT64_MAX, "key of 18446744073709551615 bytes" },
    { "kind of general.type", 13, "key general.type has type 13" },
    { "kind of general.type", UINT32_MAX, "key general.type has type 4294967295" },
    { "string length of general.name", UINT64_MAX, "the value of key general.name needs 18446744073709551615 bytes" },
    { "item kind of tokenizer.ggml.tokens", 9, "array of arrays" },
    { "item kind of tokenizer.ggml.tokens", 99, "has item type 99" },
    { "item count of tokenizer.ggml.tokens", 1ull << 63, "has 9223372036854775808 values of type string" },
    { "item count of tokenizer.ggml.token_type", UINT64_MAX, "values of type i32" },
    { "item count of tokenizer.ggml.token_type", (1ull << 62) + 1, "values of type i32" },
    { "last string of tokenizer.ggml.tokens", UINT64_MAX - 7, "the value of key tokenizer.ggml.tokens" },
    { "name length of output.weight", 0, "empty tensor name" },
    { "name length of output.weight", 256, "tensor name of 256 bytes" },
    { "name length of output.weight", UINT64_MAX, "tensor name of 18446744073709551615 bytes" },
    { "n_dims of output.weight", 0, "tensor output.weight has 0 dimensions" },
    { "n_dims of output.weight", 5, "tensor output.weight has 5 dimensions" },
    { "n_dims of output.weight", UINT32_MAX, "tensor output.weight has 4294967295 dimensions" },
    { "dim0 of output.weight", 0, "tensor output.weight: dimension 0 is 0" },
    { "dim1 of output.weight", 0, "tensor output.weight: dimension 1 is 0" },
    { "dim0 of output.weight", 33, "rows of 33 values are not a multiple of Q4_0's block of 32" },
    { "dim0 of output.weight", 1ull << 63, "overflows" },
    { "dim1 of output.weight", 1ull << 63, "overflows" },
    { "dim1 of output.weight", (1ull << 42) + 1, "cut short: tensor output.weight needs bytes" },
    { "dim1 of output.weight", 301, "cut short: tensor output.weight needs bytes" },
    { "type of output.weight", 4, "tensor output.weight has type 4" },
    { "type of output.weight", 31, "tensor output.weight has type 31" },
    { "type of output.weight", UINT32_MAX, "tensor output.weight has type 4294967295" },
    { "type of output.weight", 12, "rows of 32 values are not a multiple of Q4_K's block of 256" },
    { "offset of output.weight", 1, "offset 1 is not a multiple of the alignment 32" },
    { "offset of output.weight", 0, "tensors token_embd.weight and output.weight overlap" },
    { "offset of output.weight", 32, "tensors token_embd.weight and output.weight overlap" },
    { "offset of output.weight", 1ull << 63, "cut short: tensor output.weight needs bytes" },
    { "offset of output.weight", UINT64_MAX - 31, "overflows" },
    { "offset of output.weight", (1ull << 42), "cut short: tensor output.weight needs bytes" },
};

static void one_field_wrong(void **state)
{
    tiny_gguf *t = small_model();
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        tiny_file f = tiny_bytes(t);
        tiny_poke(&f, fields[i].field, fields[i].v);
        says(f.data, f.len, fields[i].says);
        tiny_file_free(&f);
    }
    tiny_free(t);
}

/* ------------------------------------------------------------ one thing wrong */

static void double_tensor(tiny_gguf *t) { strcpy(tiny_find_tensor(t, "blk.0.attn_q.weight")->name, "output.weight"); }
static void double_key(tiny_gguf *t) { strcpy(tiny_find_key(t, "general.type")->name, "general.name"); }
static void control_in_key(tiny_gguf *t) { strcpy(tiny_find_key(t, "general.type")->name, "general\x1b[2J"); }
static void latin_in_tensor(tiny_gguf *t) { strcpy(tiny_find_tensor(t, "output.weight")->name, "o\xfftput"); }
static void bad_bool(tiny_gguf *t) { tiny_find_key(t, "llada.attention.causal")->raw[0] = 2; }
static void bad_bools(tiny_gguf *t) { tiny_set_arr(t, "x.y", GGUF_BOOL, 3, "\0\1\xff", 3); }
static void align_0(tiny_gguf *t) { tiny_set_u32(t, "general.alignment", 0); }
static void align_48(tiny_gguf *t) { tiny_set_u32(t, "general.alignment", 48); }
static void align_large(tiny_gguf *t) { tiny_set_u32(t, "general.alignment", 131072); }
static void align_str(tiny_gguf *t) { tiny_set_str(t, "general.alignment", "32"); }
static void align_f32(tiny_gguf *t) { tiny_set_f32(t, "general.alignment", 32); }
static void align_bool(tiny_gguf *t) { tiny_set_bool(t, "general.alignment", true); }
static void align_arr(tiny_gguf *t) { tiny_set_arr_of(t, "general.alignment", GGUF_U32, 2); }
static void align_i64(tiny_gguf *t)
{
    tiny_set_raw(t, "general.alignment", GGUF_I64, "\xe0\xff\xff\xff\xff\xff\xff\xff", 8);
}
static void five_dims(tiny_gguf *t) { tiny_find_tensor(t, "output.weight")->n_dims = 5; }
static void more_data_than_file(tiny_gguf *t) { tiny_find_tensor(t, "output.weight")->bytes -= 32; }
static void split_in_memory(tiny_gguf *t) { tiny_set_u32(t, "split.count", 3), tiny_set_u32(t, "split.no", 1); }

static void long_key(tiny_gguf *t)
{
    char *k = tiny_find_key(t, "general.type")->name;
    memset(k, 'k', sizeof t->keys->name - 1);
    strcpy(tiny_find_key(t, "general.name")->name, k);
}

static const struct {
    const char *what;
    void (*make)(tiny_gguf *t);
    const char *says;
} things[] = {
    { "two tensors of one name", double_tensor, "tensor output.weight is there twice" },
    { "a key twice", double_key, "key general.name is there twice" },
    { "an escape sequence as key", control_in_key, "not printable ASCII" },
    { "a stray byte in a tensor name", latin_in_tensor, "not printable ASCII" },
    { "a bool of 2", bad_bool, "key llada.attention.causal: a bool at byte" },
    { "an array with a bool of 255", bad_bools, "is 255, not 0 or 1" },
    { "alignment 0", align_0, "general.alignment is 0" },
    { "alignment 48", align_48, "general.alignment is 48, not a power of two" },
    { "alignment 131072", align_large, "general.alignment is 131072; 1 to 65536 is allowed" },
    { "alignment as text", align_str, "general.alignment is of type string" },
    { "alignment as f32", align_f32, "general.alignment is of type f32" },
    { "alignment as bool", align_bool, "general.alignment is of type bool" },
    { "alignment as array", align_arr, "general.alignment is of type array of u32" },
    { "alignment -32", align_i64, "general.alignment is -32" },
    { "five dimensions", five_dims, "tensor output.weight has 5 dimensions" },
    { "a tensor that is not all there", more_data_than_file, "cut short: tensor output.weight needs bytes" },
    { "a shard without its file name", split_in_memory, "shard 2 of 3 cannot be opened from memory" },
    /* names are cut in sentences: 64 bytes of this one */
    { "long doubles", long_key, "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk is there twice" },
};

static void one_thing_wrong(void **state)
{
    for (size_t i = 0; i < sizeof things / sizeof *things; i++) {
        tiny_gguf *t = small_model();
        things[i].make(t);
        tiny_file f = tiny_bytes(t);
        says(f.data, f.len, things[i].says);
        tiny_file_free(&f);
        tiny_free(t);
    }
}

static void cut_at_the_seams(void **state)
{
    tiny_gguf *t = small_model();
    tiny_file f = tiny_bytes(t);
    says(f.data, f.data_at, "cut short: tensor token_embd.weight needs bytes");
    says(f.data, f.data_at - 1, "cut short: tensor token_embd.weight needs bytes");
    says(f.data, tiny_find_mark(&f, "offset of output.weight")->at,
         "cut short: the table entry of tensor output.weight");
    says(f.data, tiny_find_mark(&f, "item count of tokenizer.ggml.merges")->at + 9, "key tokenizer.ggml.merges");
    tiny_file_free(&f);
    tiny_free(t);
}

static void longer_than_its_table(void **state)
{
    tiny_gguf *t = small_model();
    tiny_file f = tiny_bytes(t);
    size_t more = 1 << 20;
    gguf *g;
    llada_err err;
    char warn[256] = "";
    uint8_t *d = calloc(1, f.len + more);
    assert_non_null(d);
    memcpy(d, f.data, f.len);
    assert_int_equal(gguf_open_memory(&g, d, f.len + more, warn, sizeof warn, &err), LLADA_OK);
    assert_non_null(strstr(warn, "longer than its table: "));
    assert_non_null(strstr(warn, " bytes follow the last tensor"));
    gguf_close(&g);
    assert_int_equal(gguf_open_memory(&g, d, f.len + more, NULL, 0, &err), LLADA_OK);
    gguf_close(&g);
    assert_int_equal(gguf_open_memory(&g, d, f.len, warn, sizeof warn, &err), LLADA_OK);
    assert_string_equal(warn, "");
    gguf_close(&g);
    free(d);
    tiny_file_free(&f);
    tiny_free(t);
}

/* ------------------------------------------------------------ files made to cost much */

typedef struct {
    uint8_t *d;
    size_t len;
} blob;

static void put(blob *b, uint64_t v, int width)
{
    for (int i = 0; i < width; i++) b->d[b->len++] = (uint8_t)(v >> (8 * i));
}

static blob begin(size_t cap, uint64_t tensors, uint64_t keys)
{
    blob b = { .d = calloc(1, cap) };
    assert_non_null(b.d);
    put(&b, 0x46554747, 4);
    put(&b, 3, 4);
    put(&b, tensors, 8);
    put(&b, keys, 8);
    return b;
}

/* The most keys, and the last one is a double. */
static blob most_keys(void)
{
    enum { N = 100000 };
    blob b = begin(24 + N * 40, 0, N);
    for (int i = 0; i < N; i++) {
        put(&b, 18, 8);
        b.len += (size_t)sprintf((char *)b.d + b.len, "%018d", i == N - 1 ? 0 : (int)((unsigned)i * 7919u % N));
        put(&b, GGUF_U8, 4);
        put(&b, 1, 1);
    }
    return b;
}

static blob more_keys(void)
{
    blob b = begin(4u << 20, 0, 200000);
    b.len = 4u << 20;
    return b;
}

/* The most tensors, all in one place. */
static blob most_tensors(void)
{
    enum { N = 32768 };
    blob b = begin(24 + N * 64 + 64, N, 0);
    for (int i = 0; i < N; i++) {
        put(&b, 8, 8);
        b.len += (size_t)sprintf((char *)b.d + b.len, "%08d", N - i);
        put(&b, 1, 4);
        put(&b, 1, 8);
        put(&b, QT_F32, 4);
        put(&b, 0, 8);
    }
    b.len += 64;
    return b;
}

static blob long_names(void)
{
    enum { N = 600 };
    blob b = begin(24 + N * 65560, 0, N);
    for (int i = 0; i < N; i++) {
        put(&b, 65535, 8);
        memset(b.d + b.len, 'a', 65535);
        sprintf((char *)b.d + b.len + 65530, "%04d", i);
        b.d[b.len + 65534] = 'a';
        b.len += 65535;
        put(&b, GGUF_U8, 4);
        put(&b, 1, 1);
    }
    return b;
}

static blob strings(uint32_t kind, size_t n)
{
    size_t each = kind == GGUF_STR ? 8 : 1;
    blob b = begin(n + 64, 0, 1);
    put(&b, 1, 8);
    put(&b, 'k', 1);
    put(&b, GGUF_ARR, 4);
    put(&b, kind, 4);
    put(&b, n / each, 8);
    b.len = n + 64;
    return b;
}

static blob many_strings(void) { return strings(GGUF_STR, 64u << 20); }
static blob many_bools(void) { return strings(GGUF_BOOL, 64u << 20); }

/* As many as are looked at, the last of them too long. */
static blob most_strings(void)
{
    blob b = strings(GGUF_STR, 16u << 20);
    b.len -= 64 - 24 - 9 - 16 + 8;
    put(&b, 1, 8);
    return b;
}

/* KiB a refusal may cost.  A sanitizer keeps freed memory for a while. */
#if defined(__SANITIZE_ADDRESS__)
#define MOST 65536
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MOST 65536
#endif
#endif
#ifndef MOST
#define MOST 16384
#endif

static long peak_kib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

static const struct {
    blob (*make)(void);
    const char *says;
} costly[] = {
    { most_keys, "key 000000000000000000 is there twice" },
    { more_keys, "200000 keys; the limit is 100000" },
    { most_tensors, "overlap" },
    { long_names, "names take more than 2097152 bytes" },
    { many_strings, "8388608 values of type string; the limit is 2097152" },
    { most_strings, "cut short: the value of key k needs" },
    { many_bools, "67108864 values of type bool; the limit is 2097152" },
};

/* Runs in a process of its own, because a peak never sinks.  0: as promised. */
static int costs(size_t i)
{
    blob b = costly[i].make();
    gguf *g;
    llada_err err = { .text = "" };
    long before = peak_kib();
    llada_status st = gguf_open_memory(&g, b.d, b.len, NULL, 0, &err);
    long took = peak_kib() - before;
    free(b.d);
    if (st == LLADA_BAD_MODEL && strstr(err.text, costly[i].says) && took <= MOST) return 0;
    print_error("%d %s (%ld KiB)\n", st, err.text, took);
    return 1;
}

static void costly_files(void **state)
{
    for (size_t i = 0; i < sizeof costly / sizeof *costly; i++) {
        int how = -1;
        pid_t child = fork();
        if (child == 0) _exit(costs(i));
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_int_equal(how, 0);
    }
}

/* ------------------------------------------------------------ paths */

static void odd_paths(void **state)
{
    scratch dir;
    gguf *g = NULL;
    llada_err err;
    char warn[128];
    assert_true(scratch_open(&dir));
    assert_int_equal(gguf_open(&g, dir.dir, true, warn, sizeof warn, &err), LLADA_IO);
    assert_non_null(strstr(err.text, "folder"));
    assert_int_equal(gguf_open(&g, scratch_path(&dir, "none.gguf"), true, warn, sizeof warn, &err), LLADA_IO);
    const char *fifo = scratch_path(&dir, "pipe.gguf");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(gguf_open(&g, fifo, true, warn, sizeof warn, &err), LLADA_IO);
    const char *page = scratch_write(&dir, "model.gguf", "<html>404</html>", 16);
    assert_int_equal(gguf_open(&g, page, true, warn, sizeof warn, &err), LLADA_BAD_MODEL);
    assert_string_equal(err.text, "model.gguf: not GGUF: it is a web page (HTML); download the file itself");
    const char *none = scratch_write(&dir, "empty.gguf", "", 0);
    for (int use_mmap = 0; use_mmap < 2; use_mmap++) {
        assert_int_equal(gguf_open(&g, none, use_mmap, NULL, 0, &err), LLADA_BAD_MODEL);
        assert_string_equal(err.text, "empty.gguf: not GGUF: the file is empty");
    }
    assert_null(g);
    scratch_close(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costly_files),     cmocka_unit_test(every_prefix),
        cmocka_unit_test(other_files),      cmocka_unit_test(every_field_every_edge),
        cmocka_unit_test(one_field_wrong),  cmocka_unit_test(one_thing_wrong),
        cmocka_unit_test(cut_at_the_seams), cmocka_unit_test(longer_than_its_table),
        cmocka_unit_test(odd_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
