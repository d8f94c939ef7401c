/* test_app_server.c - what the server answers: shapes, streams equal to whole answers, refusals by name, who may ask. */
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
    o.metrics = true;
    place_open(&p, &o);
    *state = &p;
    return 0;
}

static int close_place(void **state)
{
    place_close(*state);
    return 0;
}

/* ---------------------------------------------------------------- streams */

static void check_streams(const place *p, const char *body)
{
    static const struct { const char *field; bool replace; } ways[] = {
        {"\"stream\":true", false}, {"\"stream\":true,\"diffusing\":true", true},
    };
    json_t *whole = call_json(p->port, "/v1/chat/completions", body, 200);
    const char *want = text_at(whole, "choices.0.message.content"), *reason = text_at(whole, "choices.0.finish_reason");
    for (size_t i = 0; i < COUNT(ways); i++) {
        reply r;
        buf got = {0};
        char finish[16] = "", *streamed = with_field(body, ways[i].field);
        call(p->port, "/v1/chat/completions", streamed, &r);
        assert_int_equal(r.status, 200);
        join_stream(r.body.p, ways[i].replace, &got, finish);
        if (strcmp(got.p, want) != 0) fail_msg("%s: '%s' streamed, '%s' whole", streamed, got.p, want);
        assert_string_equal(finish, reason);
        buf_free(&got);
        reply_free(&r);
        free(streamed);
    }
    json_decref(whole);
}

static const char *const questions[] = {"What is 4*9+57?", "Sort: 9 2 7 4", "Evaluate 3*6+13."};

/* A stop string at every place of an answer, of every length 1..3. */
static void streams(void **state)
{
    const place *p = *state;
    size_t step = getenv("LLADA_LONG_TESTS") ? 1 : 7, asked = 0;
    for (size_t q = 0; q < COUNT(questions); q++) {
        char body[512];
        snprintf(body, sizeof body, "{\"max_tokens\":32,\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", questions[q]);
        check_streams(p, body);
        json_t *whole = call_json(p->port, "/v1/chat/completions", body, 200);
        const char *text = text_at(whole, "choices.0.message.content");
        for (size_t i = q; i < strlen(text); i += step, asked++) {
            char stop[80], *stopped;
            snprintf(stop, sizeof stop, "\"stop\":[\"%.*s\",\"never\"]", (int)(1 + i % 3), text + i);
            stopped = with_field(body, stop);
            check_streams(p, stopped);
            json_t *o = call_json(p->port, "/v1/chat/completions", stopped, 200);
            char only[4] = "";
            snprintf(only, sizeof only, "%.*s", (int)(1 + i % 3), text + i);
            assert_null(strstr(text_at(o, "choices.0.message.content"), only));
            assert_string_equal(text_at(o, "choices.0.finish_reason"), "stop");
            json_decref(o);
            free(stopped);
        }
        json_decref(whole);
    }
    print_message("%zu answers with stop strings, streamed in two ways and whole\n", asked);
}

/* The server's answer is the library's. */
static void same_as_the_library(void **state)
{
    const place *p = *state;
    llada_err err;
    llada_session *s = NULL;
    llada_session_opts so;
    llada_request q;
    llada_result res = {.size = sizeof res};
    llada_message m = {"user", questions[0]};
    int32_t ids[128];
    size_t n, len;
    char text[512];
    llada_session_opts_defaults(&so);
    so.ctx = 256;
    so.threads = 1;
    assert_int_equal(llada_chat(p->m, &m, 1, ids, 128, &n, &err), LLADA_OK);
    assert_int_equal(llada_session_open(&s, p->m, NULL, &so, &err), LLADA_OK);
    llada_request_defaults(&q);
    q.prompt = ids;
    q.n_prompt = (int32_t)n;
    q.max_tokens = 32;
    assert_int_equal(llada_generate(s, &q, &res, &err), LLADA_OK);
    assert_int_equal(llada_detokenize(p->m, res.tokens, (size_t)res.n_tokens, false, text, sizeof text - 1, &len, &err),
                     LLADA_OK);
    text[len] = 0;
    json_t *o = call_json(p->port, "/v1/chat/completions",
                          "{\"max_tokens\":32,\"logprobs\":true,\"messages\":[{\"role\":\"user\",\"content\":\"What is 4*9+57?\"}]}",
                          200);
    assert_string_equal(text_at(o, "choices.0.message.content"), text);
    json_t *usage = json_object_get(o, "usage"), *ours = json_object_get(usage, "llada");
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), res.n_tokens);
    assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens")), n);
    assert_int_equal(json_integer_value(json_object_get(ours, "passes")), res.passes);
    assert_int_equal(json_integer_value(json_object_get(ours, "rows")), res.rows);
    json_t *probs = json_object_get(json_object_get(json_array_get(json_object_get(o, "choices"), 0), "logprobs"), "content");
    assert_int_equal(json_array_size(probs), res.n_tokens);
    json_decref(o);
    llada_session_close(&s);
}

