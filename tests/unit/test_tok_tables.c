/* test_tok_tables.c - vocabularies that are wrong in one place: each is refused with a sentence that names
 * the place. */
#include "text_util.h"

#include "base/mem.h"

static const char k_tokens[] = "tokenizer.ggml.tokens";
static const char k_types[] = "tokenizer.ggml.token_type";
static const char k_merges[] = "tokenizer.ggml.merges";

/* Copies of the strings of an array, to change one and set them again. */
typedef struct {
    char (*s)[96];
    const char **list;
    size_t n;
} strings;

static strings take_strings(tiny_gguf *t, const char *key)
{
    tiny_key *k = tiny_find_key(t, key);
    strings a = { .n = (size_t)k->n };
    a.s = calloc(a.n + 1, sizeof *a.s);
    a.list = calloc(a.n + 1, sizeof *a.list);
    assert_non_null(a.s);
    assert_non_null(a.list);
    const uint8_t *p = k->raw;
    for (size_t i = 0; i <= a.n; i++) {
        a.list[i] = a.s[i];
        if (i == a.n) break;
        snprintf(a.s[i], sizeof a.s[i], "%.*s", (int)p[0], (const char *)p + 8);
        p += 8 + p[0];
    }
    return a;
}

static void put_strings(tiny_gguf *t, const char *key, strings a)
{
    tiny_set_strs(t, key, a.list, a.n);
    free(a.s);
    free(a.list);
}

static void change(tiny_gguf *t, const char *key, size_t i, const char *to)
{
    strings a = take_strings(t, key);
    snprintf(a.s[i], sizeof a.s[i], "%s", to);
    put_strings(t, key, a);
}

static void resize(tiny_gguf *t, const char *key, int by)
{
    strings a = take_strings(t, key);
    strcpy(a.s[a.n], "one more");
    a.n = (size_t)((int)a.n + by);
    put_strings(t, key, a);
}

static void set_types(tiny_gguf *t, int n, int at, int value)
{
    uint8_t raw[4 * (TINY_VOCAB + 1)] = { 0 };
    for (int i = 0; i < n; i++) raw[4 * i] = 1;
    if (at >= 0)
        for (int k = 0; k < 4; k++) raw[4 * at + k] = (uint8_t)((unsigned)value >> (8 * k));
    tiny_set_arr(t, k_types, GGUF_I32, (uint64_t)n, raw, (size_t)n * 4);
}

