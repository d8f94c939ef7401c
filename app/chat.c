/* chat.c - `llada chat`: a conversation in turns.
 *
 * On a terminal the line is edited by libedit where it was there at build time.  Ctrl-C stops the running answer (or
 * drops the line being written), Ctrl-D ends.  Without a terminal each line is a turn and only answers go to stdout. */
#include "commands.h"
#include "generate.h"
#include "interrupt.h"
#include "prompt.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef HAVE_LIBEDIT
#include <histedit.h>
#endif

enum { DEFAULT_CTX = 4096, LEAST_PROMPT = 256 };

typedef struct {
    const options *o;
    app_model am;
    llada_recipe r;
    generation g;
    int32_t gen, max_tokens;
    int64_t ctx;
    llada_message *msgs; /* owned, texts too */
    size_t n_msgs, n_system;
    bool terminal;
    FILE *in;
#ifdef HAVE_LIBEDIT
    EditLine *edit;
    History *history;
#endif
} chat;

/* ---------------------------------------------------------------- lines */

#ifdef HAVE_LIBEDIT
static char *prompt_text(EditLine *e)
{
    (void)e;
    static char p[] = "> ";
    return p;
}

static void open_editor(chat *c)
{
    HistEvent ev;
    if (!c->terminal) return;
    c->edit = el_init("llada", stdin, stderr, stderr); /* prompts are no output */
    c->history = history_init();
    if (c->history) history(c->history, &ev, H_SETSIZE, 200);
    if (!c->edit) return;
    el_set(c->edit, EL_PROMPT, prompt_text);
    el_set(c->edit, EL_EDITOR, "emacs");
    if (c->history) el_set(c->edit, EL_HIST, history, c->history);
}

static void close_editor(chat *c)
{
    if (c->history) history_end(c->history);
    if (c->edit) el_end(c->edit);
}

static int edited_line(chat *c, text *line)
{
    int n = 0;
    HistEvent ev;
    const char *s = el_gets(c->edit, &n);
    if (!s || n <= 0) return errno == EINTR || interrupt_signal() ? 0 : -1;
    if (c->history && n > 1) history(c->history, &ev, H_ENTER, s);
    text_add(line, s, (size_t)n);
    return 1;
}
#else
static void open_editor(chat *c) { (void)c; }
static void close_editor(chat *c) { (void)c; }
#endif

static int plain_line(chat *c, text *line)
{
    char *s = NULL;
    size_t cap = 0;
    if (c->terminal) fputs("> ", stderr);
    errno = 0;
    ssize_t n = getline(&s, &cap, c->in);
    if (n > 0) text_add(line, s, (size_t)n);
    free(s);
    if (n > 0) return 1;
    if (errno != EINTR) return -1;
    clearerr(c->in);
    return 0;
}

/* 1: a line, 0: interrupted, -1: the end. */
static int read_line(chat *c, text *line)
{
    text_cut(line, 0);
    text_add(line, "", 0);
    errno = 0;
    interrupt_clear();
    interrupt_at_prompt(true);
#ifdef HAVE_LIBEDIT
    int got = c->edit ? edited_line(c, line) : plain_line(c, line);
#else
    int got = plain_line(c, line);
#endif
    interrupt_at_prompt(false);
    while (line->n && (line->p[line->n - 1] == '\n' || line->p[line->n - 1] == '\r')) text_cut(line, line->n - 1);
    return got;
}

/* ---------------------------------------------------------------- the conversation */

static void add_message(chat *c, const char *role, const char *s, size_t n)
{
    c->msgs = app_grow(c->msgs, c->n_msgs + 1, sizeof *c->msgs);
    c->msgs[c->n_msgs++] = (llada_message){role, app_copy(s, n)};
}

static void drop_messages(chat *c, size_t from, size_t n)
{
    if (!n) return;
    for (size_t i = from; i < from + n; i++) free((void *)c->msgs[i].text);
    memmove(c->msgs + from, c->msgs + from + n, (c->n_msgs - from - n) * sizeof *c->msgs);
    c->n_msgs -= n;
}

/* Ids of the conversation, after dropping as many of its oldest turns as the context demands. */
static int conversation_ids(chat *c, int32_t **ids, size_t *n)
{
    size_t dropped = 0;
    for (;;) {
        int rc = prompt_ids(&c->am, c->msgs, c->n_msgs, ids, n);
        if (rc || (int64_t)*n + c->gen <= c->ctx || c->n_msgs < c->n_system + 3) {
            if (!rc && dropped && !c->o->quiet) app_note("(the oldest %zu messages did not fit; dropped)", dropped);
            return rc;
        }
        free(*ids);
        *ids = NULL;
        drop_messages(c, c->n_system, 2);
        dropped += 2;
    }
}