static void other_shapes(void **state)
{
    const place *p = *state;
    reply r;
    json_t *o = call_json(p->port, "/health", NULL, 200);
    assert_string_equal(text_at(o, "status"), "ok");
    json_decref(o);
    o = call_json(p->port, "/v1/models", NULL, 200);
    assert_string_equal(text_at(o, "data.0.id"), "tiny-llada");
    json_decref(o);
    o = call_json(p->port, "/props", NULL, 200);
    assert_string_equal(text_at(o, "keys.tau_draft.value"), "0.99");
    json_decref(o);
    o = call_json(p->port, "/tokenize", "{\"content\":\"What is 4*9+57?\"}", 200);
    char *ids = json_dumps(o, 0);
    json_decref(o);
    o = call_json(p->port, "/detokenize", ids, 200);
    assert_string_equal(text_at(o, "content"), "What is 4*9+57?");
    json_decref(o);
    free(ids);
    o = call_json(p->port, "/v1/completions", "{\"prompt\":\"Ben has 3 nuts.\",\"max_tokens\":8,\"logprobs\":0}", 200);
    assert_string_equal(text_at(o, "object"), "text_completion");
    assert_non_null(text_at(o, "choices.0.text"));
    json_decref(o);
    o = call_json(p->port, "/v1/completions", "{\"prompt\":\"Ben has \",\"suffix\":\" nuts left.\",\"max_tokens\":4}", 200);
    assert_non_null(text_at(o, "choices.0.text"));
    json_decref(o);
    o = call_json(p->port, "/infill", "{\"input_prefix\":\"Ben has \",\"input_suffix\":\" nuts left.\",\"n_predict\":4}", 200);
    assert_non_null(text_at(o, "content"));
    assert_true(json_integer_value(json_object_get(json_object_get(o, "usage"), "completion_tokens")) <= 4);
    json_decref(o);
    call(p->port, "/metrics", NULL, &r);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body.p, "\nllada_requests_done_total "));
    reply_free(&r);
    call(p->port, "/", NULL, &r);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "Content-Security-Policy: default-src 'none'"));
    reply_free(&r);
}

/* The events of the page: first and last are there, every cell of the answer settles. */
static void page_events(void **state)
{
    const place *p = *state;
    reply r;
    call(p->port, "/v1/chat/completions",
         "{\"max_tokens\":16,\"stream\":true,\"llada\":{\"events\":true},\"messages\":[{\"role\":\"user\",\"content\":\"Sort: 9 2\"}]}",
         &r);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "text/event-stream"));
    assert_int_equal(strncmp(r.body.p, "event: start\ndata: {", 20), 0);
    assert_non_null(strstr(r.body.p, "\n\nevent: canvas\n"));
    char *last = strstr(r.body.p, "event: done\ndata: ");
    assert_non_null(last);
    json_t *o = json_loadb(last + 18, strcspn(last + 18, "\n"), 0, NULL);
    assert_non_null(text_at(o, "text"));
    json_decref(o);
    reply_free(&r);
}