static void no_model(tiny_gguf *t) { tiny_drop_key(t, "tokenizer.ggml.model"); }
static void other_model(tiny_gguf *t) { tiny_set_str(t, "tokenizer.ggml.model", "llama"); }
static void longer_model(tiny_gguf *t) { tiny_set_str(t, "tokenizer.ggml.model", "gpt2x"); }
static void number_model(tiny_gguf *t) { tiny_set_u32(t, "tokenizer.ggml.model", 2); }
static void other_pre(tiny_gguf *t) { tiny_set_str(t, "tokenizer.ggml.pre", "tekken"); }
static void empty_pre(tiny_gguf *t) { tiny_set_str(t, "tokenizer.ggml.pre", ""); }
static void number_pre(tiny_gguf *t) { tiny_set_u32(t, "tokenizer.ggml.pre", 1); }
static void no_tokens(tiny_gguf *t) { tiny_drop_key(t, k_tokens); }
static void zero_tokens(tiny_gguf *t) { tiny_set_strs(t, k_tokens, NULL, 0); }
static void token_short(tiny_gguf *t) { resize(t, k_tokens, -1); }
static void token_long(tiny_gguf *t) { resize(t, k_tokens, 1); }
static void token_twice(tiny_gguf *t) { change(t, k_tokens, 280, "a"); }
static void special_twice(tiny_gguf *t) { change(t, k_tokens, TINY_EOS, "<|eot_id|>"); }
static void no_byte(tiny_gguf *t) { change(t, k_tokens, 0, "exclamation"); }
static void no_space_byte(tiny_gguf *t)
{
    strings a = take_strings(t, k_tokens);
    for (size_t i = 0; i < 256; i++)
        if (strcmp(a.s[i], "\xc4\xa0") == 0) strcpy(a.s[i], "blank");
    put_strings(t, k_tokens, a);
}
static void types_short(tiny_gguf *t) { set_types(t, TINY_VOCAB - 1, -1, 0); }
static void types_long(tiny_gguf *t) { set_types(t, TINY_VOCAB + 1, -1, 0); }
static void type_0(tiny_gguf *t) { set_types(t, TINY_VOCAB, 7, 0); }
static void type_7(tiny_gguf *t) { set_types(t, TINY_VOCAB, 299, 7); }
static void type_negative(tiny_gguf *t) { set_types(t, TINY_VOCAB, 3, -1); }
static void no_merges(tiny_gguf *t) { tiny_drop_key(t, k_merges); }
static void merge_no_gap(tiny_gguf *t) { change(t, k_merges, 3, "ab"); }
static void merge_two_gaps(tiny_gguf *t) { change(t, k_merges, 3, "a b c"); }
static void merge_empty(tiny_gguf *t) { change(t, k_merges, 3, ""); }
static void merge_gap_first(tiny_gguf *t) { change(t, k_merges, 3, " b"); }
static void merge_gap_last(tiny_gguf *t) { change(t, k_merges, 3, "a "); }
static void merge_left_unknown(tiny_gguf *t) { change(t, k_merges, 5, "unknown a"); }
static void merge_right_unknown(tiny_gguf *t) { change(t, k_merges, 5, "a unknown"); }
static void merge_result_unknown(tiny_gguf *t) { change(t, k_merges, 5, "Z Q"); }
static void merge_twice(tiny_gguf *t)
{
    strings a = take_strings(t, k_merges);
    strcpy(a.s[9], a.s[2]);
    put_strings(t, k_merges, a);
}
static void id_past_end(tiny_gguf *t, const char *key, int64_t v)
{
    char name[64];
    snprintf(name, sizeof name, "tokenizer.ggml.%s_token_id", key);
    tiny_set_raw(t, name, GGUF_I64, &v, sizeof v);
}
static void mask_past_end(tiny_gguf *t) { id_past_end(t, "mask", TINY_VOCAB); }
static void mask_negative(tiny_gguf *t) { id_past_end(t, "mask", -1); }
static void eos_past_end(tiny_gguf *t) { id_past_end(t, "eos", 1ll << 32); }
static void bos_past_end(tiny_gguf *t) { id_past_end(t, "bos", INT64_MAX); }
static void pad_past_end(tiny_gguf *t) { id_past_end(t, "padding", 126081); }
static void eot_past_end(tiny_gguf *t) { id_past_end(t, "eot", TINY_VOCAB + 1); }
static void eos_text(tiny_gguf *t) { tiny_set_str(t, "tokenizer.ggml.eos_token_id", "2"); }
static void eos_float(tiny_gguf *t) { tiny_set_f32(t, "tokenizer.ggml.eos_token_id", 2); }

static const struct bad {
    const char *what;
    void (*make)(tiny_gguf *t);
    llada_status st;
    const char *says, *and;
} bad_files[] = {
    { "no model", no_model, LLADA_BAD_MODEL, "tokenizer.ggml.model", "missing" },
    { "sentencepiece", other_model, LLADA_UNSUPPORTED, "\"llama\"", "gpt2" },
    { "gpt2x", longer_model, LLADA_UNSUPPORTED, "\"gpt2x\"", "gpt2" },
    { "model a number", number_model, LLADA_BAD_MODEL, "tokenizer.ggml.model", "string" },
    { "unknown pre", other_pre, LLADA_UNSUPPORTED, "\"tekken\"", "llada-moe" },
    { "empty pre", empty_pre, LLADA_UNSUPPORTED, "\"\"", "qwen2" },
    { "pre a number", number_pre, LLADA_BAD_MODEL, "tokenizer.ggml.pre", "string" },
    { "no tokens", no_tokens, LLADA_BAD_MODEL, k_tokens, "missing" },
    { "0 tokens", zero_tokens, LLADA_BAD_MODEL, k_tokens, "0 items" },
    { "a token less than types", token_short, LLADA_BAD_MODEL, "300", "299" },
    { "a token more than types", token_long, LLADA_BAD_MODEL, "300", "301" },
    { "a token twice", token_twice, LLADA_BAD_MODEL, "280", "\"a\"" },
    { "a special token twice", special_twice, LLADA_BAD_MODEL, "295 and 299", "<|eot_id|>" },
    { "byte missing", no_byte, LLADA_BAD_MODEL, "byte 0x21", k_tokens },
    { "blank missing", no_space_byte, LLADA_BAD_MODEL, "byte 0x20", k_tokens },
    { "types one short", types_short, LLADA_BAD_MODEL, "299", "300" },
    { "types one long", types_long, LLADA_BAD_MODEL, "301", "300" },
    { "type 0", type_0, LLADA_BAD_MODEL, "item 7 is 0", k_types },
    { "type 7", type_7, LLADA_BAD_MODEL, "item 299 is 7", k_types },
    { "type -1", type_negative, LLADA_BAD_MODEL, "item 3 is -1", k_types },
    { "no merges", no_merges, LLADA_BAD_MODEL, k_merges, "missing" },
    { "merge without a blank", merge_no_gap, LLADA_BAD_MODEL, "item 3", "one blank" },
    { "merge with two blanks", merge_two_gaps, LLADA_BAD_MODEL, "item 3", "\"a b c\"" },
    { "empty merge", merge_empty, LLADA_BAD_MODEL, "item 3", "\"\"" },
    { "merge that begins with a blank", merge_gap_first, LLADA_BAD_MODEL, "item 3", "one blank" },
    { "merge that ends with a blank", merge_gap_last, LLADA_BAD_MODEL, "item 3", "one blank" },
    { "merge twice", merge_twice, LLADA_BAD_MODEL, "items 2 and 9", k_merges },
    { "mask past the end", mask_past_end, LLADA_BAD_MODEL, "mask_token_id is 300", "299" },
    { "mask -1", mask_negative, LLADA_BAD_MODEL, "mask_token_id is -1", "299" },
    { "eos past the end", eos_past_end, LLADA_BAD_MODEL, "eos_token_id is 4294967296", "299" },
    { "bos past the end", bos_past_end, LLADA_BAD_MODEL, "bos_token_id", "299" },
    { "padding past the end", pad_past_end, LLADA_BAD_MODEL, "padding_token_id is 126081", "299" },
    { "eot past the end", eot_past_end, LLADA_BAD_MODEL, "eot_token_id is 301", "299" },
    { "eos a string", eos_text, LLADA_BAD_MODEL, "eos_token_id", "string" },
    { "eos a float", eos_float, LLADA_BAD_MODEL, "eos_token_id", "f32" },
};

