/* test_model.c - opening models: what a good file gives, and that each single defect is refused with the words that
 * name it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/builtin.h"
#include "model/model.h"
#include "tiny_gguf.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* Opens a file's bytes as a model; the reader's own refusal counts, too. */
static llada_status open_bytes(model **m, const tiny_file *f, const char *layout, llada_err *err)
{
    gguf *g = NULL;
    *m = NULL;
    llada_status st = gguf_open_memory(&g, f->data, f->len, NULL, 0, err);
    return st == LLADA_OK ? model_open(m, g, "a-file", layout, err) : st;
}

/* ------------------------------------------------------------ single defects */

typedef enum { U32, F32, BOOL, STR, NO_KEY, NO_TENSOR, DIM0, DIM1 } change_kind;

typedef struct {
    change_kind kind;
    const char *name; /* of a key or tensor */
    const char *value;
    const char *says; /* in the refusal; NULL: opens */
} change;

/* clang-format off */
static const change changes[] = {
    { STR, "general.architecture", "qwen2", "qwen2, an autoregressive model that this version does not run; diffusion models of "
                                            "these can be run: llada, dream, llada-moe; autoregressive: llama" },
    { STR, "general.architecture", "rnd1", "rnd1, a diffusion model that this version does not run" },
    { STR, "general.architecture", "llama", "llama.block_count is missing" },
    { STR, "general.architecture", "frog", "frog, not an architecture known here" },
    { STR, "general.architecture", "", "not an architecture" },
    { STR, "general.architecture", "llada3", "not an architecture" },
    { U32, "general.architecture", "1", "general.architecture is of type" },
    { NO_KEY, "general.architecture", "", "general.architecture is missing" },
    { U32, "llada.block_count", "0", "llada.block_count is 0; 1 to 512" },
    { U32, "llada.block_count", "513", "llada.block_count is 513; 1 to 512" },
    { U32, "llada.block_count", "4294967295", "llada.block_count is 4294967295" },
    { U32, "llada.block_count", "3", "blk.2.attn_norm.weight is missing" },
    { U32, "llada.block_count", "1", NULL },
    { F32, "llada.block_count", "2", "llada.block_count is of type" },
    { STR, "llada.block_count", "2", "llada.block_count is of type" },
    { NO_KEY, "llada.block_count", "", "llada.block_count is missing" },
    { U32, "llada.context_length", "0", "llada.context_length is 0" },
    { U32, "llada.context_length", "33554432", "llada.context_length is 33554432" },
    { NO_KEY, "llada.context_length", "", "llada.context_length is missing" },
    { U32, "llada.embedding_length", "0", "llada.embedding_length is 0" },
    { U32, "llada.embedding_length", "2147483648", "llada.embedding_length is 2147483648" },
    { U32, "llada.embedding_length", "63", "is 63, which llada.attention.head_count, 4, does not divide" },
    { U32, "llada.embedding_length", "128", "llada.rope.dimension_count is 16, but heads are 32 wide (128 / 4)" },
    { NO_KEY, "llada.embedding_length", "", "llada.embedding_length is missing" },
    { U32, "llada.feed_forward_length", "0", "llada.feed_forward_length is 0" },
    { U32, "llada.feed_forward_length", "97", "blk.0.ffn_gate.weight is 64 x 96 x 1 x 1, but 64 x 97 is wanted" },
    { NO_KEY, "llada.feed_forward_length", "", "llada.feed_forward_length is missing" },
    { U32, "llada.attention.head_count", "0", "llada.attention.head_count is 0" },
    { U32, "llada.attention.head_count", "5", "llada.attention.head_count, 5, does not divide" },
    { U32, "llada.attention.head_count", "64", "heads of 1 values (64 / 64)" },
    { U32, "llada.attention.head_count", "4097", "llada.attention.head_count is 4097" },
    { U32, "llada.attention.head_count_kv", "0", "llada.attention.head_count_kv is 0" },
    { U32, "llada.attention.head_count_kv", "3", "is 4, which llada.attention.head_count_kv, 3, does not divide" },
    { U32, "llada.attention.head_count_kv", "8", "is 4, which llada.attention.head_count_kv, 8, does not divide" },
    { U32, "llada.attention.head_count_kv", "2", "blk.0.attn_k.weight is 64 x 64 x 1 x 1, but 64 x 32 is wanted" },
    { NO_KEY, "llada.attention.head_count_kv", "", NULL },
    { U32, "llada.rope.dimension_count", "8", "llada.rope.dimension_count is 8, but heads are 16 wide" },
    { NO_KEY, "llada.rope.dimension_count", "", NULL },
    { U32, "llada.attention.key_length", "32", "llada.attention.key_length is 32, but heads are 16 wide" },
    { U32, "llada.attention.key_length", "16", NULL },
    { F32, "llada.rope.freq_base", "0", "llada.rope.freq_base is 0, not a positive number" },
    { F32, "llada.rope.freq_base", "-5", "llada.rope.freq_base is -5" },
    { F32, "llada.rope.freq_base", "nan", "llada.rope.freq_base is nan" },
    { F32, "llada.rope.freq_base", "inf", "llada.rope.freq_base is inf" },
    { U32, "llada.rope.freq_base", "10000", NULL },
    { STR, "llada.rope.freq_base", "5e5", "llada.rope.freq_base is of type" },
    { NO_KEY, "llada.rope.freq_base", "", NULL },
    { F32, "llada.rope.scaling.factor", "4", "stretched by 4 (none)" },
    { F32, "llada.rope.scaling.factor", "1", NULL },
    { STR, "llada.rope.scaling.type", "yarn", "stretched by 1 (yarn)" },
    { STR, "llada.rope.scaling.type", "none", NULL },
    { F32, "llada.attention.layer_norm_rms_epsilon", "0", "layer_norm_rms_epsilon is 0" },
    { F32, "llada.attention.layer_norm_rms_epsilon", "-1e-5", "layer_norm_rms_epsilon is -1e-05" },
    { F32, "llada.attention.layer_norm_rms_epsilon", "2", "layer_norm_rms_epsilon is 2" },
    { F32, "llada.attention.layer_norm_rms_epsilon", "nan", "layer_norm_rms_epsilon is nan" },
    { F32, "llada.attention.layer_norm_rms_epsilon", "inf", "layer_norm_rms_epsilon is inf" },
    { NO_KEY, "llada.attention.layer_norm_rms_epsilon", "", "layer_norm_rms_epsilon is missing" },
    { BOOL, "llada.attention.causal", "1", "llada.attention.causal is true" },
    { U32, "llada.attention.causal", "0", "llada.attention.causal is of type" },
    { NO_KEY, "llada.attention.causal", "", NULL },
    { BOOL, "diffusion.shift_logits", "1", "diffusion.shift_logits is true, but llada models are run with false" },
    { U32, "diffusion.shift_logits", "0", "diffusion.shift_logits is of type" },
    { U32, "tokenizer.ggml.mask_token_id", "300", "tokenizer.ggml.mask_token_id is 300" },
    { U32, "tokenizer.ggml.mask_token_id", "4294967295", "tokenizer.ggml.mask_token_id is 4294967295" },
    { U32, "tokenizer.ggml.mask_token_id", "295", "token 295 is both the mask and an end of text" },
    { NO_KEY, "tokenizer.ggml.mask_token_id", "", "tokenizer.ggml.mask_token_id is missing" },
    { U32, "tokenizer.ggml.eos_token_id", "300", "tokenizer.ggml.eos_token_id is 300" },
    { NO_KEY, "tokenizer.ggml.eos_token_id", "", NULL },
    { NO_KEY, "tokenizer.ggml.bos_token_id", "", NULL },
    { NO_KEY, "tokenizer.ggml.padding_token_id", "", NULL },
    { NO_KEY, "tokenizer.ggml.tokens", "", "tokenizer.ggml.tokens is missing" },
    { NO_KEY, "tokenizer.chat_template", "", NULL },
    { NO_KEY, "general.name", "", NULL },
    { NO_KEY, "llada.vocab_size", "", NULL },
    { NO_TENSOR, "token_embd.weight", "", "token_embd.weight is missing" },
    { NO_TENSOR, "blk.0.attn_norm.weight", "", "blk.0.attn_norm.weight is missing" },
    { NO_TENSOR, "blk.1.attn_q.weight", "", "blk.1.attn_q.weight is missing" },
    { NO_TENSOR, "blk.1.attn_k.weight", "", "blk.1.attn_k.weight is missing" },
    { NO_TENSOR, "blk.1.attn_v.weight", "", "blk.1.attn_v.weight is missing" },
    { NO_TENSOR, "blk.1.attn_output.weight", "", "blk.1.attn_output.weight is missing" },
    { NO_TENSOR, "blk.0.ffn_norm.weight", "", "blk.0.ffn_norm.weight is missing" },
    { NO_TENSOR, "blk.0.ffn_gate.weight", "", "blk.0.ffn_gate.weight is missing" },
    { NO_TENSOR, "blk.0.ffn_up.weight", "", "blk.0.ffn_up.weight is missing" },
    { NO_TENSOR, "blk.1.ffn_down.weight", "", "blk.1.ffn_down.weight is missing" },
    { NO_TENSOR, "output_norm.weight", "", "output_norm.weight is missing" },
    { NO_TENSOR, "output.weight", "", NULL },
    { DIM0, "blk.0.attn_q.weight", "32", "blk.0.attn_q.weight is 32 x 64 x 1 x 1, but 64 x 64 is wanted" },
    { DIM1, "blk.1.attn_v.weight", "63", "blk.1.attn_v.weight is 64 x 63 x 1 x 1, but 64 x 64 is wanted" },
    { DIM1, "blk.1.ffn_down.weight", "1", "blk.1.ffn_down.weight is 96 x 1 x 1 x 1, but 96 x 64 is wanted" },
    { DIM0, "blk.0.ffn_norm.weight", "63", "blk.0.ffn_norm.weight is 63 x 1 x 1 x 1, but 64 x 1 is wanted" },
    { DIM1, "token_embd.weight", "299", "the vocabulary has 300 tokens but token_embd.weight has 299 rows" },
    { DIM1, "output.weight", "1", "the vocabulary has 300 tokens but output.weight has 1 rows" },
    { DIM0, "token_embd.weight", "32", "token_embd.weight is 32 x 300 x 1 x 1, but 64 x 300 is wanted" },
};
/* clang-format on */

