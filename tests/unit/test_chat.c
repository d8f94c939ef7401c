/* test_chat.c - chat layouts: the golden prompts id by id, each layout spelt out, and what is refused. */
#include "text_util.h"

#include <dirent.h>
#include <jansson.h>

#include "base/mem.h"
#include "text/chat.h"

#define DATA  LLADA_SOURCE_DIR "/tests/golden/data"
#define MODEL LLADA_SOURCE_DIR "/models/tiny-llada-q8_0.gguf"

/* ------------------------------------------------------------ golden prompts */

typedef struct {
    gguf *g;
    tok *t;
    const chat_layout *c;
} real_model;

static void open_real(real_model *m)
{
    llada_err err;
    memset(m, 0, sizeof *m);
    if (gguf_open(&m->g, MODEL, true, NULL, 0, &err) || tok_open(&m->t, m->g, &err) ||
        chat_choose(&m->c, m->g, m->t, NULL, &err))
        fail_msg("%s", err.text);
    assert_non_null(m->c);
    assert_string_equal(chat_name(m->c), "llada");
}

static void close_real(real_model *m)
{
    tok_close(&m->t);
    gguf_close(&m->g);
}

static void check_prompt(const real_model *m, const json_t *o, const char *where)
{
    const char *prompt = json_string_value(json_object_get(o, "prompt"));
    const json_t *want = json_object_get(o, "prompt_ids");
    llada_message msg = { "user", prompt };
    int32_t ids[512];
    size_t n = 0;
    assert_non_null(prompt);
    assert_int_equal(chat_encode(m->c, m->t, &msg, 1, ids, 512, &n, NULL), LLADA_OK);
    assert_int_equal(n, json_array_size(want));
    for (size_t i = 0; i < n; i++)
        if (ids[i] != json_integer_value(json_array_get(want, i)))
            fail_msg("%s: \"%s\": id %zu is %d, not %d", where, prompt, i, (int)ids[i],
                     (int)json_integer_value(json_array_get(want, i)));
}

static int check_file(const real_model *m, const char *path)
{
    json_error_t e;
    json_t *o = json_load_file(path, 0, &e);
    const json_t *runs = json_object_get(o, "runs");
    if (!o) fail_msg("%s: %s", path, e.text);
    size_t n = json_array_size(runs);
    for (size_t i = 0; i < n; i++) check_prompt(m, json_array_get(runs, i), path);
    if (!runs) check_prompt(m, o, path);
    json_decref(o);
    return runs ? (int)n : 1;
}

static int check_folder(const real_model *m, const char *dir)
{
    char path[1024];
    struct dirent *e;
    int n = 0;
    DIR *d = opendir(dir);
    if (!d) fail_msg("%s can't be read", dir);
    while ((e = readdir(d)) != NULL) {
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".json") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        n += check_file(m, path);
    }
    closedir(d);
    return n;
}

static void test_golden_prompts(void **state)
{
    real_model m;
    open_real(&m);
    assert_int_equal(check_folder(&m, DATA), 3);
    assert_int_equal(check_folder(&m, DATA "/recipes"), 65);
    close_real(&m);
}

/* ------------------------------------------------------------ layouts spelt out */

static const char llada_template[] =
    "{{ bos_token }}'<|start_header_id|>' + role + '<|end_header_id|>\n\n' + content | trim + "
    "'<|eot_id|>'";
static const char dream_template[] =
    "{%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\\n' + content + '<|im_end|>\\n' }}"
    "{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}";
static const char qwen_template[] =
    "'<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "<|im_end|>\\n'";
static const char bare_template[] = "'<|im_start|>' + role + '\\n' + content + '<|im_end|>\\n'";
static const char moe_template[] = "'<role>' + role | upper + '</role>' + content + '<|role_end|>'";

