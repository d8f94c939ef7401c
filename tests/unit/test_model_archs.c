/* test_model_archs.c - files of the other architectures (dream, llada-moe, llama): what a good one gives, and that each
 * single defect is refused with the words that name it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/model.h"
#include "tiny_gguf.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum { EMBD = 64, HEAD = 16, KV = 32, FF = 96, EXPERTS = 4 };

/* ------------------------------------------------------------ good files, one layer each */

static void add(tiny_gguf *t, const char *name, int n_dims, int d0, int d1, int d2)
{
    const uint64_t dims[3] = { (uint64_t)d0, (uint64_t)d1, (uint64_t)d2 };
    tiny_add_tensor(t, name, QT_F32, n_dims, dims, NULL, 0.2f, 7 + t->n_tensors);
}

static void to_dream(tiny_gguf *t)
{
    add(t, "blk.0.attn_q.bias", 1, EMBD, 1, 1);
    add(t, "blk.0.attn_k.bias", 1, KV, 1, 1);
    add(t, "blk.0.attn_v.bias", 1, KV, 1, 1);
    tiny_drop_key(t, "diffusion.shift_logits"); /* as published files lack it */
}

static void to_moe(tiny_gguf *t)
{
    tiny_drop_tensor(t, "blk.0.ffn_gate.weight");
    tiny_drop_tensor(t, "blk.0.ffn_up.weight");
    tiny_drop_tensor(t, "blk.0.ffn_down.weight");
    add(t, "blk.0.attn_q_norm.weight", 1, HEAD, 1, 1);
    add(t, "blk.0.attn_k_norm.weight", 1, HEAD, 1, 1);
    add(t, "blk.0.ffn_gate_inp.weight", 2, EMBD, EXPERTS, 1);
    add(t, "blk.0.ffn_gate_exps.weight", 3, EMBD, FF, EXPERTS);
    add(t, "blk.0.ffn_up_exps.weight", 3, EMBD, FF, EXPERTS);
    add(t, "blk.0.ffn_down_exps.weight", 3, FF, EMBD, EXPERTS);
    tiny_set_u32(t, "llada-moe.expert_count", EXPERTS);
    tiny_set_u32(t, "llada-moe.expert_used_count", 2);
    tiny_set_u32(t, "llada-moe.expert_feed_forward_length", FF);
    tiny_set_u32(t, "llada-moe.feed_forward_length", 8192); /* of dense layers, which there are none of */
}

static void to_llama(tiny_gguf *t)
{
    tiny_drop_key(t, "llama.attention.causal");
    tiny_drop_key(t, "diffusion.shift_logits");
    tiny_drop_key(t, "tokenizer.ggml.mask_token_id");
}

typedef enum { LLADA, DREAM, MOE, LLAMA, N_KINDS } kind;

static tiny_gguf *good(kind k)
{
    static const char *const names[N_KINDS] = { "llada", "dream", "llada-moe", "llama" };
    static void (*const change[N_KINDS])(tiny_gguf *) = { NULL, to_dream, to_moe, to_llama };
    tiny_opts o = tiny_defaults();
    o.arch = names[k];
    o.n_layer = 1;
    o.n_head_kv = 2;
    tiny_gguf *t = tiny_llada(&o);
    if (change[k]) change[k](t);
    return t;
}

static llada_status open_bytes(model **m, const tiny_file *f, llada_err *err)
{
    gguf *g = NULL;
    *m = NULL;
    llada_status st = gguf_open_memory(&g, f->data, f->len, NULL, 0, err);
    return st == LLADA_OK ? model_open(m, g, "a-file", NULL, err) : st;
}