static void apply(tiny_gguf *t, const change *c)
{
    switch (c->kind) {
    case U32: tiny_set_u32(t, c->name, (uint32_t)strtoul(c->value, NULL, 10)); break;
    case F32: tiny_set_f32(t, c->name, strtof(c->value, NULL)); break;
    case BOOL: tiny_set_bool(t, c->name, *c->value == '1'); break;
    case STR: tiny_set_str(t, c->name, c->value); break;
    case NO_KEY: tiny_drop_key(t, c->name); break;
    case NO_TENSOR: tiny_drop_tensor(t, c->name); break;
    case DIM0: tiny_find_tensor(t, c->name)->dims[0] = strtoul(c->value, NULL, 10); break;
    case DIM1: tiny_find_tensor(t, c->name)->dims[1] = strtoul(c->value, NULL, 10); break;
    }
}

static void defects_are_named(void **state)
{
    for (size_t i = 0; i < COUNT(changes); i++) {
        const change *c = &changes[i];
        tiny_gguf *t = tiny_llada(NULL);
        apply(t, c);
        tiny_file f = tiny_bytes(t);
        model *m;
        llada_err err = { 0 };
        llada_status st = open_bytes(&m, &f, NULL, &err);
        if ((st == LLADA_OK) != !c->says || (c->says && !strstr(err.text, c->says)))
            fail_msg("change %zu of %s: status %d, \"%s\"", i, c->name, st, err.text);
        assert_int_equal(st == LLADA_OK, m != NULL);
        model_close(&m);
        tiny_file_free(&f);
        tiny_free(t);
    }
}