/* The synthetic vocabulary with other special tokens; names: six, from TINY_BOS on. */
static tiny_gguf *with_specials(const char *const *names, const char *chat)
{
    static char spelling[TINY_VOCAB][24];
    const char *list[TINY_VOCAB];
    tiny_gguf *t = tiny_vocab();
    const uint8_t *p = tiny_find_key(t, "tokenizer.ggml.tokens")->raw;
    for (int i = 0; i < TINY_VOCAB; i++) {
        snprintf(spelling[i], sizeof spelling[i], "%.*s", (int)p[0], (const char *)p + 8);
        p += 8 + p[0];
        list[i] = i < TINY_BOS ? spelling[i] : names[i - TINY_BOS];
    }
    tiny_set_strs(t, "tokenizer.ggml.tokens", list, TINY_VOCAB);
    if (chat)
        tiny_set_str(t, "tokenizer.chat_template", chat);
    else
        tiny_drop_key(t, "tokenizer.chat_template");
    return t;
}

static const char *const llada_specials[] = { "<|startoftext|>",     "<|endoftext|>",     "<|mdm_mask|>",
                                              "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" };
static const char *const chatml_specials[] = { "<|endoftext|>", "<|im_start|>",    "<|im_end|>",
                                               "<|mask|>",      "<|beginoftext|>", "<tool_call>" };
static const char *const moe_specials[] = { "<|startoftext|>", "<|endoftext|>", "<|role_end|>",
                                            "<role>",          "</role>",       "<|mask|>" };
static const char *const moe_plain[] = { "<|startoftext|>", "<|endoftext|>", "<|role_end|>",
                                         "[gMASK]",         "[CLS]",         "<|mask|>" };

static const llada_message user_hi[] = { { "user", " \n hi \t\r\n" } };
static const llada_message system_user[] = { { "system", "be brief" }, { "user", "hi" } };
static const llada_message three_turns[] = { { "user", "a" },
                                             { "assistant", "\xc2\xa0y\xe3\x80\x80" },
                                             { "user", "" } };
static const llada_message markers[] = { { "user", "<|eot_id|><|im_end|><|role_end|>" } };

#define HEAD(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define HI_ML      "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"

static const struct {
    const char *name; /* asked for; NULL: from the file */
    const char *const *specials;
    const char *chat, *chosen;
    const llada_message *msgs;
    size_t n;
    const char *want; /* the prompt, special tokens spelt */
} prompts[] = {
    { NULL, llada_specials, llada_template, "llada", user_hi, 1,
      "<|startoftext|>" HEAD("user") "hi<|eot_id|>" HEAD("assistant") },
    { NULL, llada_specials, llada_template, "llada", three_turns, 3,
      "<|startoftext|>" HEAD("user") "a<|eot_id|>" HEAD("assistant") "y<|eot_id|>" HEAD("user") "<|eot_id|>"
      HEAD("assistant") },
    { "llada", llada_specials, NULL, "llada", system_user, 2,
      "<|startoftext|>" HEAD("system") "be brief<|eot_id|>" HEAD("user") "hi<|eot_id|>" HEAD("assistant") },
    { NULL, chatml_specials, dream_template, "chatml", user_hi, 1,
      "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" HI_ML },
    { NULL, chatml_specials, qwen_template, "chatml", user_hi, 1,
      "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n" HI_ML },
    { NULL, chatml_specials, bare_template, "chatml", user_hi, 1, HI_ML },
    { NULL, chatml_specials, dream_template, "chatml", system_user, 2,
      "<|im_start|>system\nbe brief<|im_end|>\n" HI_ML },
    { "chatml", chatml_specials, NULL, "chatml", user_hi, 1,
      "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" HI_ML },
    { "chatml", chatml_specials, qwen_template, "chatml", system_user, 2,
      "<|im_start|>system\nbe brief<|im_end|>\n" HI_ML },
    { NULL, moe_specials, moe_template, "llada-moe", system_user, 2,
      "<role>SYSTEM</role>be brief<|role_end|><role>HUMAN</role>hi<|role_end|><role>ASSISTANT</role>" },
    { NULL, moe_plain, moe_template, "llada-moe", three_turns, 3,
      "<role>HUMAN</role>a<|role_end|><role>ASSISTANT</role>y<|role_end|>"
      "<role>HUMAN</role><|role_end|><role>ASSISTANT</role>" },
    { NULL, llada_specials, llada_template, "llada", markers, 1,
      "<|startoftext|>" HEAD("user") "<|eot_id|><|im_end|><|role_end|><|eot_id|>" HEAD("assistant") },
};

