/* util.h - small things every sub-command needs: exit codes, messages, growing text, files in and out, and text made
 * safe for JSON and for terminals.  The program (unlike the library) may print and exit. */
#ifndef APP_UTIL_H
#define APP_UTIL_H

#include "llada.h"

#include <stdio.h>

/* What the program returns; docs/cli.md promises these.  An interrupt gives 128 + the signal's number (130). */
enum { EXIT_FINE = 0, EXIT_FAILED = 1, EXIT_WRONG_USE = 2 };

/* ---------------------------------------------------------------- memory and messages */

void *app_new(size_t n, size_t size);             /* zeroed; owned by the caller; no memory: a sentence and exit 1 */
void *app_grow(void *p, size_t n, size_t size);   /* like realloc to n * size */
char *app_copy(const char *s, size_t n);          /* n bytes and a NUL; owned by the caller */

void app_error(const char *fmt, ...);             /* "llada: ..." and a newline on stderr */
void app_note(const char *fmt, ...);              /* the same without the name */
int app_exit_code(llada_status st);               /* the exit code of a failed call */
int app_fail(const llada_err *err);               /* prints err's sentence, returns its exit code */

/* ---------------------------------------------------------------- growing text */

typedef struct {
    char *p;    /* owned; NUL behind the last byte; NULL while empty */
    size_t n, cap;
} text;

void text_add(text *t, const void *bytes, size_t n);
void text_str(text *t, const char *s);
void text_fmt(text *t, const char *fmt, ...);
void text_cut(text *t, size_t n); /* drops all behind the first n bytes */
void text_free(text *t);
/* "1 pass", "2 passes". */
void text_count(text *t, long long n, const char *one, const char *many);

/* One character of bytes: its length in bytes (at least 1) and its code point, -1 where the bytes are not UTF-8. */
size_t text_character(const char *p, size_t n, int32_t *cp);
/* Appends bytes as valid UTF-8: what is not valid becomes U+FFFD. */
void text_utf8(text *t, const char *p, size_t n);
/* Appends bytes for a terminal: valid UTF-8, control characters (C0, DEL, C1) as ^X or <hex>; newline and tab stay. */
void text_terminal(text *t, const char *p, size_t n);
/* Appends bytes for HTML, SVG and XML text or attribute values. */
void text_markup(text *t, const char *p, size_t n);

/* ---------------------------------------------------------------- files */

/* Reads a whole file; path NULL or "-": standard input.  At most `most` bytes.  Prints a sentence when it fails and
 * returns the exit code. */
int file_read(text *out, const char *path, size_t most);

typedef struct {
    FILE *f;
    char *path, *temp; /* owned; temp NULL: written in place (a device or a pipe) */
} file_out;

/* Writes beside the file and renames when all is on disk: the old file or the new one, never a part. */
/* Whether a file could be written there; else the sentence is printed.  For before long work. */
int file_check(const char *path);
int file_begin(file_out *o, const char *path);
int file_commit(file_out *o);   /* closes; an exit code, with a sentence when it fails */
void file_abandon(file_out *o); /* drops the half-written file */
int file_write(const char *path, const void *bytes, size_t n);

/* ---------------------------------------------------------------- standard output */

void out_write(const void *bytes, size_t n); /* failures are kept for out_check */
void out_text(const char *p, size_t n);      /* the model's text: as it is, or safe when stdout is a terminal */
/* Flushes; false, with a sentence, when anything written so far was lost (a full disk, a closed pipe). */
bool out_check(void);
bool out_is_terminal(void);

double app_seconds(void);    /* a clock that only moves forward */
uint64_t app_hash(uint64_t h, const void *p, size_t n); /* FNV-1a; begin with APP_HASH_SEED */
#define APP_HASH_SEED 1469598103934665603ull

#endif
