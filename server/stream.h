/* stream.h - a running job as server-sent events.  Nothing piles up for a client that reads slowly: what to send is
 * made from the job's state when there is room for it, so drafts in between are left out and the worker never waits. */
#ifndef SERVER_STREAM_H
#define SERVER_STREAM_H

#include "reply.h"

typedef struct stream stream;

/* Takes the caller's reference of j.  name: copied. */
stream *stream_new(job *j, const openai_ask *a, const reply_name *name);
/* Fills in up to `most` bytes, waiting until there are some.  0: the end; -1: the client has gone. */
long stream_read(stream *s, char *p, size_t most);
void stream_free(stream *s);

#endif