/* ---------------------------------------------------------------- refusals */

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"
#define TEXT_64 "1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 "
#define TEXT_512 TEXT_64 TEXT_64 TEXT_64 TEXT_64 TEXT_64 TEXT_64 TEXT_64 TEXT_64
#define LONG_TEXT TEXT_512 TEXT_512 TEXT_512 TEXT_512 /* more tokens than there are positions */
#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static const struct {
    const char *path, *body;
    int status;
    const char *param; /* the field the refusal names; NULL: none */
} bad[] = {
    {CHAT, "", 400, NULL}, {CHAT, "x", 400, NULL}, {CHAT, "[]", 400, NULL}, {CHAT, "{}", 400, "messages"},
    {CHAT, "{\"messages\":[]}", 400, "messages"}, {CHAT, "{\"messages\":{}}", 400, "messages"},
    {CHAT, "{\"messages\":[1]}", 400, "messages[0].role"},
    {CHAT, "{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}", 400, "messages[0].role"},
    {CHAT, "{\"messages\":[{\"role\":\"user\"}]}", 400, "messages[0].content"},
    {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400, "messages[0].content"},
    {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]}", 400, "messages[0].content"},
    {CHAT, "{" USER "," USER "}", 400, NULL}, /* a key twice */
    {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}", 400, NULL},
    {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", 400, NULL},
    {CHAT, "{" USER ",\"n\":2}", 400, "n"}, {CHAT, "{" USER ",\"tools\":[{}]}", 400, "tools"},
    {CHAT, "{" USER ",\"response_format\":{\"type\":\"json_object\"}}", 400, "response_format"},
    {CHAT, "{" USER ",\"logit_bias\":{\"1\":2}}", 400, "logit_bias"},
    {CHAT, "{" USER ",\"presence_penalty\":0.5}", 400, "presence_penalty"},
    {CHAT, "{" USER ",\"top_logprobs\":3}", 400, "top_logprobs"},
    {CHAT, "{" USER ",\"logprobs\":1}", 400, "logprobs"}, {TEXT, "{\"prompt\":\"x\",\"logprobs\":2}", 400, "logprobs"},
    {CHAT, "{" USER ",\"stream\":1}", 400, "stream"}, {CHAT, "{" USER ",\"stream_options\":1}", 400, "stream_options"},
    {CHAT, "{" USER ",\"temperature\":-1}", 400, "temperature"}, {CHAT, "{" USER ",\"temperature\":\"1\"}", 400, "temperature"},
    {CHAT, "{" USER ",\"top_p\":2}", 400, "top_p"}, {CHAT, "{" USER ",\"stop\":\"\"}", 400, "stop"},
    {CHAT, "{" USER ",\"stop\":[1]}", 400, "stop"}, {CHAT, "{" USER ",\"stop\":7}", 400, "stop"},
    {CHAT, "{" USER ",\"llada\":7}", 400, "llada"}, {CHAT, "{" USER ",\"llada\":{\"tauu\":1}}", 400, "llada.tauu"},
    {CHAT, "{" USER ",\"llada\":{\"tau\":9}}", 400, "llada.tau"}, {CHAT, "{" USER ",\"llada\":{\"tau\":[]}}", 400, "llada.tau"},
    {CHAT, "{" USER ",\"llada\":{\"recipe\":\"nope\"}}", 400, "llada.recipe"},
    {CHAT, "{" USER ",\"llada\":{\"recipe\":7}}", 400, "llada.recipe"},
    {CHAT, "{" USER ",\"llada\":{\"events\":1}}", 400, "events"},
    {CHAT, "{" USER ",\"max_tokens\":501}", 400, "messages"}, /* 12 + 501 of 512 positions */
    {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"" LONG_TEXT "\"}]}", 400, "messages"},
    {TEXT, "{\"prompt\":\"" LONG_TEXT "\"}", 400, "prompt"},
    {TEXT, "{\"prompt\":\"x\",\"suffix\":\"" LONG_TEXT "\"}", 400, "suffix"},
    {"/infill", "{\"input_prefix\":\"" LONG_TEXT "\"}", 400, "input_prefix"},
    {"/infill", "{\"input_suffix\":\"" LONG_TEXT "\"}", 400, "input_suffix"},
    {CHAT, "{" USER ",\"llada\":{\"gen\":65536}}", 400, "messages"},
    {TEXT, "{\"prompt\":\"\"}", 400, "prompt"}, {TEXT, "{\"prompt\":[]}", 400, "prompt"}, {TEXT, "{\"prompt\":[[]]}", 400, "prompt"},
    {TEXT, "{}", 400, "prompt"}, {TEXT, "{\"prompt\":7}", 400, "prompt"}, {TEXT, "{\"prompt\":[\"a\",\"b\"]}", 400, "prompt"},
    {TEXT, "{\"prompt\":[1,99999]}", 400, "prompt"}, {TEXT, "{\"prompt\":[1,-1]}", 400, "prompt"},
    {TEXT, "{\"prompt\":[[1],[2]]}", 400, "prompt"}, {TEXT, "{\"prompt\":\"x\",\"echo\":true}", 400, "echo"},
    {TEXT, "{\"prompt\":\"x\",\"best_of\":3}", 400, "best_of"}, {TEXT, "{\"prompt\":\"x\",\"suffix\":7}", 400, "suffix"},
    {"/infill", "{}", 400, "input_prefix"}, {"/infill", "{\"input_prefix\":\"\"}", 400, "input_prefix"},
    {"/tokenize", "{}", 400, "content"}, {"/tokenize", "{\"content\":7}", 400, "content"},
    {"/detokenize", "{}", 400, "tokens"}, {"/detokenize", "{\"tokens\":[-1]}", 400, "tokens"},
    {"/detokenize", "{\"tokens\":[99999]}", 400, "tokens"}, {"/detokenize", "{\"tokens\":7}", 400, "tokens"},
};

