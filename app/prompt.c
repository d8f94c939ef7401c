/* prompt.c - reads prompts and turns them into ids. */
#include "prompt.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_PROMPT = 64 << 20 };

const char prompt_default[] =
    "Ben has 22 shells. Jack has 3 times as many shells as Ben. Together they lose 19 shells. "
    "How many shells are left?";

/* A byte-order mark is no part of the text; UTF-16 is refused rather than read as noise. */
static int strip_mark(text *t, const char *name)
{
    const unsigned char *p = (const unsigned char *)t->p;
    if (t->n >= 2 && ((p[0] == 0xFF && p[1] == 0xFE) || (p[0] == 0xFE && p[1] == 0xFF))) {
        app_error("%s is UTF-16 text; only UTF-8 is read (iconv -f UTF-16 -t UTF-8 converts it)", name);
        return EXIT_WRONG_USE;
    }
    if (t->n >= 3 && p[0] == 0xEF && p[1] == 0xBB && p[2] == 0xBF) {
        memmove(t->p, t->p + 3, t->n - 3);
        text_cut(t, t->n - 3);
    }
    return EXIT_FINE;
}

int prompt_read(const options *o, bool keep_end, bool *none, text *out)
{
    if (o->prompt && o->file) {
        app_error("-p and -f both give the prompt; use one");
        return EXIT_WRONG_USE;
    }
    if (o->prompt) {
        text_str(out, o->prompt);
        return EXIT_FINE;
    }
    if (!o->file && isatty(STDIN_FILENO)) {
        if (none) {
            *none = true;
            return EXIT_FINE;
        }
        app_error("there is no text: use -p TEXT, -f FILE, or standard input");
        return EXIT_WRONG_USE;
    }
    int rc = file_read(out, o->file, MOST_PROMPT);
    if (rc) return rc;
    rc = strip_mark(out, o->file ? o->file : "standard input");
    if (rc || keep_end) return rc;
    /* the newline that ends a text file is not part of what was meant */
    if (out->n && out->p[out->n - 1] == '\n') text_cut(out, out->n - 1);
    if (out->n && out->p[out->n - 1] == '\r') text_cut(out, out->n - 1);
    return EXIT_FINE;
}

int prompt_ids(const app_model *am, const llada_message *msgs, size_t n_msgs, int32_t **ids, size_t *n)
{
    llada_err err = {0};
    *ids = NULL;
    if (llada_chat(am->m, msgs, n_msgs, NULL, 0, n, &err)) {
        if (am->info.chat_layout) return app_fail(&err);
        app_error("%s; choose one by --chat-layout NAME, or --raw takes the prompt as plain text", err.text);
        return EXIT_WRONG_USE;
    }
    *ids = app_new(*n, sizeof **ids);
    return llada_chat(am->m, msgs, n_msgs, *ids, *n, n, &err) ? app_fail(&err) : EXIT_FINE;
}

int prompt_raw_ids(const app_model *am, const char *s, size_t len, bool special, int32_t **ids, size_t *n)
{
    llada_err err = {0};
    /* a token holds at least one byte, but normalisation may lengthen the text: the second call knows */
    size_t cap = len + 16;
    *ids = app_new(cap, sizeof **ids);
    if (llada_tokenize(am->m, s, len, special, *ids, cap, n, &err)) return app_fail(&err);
    if (*n <= cap) return EXIT_FINE;
    cap = *n;
    *ids = app_grow(*ids, cap, sizeof **ids);
    return llada_tokenize(am->m, s, len, special, *ids, cap, n, &err) ? app_fail(&err) : EXIT_FINE;
}

/* Autoregressive models were trained on texts that begin with their token for it. */
static int raw_request(const app_model *am, const text *prompt, int32_t **ids, size_t *n)
{
    int rc = prompt_raw_ids(am, prompt->p, prompt->n, false, ids, n);
    if (rc || !am->info.causal || am->info.bos_id < 0) return rc;
    *ids = app_grow(*ids, *n + 1, sizeof **ids);
    memmove(*ids + 1, *ids, *n * sizeof **ids);
    (*ids)[0] = am->info.bos_id;
    *n += 1;
    return EXIT_FINE;
}

bool prompt_check(const options *o, const text *prompt)
{
    size_t blank = prompt->n ? strspn(prompt->p, " \t\r\n") : 0;
    if (blank < prompt->n || (o->raw && prompt->n)) return true;
    app_error("the prompt is empty: give one with -p TEXT, -f FILE, or on standard input");
    return false;
}

int prompt_request(const app_model *am, const options *o, const text *prompt, int32_t **ids, size_t *n)
{
    *ids = NULL;
    if (!prompt_check(o, prompt)) return EXIT_WRONG_USE;
    if (o->raw) {
        if (o->system) {
            app_error("--system needs the chat layout, and --raw turns it off; use one");
            return EXIT_WRONG_USE;
        }
        return raw_request(am, prompt, ids, n);
    }
    const char *nul = memchr(prompt->p, 0, prompt->n);
    if (nul) {
        app_error("the prompt holds a NUL byte at offset %zu; only --raw text may", (size_t)(nul - prompt->p));
        return EXIT_WRONG_USE;
    }
    llada_message msgs[2] = {{"system", o->system}, {"user", prompt->p}};
    return o->system ? prompt_ids(am, msgs, 2, ids, n) : prompt_ids(am, msgs + 1, 1, ids, n);
}