static void good_files(void **state)
{
    static const struct {
        bool shift, causal, experts;
        rope_style rope;
        int n_ops, n_ff;
    } want[N_KINDS] = { [LLADA] = { false, false, false, ROPE_PAIRS, 18, FF },
                        [DREAM] = { true, false, false, ROPE_HALVES, 18, FF },
                        [MOE] = { false, false, true, ROPE_HALVES, 22, FF },
                        [LLAMA] = { false, true, false, ROPE_PAIRS, 18, FF } };
    for (int k = 0; k < N_KINDS; k++) {
        tiny_gguf *t = good(k);
        tiny_file f = tiny_bytes(t);
        model *m;
        llada_err err = { 0 };
        if (open_bytes(&m, &f, &err) != LLADA_OK) fail_msg("%s", err.text);
        assert_string_equal(m->warn, "");
        assert_int_equal(m->arch->shift_logits, want[k].shift);
        assert_int_equal(m->arch->causal, want[k].causal);
        assert_int_equal(m->arch->experts, want[k].experts);
        assert_int_equal(m->n_expert, want[k].experts ? EXPERTS : 0);
        assert_int_equal(m->g.n_ops, want[k].n_ops);
        assert_int_equal(m->n_ff, want[k].n_ff);
        assert_int_equal(m->mask, k == LLAMA ? -1 : TINY_MASK);
        int bias = 0, causal = 0, head_norms = 0;
        for (int i = 0; i < m->g.n_ops; i++) {
            const op *o = &m->g.ops[i];
            bias += o->bias >= 0;
            causal += o->kind == OP_ATTENTION && o->causal;
            head_norms += o->kind == OP_RMSNORM && o->width == HEAD;
            if (o->kind == OP_ROPE) assert_int_equal(o->rope, want[k].rope);
        }
        assert_int_equal(bias, k == DREAM ? 3 : 0);
        assert_int_equal(causal, k == LLAMA);
        assert_int_equal(head_norms, k == MOE ? 2 : 0);
        model_close(&m);
        tiny_file_free(&f);
        tiny_free(t);
    }
}

/* ------------------------------------------------------------ single defects */

typedef enum { U32, F32, BOOL, NO_KEY, NO_TENSOR, DIM0, DIM1, DIM2 } change_kind;

