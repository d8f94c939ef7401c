/* test_gguf_split.c - models in several files: any shard opens the whole set; a shard that is missing, renamed, swapped
 * or another model's is refused with one sentence that names the file. */
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

enum { SHARDS = 3 };

static void shard_name(char *name, size_t cap, const char *base, int no)
{
    snprintf(name, cap, "%s-%05d-of-%05d.gguf", base, no + 1, SHARDS);
}

static void save_shard(scratch *dir, const tiny_gguf *t, const char *base, int no)
{
    char name[64];
    tiny_gguf *s = tiny_shard(t, no, SHARDS);
    shard_name(name, sizeof name, base, no);
    tiny_save(s, scratch_path(dir, name));
    tiny_free(s);
}

static void save_set(scratch *dir, const tiny_gguf *t, const char *base)
{
    for (int i = 0; i < SHARDS; i++) save_shard(dir, t, base, i);
}

static void move(scratch *dir, const char *from, const char *to)
{
    char a[512];
    strcpy(a, scratch_path(dir, from));
    assert_int_equal(rename(a, scratch_path(dir, to)), 0);
}

static void refused(scratch *dir, const char *name, llada_status want, const char *says, const char *file)
{
    gguf *g = NULL;
    llada_err err = { .text = "" };
    llada_status st = gguf_open(&g, scratch_path(dir, name), true, NULL, 0, &err);
    if (st != want || !strstr(err.text, says) || !strstr(err.text, file))
        fail_msg("wanted \"%s\" and %s, got %d \"%s\"", says, file, st, err.text);
    assert_null(g);
}

static void any_shard_opens_the_set(void **state)
{
    scratch dir;
    tiny_gguf *t = tiny_llada(NULL);
    assert_true(scratch_open(&dir));
    save_set(&dir, t, "m");
    for (int i = 0; i < SHARDS; i++) {
        char name[64];
        gguf *g;
        gguf_str s;
        llada_err err = { .text = "" };
        shard_name(name, sizeof name, "m", i);
        if (gguf_open(&g, scratch_path(&dir, name), i != 1, NULL, 0, &err)) fail_msg("%s", err.text);
        assert_int_equal(gguf_get_str(g, "general.architecture", &s, &err), LLADA_OK);
        assert_int_equal(gguf_n_tensors(g), t->n_tensors);
        for (size_t k = 0; k < t->n_tensors; k++) {
            const gguf_tensor *x = gguf_tensor_at(g, k);
            assert_string_equal(x->name, t->tensors[k].name);
            assert_memory_equal(x->data, t->tensors[k].data, x->bytes);
            assert_ptr_equal(gguf_find(g, x->name), x);
        }
        gguf_close(&g);
    }
    tiny_free(t);
    scratch_close(&dir);
}

static void bad_sets(void **state)
{
    scratch dir;
    tiny_gguf *t = tiny_llada(NULL);
    assert_true(scratch_open(&dir));

    save_set(&dir, t, "gap");
    assert_int_equal(unlink(scratch_path(&dir, "gap-00002-of-00003.gguf")), 0);
    refused(&dir, "gap-00001-of-00003.gguf", LLADA_IO, "shard 2 of 3: cannot open", "gap-00002-of-00003.gguf");
    refused(&dir, "gap-00003-of-00003.gguf", LLADA_IO, "shard 2 of 3: cannot open", "gap-00002-of-00003.gguf");

    save_set(&dir, t, "named");
    move(&dir, "named-00001-of-00003.gguf", "best.gguf");
    refused(&dir, "best.gguf", LLADA_BAD_MODEL, "is shard 1 of 3, but its name does not end in", "best.gguf");
    refused(&dir, "named-00002-of-00003.gguf", LLADA_IO, "shard 1 of 3: cannot open", "named-00001-of-00003.gguf");

    save_set(&dir, t, "swap");
    move(&dir, "swap-00002-of-00003.gguf", "x");
    move(&dir, "swap-00003-of-00003.gguf", "swap-00002-of-00003.gguf");
    move(&dir, "x", "swap-00003-of-00003.gguf");
    refused(&dir, "swap-00001-of-00003.gguf", LLADA_BAD_MODEL, "shard 3 of 3 by its keys, but 2 of 3 by its name",
            "swap-00002-of-00003.gguf");
    refused(&dir, "swap-00003-of-00003.gguf", LLADA_BAD_MODEL, "shard 2 of 3 by its keys, but 3 of 3 by its name",
            "swap-00003-of-00003.gguf");

    save_set(&dir, t, "cut");
    assert_int_equal(truncate(scratch_path(&dir, "cut-00003-of-00003.gguf"), 3000), 0);
    refused(&dir, "cut-00001-of-00003.gguf", LLADA_BAD_MODEL, "cut short", "cut-00003-of-00003.gguf");

    tiny_free(t);
    scratch_close(&dir);
}