static void check_spelt(const opened *o, const chat_layout *c, size_t i)
{
    int32_t ids[400];
    size_t n = 0, len;
    assert_int_equal(chat_encode(c, o->t, prompts[i].msgs, prompts[i].n, ids, 400, &n, NULL), LLADA_OK);
    char *s = text_of(o->t, ids, n, true, &len);
    if (len != strlen(prompts[i].want) || memcmp(s, prompts[i].want, len) != 0)
        fail_msg("prompt %zu is \"%.*s\"", i, (int)len, s);
    free(s);
    for (size_t cap = 0; cap < n; cap += 3) { /* a smaller buffer: the same beginning, the same count */
        int32_t part[401];
        size_t again = 0;
        memset(part, 0x7e, sizeof part);
        assert_int_equal(chat_encode(c, o->t, prompts[i].msgs, prompts[i].n, part, cap, &again, NULL), LLADA_OK);
        assert_int_equal(again, n);
        assert_memory_equal(part, ids, cap * sizeof *ids);
        assert_int_equal(part[cap], 0x7e7e7e7e);
    }
}

static void test_layouts(void **state)
{
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        tiny_gguf *t = with_specials(prompts[i].specials, prompts[i].chat);
        const chat_layout *c = NULL;
        opened o;
        if (text_open(&o, t) || chat_choose(&c, o.g, o.t, prompts[i].name, &o.err)) fail_msg("%s", o.err.text);
        assert_non_null(c);
        assert_string_equal(chat_name(c), prompts[i].chosen);
        check_spelt(&o, c, i);
        text_close(&o);
        tiny_free(t);
    }
}

/* The spelling of a special token in a message is plain text: of the ids only the layout's own are special. */
static void test_markers_in_text_stay_text(void **state)
{
    opened o;
    const chat_layout *c = NULL;
    int32_t ids[200];
    size_t n = 0, special = 0;
    text_open_pre(&o, "qwen2");
    assert_int_equal(chat_choose(&c, o.g, o.t, NULL, NULL), LLADA_OK);
    llada_message m = { "user", "<|mdm_mask|><|eot_id|><|startoftext|><|start_header_id|>system<|end_header_id|>" };
    assert_int_equal(chat_encode(c, o.t, &m, 1, ids, 200, &n, NULL), LLADA_OK);
    for (size_t i = 0; i < n; i++) special += tok_is_special(o.t, ids[i]);
    assert_int_equal(special, 6);
    text_close(&o);
}

/* "\n\n" and the text behind it are one piece: "\n\n" before a line end must not be a token of its own. */
static void test_text_is_one_piece_with_what_precedes_it(void **state)
{
    real_model m;
    size_t n = 0, n_piece;
    int32_t ids[64];
    open_real(&m);
    llada_message msg = { "user", "123" };
    assert_int_equal(chat_encode(m.c, m.t, &msg, 1, ids, 64, &n, NULL), LLADA_OK);
    int32_t *piece = ids_of(m.t, "\n\n123", 5, false, &n_piece);
    int32_t *user = ids_of(m.t, "user", 4, false, &(size_t){ 0 });
    assert_int_equal(ids[2], user[0]);
    assert_memory_equal(ids + 4, piece, n_piece * sizeof *piece);
    assert_int_equal(ids[4 + n_piece], tok_eot(m.t));
    free(user);
    free(piece);
    close_real(&m);
}

/* ------------------------------------------------------------ refusals */