static void refused(const place *p, const char *path, const char *body, size_t n, int status, const char *param)
{
    reply r;
    call_with(p->port, "POST", path, "", body, n, &r);
    json_t *o = r.body.p ? json_loadb(r.body.p, r.body.n, 0, NULL) : NULL;
    const char *named = o ? text_at(o, "error.param") : NULL;
    if (r.status != status || !o || !text_at(o, "error.message") || (param ? !named || strcmp(named, param) != 0 : !!named))
        fail_msg("%s %.100s: %d %.300s", path, body, r.status, r.body.p ? r.body.p : "");
    json_decref(o);
    reply_free(&r);
}

static void refusals(void **state)
{
    const place *p = *state;
    size_t n = 0;
    for (size_t i = 0; i < COUNT(bad); i++, n++)
        refused(p, bad[i].path, bad[i].body, strlen(bad[i].body), bad[i].status, bad[i].param);
    static const char *const integers[] = {"max_tokens", "max_completion_tokens", "n_predict", "n", "best_of", "seed", "top_k"};
    static const char *const values[] = {"-2", "9007199254740993000", "1e308", "\"7\"", "true", "[]", "{}", "1.5", "18446744073709551616"};
    for (size_t i = 0; i < COUNT(integers); i++)
        for (size_t k = 0; k < COUNT(values); k++, n++) {
            char body[256];
            if (!strcmp(integers[i], "seed") && k == 1) continue; /* that is one */
            snprintf(body, sizeof body, "{" USER ",\"%s\":%s}", integers[i], values[k]);
            refused(p, CHAT, body, strlen(body), 400, k == 8 ? NULL : integers[i]);
        }
    buf stops = {0};
    buf_str(&stops, "{" USER ",\"stop\":[\"x\"");
    for (int i = 0; i < 999; i++) buf_str(&stops, ",\"x\"");
    buf_str(&stops, "]}");
    refused(p, CHAT, stops.p, stops.n, 400, "stop");
    buf_free(&stops);
    json_decref(call_json(p->port, "/health", NULL, 200));
    print_message("%zu requests refused by name\n", n + 1);
}

/* Sentences that are read by people. */
static void sentences(void **state)
{
    static const struct { const char *field, *sentence; } said[] = {
        {"\"n\":2", "'n' must be 1, and is 2"},
        {"\"top_k\":-1", "'top_k' must be an integer in 0..16777216, and is -1"},
        {"\"seed\":-2", "'seed' must be an integer, -1 or more, and is -2"},
        {"\"max_tokens\":501", "the prompt ('messages') has 12 tokens and the canvas 501, together 513 positions; "
                               "this server takes 512"},
    };
    const place *p = *state;
    for (size_t i = 0; i < COUNT(said); i++) {
        char *body = with_field("{" USER "}", said[i].field);
        json_t *o = call_json(p->port, CHAT, body, 400);
        assert_string_equal(text_at(o, "error.message"), said[i].sentence);
        json_decref(o);
        free(body);
    }
}

