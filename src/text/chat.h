/* chat.h - chat layouts: how a conversation becomes prompt ids.  Special tokens are put here by id; message text is
 * always encoded as plain characters.  The Jinja template in a file is never run: it is compared with the layouts we
 * know (markers), and where none fits, chat is refused with their names. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include "text/tok.h"

typedef struct chat_layout chat_layout;

const char *chat_name(const chat_layout *c);
/* Chooses by name (NULL: from the file).  *out NULL with LLADA_OK: the file's template is none we know. */
llada_status chat_choose(const chat_layout **out, const gguf *g, const tok *t, const char *name, llada_err *err);
/* Ids of the conversation up to where the assistant's answer begins; writes up to cap, sets *n to the full count.
 * c NULL: refused with the names of the layouts. */
llada_status chat_encode(const chat_layout *c, const tok *t, const llada_message *msgs, size_t n_msgs, int32_t *ids,
                         size_t cap, size_t *n, llada_err *err);

#endif