static void test_one_defect_one_sentence(void **state)
{
    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++) {
        const struct bad *b = &bad_files[i];
        tiny_gguf *t = tiny_vocab();
        opened o;
        b->make(t);
        llada_status st = text_open(&o, t);
        if (st != b->st || !strstr(o.err.text, b->says) || !strstr(o.err.text, b->and))
            fail_msg("%s: status %d, \"%s\"", b->what, (int)st, o.err.text);
        assert_null(o.t);
        text_close(&o);
        tiny_free(t);
    }
}

/* Merges of spellings that are no tokens are found in files people have: they are passed over, the others hold. */
static void test_merges_of_no_tokens(void **state)
{
    static void (*const make[])(tiny_gguf *) = { merge_left_unknown, merge_right_unknown, merge_result_unknown };
    for (size_t i = 0; i < sizeof make / sizeof *make; i++) {
        tiny_gguf *t = tiny_vocab();
        opened o;
        make[i](t);
        assert_int_equal(text_open(&o, t), LLADA_OK);
        int32_t ids[8];
        size_t n;
        assert_int_equal(tok_encode(o.t, "Z Q", 3, false, ids, 8, &n, NULL), LLADA_OK);
        assert_int_equal(n, 3);
        text_close(&o);
        tiny_free(t);
    }
}

/* Every table stored as an array of every kind, with the right and a wrong count; as a plain number, too. */
static void test_tables_of_every_kind(void **state)
{
    static const char *const keys[] = { k_tokens, k_types, k_merges };
    int accepted = 0;
    for (int k = 0; k < 3; k++)
        for (uint32_t kind = GGUF_U8; kind <= GGUF_F64 + 1; kind++)
            for (int by = -1; by <= 1; by++) {
                tiny_gguf *t = tiny_vocab();
                opened o;
                uint64_t n = tiny_find_key(t, keys[k])->n + (uint64_t)(int64_t)by;
                if (kind > GGUF_F64)
                    tiny_set_u32(t, keys[k], 3);
                else
                    tiny_set_arr_of(t, keys[k], kind, n);
                llada_status st = text_open(&o, t);
                accepted += st == LLADA_OK;
                if (!st || !*o.err.text) fail_msg("%s as kind %u gave %d", keys[k], (unsigned)kind, (int)st);
                text_close(&o);
                tiny_free(t);
            }
    assert_int_equal(accepted, 0); /* types of 0 and strings "" and "a" are no good either */
}

