/* chat.c - chat layouts as data, and the one function that walks them (chat.h).
 *
 * Between two special tokens everything is one piece of text: "\n\n" and the message behind it are tokenised together,
 * because that is what the models saw. */
#include "text/chat.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/utf8.h"

typedef enum {
    PART_END,
    PART_TOKEN,  /* a special token; the vocabulary must have it */
    PART_MARK,   /* a special token where the vocabulary has it, else its spelling as text */
    PART_TEXT,   /* literal text */
    PART_ROLE,   /* the message's role, as the layout spells it */
    PART_CONTENT /* the message's text, trimmed */
} part_kind;

typedef struct {
    part_kind kind;
    const char *s;
} part;

enum { N_ROLES = 3, MAX_PARTS = 8 };

static const char *const roles[N_ROLES] = { "system", "user", "assistant" };

struct chat_layout {
    const char *name;
    bool by_name;           /* of the rows of one name, the one that the name alone stands for */
    const char *markers[3]; /* all of them stand in the template of a file of this layout; NULL ends */
    const char *unlike;     /* does not stand there; NULL: none */
    const char *system;     /* the template's own system message when the conversation has none; NULL: none */
    const char *system_end; /* what the template adds to a system message at the beginning; NULL: nothing */
    const char *role[N_ROLES];
    part begin[MAX_PARTS], message[MAX_PARTS], answer[MAX_PARTS];
};

#define QWEN_SYSTEM "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

#define CHATML_PARTS                                                                                        \
    .role = { "system", "user", "assistant" },                                                              \
    .message = { { PART_TOKEN, "<|im_start|>" }, { PART_ROLE, NULL },           { PART_TEXT, "\n" },        \
                 { PART_CONTENT, NULL },         { PART_TOKEN, "<|im_end|>" },  { PART_TEXT, "\n" } },      \
    .answer = { { PART_TOKEN, "<|im_start|>" }, { PART_TEXT, "assistant\n" } }

#define HEADER_PARTS                                                                                                 \
    .role = { "system", "user", "assistant" },                                                                       \
    .message = { { PART_TOKEN, "<|start_header_id|>" }, { PART_ROLE, NULL }, { PART_TOKEN, "<|end_header_id|>" },    \
                 { PART_TEXT, "\n\n" }, { PART_CONTENT, NULL }, { PART_TOKEN, "<|eot_id|>" } },                      \
    .answer = { { PART_TOKEN, "<|start_header_id|>" }, { PART_TEXT, "assistant" },                                   \
                { PART_TOKEN, "<|end_header_id|>" }, { PART_TEXT, "\n\n" } }

#define ROLE_PARTS                                                                                                    \
    .role = { "SYSTEM", "HUMAN", "ASSISTANT" },                                                                       \
    .message = { { PART_MARK, "<role>" }, { PART_ROLE, NULL }, { PART_MARK, "</role>" }, { PART_CONTENT, NULL },      \
                 { PART_TOKEN, "<|role_end|>" } },                                                                    \
    .answer = { { PART_MARK, "<role>" }, { PART_TEXT, "ASSISTANT" }, { PART_MARK, "</role>" } }

/* Sources: the chat templates published with LLaDA-8B-Instruct and Llama-3-8B-Instruct (the same words, another first
 * token; from 3.1 on a preamble of dates, which is not known here), Dream-v0-Instruct-7B and Qwen2.5 (ChatML; they
 * differ in the default system message), LLaDA-MoE-7B-A1B-Instruct and Ling 2.0 (which always has a system message
 * that turns thinking off).  The first row that fits a file is taken. */
static const chat_layout layouts[] = {
    {
        .name = "llada",
        .by_name = true,
        .markers = { "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" },
        .begin = { { PART_TOKEN, "<|startoftext|>" } },
        HEADER_PARTS,
    },
    {
        .name = "llama3",
        .by_name = true,
        .markers = { "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" },
        .unlike = "Cutting Knowledge Date",
        .begin = { { PART_TOKEN, "<|begin_of_text|>" } },
        HEADER_PARTS,
    },
    {
        .name = "chatml",
        .markers = { "<|im_start|>", "<|im_end|>", QWEN_SYSTEM },
        .system = QWEN_SYSTEM,
        CHATML_PARTS,
    },
    {
        .name = "chatml",
        .by_name = true,
        .markers = { "<|im_start|>", "<|im_end|>", "You are a helpful assistant." },
        .system = "You are a helpful assistant.",
        CHATML_PARTS,
    },
    {
        .name = "chatml",
        .markers = { "<|im_start|>", "<|im_end|>", NULL },
        CHATML_PARTS,
    },
    {
        .name = "llada-moe",
        .markers = { "<role>", "<|role_end|>", "thinking_option = 'off'" },
        .system = "detailed thinking off",
        .system_end = "\ndetailed thinking off",
        ROLE_PARTS,
    },
    {
        .name = "llada-moe",
        .by_name = true,
        .markers = { "<role>", "</role>", "<|role_end|>" },
        ROLE_PARTS,
    },
};

enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static const char names[] = "llada, chatml, llada-moe, llama3";

const char *chat_name(const chat_layout *c) { return c->name; }

/* ------------------------------------------------------------ choosing */

static bool contains(gguf_str hay, const char *needle)
{
    size_t n = strlen(needle);
    const char *s = hay.s;
    for (size_t left = hay.len; left >= n;) {
        const char *p = memchr(s, needle[0], left - n + 1);
        if (!p)
            return false;
        if (memcmp(p, needle, n) == 0)
            return true;
        left -= (size_t)(p - s) + 1;
        s = p + 1;
    }
    return false;
}

static bool fits(const chat_layout *c, gguf_str template)
{
    for (size_t i = 0; i < sizeof c->markers / sizeof *c->markers && c->markers[i]; i++)
        if (!contains(template, c->markers[i]))
            return false;
    return !c->unlike || !contains(template, c->unlike);
}

/* The first token of parts that the vocabulary lacks; NULL: none. */
static const char *lacking_in(const part *p, const tok *t)
{
    for (; p->kind != PART_END; p++)
        if (p->kind == PART_TOKEN && tok_find(t, p->s) < 0)
            return p->s;
    return NULL;
}

static const char *lacking(const chat_layout *c, const tok *t)
{
    const char *s = lacking_in(c->begin, t);
    if (!s)
        s = lacking_in(c->message, t);
    return s ? s : lacking_in(c->answer, t);
}

static const chat_layout *first_fitting(gguf_str template, const tok *t, const char *name)
{
    for (int i = 0; i < N_LAYOUTS; i++) {
        const chat_layout *c = &layouts[i];
        if ((!name || strcmp(c->name, name) == 0) && fits(c, template) && !lacking(c, t))
            return c;
    }
    return NULL;
}

static const chat_layout *named(const char *name)
{
    for (int i = 0; i < N_LAYOUTS; i++)
        if (layouts[i].by_name && strcmp(layouts[i].name, name) == 0)
            return &layouts[i];
    return NULL;
}

llada_status chat_choose(const chat_layout **out, const gguf *g, const tok *t, const char *name, llada_err *err)
{
    gguf_str template = { .s = "", .len = 0 };
    *out = NULL;
    if (gguf_has(g, "tokenizer.chat_template")) {
        llada_status st = gguf_get_str(g, "tokenizer.chat_template", &template, err);
        if (st)
            return st;
        *out = first_fitting(template, t, name);
    }
    if (*out || !name)
        return LLADA_OK;
    const chat_layout *c = named(name);
    if (!c)
        return llada_fail(err, LLADA_BAD_ARG, "chat layout \"%.64s\" is not known; known layouts: %s", name, names);
    const char *missing = lacking(c, t);
    if (missing)
        return llada_fail(err, LLADA_UNSUPPORTED, "chat layout %s needs the token %s, which the vocabulary lacks", name,
                          missing);
    *out = c;
    return LLADA_OK;
}

/* ------------------------------------------------------------ encoding */

/* What one call of chat_encode works with. */
typedef struct {
    const chat_layout *c;
    const tok *t;
    char *piece; /* owned: text since the last special token */
    size_t len, piece_cap;
    const char *behind; /* what follows the text of the message at hand; NULL: nothing */
    int32_t *ids;
    size_t cap, n;
    llada_err *err;
} writer;

static llada_status add_text(writer *w, const char *s, size_t len)
{
    size_t need;
    if (!size_add(w->len, len, &need))
        return llada_fail(w->err, LLADA_TOO_LONG, "the message is too long");
    if (need > w->piece_cap) {
        size_t cap = need + 64;
        char *p = mem_grow(w->piece, w->len, cap);
        if (!p)
            return llada_fail(w->err, LLADA_NO_MEMORY, "no memory for a message of %zu bytes", need);
        w->piece = p;
        w->piece_cap = cap;
    }
    if (len)
        memcpy(w->piece + w->len, s, len);
    w->len = need;
    return LLADA_OK;
}

