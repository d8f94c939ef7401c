/* tokens.c - the requests of /tokenize and /detokenize (tokens.h). */
#include "tokens.h"

#include <stdlib.h>

#include "reply.h"
#include "texts.h"

json_t *tokens_of_text(const openai_ground *g, const char *body, size_t n_body, refusal *no)
{
    const char *s;
    size_t len, n;
    bool special = false;
    int32_t *ids = NULL;
    json_t *out = NULL, *o = fields_parse(body, n_body, no);
    if (o && !field_text(o, "content", true, &s, &len, no))
        refuse(no, 400, "bad_value", "content", "'content' must be there: the text");
    if (o) field_bool(o, "parse_special", &special, no);
    if (!no->status && texts_ids(g, "content", s, len, special, SIZE_MAX / 2, &ids, &n, no)) {
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
        out = json_object();
        json_object_set_new(out, "tokens", list);
    }
    free(ids);
    json_decref(o);
    return out;
}

static json_t *text_of(const openai_ground *g, const int32_t *ids, size_t n, bool special, refusal *no)
{
    llada_err err = {0};
    size_t len = 0;
    char *s = NULL;
    json_t *out = NULL;
    llada_status st = llada_detokenize(g->model, ids, n, special, NULL, 0, &len, &err);
    if (!st) {
        s = buf_new(len, 1);
        st = llada_detokenize(g->model, ids, n, special, s, len, &len, &err);
    }
    if (st) {
        refuse(no, st == LLADA_NO_MEMORY ? 500 : 400, "bad_value", "tokens", "%s", err.text);
    } else {
        out = json_object();
        json_object_set_new(out, "content", reply_text(s, len));
    }
    free(s);
    return out;
}

json_t *tokens_to_text(const openai_ground *g, const char *body, size_t n_body, refusal *no)
{
    bool special = false;
    int32_t *ids = NULL;
    size_t n = 0;
    json_t *out = NULL, *o = fields_parse(body, n_body, no);
    const json_t *list = json_object_get(o, "tokens");
    if (o && !json_is_array(list)) refuse(no, 400, "bad_value", "tokens", "'tokens' must be an array of token ids");
    if (o) field_bool(o, "special", &special, no);
    if (!no->status && field_ids(list, "tokens", g->info.n_vocab - 1, &ids, &n, no))
        out = text_of(g, ids, n, special, no);
    free(ids);
    json_decref(o);
    return out;
}