static void foreign_shards(void **state)
{
    scratch dir;
    assert_true(scratch_open(&dir));
    tiny_gguf *t = tiny_llada(NULL);

    /* a set of more tensors */
    tiny_opts o = tiny_defaults();
    o.n_layer = 3;
    tiny_gguf *other = tiny_llada(&o);
    save_set(&dir, t, "a");
    save_shard(&dir, other, "a", 1);
    refused(&dir, "a-00001-of-00003.gguf", LLADA_BAD_MODEL, "belongs to a set of 30 tensors, the others to one of 21",
            "a-00002-of-00003.gguf");
    tiny_free(other);

    /* as many tensors, dealt out otherwise */
    other = tiny_llada(NULL);
    tiny_tensor x = other->tensors[0];
    memmove(other->tensors, other->tensors + 1, (other->n_tensors - 1) * sizeof x);
    other->tensors[other->n_tensors - 1] = x;
    save_set(&dir, t, "b");
    save_shard(&dir, other, "b", 1);
    refused(&dir, "b-00002-of-00003.gguf", LLADA_BAD_MODEL, "is there twice", "b-0000");
    tiny_free(other);

    /* a shard that lost one */
    tiny_gguf *s = tiny_shard(t, 2, SHARDS);
    tiny_drop_tensor(s, "output.weight");
    save_set(&dir, t, "c");
    tiny_save(s, scratch_path(&dir, "c-00003-of-00003.gguf"));
    refused(&dir, "c-00001-of-00003.gguf", LLADA_BAD_MODEL, "should have 21 tensors, but its 3 shards hold 20",
            "c-00001-of-00003.gguf");
    tiny_free(s);

    /* one without the total, in a set that has it */
    s = tiny_shard(t, 2, SHARDS);
    tiny_drop_key(s, "split.tensors.count");
    save_set(&dir, t, "d");
    tiny_save(s, scratch_path(&dir, "d-00003-of-00003.gguf"));
    refused(&dir, "d-00001-of-00003.gguf", LLADA_BAD_MODEL, "another model's", "d-00003-of-00003.gguf");
    tiny_free(s);
    tiny_free(t);
    scratch_close(&dir);
}

static void single_files(void **state)
{
    scratch dir;
    gguf *g;
    llada_err err = { .text = "" };
    assert_true(scratch_open(&dir));
    tiny_gguf *t = tiny_llada(NULL);
    tiny_save(t, scratch_path(&dir, "best-00001-of-00001.gguf"));
    if (gguf_open(&g, dir.path, true, NULL, 0, &err)) fail_msg("%s", err.text);
    gguf_close(&g);
    /* what a tool writes that split nothing */
    for (uint32_t count = 0; count <= 1; count++) {
        tiny_set_u32(t, "split.count", count);
        tiny_save(t, scratch_path(&dir, "any name.gguf"));
        if (gguf_open(&g, dir.path, true, NULL, 0, &err)) fail_msg("%s", err.text);
        gguf_close(&g);
    }
    tiny_drop_key(t, "split.count");
    tiny_save(t, scratch_path(&dir, "part-00002-of-00003.gguf"));
    refused(&dir, "part-00002-of-00003.gguf", LLADA_BAD_MODEL, "the name says shard 2 of 3, but the file has no key",
            "part-00002-of-00003.gguf");
    tiny_free(t);
    scratch_close(&dir);
}

