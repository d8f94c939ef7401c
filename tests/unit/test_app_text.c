/* test_app_text.c - text made safe, files replaced whole, the canvas, trace files. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/canvas.h"
#include "app/trace.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define FFFD "\xEF\xBF\xBD"

/* ---------------------------------------------------------------- text */

static const struct {
    const char *in, *json, *terminal; /* as valid UTF-8; as a terminal may get it */
} texts[] = {
    {"plain \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "plain \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
     "plain \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
    {"a\nb\tc", "a\nb\tc", "a\nb\tc"},
    {"\x1b[2J\x07\r", "\x1b[2J\x07\r", "^[[2J^G^M"},
    {"\x7f", "\x7f", "<7f>"},
    {"\xc2\x9b" "31m", "\xc2\x9b" "31m", "<9b>31m"}, /* C1 is a control sequence too */
    {"\xff", FFFD, FFFD},
    {"\xc0\x80", FFFD FFFD, FFFD FFFD},
    {"\xed\xa0\x80", FFFD FFFD FFFD, FFFD FFFD FFFD},
    {"\xf5\x80\x80\x80", FFFD FFFD FFFD FFFD, FFFD FFFD FFFD FFFD},
    {"\x80", FFFD, FFFD},
    {"\xe2\x82", FFFD FFFD, FFFD FFFD},
    {"\xe2\x82x", FFFD FFFD "x", FFFD FFFD "x"},
};

static void text_is_made_safe(void **state)
{
    for (size_t i = 0; i < COUNT(texts); i++) {
        text a = {0}, b = {0};
        text_utf8(&a, texts[i].in, strlen(texts[i].in));
        text_terminal(&b, texts[i].in, strlen(texts[i].in));
        assert_string_equal(a.p, texts[i].json);
        assert_string_equal(b.p, texts[i].terminal);
        text_free(&a);
        text_free(&b);
    }
    text m = {0};
    text_markup(&m, "<a b=\"&\">\x01\xff", 11);
    assert_string_equal(m.p, "&lt;a b=&quot;&amp;&quot;&gt;" FFFD FFFD);
    text_free(&m);
}

static void text_grows(void **state)
{
    text t = {0};
    for (int i = 0; i < 10000; i++) text_fmt(&t, "%d,", i % 10);
    assert_int_equal(t.n, 20000);
    text_cut(&t, 4);
    assert_string_equal(t.p, "0,1,");
    text_free(&t);
    assert_null(t.p);
}

/* ---------------------------------------------------------------- files */

static void files_are_replaced_whole(void **state)
{
    char dir[] = "test_app_text.XXXXXX", path[64];
    file_out o;
    text t = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/f", dir);
    assert_int_equal(file_write(path, "old", 3), EXIT_FINE);
    assert_int_equal(file_begin(&o, path), EXIT_FINE);
    fputs("half", o.f);
    file_abandon(&o);
    assert_int_equal(file_read(&t, path, 100), EXIT_FINE);
    assert_string_equal(t.p, "old");
    assert_int_equal(file_write(path, "new\0x", 5), EXIT_FINE);
    text_cut(&t, 0);
    assert_int_equal(file_read(&t, path, 100), EXIT_FINE);
    assert_int_equal(t.n, 5);
    text_cut(&t, 0);
    assert_int_equal(file_read(&t, path, 4), EXIT_WRONG_USE); /* larger than allowed */
    text_free(&t);
    assert_int_equal(remove(path), 0);
    assert_int_equal(rmdir(dir), 0); /* nothing is left beside it */
    assert_int_equal(file_write("test_app_text.nowhere/f", "x", 1), EXIT_FAILED);
    assert_int_equal(file_write("/dev/full", "x", 1), EXIT_FAILED);
    struct stat st;
    assert_int_equal(stat("/dev/full", &st), 0);
    assert_true(S_ISCHR(st.st_mode)); /* written in place, not renamed over */
}

/* ---------------------------------------------------------------- the canvas */

static app_model model;

static int open_model(void **state)
{
    llada_model_opts o;
    llada_model_opts_defaults(&o);
    if (llada_model_open(&model.m, NULL, &o, NULL)) return -1;
    model.info.size = sizeof model.info;
    llada_model_get_info(model.m, &model.info);
    return 0;
}

static int close_model(void **state)
{
    llada_model_close(&model.m);
    return 0;
}

static llada_event event(llada_event_kind kind, int step, int pos, int32_t token, double confidence)
{
    return (llada_event){.size = sizeof(llada_event), .kind = kind, .step = step, .pos = pos, .token = token,
                         .confidence = confidence};
}

static void tell(live *c, llada_event_kind kind, int step, int pos, int32_t token, double confidence)
{
    llada_event ev = event(kind, step, pos, token, confidence);
    live_event(c, &ev);
}

static int32_t token_of(const char *s)
{
    int32_t id = -1;
    size_t n = 0;
    assert_int_equal(llada_tokenize(model.m, s, strlen(s), false, &id, 1, &n, NULL), LLADA_OK);
    assert_int_equal(n, 1);
    return id;
}

static void frame_of(live *c, int width, int height, bool colour, bool utf8, text *t)
{
    text_cut(t, 0);
    live_frame(c, width, height, colour, utf8, t);
}

static void canvas_shows_states(void **state)
{
    live *c = live_new(&model, 6);
    text t = {0};
    text_add(&t, "", 0);
    frame_of(c, 80, 24, false, false, &t);
    assert_non_null(strstr(t.p, "######\n"));
    tell(c, LLADA_EV_PASS, 1, -1, -1, 0);
    tell(c, LLADA_EV_COMMIT, 1, 0, token_of("7"), 0.999);
    tell(c, LLADA_EV_DRAFT, 1, 4, token_of("8"), 0.5);
    frame_of(c, 80, 24, false, false, &t);
    assert_non_null(strstr(t.p, "7###8#\n"));
    assert_null(strchr(t.p, 27)); /* no colour: no escape at all */
    frame_of(c, 80, 24, true, true, &t);
    assert_non_null(strstr(t.p, "\x1b[0;32m7")); /* sure: green */
    assert_non_null(strstr(t.p, "\x1b[0;2m8"));  /* a draft: dim */
    tell(c, LLADA_EV_DROP, 2, 4, -1, 0.1);
    tell(c, LLADA_EV_EDIT, 2, 0, token_of("9"), 0.6);
    frame_of(c, 80, 24, true, true, &t);
    assert_non_null(strstr(t.p, "\x1b[0;4;31m9")); /* changed: underlined; unsure: red */
    tell(c, LLADA_EV_SETTLE, 3, 0, token_of("9"), 0.6);
    tell(c, LLADA_EV_PASS, 4, -1, -1, 0);
    tell(c, LLADA_EV_COMMIT, 4, 1, model.info.eos_id, 0.9);
    frame_of(c, 80, 24, false, false, &t);
    assert_non_null(strstr(t.p, "9.####\n")); /* an end token is a dot, not its spelling */
    tell(c, LLADA_EV_COMMIT, 4, 99, 0, 0.9);  /* outside: no harm */
    text_free(&t);
    live_free(&c);
    assert_null(c);
}

/* What a model writes cannot steer the terminal; lines stay short of the edge; the frame fits the height. */
static void canvas_is_safe_and_fits(void **state)
{
    live *c = live_new(&model, 400);
    text t = {0};
    text_add(&t, "", 0);
    for (int32_t i = 0; i < 256; i++) tell(c, LLADA_EV_COMMIT, 1, i, i, 0.9); /* all byte tokens: controls too */
    for (int width = 1; width <= 90; width += 7)
        for (int height = 1; height <= 30; height += 5) {
            frame_of(c, width, height, false, true, &t);
            int column = 0, lines = 1;
            for (size_t i = 0; i < t.n; i++) {
                unsigned char b = (unsigned char)t.p[i];
                assert_true(b >= 32 || b == '\n');
                assert_true(b != 127);
                if (b == '\n') {
                    lines++;
                    column = 0;
                } else if ((b & 0xC0) != 0x80) {
                    column++;
                }
                if (width > 2) assert_true(column < width);
            }
            assert_true(lines <= (height > 3 ? height : 3));
        }
    text_free(&t);
    live_free(&c);
}

/* ---------------------------------------------------------------- traces */

#define HEAD "{\"gen\": 4, \"n_prompt\": 3, \"pieces\": {\"7\": \"<b>\"}, \"ends\": [9]}\n"
#define TIMED(passes, jobs) \
    "{\"gen\": 4, \"n_prompt\": 3, \"times\": {\"seconds\": 1.0, \"passes\": " passes ", \"jobs\": " jobs "}}\n"

static const struct {
    const char *lines, *says; /* says: words the page holds; NULL: refused */
} traces[] = {
    {HEAD "[[0,7,0.5]]\n[[1,9,0.75]]\n", "&lt;b&gt;"},
    {HEAD "{\"step\":1,\"rows\":\"all\",\"shadow\":[],\"events\":[[\"commit\",0,7,1.0],[\"draft\",3,7,0.9]]}\n"
          "{\"step\":1,\"merge\":[[\"edit\",0,8,0.8],[\"stable\",0,8,1]]}\n"
          "{\"step\":2,\"rows\":[1,2],\"shadow\":[3],\"events\":[[\"drop\",3,-1,0.1]]}\n", "3 rows"},
    {HEAD, "Positions and steps"},
    {"", NULL},
    {"not JSON\n", NULL},
    {"{\"recipe\": \"llada\"}\n", NULL},
    {"{\"gen\": -1, \"n_prompt\": 3}\n", NULL},
    {"{\"gen\": 99999999999, \"n_prompt\": 3}\n", NULL},
    {HEAD "[[4,7,0.5]]\n", NULL},
    {HEAD "[[-1,7,0.5]]\n", NULL},
    {HEAD "[[0,7]]\n", NULL},
    {HEAD "[[0,7,\"x\"]]\n", NULL},
    {HEAD "{\"step\":0,\"merge\":[]}\n", NULL},
    {HEAD "{\"step\":2000000,\"merge\":[]}\n", NULL},
    {HEAD "{\"step\":2,\"merge\":[]}\n{\"step\":1,\"merge\":[]}\n", NULL},
    {HEAD "{\"step\":1,\"rows\":[9],\"events\":[]}\n", NULL},
    {HEAD "{\"step\":1,\"rows\":{},\"events\":[]}\n", NULL},
    {HEAD "{\"step\":1,\"rows\":\"all\",\"events\":[[\"dance\",0,7,1.0]]}\n", NULL},
    {HEAD "7\n", NULL},
    /* times */
    {TIMED("[[1,7,0,0.5],[2,4,0.625,0.25]]", "[]") "[[0,7,0.5]]\n[[1,9,0.75]]\n",
     "<strong>750 ms</strong> 2 passes, 11 rows"},
    {TIMED("[[1,7,0,0.5]]", "[]"), "dense pass over the whole canvas, 7 rows, 500 ms, begun at 0.00 ms"},
    {TIMED("[[1,4,0,0.25],[2,4,0.5,0.5]]", "[[2,6,0.5,0.5,\"fused\"]]"),
     "4 rows and 6 of a revision job, 500 ms"},
    {TIMED("[[1,4,0,0.5]]", "[[2,6,0.5,0.25,\"serial\"]]"),
     "step 2: revision job between passes, 6 rows, 250 ms"},
    {TIMED("[[1,4,0,0.25],[2,4,0.25,0.5]]", "[[3,6,0.5,0.5,\"async\"]]"),
     "<strong>250 ms</strong> 50&nbsp;% of the worker"},
    {TIMED("[[1,4,0,0.25],[2,4,0.25,0.5]]", "[[3,6,0.5,0.5,\"async\"]]"),
     "<strong>500 ms</strong> 50&nbsp;% of the run"},
    {TIMED("[]", "[]"), "Positions and steps"},
    {TIMED("7", "[]"), NULL},
    {TIMED("[[1,7,0]]", "[]"), NULL},
    {TIMED("[[0,7,0,0.5]]", "[]"), NULL},
    {TIMED("[[1,-7,0,0.5]]", "[]"), NULL},
    {TIMED("[[1,7,-1,0.5]]", "[]"), NULL},
    {TIMED("[[1,7,0,-0.5]]", "[]"), NULL},
    {TIMED("[[1,7,0,1.5]]", "[]"), NULL}, /* after the end */
    {TIMED("[[1,7,0,1e308]]", "[]"), NULL},
    {TIMED("[[1,7,0.5,0.25],[2,7,0,0.25]]", "[]"), NULL},
    {TIMED("[]", "[[1,6,0,0.5]]"), NULL},
    {TIMED("[]", "[[1,6,0,0.5,\"idle\"]]"), NULL},
    {TIMED("[]", "[[1,6,0,0.5,7]]"), NULL},
};

static void trace_files(void **state)
{
    const char *path = "test_app_text.trace.jsonl";
    for (size_t i = 0; i < COUNT(traces); i++) {
        trace_file t;
        text page = {0};
        assert_int_equal(file_write(path, traces[i].lines, strlen(traces[i].lines)), EXIT_FINE);
        int rc = trace_load(&t, path);
        if (rc != (traces[i].says ? EXIT_FINE : EXIT_WRONG_USE)) print_error("trace %zu: %d\n", i, rc);
        assert_int_equal(rc, traces[i].says ? EXIT_FINE : EXIT_WRONG_USE);
        if (traces[i].says) {
            trace_html(&t, &page);
            assert_non_null(strstr(page.p, traces[i].says));
            assert_null(strstr(page.p, "<script"));
            assert_null(strstr(page.p, "<b>")); /* text of the model is text on the page */
        }
        text_free(&page);
        trace_free(&t);
    }
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_made_safe),   cmocka_unit_test(text_grows),
        cmocka_unit_test(files_are_replaced_whole), cmocka_unit_test(canvas_shows_states),
        cmocka_unit_test(canvas_is_safe_and_fits), cmocka_unit_test(trace_files),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