/* clang-format off */
static const struct change {
    kind file;
    change_kind what;
    const char *name, *value;
    const char *says; /* in the refusal; NULL: opens */
} changes[] = {
    { LLADA, U32, "tokenizer.ggml.mask_token_id", "5", NULL }, /* as iLLaDA's */
    { LLADA, U32, "llada.expert_count", "8", "llada.expert_count is 8, but llada models are run without experts" },
    { LLADA, U32, "llada.expert_count", "0", NULL },
    { DREAM, BOOL, "dream.attention.causal", "1", "dream.attention.causal is true: a diffusion model must see both ways" },
    { DREAM, BOOL, "diffusion.shift_logits", "0", "diffusion.shift_logits is false, but dream models are run with true" },
    { DREAM, BOOL, "diffusion.shift_logits", "1", NULL },
    { DREAM, NO_KEY, "tokenizer.ggml.mask_token_id", "", "tokenizer.ggml.mask_token_id is missing" },
    { DREAM, NO_KEY, "dream.attention.causal", "", NULL },
    { DREAM, NO_TENSOR, "blk.0.attn_q.bias", "", "blk.0.attn_q.bias is missing" },
    { DREAM, NO_TENSOR, "blk.0.attn_k.bias", "", "blk.0.attn_k.bias is missing" },
    { DREAM, NO_TENSOR, "blk.0.attn_v.bias", "", "blk.0.attn_v.bias is missing" },
    { DREAM, DIM0, "blk.0.attn_k.bias", "30", "blk.0.attn_k.bias is 30 x 1 x 1 x 1, but 32 x 1 is wanted" },
    { DREAM, DIM0, "blk.0.attn_q.bias", "32", "blk.0.attn_q.bias is 32 x 1 x 1 x 1, but 64 x 1 is wanted" },
    { DREAM, U32, "dream.attention.head_count_kv", "3", "is 4, which dream.attention.head_count_kv, 3, does not divide" },
    { MOE, NO_KEY, "llada-moe.expert_count", "", "llada-moe.expert_count is missing" },
    { MOE, U32, "llada-moe.expert_count", "0", "llada-moe.expert_count is 0; 1 to 4096" },
    { MOE, U32, "llada-moe.expert_count", "4097", "llada-moe.expert_count is 4097" },
    { MOE, U32, "llada-moe.expert_count", "5", "blk.0.ffn_gate_inp.weight is 64 x 4 x 1 x 1, but 64 x 5 is wanted" },
    { MOE, NO_KEY, "llada-moe.expert_used_count", "", "llada-moe.expert_used_count is missing" },
    { MOE, U32, "llada-moe.expert_used_count", "0", "llada-moe.expert_used_count is 0" },
    { MOE, U32, "llada-moe.expert_used_count", "5", "llada-moe.expert_used_count is 5, but llada-moe.expert_count is 4" },
    { MOE, U32, "llada-moe.expert_used_count", "4", NULL },
    { MOE, U32, "llada-moe.expert_feed_forward_length", "95", "blk.0.ffn_gate_exps.weight is 64 x 96 x 4 x 1, but 64 x 95 x 4 is" },
    { MOE, U32, "llada-moe.expert_feed_forward_length", "4294967295", "llada-moe.expert_feed_forward_length is 4294967295" },
    { MOE, NO_KEY, "llada-moe.expert_feed_forward_length", "", "but 64 x 4096 x 4 is wanted" }, /* 8192 / 2 */
    { MOE, NO_KEY, "llada-moe.feed_forward_length", "", NULL },
    { MOE, BOOL, "llada-moe.expert_weights_norm", "1", "expert_weights_norm is true, but llada-moe models are run with false" },
    { MOE, BOOL, "llada-moe.expert_weights_norm", "0", NULL },
    { MOE, F32, "llada-moe.expert_weights_scale", "2.5", "expert_weights_scale is 2.5, but" },
    { MOE, F32, "llada-moe.expert_weights_scale", "nan", "expert_weights_scale is nan" },
    { MOE, F32, "llada-moe.expert_weights_scale", "1", NULL },
    { MOE, U32, "llada-moe.expert_shared_count", "1", "expert_shared_count is 1" },
    { MOE, U32, "llada-moe.expert_gating_func", "2", "expert_gating_func is 2" },
    { MOE, U32, "llada-moe.expert_gating_func", "1", NULL },
    { MOE, U32, "llada-moe.leading_dense_block_count", "1", "leading_dense_block_count is 1" },
    { MOE, BOOL, "llada-moe.attention.causal", "1", "llada-moe.attention.causal is true" },
    { MOE, NO_TENSOR, "blk.0.attn_q_norm.weight", "", "blk.0.attn_q_norm.weight is missing" },
    { MOE, NO_TENSOR, "blk.0.attn_k_norm.weight", "", "blk.0.attn_k_norm.weight is missing" },
    { MOE, NO_TENSOR, "blk.0.ffn_gate_inp.weight", "", "blk.0.ffn_gate_inp.weight is missing" },
    { MOE, NO_TENSOR, "blk.0.ffn_gate_exps.weight", "", "blk.0.ffn_gate_exps.weight is missing" },
    { MOE, NO_TENSOR, "blk.0.ffn_up_exps.weight", "", "blk.0.ffn_up_exps.weight is missing" },
    { MOE, NO_TENSOR, "blk.0.ffn_down_exps.weight", "", "blk.0.ffn_down_exps.weight is missing" },
    { MOE, DIM0, "blk.0.attn_q_norm.weight", "8", "blk.0.attn_q_norm.weight is 8 x 1 x 1 x 1, but 16 x 1 is wanted" },
    { MOE, DIM2, "blk.0.ffn_up_exps.weight", "3", "blk.0.ffn_up_exps.weight is 64 x 96 x 3 x 1, but 64 x 96 x 4 is wanted" },
    { MOE, DIM1, "blk.0.ffn_down_exps.weight", "48", "blk.0.ffn_down_exps.weight is 96 x 48 x 4 x 1, but 96 x 64 x 4 is" },
    { LLAMA, BOOL, "llama.attention.causal", "0", "llama.attention.causal is false, but llama models are run as autoregressive" },
    { LLAMA, BOOL, "llama.attention.causal", "1", NULL },
    { LLAMA, U32, "llama.attention.causal", "1", "llama.attention.causal is of type" },
    { LLAMA, U32, "llama.expert_count", "8", "llama.expert_count is 8, but llama models are run without experts" },
    { LLAMA, U32, "tokenizer.ggml.mask_token_id", "300", "tokenizer.ggml.mask_token_id is 300" },
    { LLAMA, U32, "tokenizer.ggml.eos_token_id", "300", "tokenizer.ggml.eos_token_id is 300" },
    { LLAMA, NO_TENSOR, "blk.0.ffn_gate.weight", "", "blk.0.ffn_gate.weight is missing" },
};
/* clang-format on */

static void apply(tiny_gguf *t, const struct change *c)
{
    switch (c->what) {
    case U32: tiny_set_u32(t, c->name, (uint32_t)strtoul(c->value, NULL, 10)); break;
    case F32: tiny_set_f32(t, c->name, strtof(c->value, NULL)); break;
    case BOOL: tiny_set_bool(t, c->name, *c->value == '1'); break;
    case NO_KEY: tiny_drop_key(t, c->name); break;
    case NO_TENSOR: tiny_drop_tensor(t, c->name); break;
    default: tiny_find_tensor(t, c->name)->dims[c->what - DIM0] = strtoul(c->value, NULL, 10);
    }
}

