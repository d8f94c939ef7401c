/* test_app_infill.c - canvases of which parts are given, through the server: what is given stands, holes are filled as
 * the library fills them, and every way of showing the answer ends in the same text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http_client.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static int open_place(void **state)
{
    static place p;
    server_opts o = place_opts();
    place_open(&p, &o);
    *state = &p;
    return 0;
}

static int close_place(void **state)
{
    place_close(*state);
    return 0;
}

/* Pieces of text, with a number of holes behind each. */
typedef struct {
    const char *text;
    int holes;
} piece;

static const struct {
    const char *prefix;
    piece pieces[5];
} templates[] = {
    {"", {{"Ben has ", 3}, {" nuts and Sara has ", 2}, {" pens.", 0}}},
    {"Tom has 3 pens. ", {{"", 4}, {"He buys ", 2}, {" more and has ", 5}}},
    {"", {{"{\"name\": \"", 4}, {"\", \"city\": \"", 6}, {"\"}", 0}}},
    {"", {{"{{x}} and {{ 3}} and {{", 2}, {"}} are \xE2\x82\xAC", 1}, {"\xF0\x9F\x98\x80", 2}}},
    {"What is 3*4? ", {{"", 40}}}, /* ends before it is full: what follows the end is not shown */
};

static const char *const recipes[] = {"default", "vanilla"};

/* The text a template becomes by the library alone. */
static void by_the_library(const place *p, size_t t, const char *recipe, buf *out)
{
    llada_session *s = NULL;
    llada_session_opts so;
    llada_request q;
    llada_recipe r;
    llada_result res = {.size = sizeof res};
    llada_model_info info = {.size = sizeof info};
    int32_t prompt[64], canvas[256];
    size_t n_prompt = 0, n = 0, more;
    llada_session_opts_defaults(&so);
    so.ctx = 256;
    so.threads = 1;
    llada_model_get_info(p->m, &info);
    llada_recipe_defaults(&r);
    if (strcmp(recipe, "default")) assert_int_equal(llada_recipe_named(&r, recipe, NULL), LLADA_OK);
    const char *prefix = templates[t].prefix;
    assert_int_equal(llada_tokenize(p->m, prefix, strlen(prefix), false, prompt, 64, &n_prompt, NULL), LLADA_OK);
    for (const piece *k = templates[t].pieces; k->text; k++) {
        assert_int_equal(llada_tokenize(p->m, k->text, strlen(k->text), false, canvas + n, 256 - n, &more, NULL),
                         LLADA_OK);
        n += more;
        for (int i = 0; i < k->holes; i++) canvas[n++] = LLADA_HOLE;
    }
    assert_int_equal(llada_session_open(&s, p->m, &r, &so, NULL), LLADA_OK);
    llada_request_defaults(&q);
    q.prompt = prompt;
    q.n_prompt = (int32_t)n_prompt;
    q.canvas = canvas;
    q.n_canvas = (int32_t)n;
    assert_int_equal(llada_generate(s, &q, &res, NULL), LLADA_OK);
    bool ended = false;
    buf_str(out, "");
    for (size_t i = 0; i < n; i++) {
        char bytes[64];
        size_t len = 0;
        int32_t id = res.canvas[i];
        ended = canvas[i] == LLADA_HOLE && (ended || id == info.eos_id || id == info.eot_id);
        if (ended) continue;
        assert_int_equal(llada_detokenize(p->m, &id, 1, false, bytes, sizeof bytes, &len, NULL), LLADA_OK);
        buf_add(out, bytes, len);
    }
    llada_session_close(&s);
}

static char *body_of(size_t t, const char *recipe)
{
    buf text = {0};
    buf_str(&text, "");
    for (const piece *k = templates[t].pieces; k->text; k++) {
        buf_str(&text, k->text);
        if (k->holes) buf_fmt(&text, "{{%d}}", k->holes);
    }
    json_t *o = json_object();
    json_object_set_new(o, "input_template", json_string(text.p));
    if (*templates[t].prefix) json_object_set_new(o, "input_prefix", json_string(templates[t].prefix));
    if (strcmp(recipe, "default")) json_object_set_new(o, "llada", json_pack("{s:s}", "recipe", recipe));
    char *body = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    buf_free(&text);
    return body;
}

