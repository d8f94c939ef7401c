/* pretok.c - pre-tokenizers as data, run by PCRE2 (pretok.h).
 *
 * Time: every alternative of every pattern reads a run of one class of characters and gives back from its end, so a
 * match costs a small multiple of the characters it looks at, and a run that one alternative gives up is taken by a
 * later one whole or but for its last character.  Matching is anchored: PCRE2 never searches ahead. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretok.h"

#include <pcre2.h>
#include <string.h>

#include "base/mem.h"

/* Inside [].  Unicode's White_Space, spelt out: PCRE2's \s also takes U+180E, which published tokenizers do not. */
#define SPACE "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* What the family of patterns shares.  They differ in how many digits make a word. */
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS " ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*"
#define LINE_ENDS "[" SPACE "]*[\\r\\n]+"
#define BLANKS "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" BLANKS
#define LLAMA3 CONTRACTION "|" LETTERS "|\\p{N}{1,3}|" SYMBOLS "|" LINE_ENDS "|" BLANKS
#define QWEN2 CONTRACTION "|" LETTERS "|\\p{N}|" SYMBOLS "|" LINE_ENDS "|" BLANKS
/* Ling's has possessive quantifiers and one line end instead of several: the same words. */
#define BAILING QWEN2
/* Symbols end at the end of their line. */
#define SEED CONTRACTION "|" LETTERS "|\\p{N}| ?[^" SPACE "\\p{L}\\p{N}]+|" LINE_ENDS "|" BLANKS

typedef struct {
    const char *name, *pattern;
    bool nfc, whole_words;
} row;

static const row rows[] = {
    { "default", GPT2, false, false },
    { "gpt-2", GPT2, false, false },
    { "llama-bpe", LLAMA3, false, true },
    { "llama3", LLAMA3, false, true },
    { "llama-v3", LLAMA3, false, true },
    { "qwen2", QWEN2, true, false },        /* Dream, DiffuCoder, the built-in model */
    { "bailingmoe", BAILING, true, false }, /* LLaDA-8B and Ling share one vocabulary */
    { "bailingmoe2", BAILING, true, false },
    { "llada-moe", BAILING, true, false },
    { "seed-coder", SEED, false, false },   /* iLLaDA */
};

enum { N_ROWS = sizeof rows / sizeof *rows };

struct pretok {
    const row *row;
    pcre2_general_context *mem;
    pcre2_code *code;
};

struct pretok_cut {
    const pretok *p;
    pcre2_match_context *limits;
    pcre2_match_data *match;
};

static void *take(PCRE2_SIZE bytes, void *unused) { return mem_new(bytes); }

static void give_back(void *p, void *unused) { mem_free(p); }

/* NULL: no memory, or no pattern of PCRE2's; *code and *at say which. */
static pretok *make(const row *r, const char *pattern, size_t len, int *code, PCRE2_SIZE *at)
{
    pretok *p = mem_new(sizeof *p);
    *code = PCRE2_ERROR_NOMEMORY;
    *at = 0;
    if (p && (p->mem = pcre2_general_context_create(take, give_back, NULL))) {
        p->row = r;
        pcre2_compile_context *c = pcre2_compile_context_create(p->mem);
        if (c)
            p->code =
                pcre2_compile((PCRE2_SPTR)pattern, len, PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, code, at, c);
        pcre2_compile_context_free(c);
    }
    if (p && !p->code)
        pretok_close(&p);
    return p;
}

static const row *find_row(const char *name, size_t len)
{
    for (int i = 0; i < N_ROWS; i++)
        if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0)
            return &rows[i];
    return NULL;
}

static llada_status unknown(const char *name, size_t len, llada_err *err)
{
    char known[160] = "";
    size_t at = 0;
    for (int i = 0; i < N_ROWS; i++) {
        size_t n = strlen(rows[i].name);
        if (at + n + 3 > sizeof known)
            break;
        memcpy(known + at, i ? ", " : "", i ? 2 : 0);
        at += i ? 2 : 0;
        memcpy(known + at, rows[i].name, n + 1);
        at += n;
    }
    return llada_fail(err, LLADA_UNSUPPORTED, "tokenizer.ggml.pre is \"%.*s\"; known pre-tokenizers: %s",
                      (int)(len < 64 ? len : 64), name, known);
}