static llada_status flush(writer *w)
{
    size_t n = 0, room = w->n < w->cap ? w->cap - w->n : 0;
    if (w->len == 0)
        return LLADA_OK;
    llada_status st = tok_encode(w->t, w->piece, w->len, false, room ? w->ids + w->n : NULL, room, &n, w->err);
    if (st)
        return st;
    w->n += n;
    w->len = 0;
    return LLADA_OK;
}

static llada_status add_token(writer *w, int32_t id)
{
    llada_status st = flush(w);
    if (st)
        return st;
    if (w->n < w->cap)
        w->ids[w->n] = id;
    w->n++;
    return LLADA_OK;
}

/* White space as the templates' trim takes it: Unicode's, and the four separators U+001C..U+001F. */
static bool blank(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static const char *trim(const char *s, size_t *len)
{
    const uint8_t *u = (const uint8_t *)s;
    size_t from = 0, to = *len, n;
    uint32_t c;
    while ((n = utf8_next(u + from, to - from, &c)) != 0 && blank(c))
        from += n;
    while (to > from) {
        size_t k = to - 1;
        while (k > from && to - k < 4 && (u[k] & 0xc0) == 0x80)
            k--;
        if (utf8_next(u + k, to - k, &c) != to - k || !blank(c))
            break;
        to = k;
    }
    *len = to - from;
    return s + from;
}

static llada_status add_content(writer *w, const char *s)
{
    size_t len = strlen(s);
    s = trim(s, &len);
    llada_status st = add_text(w, s, len);
    return st || !w->behind ? st : add_text(w, w->behind, strlen(w->behind));
}

static llada_status add_parts(writer *w, const part *p, int role, const char *content)
{
    llada_status st = LLADA_OK;
    for (; !st && p->kind != PART_END; p++) {
        const char *s = p->kind == PART_ROLE ? w->c->role[role] : p->s;
        bool is_token = p->kind == PART_TOKEN || p->kind == PART_MARK;
        int32_t id = is_token ? tok_find(w->t, s) : -1;
        if (p->kind == PART_CONTENT)
            st = add_content(w, content);
        else
            st = id >= 0 ? add_token(w, id) : add_text(w, s, strlen(s));
    }
    return st;
}

static int role_of(const char *s)
{
    for (int i = 0; s && i < N_ROLES; i++)
        if (strcmp(roles[i], s) == 0)
            return i;
    return -1;
}

static llada_status check(const chat_layout *c, const llada_message *msgs, size_t n_msgs, llada_err *err)
{
    if (!c)
        return llada_fail(err, LLADA_UNSUPPORTED, "the model's chat template is not one we know; known layouts: %s",
                          names);
    if (n_msgs == 0)
        return llada_fail(err, LLADA_BAD_ARG, "the conversation has no messages");
    for (size_t i = 0; i < n_msgs; i++) {
        if (role_of(msgs[i].role) < 0)
            return llada_fail(err, LLADA_BAD_ARG,
                              "message %zu has the role \"%.64s\"; system, user or assistant is allowed", i,
                              msgs[i].role ? msgs[i].role : "");
        if (!msgs[i].text)
            return llada_fail(err, LLADA_BAD_ARG, "message %zu has no text", i);
    }
    return LLADA_OK;
}

llada_status chat_encode(const chat_layout *c, const tok *t, const llada_message *msgs, size_t n_msgs, int32_t *ids,
                         size_t cap, size_t *n, llada_err *err)
{
    llada_status st = check(c, msgs, n_msgs, err);
    if (st)
        return st;
    writer w = { .c = c, .t = t, .ids = ids, .cap = cap, .err = err };
    st = add_parts(&w, c->begin, 0, NULL);
    if (!st && c->system && role_of(msgs[0].role) != 0)
        st = add_parts(&w, c->message, 0, c->system);
    for (size_t i = 0; !st && i < n_msgs; i++) {
        int role = role_of(msgs[i].role);
        w.behind = i == 0 && role == 0 ? c->system_end : NULL;
        st = add_parts(&w, c->message, role, msgs[i].text);
    }
    if (!st)
        st = add_parts(&w, c->answer, 0, NULL);
    if (!st)
        st = flush(&w);
    mem_free(w.piece);
    if (!st)
        *n = w.n;
    return st;
}
