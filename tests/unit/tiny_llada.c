/* tiny_llada.c - the model of tiny_gguf.h: vocabulary, keys and tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tiny_gguf.h"

enum { N_BYTES = 256, N_MERGES = 38, N_SPECIAL = 6 };

/* Byte-level BPE spells a blank U+0120 and a line feed U+010A. */
#define SP "\xc4\xa0"
#define LF "\xc4\x8a"

/* Each pair gives the token next in number; in order of rank. */
static const char *const merges[N_MERGES] = {
    SP " t", "h e",   "i n",   SP "t he", "r e",   "o n",   SP " a",     "e r",   SP " s", "a t",
    "n d",   SP " w", "o u",   SP " c",   SP " o", "i s",   "i t",       "e n",   "o r",   SP " i",
    "a r",   SP " p", SP " f", "l l",     SP " b", SP " m", SP "a nd",   SP " d", "a l",   "in g",
    "e s",   "l e",   "a n",   LF " " LF, "T he",  "s t",   SP "the re", SP " h",
};

static const char *const specials[N_SPECIAL] = {
    "<|startoftext|>", "<|endoftext|>", "<|mdm_mask|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
};

/* As published with LLaDA-8B-Instruct. */
static const char chat_template[] =
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";

static bool shown_as_is(unsigned b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; }

static void put_utf8(char *s, unsigned c)
{
    if (c < 0x80) {
        s[0] = (char)c;
        s[1] = 0;
        return;
    }
    s[0] = (char)(0xc0 | c >> 6);
    s[1] = (char)(0x80 | (c & 63));
    s[2] = 0;
}

/* The 256 bytes in the order of published vocabularies: those shown as they are, then the others as U+0100 upward. */
static void byte_tokens(char tok[TINY_VOCAB][24])
{
    unsigned n = 0, other = 0x100;
    for (unsigned b = 0; b < 256; b++)
        if (shown_as_is(b)) put_utf8(tok[n++], b);
    for (unsigned b = 0; b < 256; b++)
        if (!shown_as_is(b)) put_utf8(tok[n++], other++);
    assert_int_equal(n, N_BYTES);
}

static void set_vocabulary(tiny_gguf *t)
{
    static char tok[TINY_VOCAB][24];
    const char *list[TINY_VOCAB];
    uint8_t types[TINY_VOCAB * 4] = { 0 };
    byte_tokens(tok);
    for (int i = 0; i < N_MERGES; i++) {
        const char *gap = strchr(merges[i], ' ');
        snprintf(tok[N_BYTES + i], sizeof tok[0], "%.*s%s", (int)(gap - merges[i]), merges[i], gap + 1);
    }
    for (int i = 0; i < N_SPECIAL; i++) strcpy(tok[TINY_BOS + i], specials[i]);
    for (int i = 0; i < TINY_VOCAB; i++) {
        list[i] = tok[i];
        types[4 * i] = i < TINY_BOS ? 1 : 3; /* normal, control */
    }
    tiny_set_str(t, "tokenizer.ggml.model", "gpt2");
    tiny_set_str(t, "tokenizer.ggml.pre", "qwen2");
    tiny_set_strs(t, "tokenizer.ggml.tokens", list, TINY_VOCAB);
    tiny_set_arr(t, "tokenizer.ggml.token_type", GGUF_I32, TINY_VOCAB, types, sizeof types);
    tiny_set_strs(t, "tokenizer.ggml.merges", merges, N_MERGES);
    tiny_set_u32(t, "tokenizer.ggml.bos_token_id", TINY_BOS);
    tiny_set_u32(t, "tokenizer.ggml.eos_token_id", TINY_EOS);
    tiny_set_u32(t, "tokenizer.ggml.padding_token_id", TINY_EOS);
    tiny_set_u32(t, "tokenizer.ggml.mask_token_id", TINY_MASK);
    tiny_set_u32(t, "tokenizer.ggml.eot_token_id", TINY_EOT);
    tiny_set_bool(t, "tokenizer.ggml.add_bos_token", false);
    tiny_set_str(t, "tokenizer.chat_template", chat_template);
}

static const char *arch_key(const tiny_opts *o, const char *what)
{
    static char key[96];
    snprintf(key, sizeof key, "%s.%s", o->arch, what);
    return key;
}