static void check_streamed(const place *p, const char *body, const char *want, const char *reason)
{
    for (int replace = 0; replace < 2; replace++) {
        reply r;
        buf got = {0};
        char finish[16] = "";
        char *streamed = with_field(body, replace ? "\"stream\":true,\"diffusing\":true" : "\"stream\":true");
        call(p->port, "/infill", streamed, &r);
        assert_int_equal(r.status, 200);
        join_stream(r.body.p, replace, &got, finish);
        if (strcmp(got.p, want) != 0) fail_msg("%s: '%s' streamed, '%s' whole", streamed, got.p, want);
        assert_string_equal(finish, reason);
        buf_free(&got);
        reply_free(&r);
        free(streamed);
    }
}

static void templates_are_filled(void **state)
{
    const place *p = *state;
    for (size_t i = 0; i < COUNT(templates) * COUNT(recipes); i++) {
        size_t t = i / COUNT(recipes);
        const char *recipe = recipes[i % COUNT(recipes)];
        buf want = {0};
        char *body = body_of(t, recipe);
        int holes = 0;
        for (const piece *k = templates[t].pieces; k->text; k++) holes += k->holes;
        by_the_library(p, t, recipe, &want);
        json_t *o = call_json(p->port, "/infill", body, 200), *usage = json_object_get(o, "usage");
        const char *text = text_at(o, "content"), *at = text;
        if (strcmp(text, want.p) != 0) fail_msg("%s: '%s', and the library says '%s'", body, text, want.p);
        for (const piece *k = templates[t].pieces; k->text; k++) {
            at = strstr(at, k->text); /* what is given stands, in its order */
            assert_non_null(at);
            at += strlen(k->text);
        }
        assert_true(json_integer_value(json_object_get(usage, "completion_tokens")) <= holes);
        check_streamed(p, body, text, text_at(o, "finish_reason"));
        json_decref(o);
        free(body);
        buf_free(&want);
    }
}

/* A stop string cuts the text wherever it stands, in what is given too. */
static void stops(void **state)
{
    const place *p = *state;
    static const char body[] = "{\"input_template\":\"Ben has {{3}} nuts and {{2}} pens.\",\"stop\":\" and \"}";
    json_t *o = call_json(p->port, "/infill", body, 200);
    const char *text = text_at(o, "content");
    assert_int_equal(strncmp(text, "Ben has ", 8), 0);
    assert_true(strlen(text) >= 5 && !strcmp(text + strlen(text) - 5, " nuts"));
    check_streamed(p, body, text, "stop");
    json_decref(o);
}

/* The page's events: cells of all positions, those that were given marked as such. */
static void cells(void **state)
{
    const place *p = *state;
    reply r;
    call(p->port, "/infill",
         "{\"input_template\":\"Ben has {{3}} nuts.\",\"stream\":true,\"llada\":{\"events\":true}}", &r);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body.p, "[0,\"Ben\",1.0,\"given\",0]"));
    assert_non_null(strstr(r.body.p, "\"settled\""));
    assert_non_null(strstr(r.body.p, "event: done\n"));
    reply_free(&r);
}

static void refusals(void **state)
{
    static const struct { const char *body, *param; } bad[] = {
        {"{\"input_template\":\"no hole\"}", "input_template"},
        {"{\"input_template\":\"\"}", "input_template"},
        {"{\"input_template\":7}", "input_template"},
        {"{\"input_template\":\"a {{0}} b\"}", "input_template"},
        {"{\"input_template\":\"a {{600}} b\"}", "input_template"},
        {"{\"input_template\":\"{{300}} and {{300}}\"}", "input_template"},
        {"{\"input_template\":\"{{99999999999999999999999}}\"}", "input_template"},
        {"{\"input_template\":\"{{510}}\",\"input_prefix\":\"What is 3*4? What is 3*4?\"}", "input_prefix"},
        {"{\"input_template\":\"{{3}}\",\"input_suffix\":\"x\"}", "input_suffix"},
        {"{\"input_template\":\"{{3}}\",\"max_tokens\":2}", "max_tokens"},
        {"{\"input_template\":\"{{3}}\",\"n_predict\":2}", "n_predict"},
    };
    const place *p = *state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        json_t *o = call_json(p->port, "/infill", bad[i].body, 400);
        const char *param = text_at(o, "error.param");
        if (!param || strcmp(param, bad[i].param) != 0) fail_msg("%s: %s", bad[i].body, param ? param : "no field");
        json_decref(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_are_filled), cmocka_unit_test(stops), cmocka_unit_test(cells),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, open_place, close_place);
}