static void depth_and_size(void **state)
{
    const place *p = *state;
    static const size_t depths[] = {63, 64, 65, 3000, 1000000};
    for (size_t i = 0; i < COUNT(depths); i++) {
        buf b = {0};
        buf_str(&b, "{\"prompt\":");
        for (size_t k = 1; k < depths[i]; k++) buf_str(&b, "[");
        for (size_t k = 1; k < depths[i]; k++) buf_str(&b, "]");
        buf_str(&b, "}");
        /* within the limit the nesting is no prompt; beyond, it is not looked at */
        refused(p, TEXT, b.p, b.n, 400, depths[i] <= 64 ? "prompt" : NULL);
        buf_free(&b);
    }
    static const struct { size_t n; int status; const char *param; } sizes[] = {
        {0, 400, NULL}, {1, 400, NULL}, {8 << 20, 400, NULL}, {(8 << 20) + 1, 413, NULL}, {40 << 20, 413, NULL},
    };
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char *body = buf_new(sizes[i].n + 1, 1);
        memset(body, ' ', sizes[i].n);
        if (sizes[i].n == 40 << 20) { /* announced is enough */
            reply r;
            int fd = dial(p->port);
            const char head[] = "POST /tokenize HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                "Content-Length: 41943040\r\n\r\n";
            send_all(fd, head, sizeof head - 1);
            read_reply(fd, 20, &r);
            close(fd);
            assert_int_equal(r.status, 413);
            reply_free(&r);
        } else {
            refused(p, "/tokenize", body, sizes[i].n, sizes[i].status, sizes[i].param);
        }
        free(body);
    }
    json_decref(call_json(p->port, "/health", NULL, 200));
}

/* ---------------------------------------------------------------- who may ask */

static const struct {
    const char *method, *path, *more;
    int status;
} asks[] = {
    {"GET", "/health", "Host: localhost\r\n", 200},
    {"GET", "/health", "Host: 127.0.0.1:1\r\n", 200},
    {"GET", "/health", "Host: evil.example\r\n", 403},
    {"GET", "/", "Host: evil.example:8080\r\n", 403},
    {"GET", "/health", "Origin: http://evil.example\r\n", 403},
    {"GET", "/health", "Origin: null\r\n", 403},
    {"GET", "/health", "Origin: http://localhost\r\n", 200},
    {"POST", "/tokenize", "Origin: http://evil.example\r\n", 403},
    {"POST", "/tokenize", "Content-Type: text/plain\r\n", 415},
    {"POST", "/tokenize", "Content-Type: application/x-www-form-urlencoded\r\n", 415},
    {"POST", "/tokenize", "Content-Type: multipart/form-data\r\n", 415},
    {"POST", "/tokenize", "", 200},
    {"GET", "/tokenize", "", 405},
    {"POST", "/health", "", 405},
    {"OPTIONS", "/v1/chat/completions", "Origin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n", 403},
    {"OPTIONS", "/v1/chat/completions", "", 405},
    {"DELETE", "/", "", 405},
    {"GET", "/nothing", "", 404},
    {"GET", "/../etc/passwd", "", 404},
    {"GET", "/%00", "", 404},
    {"GET", "/%2e%2e/page.js", "", 404},
    {"GET", "/health?x=%zz", "", 200},
};

static void who_may_ask(void **state)
{
    const place *p = *state;
    for (size_t i = 0; i < COUNT(asks); i++) {
        reply r;
        const char *body = !strcmp(asks[i].method, "POST") ? "{\"content\":\"x\"}" : NULL;
        call_with(p->port, asks[i].method, asks[i].path, asks[i].more, body, body ? strlen(body) : 0, &r);
        if (r.status != asks[i].status) fail_msg("%s %s %s: %d", asks[i].method, asks[i].path, asks[i].more, r.status);
        assert_null(strstr(r.head, "Access-Control-Allow"));
        reply_free(&r);
    }
}