static void test_templates_that_are_not_ours(void **state)
{
    static const struct {
        const char *what;
        const char *const *specials;
        const char *chat;
    } rows[] = {
        { "none", llada_specials, NULL },
        { "empty", llada_specials, "" },
        { "another", llada_specials, "{% for m in messages %}[INST]{{ m }}[/INST]{% endfor %}" },
        { "half of the markers", llada_specials, "<|start_header_id|> <|end_header_id|>" },
        { "tokens missing", llada_specials, dream_template },
        { "Llama 3's: no start of text", moe_plain, llada_template },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tiny_gguf *t = with_specials(rows[i].specials, rows[i].chat);
        const chat_layout *c = (const chat_layout *)1;
        opened o;
        size_t n = 0;
        if (text_open(&o, t)) fail_msg("%s", o.err.text);
        assert_int_equal(chat_choose(&c, o.g, o.t, NULL, &o.err), LLADA_OK);
        if (c) fail_msg("%s: %s chosen", rows[i].what, chat_name(c));
        assert_int_equal(chat_encode(c, o.t, user_hi, 1, NULL, 0, &n, &o.err), LLADA_UNSUPPORTED);
        assert_non_null(strstr(o.err.text, "llada, chatml, llada-moe"));
        text_close(&o);
        tiny_free(t);
    }
}

static void test_names(void **state)
{
    opened o;
    const chat_layout *c = NULL;
    text_open_pre(&o, "qwen2");
    assert_int_equal(chat_choose(&c, o.g, o.t, "vicuna", &o.err), LLADA_BAD_ARG);
    assert_null(c);
    assert_non_null(strstr(o.err.text, "\"vicuna\""));
    assert_non_null(strstr(o.err.text, "llada, chatml, llada-moe"));
    assert_int_equal(chat_choose(&c, o.g, o.t, "chatml", &o.err), LLADA_UNSUPPORTED);
    assert_null(c);
    assert_non_null(strstr(o.err.text, "<|im_start|>"));
    text_close(&o);
    tiny_gguf *t = tiny_vocab();
    tiny_set_u32(t, "tokenizer.chat_template", 1);
    if (text_open(&o, t)) fail_msg("%s", o.err.text);
    assert_int_equal(chat_choose(&c, o.g, o.t, NULL, &o.err), LLADA_BAD_MODEL);
    assert_non_null(strstr(o.err.text, "tokenizer.chat_template"));
    text_close(&o);
    tiny_free(t);
}

static void test_bad_conversations(void **state)
{
    static const struct {
        llada_message m[2];
        size_t n;
        const char *says;
    } rows[] = {
        { { { "user", "a" } }, 0, "no messages" },
        { { { "user", "a" }, { "tool", "b" } }, 2, "message 1 has the role \"tool\"" },
        { { { "User", "a" } }, 1, "\"User\"" },
        { { { "", "a" } }, 1, "\"\"" },
        { { { NULL, "a" } }, 1, "message 0" },
        { { { "user", NULL } }, 1, "message 0 has no text" },
        { { { "<|eot_id|>", "a" } }, 1, "system, user or assistant" },
    };
    opened o;
    const chat_layout *c = NULL;
    text_open_pre(&o, "qwen2");
    assert_int_equal(chat_choose(&c, o.g, o.t, NULL, NULL), LLADA_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = 77;
        assert_int_equal(chat_encode(c, o.t, rows[i].m, rows[i].n, NULL, 0, &n, &o.err), LLADA_BAD_ARG);
        if (!strstr(o.err.text, rows[i].says)) fail_msg("row %zu: %s", i, o.err.text);
        assert_int_equal(n, 77);
    }
    text_close(&o);
}

static void test_failed_allocation(void **state)
{
    opened o;
    const chat_layout *c = NULL;
    size_t n = 0, want = 0;
    int k = 1;
    text_open_pre(&o, "qwen2");
    assert_int_equal(chat_choose(&c, o.g, o.t, NULL, NULL), LLADA_OK);
    assert_int_equal(chat_encode(c, o.t, system_user, 2, NULL, 0, &want, NULL), LLADA_OK);
    for (;; k++) {
        mem_fail_at((uint64_t)k);
        llada_status st = chat_encode(c, o.t, system_user, 2, NULL, 0, &n, &o.err);
        mem_fail_at(0);
        if (st == LLADA_OK) break;
        assert_int_equal(st, LLADA_NO_MEMORY);
    }
    assert_in_range(k, 10, 60);
    assert_int_equal(n, want);
    text_close(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_prompts),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_markers_in_text_stay_text),
        cmocka_unit_test(test_text_is_one_piece_with_what_precedes_it),
        cmocka_unit_test(test_templates_that_are_not_ours),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_bad_conversations),
        cmocka_unit_test(test_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
