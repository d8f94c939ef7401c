/* eval_score.c - extraction and comparison of answers. */
#include "eval_score.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"unsaid", "auto", "answer", "whole", "json", "gsm8k", "story"};

const char *extract_name(extract_rule r) { return names[r]; }

/* ---------------------------------------------------------------- bytes */

static bool blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }

static void strip(const char **p, size_t *n)
{
    while (*n && blank(**p)) {
        (*p)++;
        (*n)--;
    }
    while (*n && blank((*p)[*n - 1])) (*n)--;
}

/* Behind the last occurrence of mark in p; NULL: none. */
static const char *behind_last(const char *p, size_t n, const char *mark)
{
    size_t m = strlen(mark);
    for (size_t i = n >= m ? n - m + 1 : 0; i > 0; i--)
        if (!memcmp(p + i - 1, mark, m)) return p + i - 1 + m;
    return NULL;
}

static bool same(const char *a, size_t na, const char *b, size_t nb)
{
    strip(&a, &na);
    strip(&b, &nb);
    return na == nb && !memcmp(a, b, na);
}

/* ---------------------------------------------------------------- numbers */

/* A number at p: sign, $ and thousands' commas allowed; its length, 0: none.  A full stop behind it is no part of it,
 * and a minus behind a digit or letter is not a sign. */
static size_t number_at(const char *p, size_t n, bool may_sign)
{
    size_t i = 0;
    if (may_sign && i < n && p[i] == '-') i++;
    if (i < n && p[i] == '$') i++;
    if (i >= n || !isdigit((unsigned char)p[i])) return 0;
    for (;;) {
        while (i < n && isdigit((unsigned char)p[i])) i++;
        if (i + 1 >= n || p[i] != ',' || !isdigit((unsigned char)p[i + 1])) break;
        i++;
    }
    if (i + 1 >= n || p[i] != '.' || !isdigit((unsigned char)p[i + 1])) return i;
    for (i++; i < n && isdigit((unsigned char)p[i]);) i++;
    return i;
}

/* The first or last number of a text. */
static bool find_number(const char *p, size_t n, bool last, const char **found, size_t *len)
{
    bool any = false;
    for (size_t i = 0; i < n;) {
        bool sign = i == 0 || !isalnum((unsigned char)p[i - 1]);
        size_t k = number_at(p + i, n - i, sign);
        if (!k) {
            i++;
            continue;
        }
        *found = p + i;
        *len = k;
        any = true;
        if (!last) return true;
        i += k;
    }
    return any;
}

/* Without $ and commas; trailing zeros behind a decimal point, and then the point, say nothing. */
static void plain_number(const char *p, size_t n, char *out, size_t cap)
{
    size_t k = 0;
    bool point = false;
    for (size_t i = 0; i < n && k + 1 < cap; i++) {
        if (p[i] == '$' || p[i] == ',') continue;
        bool leading = k == 0 || (k == 1 && out[0] == '-');
        if (p[i] == '0' && leading && i + 1 < n && isdigit((unsigned char)p[i + 1])) continue;
        point |= p[i] == '.';
        out[k++] = p[i];
    }
    while (point && k > 1 && out[k - 1] == '0') k--;
    if (point && k > 1 && out[k - 1] == '.') k--;
    out[k] = 0;
}

static bool same_number(const char *a, size_t na, const char *b, size_t nb)
{
    char x[128], y[128];
    plain_number(a, na, x, sizeof x);
    plain_number(b, nb, y, sizeof y);
    return !strcmp(x, y);
}

/* ---------------------------------------------------------------- rules */

static bool find_gsm8k(const char *said, size_t n, const char **found, size_t *len)
{
    static const char *const marks[] = {"####", "Answer:"};
    for (size_t i = 0; i < 2; i++) {
        const char *p = behind_last(said, n, marks[i]);
        if (p && find_number(p, (size_t)(said + n - p), false, found, len)) return true;
    }
    return find_number(said, n, true, found, len);
}

