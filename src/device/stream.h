/* stream.h - the transfer thread: fills staging slots with what the computation will want next, in the cyclic order of
 * passes.
 *
 * The list of parts is fixed between two calls of stream_set.  A pass takes every part in order and gives each back
 * before it takes the next but `slots`; the thread fills slots that are free, also beyond the end of the pass, and
 * waits when all are full.  Parts [again, end) of the list are gone through once a round, and how many rounds a pass
 * needs is known when it begins: the thread never runs into them before.  One pass at a time. */
#ifndef DEVICE_STREAM_H
#define DEVICE_STREAM_H

#include <stdatomic.h>

#include "base/os_reader.h"

typedef struct {
    const char *name; /* borrowed: of the tensor, for sentences */
    os_reader *from;  /* borrowed */
    uint64_t at;      /* offset in its file */
    size_t bytes;
} stream_part;

typedef struct stream stream;

typedef struct {
    uint64_t bytes, parts; /* brought in */
    double transfer, stall; /* seconds the thread read; seconds passes waited */
} stream_stats;

enum { STREAM_MAX_SLOTS = 16 };

/* ahead false: a part is read only when a pass waits for it (for comparisons). */
llada_status stream_open(stream **out, bool ahead, llada_err *err);
void stream_close(stream **s); /* NULL-safe; waits for the read that is under way */

/* A new list (borrowed, as the room is, until the next call); drops what is in the slots.  n 0: nothing streams.  room:
 * slots * slot_bytes, aligned to OS_READ_ALIGN as slot_bytes is.  No pass may be running. */
void stream_set(stream *s, const stream_part *parts, int n, int again, int end, uint8_t *room, int slots,
                size_t slot_bytes);

/* A pass begins; after one that was given up, or failed, from a clean start. */
void stream_begin(stream *s, int rounds);
/* The bytes of the next part, which must be part i; valid until its stream_give.  A read that failed ends the pass with
 * a sentence that names tensor and offset; the next pass tries again.  *stop (may be NULL) ends a wait, however long the
 * storage takes, with LLADA_CANCELLED; the pass is then given up. */
llada_status stream_take(stream *s, int i, const atomic_bool *stop, const uint8_t **data, llada_err *err);
void stream_give(stream *s); /* the oldest part taken */

void stream_get_stats(stream *s, stream_stats *out);

#endif
