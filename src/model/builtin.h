/* builtin.h - the small model's bytes, part of the library (builtin.S): opened when no file is named. */
#ifndef MODEL_BUILTIN_H
#define MODEL_BUILTIN_H

extern const unsigned char llada_builtin_begin[], llada_builtin_end[]; /* aligned to 64 bytes */

#endif