static void bad_split_keys(void **state)
{
    static const struct {
        uint32_t count, no;
        const char *says;
    } bad[] = {
        { 4097, 0, "split.count is 4097; 0 to 4096" },
        { UINT32_MAX, 0, "split.count is 4294967295" },
        { 3, 3, "split.no is 3; 0 to 2" },
        { 2, 0, "shard 1 of 2 by its keys, but 1 of 3 by its name" },
    };
    scratch dir;
    assert_true(scratch_open(&dir));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tiny_gguf *s = tiny_new();
        tiny_set_u32(s, "split.count", bad[i].count);
        tiny_set_u32(s, "split.no", bad[i].no);
        tiny_save(s, scratch_path(&dir, "k-00001-of-00003.gguf"));
        refused(&dir, "k-00001-of-00003.gguf", LLADA_BAD_MODEL, bad[i].says, "k-00001-of-00003.gguf");
        tiny_free(s);
    }
    tiny_gguf *s = tiny_new();
    tiny_set_u32(s, "split.count", 3);
    tiny_save(s, scratch_path(&dir, "k-00001-of-00003.gguf"));
    refused(&dir, "k-00001-of-00003.gguf", LLADA_BAD_MODEL, "split.no is missing", "k-00001-of-00003.gguf");
    tiny_set_str(s, "split.count", "3");
    tiny_save(s, scratch_path(&dir, "k-00001-of-00003.gguf"));
    refused(&dir, "k-00001-of-00003.gguf", LLADA_BAD_MODEL, "split.count is of type string", "k-00001-of-00003.gguf");
    tiny_free(s);
    scratch_close(&dir);
}

static void shard_cut_while_mapped(void **state)
{
    scratch dir;
    gguf *g;
    llada_err err;
    assert_true(scratch_open(&dir));
    tiny_gguf *t = tiny_llada(NULL);
    save_set(&dir, t, "m");
    assert_int_equal(gguf_open(&g, scratch_path(&dir, "m-00001-of-00003.gguf"), true, NULL, 0, &err), LLADA_OK);
    assert_false(gguf_lost(g));
    assert_int_equal(truncate(scratch_path(&dir, "m-00002-of-00003.gguf"), 100), 0);
    assert_true(gguf_lost(g));
    gguf_close(&g);
    tiny_free(t);
    scratch_close(&dir);
}

static void every_allocation_fails(void **state)
{
    scratch dir;
    gguf *g = NULL;
    llada_err err;
    uint64_t k = 0;
    llada_status st;
    assert_true(scratch_open(&dir));
    tiny_gguf *t = tiny_llada(NULL);
    save_set(&dir, t, "m");
    do {
        mem_fail_at(++k);
        st = gguf_open(&g, scratch_path(&dir, "m-00002-of-00003.gguf"), false, NULL, 0, &err);
        mem_fail_at(0);
        if (st) {
            assert_int_equal(st, LLADA_NO_MEMORY);
            assert_non_null(strstr(err.text, "memory"));
            assert_null(g);
        }
    } while (st && k < 1000);
    assert_int_equal(st, LLADA_OK);
    assert_true(k > 20);
    gguf_close(&g);
    tiny_free(t);
    scratch_close(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_shard_opens_the_set), cmocka_unit_test(bad_sets),
        cmocka_unit_test(foreign_shards),          cmocka_unit_test(single_files),
        cmocka_unit_test(bad_split_keys),          cmocka_unit_test(shard_cut_while_mapped),
        cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