static void set_keys(tiny_gguf *t, const tiny_opts *o)
{
    tiny_set_str(t, "general.architecture", o->arch);
    tiny_set_str(t, "general.type", "model");
    tiny_set_str(t, "general.name", "tiny");
    tiny_set_u32(t, "general.file_type", o->type == QT_Q8_0 ? 7 : o->type == QT_Q4_0 ? 2 : o->type == QT_F16);
    tiny_set_u32(t, "general.quantization_version", 2);
    tiny_set_u32(t, arch_key(o, "block_count"), (uint32_t)o->n_layer);
    tiny_set_u32(t, arch_key(o, "context_length"), (uint32_t)o->n_ctx);
    tiny_set_u32(t, arch_key(o, "embedding_length"), (uint32_t)o->n_embd);
    tiny_set_u32(t, arch_key(o, "feed_forward_length"), (uint32_t)o->n_ff);
    tiny_set_u32(t, arch_key(o, "attention.head_count"), (uint32_t)o->n_head);
    tiny_set_u32(t, arch_key(o, "attention.head_count_kv"), (uint32_t)o->n_head_kv);
    tiny_set_f32(t, arch_key(o, "attention.layer_norm_rms_epsilon"), 1e-5f);
    tiny_set_f32(t, arch_key(o, "rope.freq_base"), 500000.0f);
    tiny_set_u32(t, arch_key(o, "rope.dimension_count"), (uint32_t)(o->n_embd / o->n_head));
    tiny_set_u32(t, arch_key(o, "vocab_size"), (uint32_t)(TINY_VOCAB + o->pad_rows));
    tiny_set_bool(t, arch_key(o, "attention.causal"), false);
    tiny_set_bool(t, "diffusion.shift_logits", false);
    set_vocabulary(t);
}

static void add_matrix(tiny_gguf *t, const tiny_opts *o, const char *name, int cols, int rows, float std)
{
    uint64_t dims[2] = { (uint64_t)cols, (uint64_t)rows };
    tiny_add_tensor(t, name, o->type, 2, dims, NULL, std, o->seed + 1000 + t->n_tensors);
}

static void add_norm(tiny_gguf *t, const tiny_opts *o, const char *name)
{
    uint64_t dims[1] = { (uint64_t)o->n_embd };
    float *v = malloc((size_t)o->n_embd * sizeof *v);
    rng r;
    assert_non_null(v);
    rng_seed(&r, o->seed + 500 + t->n_tensors);
    for (int i = 0; i < o->n_embd; i++) v[i] = (float)(0.5 + rng_unit(&r));
    tiny_add_tensor(t, name, QT_F32, 1, dims, v, 0, 0);
    free(v);
}

static void add_layer(tiny_gguf *t, const tiny_opts *o, int layer)
{
    int d = o->n_embd, kv = o->n_embd / o->n_head * o->n_head_kv;
    const struct {
        const char *name;
        int cols, rows; /* rows 0: a norm */
    } w[] = {
        { "attn_norm", d, 0 },      { "attn_q", d, d },       { "attn_k", d, kv },
        { "attn_v", d, kv },        { "attn_output", d, d },  { "ffn_norm", d, 0 },
        { "ffn_gate", d, o->n_ff }, { "ffn_up", d, o->n_ff }, { "ffn_down", o->n_ff, d },
    };
    for (size_t i = 0; i < sizeof w / sizeof *w; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, w[i].name);
        if (w[i].rows)
            add_matrix(t, o, name, w[i].cols, w[i].rows, 0.15f);
        else
            add_norm(t, o, name);
    }
}

tiny_opts tiny_defaults(void)
{
    return (tiny_opts){ .arch = "llada",
                        .type = QT_F32,
                        .n_layer = 2,
                        .n_embd = 64,
                        .n_head = 4,
                        .n_head_kv = 4,
                        .n_ff = 96,
                        .n_ctx = 256,
                        .seed = 1 };
}

tiny_opts tiny_smallest(void)
{
    tiny_opts o = tiny_defaults();
    o.type = QT_Q4_0;
    o.n_layer = 1;
    o.n_embd = o.n_ff = 32;
    o.n_head = o.n_head_kv = 2;
    return o;
}

tiny_gguf *tiny_llada(const tiny_opts *opts)
{
    tiny_opts o = opts ? *opts : tiny_defaults();
    tiny_gguf *t = tiny_new();
    set_keys(t, &o);
    add_matrix(t, &o, "token_embd.weight", o.n_embd, TINY_VOCAB + o.pad_rows, 1.0f);
    for (int i = 0; i < o.n_layer; i++) add_layer(t, &o, i);
    add_norm(t, &o, "output_norm.weight");
    if (!o.tied) add_matrix(t, &o, "output.weight", o.n_embd, TINY_VOCAB + o.pad_rows, 0.4f);
    return t;
}
