/* openai.h - request bodies of the OpenAI API (and llama.cpp's /infill) to generations. */
#ifndef SERVER_OPENAI_H
#define SERVER_OPENAI_H

#include "fields.h"
#include "job.h"

typedef enum { API_CHAT, API_TEXT, API_INFILL } api_kind;

typedef enum {
    SHOW_WHOLE,  /* one JSON object at the end */
    SHOW_DELTAS, /* server-sent events: settled text, only ever added to */
    SHOW_DRAFTS, /* the whole draft, again and again */
    SHOW_EVENTS  /* cells of the canvas that changed */
} show_kind;

/* What requests are read against; all borrowed. */
typedef struct {
    const llada_model *model;
    llada_model_info info;
    llada_recipe recipe; /* where a request begins */
    int32_t ctx;         /* most positions */
    int32_t max_tokens;  /* where a request does not say */
    int64_t seed;        /* the same; -1: a random one */
} openai_ground;

typedef struct {
    api_kind api;
    show_kind show;
    bool usage;    /* a last chunk with the numbers */
    bool logprobs;
    generation gen; /* owned */
} openai_ask;

/* False: refused.  Whatever it returns, openai_free is due. */
bool openai_read(openai_ask *a, api_kind api, const char *body, size_t n, const openai_ground *g, refusal *no);
void openai_free(openai_ask *a);

#endif
