/* fuzz_request.c - bodies of requests, made of any bytes.  The first byte chooses the API (0..2), or the checks of headers
 * (the rest is then cut at NULs into Host, Origin, Authorization, Content-Type).  What is taken must keep the server's
 * limits; what is refused must be a refusal that can be written as JSON. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/guard.h"
#include "server/reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static openai_ground ground;
static llada_model *model;

static void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "fuzz_request: %s\n", what);
    abort();
}

static void open_once(void)
{
    llada_err err;
    if (model) return;
    must(llada_model_open(&model, NULL, NULL, &err) == LLADA_OK, "the model can't be opened");
    ground = (openai_ground){.model = model, .ctx = 512, .max_tokens = 128};
    ground.info.size = sizeof ground.info;
    llada_model_get_info(model, &ground.info);
    llada_recipe_defaults(&ground.recipe);
}

static void check_headers(char *s, size_t size)
{
    const char *part[4] = {"", "", "", ""};
    for (size_t i = 0, at = 0; i < 4 && at < size; i++) {
        part[i] = s + at;
        at += strlen(s + at) + 1;
    }
    bool host = guard_host(part[0], "127.0.0.1", NULL, 0);
    if (host) must(strstr(part[0], "127.") || strcasestr(part[0], "localhost") || strchr(part[0], '['), "a foreign host is taken");
    if (guard_origin(part[1], part[0])) must(strlen(part[1]) > strlen(part[0]), "an origin without a scheme is taken");
    if (guard_key(part[2], "secret")) must(!strcmp(part[2] + 7, "secret"), "a wrong key is taken");
    if (guard_json(part[3])) must(!strncasecmp(part[3], "application/json", 16), "another content type is taken");
}

static void check_taken(const openai_ask *a)
{
    const generation *g = &a->gen;
    int32_t canvas = g->canvas ? g->n_canvas : g->n_cells, holes = 0, first = 0;
    must(g->n_prompt >= 0 && g->n_cells >= 1 && canvas >= g->n_cells, "no room to write");
    must(g->n_prompt + canvas <= ground.ctx, "more positions than there are");
    must(g->max_tokens >= 1 && g->max_tokens <= g->n_cells, "more tokens than places");
    for (int32_t i = 0; g->canvas && i < g->n_canvas; i++) holes += g->canvas[i] == LLADA_HOLE;
    while (g->canvas && first < g->n_canvas && g->canvas[first] == LLADA_HOLE) first++;
    must(!g->canvas || holes == g->max_tokens, "holes for another number of tokens");
    must(!g->canvas || (g->whole ? g->n_cells == g->n_canvas : g->n_cells == holes && first >= holes), "cells astray");
    for (int i = 0; i < g->n_stop; i++) must(g->stop[i][0] != 0, "an empty stop string");
    for (int32_t i = 0; i < g->n_prompt; i++)
        must(g->prompt[i] >= 0 && g->prompt[i] < ground.info.n_vocab, "an id outside the vocabulary");
    for (int32_t i = 0; g->canvas && i < g->n_canvas; i++)
        must(g->canvas[i] == LLADA_HOLE || (g->canvas[i] >= 0 && g->canvas[i] < ground.info.n_vocab), "an id astray");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    openai_ask a;
    refusal no = {0};
    if (size == 0) return 0;
    open_once();
    char *s = calloc(1, size);
    must(s != NULL, "no memory");
    memcpy(s, data + 1, size - 1);
    if (data[0] % 4 == 3) {
        check_headers(s, size - 1);
    } else if (openai_read(&a, (api_kind)(data[0] % 4), s, size - 1, &ground, &no)) {
        check_taken(&a);
        openai_free(&a);
    } else {
        buf out = {0};
        must(no.status >= 400 && no.status < 500 && no.message[0], "a refusal without a reason");
        reply_write(reply_error(&no), &out);
        must(out.n > 20, "a refusal that is no JSON");
        buf_free(&out);
        openai_free(&a);
    }
    free(s);
    return 0;
}
