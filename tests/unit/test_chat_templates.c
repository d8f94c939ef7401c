/* test_chat_templates.c - chat layouts against published templates as jinja2 renders them (tests/ref/chat.py): a file
 * with such a template is given the right layout, and its conversations become the ids of the rendered text. */
#include "text_util.h"

#include <jansson.h>

#include "text/chat.h"

#define DATA LLADA_SOURCE_DIR "/tests/golden/data/chat/templates.json"

enum { MAX_MESSAGES = 8 };

/* The synthetic vocabulary with the model's special tokens and template. */
static tiny_gguf *file_of(const json_t *model)
{
    static char spelling[TINY_VOCAB][24];
    const char *list[TINY_VOCAB];
    tiny_gguf *t = tiny_vocab();
    const uint8_t *p = tiny_find_key(t, "tokenizer.ggml.tokens")->raw;
    for (int i = 0; i < TINY_VOCAB; i++) {
        snprintf(spelling[i], sizeof spelling[i], "%.*s", (int)p[0], (const char *)p + 8);
        p += 8 + p[0];
        size_t special = (size_t)(i - TINY_BOS);
        list[i] =
            i < TINY_BOS ? spelling[i] : json_string_value(json_array_get(json_object_get(model, "specials"), special));
    }
    tiny_set_strs(t, "tokenizer.ggml.tokens", list, TINY_VOCAB);
    tiny_set_str(t, "tokenizer.chat_template", json_string_value(json_object_get(model, "template")));
    return t;
}

static void check_case(const opened *o, const chat_layout *c, const json_t *one, const char *model)
{
    llada_message msgs[MAX_MESSAGES];
    const json_t *list = json_object_get(one, "messages"), *m;
    const char *text = json_string_value(json_object_get(one, "text"));
    size_t i, n = 0, n_want;
    llada_err err = { 0 };
    assert_true(json_array_size(list) <= MAX_MESSAGES);
    json_array_foreach(list, i, m)
    {
        msgs[i].role = json_string_value(json_array_get(m, 0));
        msgs[i].text = json_string_value(json_array_get(m, 1));
    }
    int32_t *want = ids_of(o->t, text, strlen(text), true, &n_want), *ids = malloc((n_want + 64) * sizeof *ids);
    assert_non_null(ids);
    if (chat_encode(c, o->t, msgs, json_array_size(list), ids, n_want + 64, &n, &err))
        fail_msg("%s: %s", model, err.text);
    size_t len;
    char *got = text_of(o->t, ids, n < n_want + 64 ? n : n_want + 64, true, &len);
    if (len != strlen(text) || memcmp(got, text, len) != 0)
        fail_msg("%s: \"%.*s\" is not \"%s\"", model, (int)len, got, text);
    assert_int_equal(n, n_want);
    assert_memory_equal(ids, want, n * sizeof *ids);
    free(got);
    free(ids);
    free(want);
}

static void templates(void **state)
{
    json_error_t e;
    json_t *all = json_load_file(DATA, 0, &e), *model, *one;
    if (!all) fail_msg("%s: %s", DATA, e.text);
    size_t i, k;
    int cases = 0;
    json_array_foreach(all, i, model)
    {
        const char *name = json_string_value(json_object_get(model, "model"));
        const chat_layout *c = NULL;
        tiny_gguf *t = file_of(model);
        opened o;
        if (text_open(&o, t) || chat_choose(&c, o.g, o.t, NULL, &o.err)) fail_msg("%s: %s", name, o.err.text);
        if (!c) fail_msg("%s: the template is not known", name);
        assert_string_equal(chat_name(c), json_string_value(json_object_get(model, "layout")));
        json_array_foreach(json_object_get(model, "cases"), k, one)
        {
            check_case(&o, c, one, name);
            cases++;
        }
        text_close(&o);
        tiny_free(t);
    }
    assert_int_equal(json_array_size(all), 6);
    assert_true(cases >= 50);
    json_decref(all);
}

/* Llama 3.1's template, which begins with dates, is not taken for Llama 3's; by name it can be had. */
static void another_template(void **state)
{
    json_error_t e;
    json_t *all = json_load_file(DATA, 0, &e);
    if (!all) fail_msg("%s: %s", DATA, e.text);
    tiny_gguf *t = file_of(json_array_get(all, 1));
    tiny_set_str(t, "tokenizer.chat_template",
                 "{{ bos_token }}<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December "
                 "2023\n<|eot_id|>");
    const chat_layout *c = NULL;
    opened o;
    if (text_open(&o, t) || chat_choose(&c, o.g, o.t, NULL, &o.err)) fail_msg("%s", o.err.text);
    assert_null(c);
    if (chat_choose(&c, o.g, o.t, "llama3", &o.err)) fail_msg("%s", o.err.text);
    assert_string_equal(chat_name(c), "llama3");
    assert_int_equal(chat_choose(&c, o.g, o.t, "llada", &o.err), LLADA_UNSUPPORTED);
    assert_non_null(strstr(o.err.text, "<|startoftext|>"));
    text_close(&o);
    tiny_free(t);
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(templates), cmocka_unit_test(another_template) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
