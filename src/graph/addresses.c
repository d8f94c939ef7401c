/* addresses.c - see addresses.h. */
#include "graph/addresses.h"

#include "base/mem.h"
#include "base/size.h"

llada_status addresses_open(addresses *a, int n_blocks, int n_buffers, size_t buffer_bytes, llada_err *err)
{
    *a = (addresses){ .n_blocks = n_blocks, .n_buffers = n_buffers, .buffer_bytes = buffer_bytes };
    a->at = mem_array((size_t)n_blocks, sizeof *a->at);
    a->used = mem_array((size_t)n_buffers, sizeof *a->used);
    a->order = mem_array((size_t)n_blocks, sizeof *a->order);
    a->moves = mem_array((size_t)n_blocks, sizeof *a->moves);
    a->kept = mem_array((size_t)n_blocks, sizeof *a->kept);
    if (!a->at || !a->used || !a->order || !a->moves || !a->kept) {
        addresses_free(a);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for the places of %d blocks", n_blocks);
    }
    for (int i = 0; i < n_blocks; i++) a->at[i].buffer = -1;
    return LLADA_OK;
}

void addresses_free(addresses *a)
{
    mem_free(a->at);
    mem_free(a->used);
    mem_free(a->order);
    mem_free(a->moves);
    mem_free(a->kept);
    *a = (addresses){ 0 };
}

/* Fills a->order with the blocks of a buffer by rising offset; returns how many. */
static int list(addresses *a, int buffer)
{
    int n = 0;
    for (int i = 0; i < a->n_blocks; i++) {
        int k = n;
        if (a->at[i].buffer != buffer) continue;
        for (n++; k > 0 && a->at[a->order[k - 1]].offset > a->at[i].offset; k--) a->order[k] = a->order[k - 1];
        a->order[k] = i;
    }
    return n;
}

/* The smallest hole of a buffer that takes `bytes`, or the room behind its last block; SIZE_MAX: none does. */
static size_t best_place(addresses *a, int buffer, size_t bytes, size_t *hole)
{
    size_t end = 0, at = SIZE_MAX;
    int n = list(a, buffer);
    *hole = SIZE_MAX;
    for (int k = 0; k < n; k++) {
        const address *b = &a->at[a->order[k]];
        size_t room = b->offset - end;
        if (room >= bytes && room < *hole) {
            *hole = room;
            at = end;
        }
        end = b->offset + b->bytes;
    }
    if (at == SIZE_MAX && a->buffer_bytes - end >= bytes) at = end; /* *hole stays: any hole is better */
    return at;
}

static bool place(addresses *a, int block, size_t bytes)
{
    address best = { .buffer = -1, .bytes = bytes };
    size_t least = SIZE_MAX;
    for (int b = 0; b < a->n_buffers; b++) {
        size_t hole, at = best_place(a, b, bytes, &hole);
        if (at == SIZE_MAX || (best.buffer >= 0 && hole >= least)) continue;
        best.buffer = b;
        best.offset = at;
        least = hole;
    }
    if (best.buffer < 0) return false;
    a->at[block] = best;
    if (a->used[best.buffer] < best.offset + bytes) a->used[best.buffer] = best.offset + bytes;
    return true;
}

/* The largest block that is wanted and has no place; -1: none. */
static int largest_without(const addresses *a, const size_t *want)
{
    int best = -1;
    for (int i = 0; i < a->n_blocks; i++)
        if (want[i] && a->at[i].buffer < 0 && (best < 0 || want[i] > want[best])) best = i;
    return best;
}

static bool place_all(addresses *a, const size_t *want)
{
    for (int i; (i = largest_without(a, want)) >= 0;)
        if (!place(a, i, want[i])) return false;
    return true;
}

/* Moves the blocks of a buffer down until there is no hole. */
static void compact(addresses *a, int buffer)
{
    size_t end = 0;
    int n = list(a, buffer);
    for (int k = 0; k < n; k++) {
        address *b = &a->at[a->order[k]];
        if (b->offset != end) {
            a->moves[a->n_moves++] = (address_move){ a->order[k], b->offset };
            b->offset = end;
        }
        end += b->bytes;
    }
    a->used[buffer] = end;
}

static size_t bytes_in(const addresses *a, int buffer)
{
    size_t sum = 0;
    for (int i = 0; i < a->n_blocks; i++) sum += a->at[i].buffer == buffer ? a->at[i].bytes : 0;
    return sum;
}

/* Gives up the places of blocks that are not to keep theirs. */
static void release(addresses *a)
{
    for (int b = 0; b < a->n_buffers; b++) a->used[b] = 0;
    for (int i = 0; i < a->n_blocks; i++) {
        address *at = &a->at[i];
        if (!a->kept[i]) *at = (address){ .buffer = -1 };
        else if (at->offset + at->bytes > a->used[at->buffer]) a->used[at->buffer] = at->offset + at->bytes;
    }
}

static void close_holes(addresses *a, size_t part)
{
    for (int b = 0; b < a->n_buffers; b++)
        if (a->used[b] - bytes_in(a, b) > a->used[b] / part) compact(a, b);
}

llada_status addresses_plan(addresses *a, const size_t *want, bool *fresh, llada_err *err)
{
    size_t sum = 0;
    *fresh = false;
    a->n_moves = 0;
    for (int i = 0; i < a->n_blocks; i++) a->kept[i] = a->at[i].buffer >= 0 && a->at[i].bytes == want[i];
    release(a);
    close_holes(a, ADDRESS_HOLES); /* before anything new is placed: only blocks with contents move, and once */
    if (place_all(a, want)) return LLADA_OK;
    release(a);
    close_holes(a, SIZE_MAX);
    if (place_all(a, want)) return LLADA_OK;
    *fresh = true;
    a->n_moves = 0;
    for (int i = 0; i < a->n_blocks; i++) a->kept[i] = false;
    release(a);
    if (place_all(a, want)) return LLADA_OK;
    release(a);
    for (int i = 0; i < a->n_blocks; i++)
        if (!size_add(sum, want[i], &sum)) sum = SIZE_MAX;
    return llada_fail(err, LLADA_NO_MEMORY, "%zu bytes of blocks do not fit into %d buffers of %zu", sum, a->n_buffers,
                      a->buffer_bytes);
}
