/* fields.h - request bodies: JSON within limits, and typed fields that are refused by name. */
#ifndef SERVER_FIELDS_H
#define SERVER_FIELDS_H

#include <jansson.h>

#include "buf.h"

enum { FIELDS_MAX_DEPTH = 64 };

/* Why a request is refused; status 0: it is not. */
typedef struct {
    int status;
    const char *type, *code; /* static; code may be NULL */
    char param[64];          /* the field; "": none */
    char message[640];
} refusal;

void refuse(refusal *no, int status, const char *code, const char *param, const char *fmt, ...);

/* Parses a body: an object, without duplicate keys, at most FIELDS_MAX_DEPTH deep.  NULL: refused.  Owned by the
 * caller. */
json_t *fields_parse(const char *body, size_t n, refusal *no);

/* Each returns whether the field is there (null counts as absent) and right; where it is not right, `no` says so. */
bool field_integer(const json_t *o, const char *name, int64_t lo, int64_t hi, int64_t *out, refusal *no);
bool field_number(const json_t *o, const char *name, double lo, double hi, double *out, refusal *no);
bool field_bool(const json_t *o, const char *name, bool *out, refusal *no);
/* The text may hold NULs only where `nul` says so.  *s is borrowed from o. */
bool field_text(const json_t *o, const char *name, bool nul, const char **s, size_t *n, refusal *no);
/* An array of integers in lo..hi.  Owned by the caller. */
bool field_ids(const json_t *array, const char *name, int64_t hi, int32_t **ids, size_t *n, refusal *no);

#endif
