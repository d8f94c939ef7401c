/* answer.h - settled tokens, in order, to the text that may be shown.  Held back: bytes that may still become a
 * character, and text that may still become a stop string.  What has been shown never changes, so the pieces of a
 * stream joined are the whole answer, byte for byte, however the tokens came. */
#ifndef SERVER_ANSWER_H
#define SERVER_ANSWER_H

#include "buf.h"

enum { ANSWER_MAX_STOPS = 16, ANSWER_MAX_STOP_BYTES = 256 };

typedef struct {
    const char *const *stops; /* borrowed, until answer_free; none is empty, all are UTF-8 */
    int n_stops;
    buf text;                 /* whole characters; what is no UTF-8 became U+FFFD, one for each byte */
    size_t shown;             /* bytes of text that can't be taken back */
    bool stopped;             /* a stop string was met: text and shown end before it */
    char half[4];             /* the beginning of a character */
    int n_half;
} answer;

/* Takes a token's bytes.  The stop string that is complete first counts; of those complete at the same byte, the
 * longest.  Nothing is taken any more after that. */
void answer_add(answer *a, const char *bytes, size_t n);
void answer_end(answer *a); /* no more will come: what was held back is shown */
void answer_free(answer *a);

#endif
