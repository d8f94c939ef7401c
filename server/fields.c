/* fields.c - JSON bodies and their fields (fields.h). */
#include "fields.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void refuse(refusal *no, int status, const char *code, const char *param, const char *fmt, ...)
{
    va_list ap;
    if (no->status) return; /* the first reason is the one to tell */
    no->status = status;
    no->type = status == 401 || status == 403 ? "permission_error"
               : status < 500                    ? "invalid_request_error"
                                                 : "server_error";
    no->code = code;
    snprintf(no->param, sizeof no->param, "%s", param ? param : "");
    va_start(ap, fmt);
    vsnprintf(no->message, sizeof no->message, fmt, ap);
    va_end(ap);
    /* a quoted name that was cut may end within a character */
    size_t n = strlen(no->message), at = 0;
    while (at < n) {
        int len = utf8_length(no->message + at, n - at);
        if (len <= 0) no->message[at] = '?';
        at += len <= 0 ? 1 : (size_t)len;
    }
}

/* Brackets outside strings; jansson itself goes 2048 deep and calls itself for each. */
static size_t depth_of(const char *p, size_t n)
{
    size_t depth = 0, most = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        if (in_string) {
            if (c == '\\') i++;
            else if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > most) most = depth;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return most;
}

json_t *fields_parse(const char *body, size_t n, refusal *no)
{
    json_error_t at;
    if (n == 0) {
        refuse(no, 400, "bad_json", NULL, "the body is empty; a JSON object is needed");
        return NULL;
    }
    size_t depth = depth_of(body, n);
    if (depth > FIELDS_MAX_DEPTH) {
        refuse(no, 400, "bad_json", NULL, "the JSON is %zu levels deep; at most %d are taken", depth, FIELDS_MAX_DEPTH);
        return NULL;
    }
    json_t *o = json_loadb(body, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &at);
    if (!o) {
        refuse(no, 400, "bad_json", NULL, "the body is not JSON: %s (line %d, column %d)", at.text, at.line, at.column);
    } else if (!json_is_object(o)) {
        refuse(no, 400, "bad_json", NULL, "the body is not a JSON object");
        json_decref(o);
        o = NULL;
    }
    return o;
}

static const char *kind_of(const json_t *v)
{
    static const char *const names[] = {"an object", "an array", "a string", "an integer", "a number", "true", "false",
                                        "null"};
    return names[json_typeof(v)];
}

static const json_t *get(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return json_is_null(v) ? NULL : v;
}

bool field_integer(const json_t *o, const char *name, int64_t lo, int64_t hi, int64_t *out, refusal *no)
{
    const json_t *v = get(o, name);
    if (!v) return false;
    double d = json_number_value(v); /* 128.0 is an integer too */
    bool whole = json_is_integer(v) || (json_is_real(v) && d == floor(d) && fabs(d) < 9007199254740992.0);
    if (!json_is_number(v)) {
        refuse(no, 400, "bad_value", name, "'%s' must be an integer, and is %s", name, kind_of(v));
        return false;
    }
    int64_t i = json_is_integer(v) ? (int64_t)json_integer_value(v) : whole ? (int64_t)d : 0;
    if (!whole || i < lo || i > hi) {
        char given[64];
        if (json_is_integer(v)) snprintf(given, sizeof given, "%lld", (long long)i);
        else snprintf(given, sizeof given, "%g", d);
        char range[64];
        if (lo == hi) snprintf(range, sizeof range, "%lld", (long long)lo);
        else if (hi == INT64_MAX) snprintf(range, sizeof range, "an integer, %lld or more", (long long)lo);
        else snprintf(range, sizeof range, "an integer in %lld..%lld", (long long)lo, (long long)hi);
        refuse(no, 400, "bad_value", name, "'%s' must be %s, and is %s", name, range, given);
        return false;
    }
    *out = i;
    return true;
}

bool field_number(const json_t *o, const char *name, double lo, double hi, double *out, refusal *no)
{
    const json_t *v = get(o, name);
    if (!v) return false;
    if (!json_is_number(v)) {
        refuse(no, 400, "bad_value", name, "'%s' must be a number, and is %s", name, kind_of(v));
        return false;
    }
    double d = json_number_value(v);
    if (!(d >= lo && d <= hi)) {
        refuse(no, 400, "bad_value", name, "'%s' must be in %g..%g, and is %g", name, lo, hi, d);
        return false;
    }
    *out = d;
    return true;
}

bool field_bool(const json_t *o, const char *name, bool *out, refusal *no)
{
    const json_t *v = get(o, name);
    if (!v) return false;
    if (!json_is_boolean(v)) {
        refuse(no, 400, "bad_value", name, "'%s' must be true or false, and is %s", name, kind_of(v));
        return false;
    }
    *out = json_is_true(v);
    return true;
}

bool field_text(const json_t *o, const char *name, bool nul, const char **s, size_t *n, refusal *no)
{
    const json_t *v = get(o, name);
    if (!v) return false;
    if (!json_is_string(v)) {
        refuse(no, 400, "bad_value", name, "'%s' must be a string, and is %s", name, kind_of(v));
        return false;
    }
    *s = json_string_value(v);
    *n = json_string_length(v);
    if (nul || !memchr(*s, 0, *n)) return true;
    refuse(no, 400, "bad_value", name, "'%s' holds a NUL character", name);
    return false;
}

bool field_ids(const json_t *array, const char *name, int64_t hi, int32_t **ids, size_t *n, refusal *no)
{
    *n = json_array_size(array);
    *ids = buf_new(*n, sizeof **ids);
    for (size_t i = 0; i < *n; i++) {
        const json_t *v = json_array_get(array, i);
        json_int_t id = json_integer_value(v);
        if (json_is_integer(v) && id >= 0 && id <= hi) {
            (*ids)[i] = (int32_t)id;
            continue;
        }
        refuse(no, 400, "bad_value", name, "'%s' must hold token ids in 0..%lld; the one at %zu is not", name,
               (long long)hi, i);
        free(*ids);
        *ids = NULL;
        return false;
    }
    return true;
}