llada_status pretok_open(pretok **out, const char *name, size_t len, llada_err *err)
{
    const row *r = find_row(name, len);
    if (!r)
        return unknown(name, len, err);
    int code;
    PCRE2_SIZE at;
    pretok *p = make(r, r->pattern, PCRE2_ZERO_TERMINATED, &code, &at);
    if (!p)
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for the pre-tokenizer %s (PCRE2 error %d at %zu)", r->name,
                          code, at);
    /* Where code can't be made at run time, the interpreter does the same, slower. */
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    *out = p;
    return LLADA_OK;
}

void pretok_close(pretok **p)
{
    if (!*p)
        return;
    pcre2_code_free((*p)->code);
    pcre2_general_context_free((*p)->mem);
    mem_free(*p);
    *p = NULL;
}

bool pretok_nfc(const pretok *p) { return p->row->nfc; }

bool pretok_whole_words(const pretok *p) { return p->row->whole_words; }

llada_status pretok_begin(pretok_cut **out, const pretok *p, llada_err *err)
{
    pretok_cut *c = mem_new(sizeof *c);
    if (c) {
        c->p = p;
        c->limits = pcre2_match_context_create(p->mem);
        c->match = pcre2_match_data_create(1, p->mem);
    }
    if (!c || !c->limits || !c->match) {
        pretok_end(&c);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for the pre-tokenizer %s", p->row->name);
    }
    *out = c;
    return LLADA_OK;
}

void pretok_end(pretok_cut **c)
{
    if (!*c)
        return;
    pcre2_match_data_free((*c)->match);
    pcre2_match_context_free((*c)->limits);
    mem_free(*c);
    *c = NULL;
}

/* Steps the interpreter may take: a run is given back at most once by each of a handful of alternatives. */
static uint32_t step_limit(size_t len)
{
    return len < UINT32_MAX / 16 - 64 ? (uint32_t)len * 8 + 1024 : UINT32_MAX;
}

llada_status pretok_next(pretok_cut *c, const char *s, size_t len, size_t at, size_t *end, llada_err *err)
{
    pcre2_set_match_limit(c->limits, step_limit(len - at));
    int n = pcre2_match(c->p->code, (PCRE2_SPTR)s, len, at, PCRE2_NO_UTF_CHECK, c->match, c->limits);
    if (n == PCRE2_ERROR_NOMEMORY || n == PCRE2_ERROR_HEAPLIMIT)
        return llada_fail(err, LLADA_NO_MEMORY, "no memory to cut %zu bytes of text into words", len);
    if (n < 0)
        return llada_fail(err, LLADA_UNSUPPORTED, "pre-tokenizer %s gave up at byte %zu of %zu (PCRE2 error %d)",
                          c->p->row->name, at, len, n);
    *end = pcre2_get_ovector_pointer(c->match)[1];
    return LLADA_OK;
}

/* ------------------------------------------------------------ patterns of checkpoints */

/* Every point at which the known patterns part: what contractions are, whether a mark or a blank joins letters, how
 * many digits make a word, whether line ends belong to symbols before them, blanks before words and at the end. */
static const char sample[] =
    "I'LL don't 'tis WE'Ve a'lL x's 1 22 333 4444 x55555 \xc2\xbd \xd9\xa3\xd9\xa4\n\n \n  a(b)c !!?\n\n..\r\n\r\n#x = "
    "-1.50\n\t\ty;\n_z \xc2\xa0 q caf\xc3\xa9 e\xcc\x81n \xe6\xbc\xa2\xe5\xad\x97\xe3\x80\x82\xe6\x8f\x9b" "12 "
    "\xf0\x9f\x99\x82\xf0\x9f\x8f\xbd!\n\n   'RE \t \n x  \n";

bool pretok_cuts_alike(const char *name, const char *regex, size_t len)
{
    static const row foreign = { .name = "of a checkpoint" };
    const row *r = find_row(name, strlen(name));
    pretok *a = NULL, *b = NULL;
    pretok_cut *x = NULL, *y = NULL;
    int code;
    PCRE2_SIZE where;
    bool alike = r && len <= PRETOK_MAX_REGEX && !pretok_open(&a, name, strlen(name), NULL) &&
                 (b = make(&foreign, regex, len, &code, &where)) && !pretok_begin(&x, a, NULL) &&
                 !pretok_begin(&y, b, NULL);
    for (size_t at = 0, end = 0, other = 0; alike && at < sizeof sample - 1; at = end)
        alike = !pretok_next(x, sample, sizeof sample - 1, at, &end, NULL) &&
                !pretok_next(y, sample, sizeof sample - 1, at, &other, NULL) && other == end && end > at;
    pretok_end(&x);
    pretok_end(&y);
    pretok_close(&a);
    pretok_close(&b);
    return alike;
}