/* An answer that was stopped or failed leaves the conversation as it was before the line. */
static int turn(chat *c, const text *line)
{
    llada_request q;
    llada_result res;
    int32_t *ids = NULL;
    size_t n;
    text said = {0};
    add_message(c, "user", line->p, line->n);
    int rc = conversation_ids(c, &ids, &n);
    if (!rc) {
        llada_request_defaults(&q);
        q.prompt = ids;
        q.n_prompt = (int32_t)n;
        q.max_tokens = c->max_tokens;
        q.seed = generate_seed(c->o);
        if (live_wanted(c->o)) c->g.canvas = live_new(&c->am, c->gen);
        rc = generate(&c->g, &q, &res);
        live_free(&c->g.canvas);
    }
    if (!rc) rc = app_detokenize(&c->am, res.tokens, (size_t)res.n_tokens, false, &said);
    if (!rc) {
        out_text(said.p, said.n);
        out_write("\n", 1);
        add_message(c, "assistant", said.n ? said.p : "", said.n);
        if (!out_check()) rc = EXIT_FAILED;
        else if (!c->o->quiet && c->terminal) generate_report(&res);
    } else {
        drop_messages(c, c->n_msgs - 1, 1);
    }
    text_free(&said);
    free(ids);
    return rc;
}

static void reset(chat *c)
{
    drop_messages(c, c->n_system, c->n_msgs - c->n_system);
    if (!c->o->quiet) app_note("(a new conversation)");
}

static int talk(chat *c)
{
    text line = {0};
    int rc = EXIT_FINE;
    for (;;) {
        int got = read_line(c, &line);
        bool stop = got < 0 || (got == 0 && interrupt_signal() == SIGTERM);
        if (got < 0 && c->terminal) fputs("\n", stderr);
        if (got == 0 && !c->terminal) rc = interrupt_exit_code();
        if (got == 0 && c->terminal) fputs("\n", stderr);
        if (stop || rc || !strcmp(line.p, "/quit")) break;
        if (memchr(line.p, 0, line.n)) {
            app_error("the line holds a NUL byte");
            if (c->terminal) continue;
            rc = EXIT_WRONG_USE;
            break;
        }
        if (strspn(line.p, " \t") == line.n) continue; /* nothing was said */
        if (!strcmp(line.p, "/reset")) {
            reset(c);
        } else if (line.p[0] == '/' && c->terminal) {
            app_note("/reset begins a new conversation, /quit (or Ctrl-D) ends; Ctrl-C stops an answer");
        } else {
            int failed = turn(c, &line);
            /* a person can go on after a stopped or failed answer, a script should hear of it */
            if (failed && (!c->terminal || interrupt_signal() == SIGTERM)) rc = failed;
        }
        if (rc) break;
    }
    text_free(&line);
    return rc;
}

/* Enough for a few turns, within what the model was trained for where the canvas leaves room. */
static void choose_context(chat *c)
{
    c->gen = app_canvas_size(c->o, &c->r, &c->max_tokens);
    c->ctx = c->o->ctx ? c->o->ctx : DEFAULT_CTX;
    if (!c->o->ctx && c->am.info.n_ctx > 0 && c->ctx > c->am.info.n_ctx) c->ctx = c->am.info.n_ctx;
    if (!c->o->ctx && c->ctx < c->gen + LEAST_PROMPT) c->ctx = c->gen + LEAST_PROMPT;
    app_note_context(&c->am, c->o, c->ctx);
}

int cmd_chat(const options *o)
{
    chat c = {.o = o, .terminal = isatty(STDIN_FILENO) == 1, .in = stdin};
    int rc = app_recipe(o, NULL, &c.r);
    if (!rc) rc = app_model_open(&c.am, o, true);
    if (!rc) rc = app_recipe_fit(o, &c.am, &c.r);
    if (!rc && !c.am.info.chat_layout) {
        app_error("the chat layout of this model is not known; --chat-layout NAME chooses one, and 'llada run --raw' "
                  "takes plain text");
        rc = EXIT_WRONG_USE;
    }
    if (!rc) {
        choose_context(&c);
        rc = app_session_open(&c.g.s, &c.am, &c.r, o, c.ctx);
    }
    if (!rc) {
        c.g.am = &c.am;
        c.g.r = &c.r;
        c.g.o = o;
        if (o->system) add_message(&c, "system", o->system, strlen(o->system));
        c.n_system = c.n_msgs;
        open_editor(&c);
        if (c.terminal && !o->quiet)
            app_note("/reset: a new conversation.  Ctrl-C: stop an answer.  /quit or Ctrl-D: end.");
        rc = talk(&c);
        close_editor(&c);
    }
    drop_messages(&c, 0, c.n_msgs);
    free(c.msgs);
    app_session_close(&c.g.s);
    app_model_close(&c.am);
    return rc;
}