/* Every number in the header set to every dangerous value: opened, or refused with a sentence. */
static void any_number_may_be_wrong(void **state)
{
    static const uint64_t values[] = { 0,           1,          0x7fffffff,       0x80000000u,
                                       0xffffffffu, 1ull << 32, (1ull << 42) + 1, 1ull << 63,
                                       ~0ull };
    tiny_opts o = tiny_defaults();
    o.n_layer = 1;
    tiny_gguf *t = tiny_llada(&o);
    tiny_file f = tiny_bytes(t);
    int opened = 0;
    for (size_t i = 0; i < f.n_marks; i++) {
        uint8_t before[8];
        memcpy(before, f.data + f.marks[i].at, (size_t)f.marks[i].width);
        for (size_t k = 0; k < COUNT(values); k++) {
            if (f.marks[i].width == 4 && values[k] >> 32) continue;
            tiny_poke_mark(&f, &f.marks[i], values[k]);
            model *m;
            llada_err err = { 0 };
            llada_status st = open_bytes(&m, &f, NULL, &err);
            if (st != LLADA_OK && !err.text[0])
                fail_msg("%s = %llu: no sentence", f.marks[i].what, (unsigned long long)values[k]);
            opened += st == LLADA_OK;
            model_close(&m);
        }
        memcpy(f.data + f.marks[i].at, before, (size_t)f.marks[i].width);
    }
    assert_true(opened > 10); /* unused keys, numbers set to what they were */
    tiny_file_free(&f);
    tiny_free(t);
}

