/* canvas.h - the live canvas on a terminal: every position of the answer as it is masked, written, changed, settled. */
#ifndef APP_CANVAS_H
#define APP_CANVAS_H

#include "model.h"

typedef struct live live;

/* Both ends are terminals, TERM can move the cursor, and the options do not forbid it. */
bool live_wanted(const options *o);
live *live_new(const app_model *am, int32_t n);
void live_event(live *c, const llada_event *ev);
/* Draws what changed, at most 20 times a second unless `now`. */
void live_draw(live *c, bool now);
void live_clear(live *c); /* takes the drawing away again */
void live_free(live **c);

/* For tests: the frame for a terminal of this size, as drawn on an empty screen. */
void live_frame(live *c, int width, int height, bool colour, bool utf8, text *out);

#endif
