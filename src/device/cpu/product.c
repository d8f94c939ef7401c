/* product.c - what both kinds of matrix product share: where weights lie, and fetching them ahead. */
#include "device/cpu/product.h"

enum { LINE = 64 }; /* bytes of a cache line */

const uint8_t *product_packed(const product *b, int j, int p)
{
    const quant_info *q = quant_get(b->w->type);
    return (const uint8_t *)b->w->data + (size_t)j * b->w->row_bytes + (size_t)p / (size_t)q->block * (size_t)q->bytes;
}

product_ahead product_ahead_of(const product *b, int j, int nr, int p, int kc, int hi)
{
    product_ahead a = { .row_bytes = b->w->row_bytes };

    if (b->w->layout == LAYOUT_T32) return a; /* in order: the hardware fetches ahead */
    if (p + kc < b->k) {
        p += kc;
    } else { /* the next panel begins */
        j += nr;
        p = 0;
        nr = hi - j < nr ? hi - j : nr;
    }
    if (nr < 1) return a;
    size_t last = p + kc < b->k ? (size_t)(product_packed(b, j, p + kc) - product_packed(b, j, 0)) : b->w->row_bytes;
    a.at = product_packed(b, j, p);
    a.lines_row = (last - (size_t)(a.at - product_packed(b, j, 0)) + LINE - 1) / LINE;
    a.lines = a.lines_row * (size_t)nr;
    return a;
}

void product_fetch(product_ahead *a, int rows_done, int rows)
{
    size_t upto = a->lines * (size_t)rows_done / (size_t)rows;

    for (; a->done < upto; a->done++) {
        PREFETCH(a->at + a->line * LINE);
        if (++a->line < a->lines_row) continue;
        a->line = 0;
        a->at += a->row_bytes;
    }
}