static void test_types_of_any_integer(void **state)
{
    static const uint32_t kinds[] = { GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_U64, GGUF_I64 };
    static const size_t width[] = { 1, 1, 2, 2, 4, 4, 8, 8 };
    for (int i = 0; i < 8; i++) {
        uint8_t raw[8 * TINY_VOCAB] = { 0 };
        tiny_gguf *t = tiny_vocab();
        opened o;
        for (size_t k = 0; k < TINY_VOCAB; k++) raw[k * width[i]] = k < TINY_BOS ? 1 : 3;
        tiny_set_arr(t, k_types, kinds[i], TINY_VOCAB, raw, TINY_VOCAB * width[i]);
        if (text_open(&o, t)) fail_msg("%s", o.err.text);
        assert_true(tok_is_special(o.t, TINY_START));
        assert_false(tok_is_special(o.t, 0));
        text_close(&o);
        tiny_free(t);
    }
}

static void test_ids(void **state)
{
    opened o;
    text_open_pre(&o, "qwen2");
    assert_int_equal(tok_n(o.t), TINY_VOCAB);
    assert_int_equal(tok_bos(o.t), TINY_BOS);
    assert_int_equal(tok_eos(o.t), TINY_EOS);
    assert_int_equal(tok_pad(o.t), TINY_EOS);
    assert_int_equal(tok_mask(o.t), TINY_MASK);
    assert_int_equal(tok_eot(o.t), TINY_EOT);
    assert_int_equal(tok_find(o.t, "<|start_header_id|>"), TINY_START);
    assert_int_equal(tok_find(o.t, "!"), 0);
    assert_int_equal(tok_find(o.t, ""), -1);
    assert_int_equal(tok_find(o.t, "<|start_header_id|"), -1);
    text_close(&o);
}

/* Without keys the ids are unknown, but for the end of a turn, which has a spelling; without types all is text. */
static void test_missing_keys(void **state)
{
    static const char *const ids[] = { "bos", "eos", "padding", "mask", "eot" };
    tiny_gguf *t = tiny_vocab();
    opened o;
    for (int i = 0; i < 5; i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ids[i]);
        tiny_drop_key(t, key);
    }
    tiny_drop_key(t, "tokenizer.ggml.pre");
    if (text_open(&o, t)) fail_msg("%s", o.err.text);
    assert_int_equal(tok_bos(o.t), -1);
    assert_int_equal(tok_eos(o.t), -1);
    assert_int_equal(tok_pad(o.t), -1);
    assert_int_equal(tok_mask(o.t), -1);
    assert_int_equal(tok_eot(o.t), TINY_EOT);
    text_close(&o);
    tiny_drop_key(t, k_types);
    if (text_open(&o, t)) fail_msg("%s", o.err.text);
    assert_int_equal(tok_eot(o.t), -1);
    assert_false(tok_is_special(o.t, TINY_EOT));
    text_close(&o);
    tiny_set_u32(t, "tokenizer.ggml.mask_token_id", TINY_MASK);
    if (text_open(&o, t)) fail_msg("%s", o.err.text);
    assert_true(tok_is_special(o.t, TINY_MASK)); /* its role makes it special */
    text_close(&o);
    tiny_free(t);
}

/* Spellings chosen to fall into few slots of any hash that an attacker can compute are bounded, not endless: here the
 * cheap stand-in, very many spellings that differ in one place only. */
static void test_many_alike_spellings(void **state)
{
    enum { N = 20000 };
    tiny_gguf *t = tiny_vocab();
    strings a = take_strings(t, k_tokens);
    char (*more)[96] = calloc(N, sizeof *more);
    const char **list = calloc(N, sizeof *list);
    opened o;
    assert_non_null(more);
    assert_non_null(list);
    for (size_t i = 0; i < N; i++) {
        list[i] = i < TINY_VOCAB ? a.list[i] : more[i];
        if (i >= TINY_VOCAB) snprintf(more[i], sizeof more[i], "%064zu", i);
    }
    tiny_set_strs(t, k_tokens, list, N);
    tiny_drop_key(t, k_types);
    if (text_open(&o, t)) fail_msg("%s", o.err.text);
    for (size_t i = 0; i < N; i += 997) assert_int_equal(tok_find(o.t, list[i]), i);
    text_close(&o);
    free(list);
    free(more);
    free(a.s);
    free(a.list);
    tiny_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_defect_one_sentence),
        cmocka_unit_test(test_merges_of_no_tokens), cmocka_unit_test(test_tables_of_every_kind),
        cmocka_unit_test(test_types_of_any_integer),    cmocka_unit_test(test_ids),
        cmocka_unit_test(test_missing_keys),            cmocka_unit_test(test_many_alike_spellings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