bool extract_find(extract_rule r, const char *said, size_t n, const char **found, size_t *len)
{
    if (r == EXTRACT_GSM8K) return find_gsm8k(said, n, found, len);
    *found = said;
    *len = n;
    if (r == EXTRACT_ANSWER) {
        const char *p = behind_last(said, n, "Answer:");
        if (!p) return false;
        *found = p;
        *len = (size_t)(said + n - p);
    }
    strip(found, len);
    return true;
}

static json_t *parse(const char *p, size_t n) { return json_loadb(p, n, JSON_DECODE_ANY, NULL); }

static bool same_json(const char *a, size_t na, const char *b)
{
    json_t *x = parse(a, na), *y = parse(b, strlen(b));
    bool equal = x && y && json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return equal;
}

static bool has_word(const char *const *list, const char *w, size_t n)
{
    for (; *list; list++)
        if (strlen(*list) == n && !memcmp(*list, w, n)) return true;
    return false;
}

/* w as a whole word of the text. */
static bool mentions(const char *said, size_t n, const char *w, size_t len)
{
    for (size_t i = 0; i + len <= n; i++) {
        if (memcmp(said + i, w, len)) continue;
        bool before = i == 0 || !isalpha((unsigned char)said[i - 1]);
        bool after = i + len == n || !isalpha((unsigned char)said[i + len]);
        if (before && after) return true;
    }
    return false;
}

/* What a story must name: every name (a capital inside the sentence), every colour, and every object (the word behind a
 * colour).  A story has 40 words or more and ends with a full stop. */
static bool story_correct(const char *prompt, const char *said, size_t n)
{
    static const char *const colours[] = {"red", "blue", "green", "yellow", "black", "white", "brown", "pink",
                                          "purple", "orange", "gray", "grey", "golden", "silver", NULL};
    size_t words = 0;
    strip(&said, &n);
    for (size_t i = 0; i < n; i++) words += !blank(said[i]) && (i == 0 || blank(said[i - 1]));
    if (words < 40 || said[n - 1] != '.') return false;
    bool object = false;
    for (const char *p = prompt; *p;) {
        while (*p && !isalpha((unsigned char)*p)) p++;
        const char *w = p;
        while (isalpha((unsigned char)*p)) p++;
        size_t len = (size_t)(p - w);
        bool colour = has_word(colours, w, len), name = w != prompt && isupper((unsigned char)*w);
        if (len && (colour || name || object) && !mentions(said, n, w, len)) return false;
        object = colour;
    }
    return true;
}

bool extract_correct(extract_rule r, const char *prompt, const char *answer, const char *said, size_t n)
{
    const char *found, *want = answer;
    size_t len, want_len = answer ? strlen(answer) : 0;
    if (r == EXTRACT_STORY) return story_correct(prompt, said, n);
    if (!answer || !extract_find(r, said, n, &found, &len)) return false;
    if (r == EXTRACT_JSON) return same_json(found, len, answer);
    if (r != EXTRACT_GSM8K) return same(found, len, answer, want_len);
    return find_gsm8k(answer, want_len, &want, &want_len) && same_number(found, len, want, want_len);
}

/* ---------------------------------------------------------------- auto */

static bool is_object(const char *s)
{
    json_t *j = parse(s, strlen(s));
    bool yes = json_is_object(j) || json_is_array(j);
    json_decref(j);
    return yes;
}

extract_rule extract_choose(extract_rule asked, const char *file, const char *answer, const char *reference)
{
    if (asked > EXTRACT_AUTO) return asked;
    const char *slash = strrchr(file, '/');
    const char *name = slash ? slash + 1 : file;
    if (!answer) return EXTRACT_STORY;
    if (strstr(name, "gsm8k") || strstr(answer, "####")) return EXTRACT_GSM8K;
    if (reference && strstr(reference, "####")) return EXTRACT_GSM8K;
    if (reference && strstr(reference, "Answer:")) return EXTRACT_ANSWER;
    if (!reference && (strstr(name, "wordmath") || strstr(name, "arith"))) return EXTRACT_ANSWER;
    return is_object(answer) ? EXTRACT_JSON : EXTRACT_WHOLE;
}