/* ------------------------------------------------------------ good files */

static model *open_tiny(const tiny_opts *o, tiny_file *f)
{
    model *m;
    llada_err err = { 0 };
    tiny_gguf *t = tiny_llada(o);
    *f = tiny_bytes(t);
    tiny_free(t);
    if (open_bytes(&m, f, NULL, &err) != LLADA_OK) fail_msg("%s", err.text);
    return m;
}

static void numbers_of_a_tiny_model(void **state)
{
    tiny_file f;
    model *m = open_tiny(NULL, &f);
    assert_int_equal(m->n_layer, 2);
    assert_int_equal(m->head_dim, 16);
    assert_int_equal(m->n_vocab, TINY_VOCAB);
    assert_int_equal(m->n_params, 2 * 300 * 64 + 2 * (4 * 64 * 64 + 3 * 96 * 64 + 2 * 64) + 64);
    assert_string_equal(m->title, "tiny");
    assert_string_equal(m->warn, "");
    assert_string_equal(chat_name(m->chat), "llada");
    assert_int_equal(m->n_ends, 2);
    assert_int_equal(m->ends[0], TINY_EOS);
    assert_int_equal(m->ends[1], TINY_EOT);
    assert_true(model_is_end(m, TINY_EOT) && !model_is_end(m, TINY_MASK) && !model_is_end(m, -1));
    model_close(&m);
    assert_null(m);
    model_close(&m);
    model_close(NULL);
    tiny_file_free(&f);
}

/* Heads with rows beyond the vocabulary, heads of their own and shared ones, fewer heads for K and V, other types. */
static void variants_open(void **state)
{
    const struct {
        uint32_t type;
        int n_head_kv, pad_rows;
        bool tied;
    } rows[] = {
        { QT_F32, 4, 267, false }, { QT_F32, 4, 0, true },  { QT_F32, 2, 3, true },   { QT_F32, 1, 0, false },
        { QT_F16, 4, 0, false },   { QT_BF16, 2, 0, true }, { QT_Q8_0, 4, 4, false }, { QT_Q4_0, 4, 0, true }
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        tiny_opts o = tiny_defaults();
        o.type = rows[i].type, o.n_head_kv = rows[i].n_head_kv, o.pad_rows = rows[i].pad_rows, o.tied = rows[i].tied;
        tiny_file f;
        model *m = open_tiny(&o, &f);
        const op *last = &m->g.ops[m->g.n_ops - 1];
        assert_int_equal(m->g.n_vocab_rows, TINY_VOCAB + rows[i].pad_rows);
        assert_int_equal(m->n_vocab, TINY_VOCAB);
        assert_int_equal(m->g.n_kv_head, rows[i].n_head_kv);
        assert_int_equal(last->kind, OP_SCORE);
        assert_string_equal(m->g.t[last->weight].name, rows[i].tied ? "token_embd.weight" : "output.weight");
        assert_int_equal(m->g.t[last->weight].type, rows[i].type);
        assert_string_equal(m->warn, "");
        model_close(&m);
        tiny_file_free(&f);
    }
}