/* Pages of an origin that was named may ask and read; of another, even one that looks like it, they may not. */
static void other_pages(void **state)
{
    static const struct {
        const char *method, *more;
        int status;
        const char *allowed; /* the origin that may read the answer; NULL: none */
    } asks_of[] = {
        {"POST", "Origin: http://app.example:3000\r\n", 200, "http://app.example:3000"},
        {"POST", "Origin: https://two.example\r\n", 200, "https://two.example"},
        {"POST", "Origin: http://app.example\r\n", 403, NULL},
        {"POST", "Origin: https://app.example:3000\r\n", 403, NULL},
        {"POST", "Origin: http://app.example:3000.evil.example\r\n", 403, NULL},
        {"POST", "Origin: null\r\n", 403, NULL},
        {"POST", "Origin: http://app.example:3000\r\nContent-Type: text/plain\r\n", 415, "http://app.example:3000"},
        {"POST", "Origin: http://app.example:3000\r\nHost: evil.example\r\n", 403, "http://app.example:3000"},
        {"POST", "Origin: http://localhost\r\n", 200, NULL},
        {"POST", "", 200, NULL},
        {"OPTIONS", "Origin: http://app.example:3000\r\nAccess-Control-Request-Method: POST\r\n", 204,
         "http://app.example:3000"},
        {"OPTIONS", "Origin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n", 403, NULL},
        {"OPTIONS", "", 405, NULL},
    };
    static const char *const origins[] = {"http://app.example:3000", "https://two.example"};
    static const char *const wrong[] = {
        "*", "null", "", "app.example", "http://", "http://a.example/", "http://a.example/x", "HTTP://a.example",
        "http://a b", "http://user@a.example", "http://a.example:x",
    };
    place p;
    server *none = NULL;
    char why[512];
    server_opts o = place_opts();
    o.origins = origins;
    o.n_origins = COUNT(origins);
    place_open(&p, &o);
    for (size_t i = 0; i < COUNT(asks_of); i++) {
        reply r;
        char want[128];
        const char *body = !strcmp(asks_of[i].method, "POST") ? "{\"content\":\"x\"}" : NULL;
        call_with(p.port, asks_of[i].method, "/tokenize", asks_of[i].more, body, body ? strlen(body) : 0, &r);
        snprintf(want, sizeof want, "Access-Control-Allow-Origin: %s\r\n", asks_of[i].allowed ? asks_of[i].allowed : "");
        bool told = strstr(r.head, asks_of[i].allowed ? want : "Access-Control-");
        if (r.status != asks_of[i].status || told != !!asks_of[i].allowed)
            fail_msg("%s %s: %d %s", asks_of[i].method, asks_of[i].more, r.status, r.head);
        assert_non_null(strstr(r.head, "Vary: Origin\r\n"));
        if (r.status == 204) assert_non_null(strstr(r.head, "Access-Control-Allow-Headers: *, Authorization\r\n"));
        reply_free(&r);
    }
    place_close(&p);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        o.origins = &wrong[i];
        o.n_origins = 1;
        if (server_open(&none, &o, why, sizeof why)) fail_msg("--cors '%s' was taken", wrong[i]);
        assert_non_null(strstr(why, "--cors"));
    }
    (void)state;
}

static void keys_and_addresses(void **state)
{
    place p;
    reply r;
    char why[512] = "";
    server *none = NULL;
    server_opts o = place_opts();
    o.host = "0.0.0.0";
    assert_false(server_open(&none, &o, why, sizeof why)); /* other machines, and no key */
    assert_non_null(strstr(why, "--api-key"));
    o = place_opts();
    o.key = "secret";
    place_open(&p, &o);
    static const struct { const char *path, *more; int status; } tries[] = {
        {"/v1/models", "", 401}, {"/v1/models", "Authorization: Bearer wrong\r\n", 401}, {"/props", "", 401},
        {"/v1/models", "Authorization: Bearer secret\r\n", 200}, {"/health", "", 200}, {"/", "", 200}, {"/metrics", "", 404},
    };
    for (size_t i = 0; i < COUNT(tries); i++) {
        call_with(p.port, "GET", tries[i].path, tries[i].more, NULL, 0, &r);
        if (r.status != tries[i].status) fail_msg("%s %s: %d", tries[i].path, tries[i].more, r.status);
        reply_free(&r);
    }
    o.port = p.port;
    assert_false(server_open(&none, &o, why, sizeof why)); /* taken */
    assert_non_null(strstr(why, "something listens there already"));
    place_close(&p);
}

static void while_loading(void **state)
{
    server *s = NULL;
    char why[512] = "";
    server_opts o = place_opts();
    assert_true(server_open(&s, &o, why, sizeof why));
    json_decref(call_json(server_port(s), "/health", NULL, 503));
    json_decref(call_json(server_port(s), "/v1/models", NULL, 503));
    json_decref(call_json(server_port(s), CHAT, "{" USER "}", 503));
    server_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_the_library), cmocka_unit_test(streams), cmocka_unit_test(other_shapes),
        cmocka_unit_test(page_events), cmocka_unit_test(refusals), cmocka_unit_test(sentences),
        cmocka_unit_test(depth_and_size),
        cmocka_unit_test(who_may_ask), cmocka_unit_test(other_pages), cmocka_unit_test(keys_and_addresses),
        cmocka_unit_test(while_loading),
    };
    return cmocka_run_group_tests(tests, open_place, close_place);
}
