/* addresses.h - where long-lived blocks lie in a few large buffers, over any sequence of plans.  A new plan keeps the
 * blocks it shares with the old one in place as far as it can; holes are filled first, and closed by moving blocks down
 * before they add up to more than a sixteenth.  Only numbers: the caller owns the memory and makes the moves. */
#ifndef GRAPH_ADDRESSES_H
#define GRAPH_ADDRESSES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { ADDRESS_HOLES = 16 }; /* holes are at most one part in so many of what is used of a buffer */

typedef struct {
    int buffer; /* -1: the block has no place */
    size_t offset, bytes;
} address;

/* A block that moves down within its buffer.  In the order given, with memmove, nothing is overwritten that moves
 * later. */
typedef struct {
    int block;
    size_t from;
} address_move;

typedef struct {
    int n_blocks, n_buffers;
    size_t buffer_bytes;
    address *at;         /* owned: per block */
    size_t *used;        /* owned: per buffer: where its last block ends */
    int *order;          /* owned: room to sort in */
    bool *kept;          /* owned: per block: the last plan left its contents */
    address_move *moves; /* owned: those of the last plan, at most one a block */
    int n_moves;
} addresses;

llada_status addresses_open(addresses *a, int n_blocks, int n_buffers, size_t buffer_bytes, llada_err *err);
void addresses_free(addresses *a);

/* want[i]: bytes block i is to have; 0: none.  A block whose size stays keeps its contents: where it lies, or after the
 * moves.  Only when the buffers are too full for that are all places given anew: then *fresh is set, and no contents
 * remain.  LLADA_NO_MEMORY when the blocks do not fit at all; none has a place then. */
llada_status addresses_plan(addresses *a, const size_t *want, bool *fresh, llada_err *err);

#endif