static void oddities_are_told(void **state)
{
    const struct {
        const char *what;
        change c;
        const char *warns;
    } rows[] = {
        { "a layer too many",
          { U32, "llada.block_count", "1", NULL },
          "9 of 21 tensors are not used by llada models, the first is blk.1.attn_norm.weight" },
        { "shift not said",
          { NO_KEY, "diffusion.shift_logits", "", NULL },
          "diffusion.shift_logits is missing: taken as false" },
        { "kv heads not said", { NO_KEY, "llada.attention.head_count_kv", "", NULL }, "" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        tiny_gguf *t = tiny_llada(NULL);
        apply(t, &rows[i].c);
        tiny_file f = tiny_bytes(t);
        model *m;
        assert_int_equal(open_bytes(&m, &f, NULL, NULL), LLADA_OK);
        if (rows[i].warns[0] ? !strstr(m->warn, rows[i].warns) : m->warn[0])
            fail_msg("%s: \"%s\"", rows[i].what, m->warn);
        model_close(&m);
        tiny_file_free(&f);
        tiny_free(t);
    }
}

static void ends_are_sorted_once(void **state)
{
    const struct {
        int eos, eot, n; /* ids; -1: not named */
        int32_t ends[2];
    } rows[] = { { 299, 295, 2, { 295, 299 } }, { 295, 299, 2, { 295, 299 } }, { 295, 295, 1, { 295, 0 } } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        tiny_gguf *t = tiny_llada(NULL);
        tiny_set_u32(t, "tokenizer.ggml.eos_token_id", (uint32_t)rows[i].eos);
        tiny_set_u32(t, "tokenizer.ggml.eot_token_id", (uint32_t)rows[i].eot);
        tiny_file f = tiny_bytes(t);
        model *m;
        assert_int_equal(open_bytes(&m, &f, NULL, NULL), LLADA_OK);
        assert_int_equal(m->n_ends, rows[i].n);
        for (int k = 0; k < rows[i].n; k++) assert_int_equal(m->ends[k], rows[i].ends[k]);
        model_close(&m);
        tiny_file_free(&f);
        tiny_free(t);
    }
}

static void titles_are_clean(void **state)
{
    static const struct {
        const char *name, *title; /* name NULL: no key */
    } rows[] = {
        { NULL, "a-file" },
        { "", "a-file" },
        { "plain", "plain" },
        { "two\nlines \x1b[31m", "two?lines ?[31m" },
        { "bad \xff\xfe end", "bad ?? end" },
        { "\xe6\xa8\xa1\xe5\x9e\x8b", "\xe6\xa8\xa1\xe5\x9e\x8b" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        tiny_gguf *t = tiny_llada(NULL);
        tiny_drop_key(t, "general.name");
        if (rows[i].name) tiny_set_str(t, "general.name", rows[i].name);
        tiny_file f = tiny_bytes(t);
        model *m;
        assert_int_equal(open_bytes(&m, &f, NULL, NULL), LLADA_OK);
        assert_string_equal(m->title, rows[i].title);
        model_close(&m);
        tiny_file_free(&f);
        tiny_free(t);
    }
    /* a name of 300 three-byte characters ends at a whole one */
    char longest[901] = "";
    for (int i = 0; i < 300; i++) memcpy(longest + 3 * i, "\xe6\xa8\xa1", 4);
    tiny_gguf *t = tiny_llada(NULL);
    tiny_set_str(t, "general.name", longest);
    tiny_file f = tiny_bytes(t);
    model *m;
    assert_int_equal(open_bytes(&m, &f, NULL, NULL), LLADA_OK);
    assert_int_equal(strlen(m->title), 126);
    assert_memory_equal(m->title, longest, 126);
    model_close(&m);
    tiny_file_free(&f);
    tiny_free(t);
}

static void layouts_by_name(void **state)
{
    llada_err err;
    model *m;
    tiny_gguf *t = tiny_llada(NULL);
    tiny_file f = tiny_bytes(t);
    assert_int_equal(open_bytes(&m, &f, "llada", &err), LLADA_OK);
    model_close(&m);
    assert_int_not_equal(open_bytes(&m, &f, "no-such-layout", &err), LLADA_OK);
    assert_non_null(strstr(err.text, "no-such-layout"));
    tiny_file_free(&f);
    tiny_set_str(t, "tokenizer.chat_template", "{{ something else }}");
    f = tiny_bytes(t);
    assert_int_equal(open_bytes(&m, &f, NULL, &err), LLADA_OK);
    assert_null(m->chat);
    model_close(&m);
    tiny_file_free(&f);
    tiny_free(t);
}

/* The small model, as the F32 fixture and as built in. */
static void the_small_model(void **state)
{
    for (int builtin = 0; builtin < 2; builtin++) {
        gguf *g = NULL;
        model *m = NULL;
        llada_err err = { 0 };
        llada_status st =
            builtin ? gguf_open_memory(&g, llada_builtin_begin, (size_t)(llada_builtin_end - llada_builtin_begin), NULL,
                                       0, &err)
                    : gguf_open(&g, LLADA_SOURCE_DIR "/tests/fixtures/tiny-llada-f32.gguf", true, NULL, 0, &err);
        if (st == LLADA_OK) st = model_open(&m, g, "small", NULL, &err);
        if (st != LLADA_OK) fail_msg("%s", err.text);
        assert_string_equal(m->arch->name, "llada");
        assert_string_equal(m->title, "tiny-llada");
        assert_string_equal(m->warn, "");
        const int got[] = {
            m->n_layer,        m->n_embd, m->n_head, m->n_head_kv, m->n_ff, m->n_ctx,  m->head_dim, m->n_vocab,
            m->mask,           m->eos,    m->eot,    m->bos,       m->pad,  m->n_ends, m->ends[0],  m->ends[1],
            m->g.n_vocab_rows, m->g.n_ops
        };
        const int want[] = { 6,    256,  4,    4,    768, 512,  64,   1216, 1212,
                             1211, 1215, 1210, 1211, 2,   1211, 1215, 1216, 6 * 14 + 4 };
        assert_memory_equal(got, want, sizeof want);
        assert_int_equal(m->n_params, 5737728);
        assert_true(m->rope_base == 500000 && m->eps == 1e-5f && !m->arch->shift_logits && m->arch->rope == ROPE_PAIRS);
        model_close(&m);
    }
}

/* Wherever memory runs out, the file is closed with the rest (a leak shows under ASan) and the next try works. */
static void out_of_memory(void **state)
{
    tiny_gguf *t = tiny_llada(NULL);
    tiny_file f = tiny_bytes(t);
    tiny_free(t);
    uint64_t all = 1;
    int refused = 0;
    for (uint64_t k = 0; k <= all; k++) {
        gguf *g = NULL;
        model *m;
        llada_err err = { 0 };
        assert_int_equal(gguf_open_memory(&g, f.data, f.len, NULL, 0, &err), LLADA_OK);
        uint64_t before = mem_count();
        mem_fail_at(k);
        llada_status st = model_open(&m, g, "a-file", NULL, &err);
        mem_fail_at(0);
        if (k == 0) all = mem_count() - before;
        if (st != LLADA_OK && (st != LLADA_NO_MEMORY || !err.text[0] || m || k == 0))
            fail_msg("allocation %d: \"%s\"", (int)k, err.text);
        refused += st != LLADA_OK;
        model_close(&m);
    }
    assert_true(refused > 10); /* a few can be done without, as PCRE2's compiled code */
    tiny_file_free(&f);
}

static void architectures(void **state)
{
    size_t n;
    const model_arch *const *a = model_archs(&n);
    assert_true(n >= 1);
    for (size_t i = 0; i < n; i++) assert_true(a[i]->name && a[i]->build);
    assert_ptr_equal(a[0], &arch_llada);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defects_are_named),       cmocka_unit_test(any_number_may_be_wrong),
        cmocka_unit_test(numbers_of_a_tiny_model), cmocka_unit_test(variants_open),
        cmocka_unit_test(oddities_are_told),       cmocka_unit_test(ends_are_sorted_once),
        cmocka_unit_test(titles_are_clean),        cmocka_unit_test(layouts_by_name),
        cmocka_unit_test(the_small_model),         cmocka_unit_test(out_of_memory),
        cmocka_unit_test(architectures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
