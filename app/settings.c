/* settings.c - settings files: JSON read by jansson, meaning and ranges by the library's recipe keys. */
#include "settings.h"

#include "util.h"

#include <jansson.h>

/* The text llada_recipe_set reads; false: a value that no key can have. */
static bool value_text(const json_t *v, char *buf, size_t cap)
{
    switch (json_typeof(v)) {
    case JSON_TRUE: snprintf(buf, cap, "true"); return true;
    case JSON_FALSE: snprintf(buf, cap, "false"); return true;
    case JSON_INTEGER: snprintf(buf, cap, "%lld", (long long)json_integer_value(v)); return true;
    case JSON_REAL: snprintf(buf, cap, "%.17g", json_real_value(v)); return true;
    case JSON_STRING: snprintf(buf, cap, "%s", json_string_value(v)); return json_string_length(v) < cap;
    default: return false;
    }
}

bool settings_file(llada_recipe *r, const char *path, char *err, size_t cap)
{
    json_error_t at;
    json_t *o = json_load_file(path, JSON_REJECT_DUPLICATES, &at);
    if (!o) {
        snprintf(err, cap, "settings file %s: %s (line %d)", path, at.text, at.line);
        return false;
    }
    bool ok = json_is_object(o);
    if (!ok) snprintf(err, cap, "settings file %s is not a JSON object", path);
    if (ok && json_is_object(json_object_get(o, "settings"))) {
        snprintf(err, cap, "settings file %s: give a file that is what its member 'settings' is", path);
        ok = false;
    }
    const char *key;
    json_t *v;
    json_object_foreach(ok ? o : NULL, key, v) {
        char value[128];
        llada_err e = {0};
        if (!value_text(v, value, sizeof value))
            snprintf(err, cap, "settings file %s: '%.64s' is neither a number, a word, true nor false", path, key);
        else if (llada_recipe_set(r, key, value, &e))
            snprintf(err, cap, "settings file %s: %s", path, e.text);
        else
            continue;
        ok = false;
        break;
    }
    json_decref(o);
    return ok;
}
