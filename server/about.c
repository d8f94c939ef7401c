/* about.c - the model, the recipes and their keys, as JSON (about.h). */
#include "about.h"

#include <string.h>

#include "reply.h"

json_t *about_models(const openai_ground *g)
{
    json_t *o = json_object(), *list = json_array(), *m = json_object();
    json_object_set_new(m, "id", reply_text(g->info.name, strlen(g->info.name)));
    json_object_set_new(m, "object", json_string("model"));
    json_object_set_new(m, "created", json_integer(0));
    json_object_set_new(m, "owned_by", json_string("llada"));
    json_array_append_new(list, m);
    json_object_set_new(o, "object", json_string("list"));
    json_object_set_new(o, "data", list);
    return o;
}

static json_t *model_json(const llada_model_info *info)
{
    json_t *m = json_object();
    json_object_set_new(m, "name", reply_text(info->name, strlen(info->name)));
    json_object_set_new(m, "arch", json_string(info->arch));
    json_object_set_new(m, "chat_layout", info->chat_layout ? json_string(info->chat_layout) : json_null());
    json_object_set_new(m, "causal", json_boolean(info->causal));
    json_object_set_new(m, "n_params", json_integer((json_int_t)info->n_params));
    json_object_set_new(m, "n_vocab", json_integer(info->n_vocab));
    json_object_set_new(m, "n_ctx", json_integer(info->n_ctx));
    return m;
}

static json_t *recipe_json(const llada_recipe *recipe)
{
    size_t n;
    const llada_recipe_key *keys = llada_recipe_keys(&n);
    json_t *o = json_object();
    for (size_t i = 0; i < n; i++) {
        char value[64] = "";
        json_t *k = json_object();
        llada_recipe_get(recipe, keys[i].key, value, sizeof value, NULL);
        json_object_set_new(k, "value", json_string(value));
        json_object_set_new(k, "values", json_string(keys[i].values));
        json_object_set_new(k, "help", json_string(keys[i].help));
        json_object_set_new(o, keys[i].key, k);
    }
    return o;
}

json_t *about_server(const openai_ground *g)
{
    json_t *o = json_object(), *names = json_array();
    size_t n;
    const char *const *recipes = llada_recipe_names(&n);
    for (size_t i = 0; i < n; i++) json_array_append_new(names, json_string(recipes[i]));
    json_object_set_new(o, "version", json_string(llada_version()));
    json_object_set_new(o, "model", model_json(&g->info));
    json_object_set_new(o, "ctx", json_integer(g->ctx));
    json_object_set_new(o, "max_tokens", json_integer(g->max_tokens));
    json_object_set_new(o, "recipes", names);
    json_object_set_new(o, "recipe", json_string(g->recipe.name));
    json_object_set_new(o, "keys", recipe_json(&g->recipe));
    return o;
}
