/* reply.h - JSON of answers: whole, in chunks, and of errors. */
#ifndef SERVER_REPLY_H
#define SERVER_REPLY_H

#include "openai.h"

/* What every object of one answer says of itself. */
typedef struct {
    api_kind api;
    char id[48];
    int64_t created;
    const char *model; /* borrowed */
} reply_name;

void reply_begin(reply_name *r, api_kind api, const char *model);

/* o as text, and o is gone. */
void reply_write(json_t *o, buf *out);

json_t *reply_usage(const job *j);                                   /* of a job that is done; lock held */
json_t *reply_whole(const reply_name *r, const job *j, bool logprobs); /* the same */
/* A chunk of a stream.  text NULL: none; finish NULL: more will come; logprobs may be NULL and is taken. */
json_t *reply_chunk(const reply_name *r, const char *text, size_t n, const char *finish, json_t *logprobs);
json_t *reply_chunk_usage(const reply_name *r, const job *j);        /* the last chunk; lock held */
json_t *reply_logprobs(const reply_name *r, const job *j, int32_t from, int32_t to); /* lock held */
json_t *reply_error(const refusal *no);
/* Why a job has no answer. */
void reply_failure(const job *j, refusal *no);

/* Any bytes as JSON text. */
json_t *reply_text(const char *p, size_t n);

#endif
