/* nfc.h - Unicode normalisation form C of valid UTF-8, in time linear in the text whatever it is made of. */
#ifndef TEXT_NFC_H
#define TEXT_NFC_H

#include <stdbool.h>

#include "base/err.h"

/* Result and scratch; kept between calls.  All zero before, nfc_free after. */
typedef struct {
    char *s; /* the normalised text: s[0..len) */
    size_t len, cap;
    int32_t *cp, *sorted; /* code points of one stretch; scratch for ordering marks */
    size_t n_cp, cp_cap, sorted_cap;
} nfc;

/* False when the text surely is in form C already (nothing in it at or above U+0300). */
bool nfc_needed(const char *s, size_t len);
/* Fails only for memory. */
llada_status nfc_run(nfc *b, const char *s, size_t len, llada_err *err);
void nfc_free(nfc *b);

#endif