static void defects_are_named(void **state)
{
    for (size_t i = 0; i < COUNT(changes); i++) {
        const struct change *c = &changes[i];
        tiny_gguf *t = good(c->file);
        apply(t, c);
        tiny_file f = tiny_bytes(t);
        model *m;
        llada_err err = { 0 };
        llada_status st = open_bytes(&m, &f, &err);
        if ((st == LLADA_OK) != !c->says || (c->says && !strstr(err.text, c->says)))
            fail_msg("change %zu of %s: status %d, \"%s\"", i, c->name, st, err.text);
        assert_int_equal(st == LLADA_OK, m != NULL);
        model_close(&m);
        tiny_file_free(&f);
        tiny_free(t);
    }
}

/* Llama 3.1's factors of rotation: taken from the file, each checked. */
static void rotation_factors(void **state)
{
    static const struct {
        uint32_t type;
        int n;
        float third;
        const char *says;
    } rows[] = {
        { QT_F32, 8, 2, NULL },
        { QT_F32, 7, 2, "rope_freqs.weight is 7 x 1 x 1 x 1, but 8 x 1 is wanted" },
        { QT_F32, 8, 0, "value 2 of tensor rope_freqs.weight is 0, not a positive number" },
        { QT_F32, 8, -1, "is -1, not a positive" },
        { QT_F32, 8, NAN, "is nan" },
        { QT_F32, 8, INFINITY, "is inf" },
        { QT_F16, 8, 2, "rope_freqs.weight is of type 1" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        float v[8] = { 1, 1, rows[i].third, 3, 4, 5, 6, 7 };
        uint64_t dims[1] = { (uint64_t)rows[i].n };
        tiny_gguf *t = good(LLAMA);
        tiny_add_tensor(t, "rope_freqs.weight", rows[i].type, 1, dims, v, 0, 0);
        tiny_file f = tiny_bytes(t);
        model *m;
        llada_err err = { 0 };
        llada_status st = open_bytes(&m, &f, &err);
        if ((st == LLADA_OK) != !rows[i].says || (rows[i].says && !strstr(err.text, rows[i].says)))
            fail_msg("row %zu: status %d, \"%s\"", i, st, err.text);
        if (m) {
            assert_non_null(m->g.rope_factors);
            assert_string_equal(m->warn, "");
        }
        model_close(&m);
        tiny_file_free(&f);
        tiny_free(t);
    }
}

/* Every number in a mixture's header set to every dangerous value: opened, or refused with a sentence. */
static void any_number_may_be_wrong(void **state)
{
    static const uint64_t values[] = {
        0, 1, 0x7fffffff, 0x80000000u, 0xffffffffu, (1ull << 42) + 1, 1ull << 63, ~0ull
    };
    tiny_gguf *t = good(MOE);
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
            llada_status st = open_bytes(&m, &f, &err);
            if (st != LLADA_OK && !err.text[0])
                fail_msg("%s = %llu: no sentence", f.marks[i].what, (unsigned long long)values[k]);
            opened += st == LLADA_OK;
            model_close(&m);
        }
        memcpy(f.data + f.marks[i].at, before, (size_t)f.marks[i].width);
    }
    assert_true(opened > 10);
    tiny_file_free(&f);
    tiny_free(t);
}

static void out_of_memory(void **state)
{
    for (int k = 0; k < N_KINDS; k++) {
        tiny_gguf *t = good(k);
        tiny_file f = tiny_bytes(t);
        tiny_free(t);
        uint64_t all = 1;
        for (uint64_t n = 0; n <= all; n++) {
            gguf *g = NULL;
            model *m;
            llada_err err = { 0 };
            assert_int_equal(gguf_open_memory(&g, f.data, f.len, NULL, 0, &err), LLADA_OK);
            uint64_t before = mem_count();
            mem_fail_at(n);
            llada_status st = model_open(&m, g, "a-file", NULL, &err);
            mem_fail_at(0);
            if (n == 0) all = mem_count() - before;
            if (st != LLADA_OK && (st != LLADA_NO_MEMORY || !err.text[0] || m || n == 0))
                fail_msg("allocation %d: \"%s\"", (int)n, err.text);
            model_close(&m);
        }
        tiny_file_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files),       cmocka_unit_test(defects_are_named),
        cmocka_unit_test(rotation_factors), cmocka_unit_test(any_number_may_be_wrong),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
