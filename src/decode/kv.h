/* kv.h - which slot of the device's K,V store holds which position: the cache tiers as bookkeeping, without a copy.
 *
 * Each position has one current slot.  A dense row overwrites its position's slot in place, since no row of its pass
 * reads the old value.  A revision job works on a snapshot: the slots it may read are pinned, and a later pass that
 * computes such a position gets another slot (copy on write), the pinned one being freed with the snapshot.  A job's
 * own results wait in spare slots until they are merged, which makes them current by exchanging slot numbers. */
#ifndef DECODE_KV_H
#define DECODE_KV_H

#include "base/err.h"

typedef struct {
    int32_t *current;  /* [positions] slot of each position */
    int32_t *spare;    /* stack of free slots */
    uint16_t *pins;    /* [slots] snapshots that read it */
    uint8_t *orphan;   /* [slots] no longer current, freed at the last unpin */
    int positions, slots, n_spare;
} kv_map;

llada_status kv_open(kv_map *k, int positions, int slots, llada_err *err);
void kv_free(kv_map *k);
void kv_reset(kv_map *k);              /* position i in slot i, all others spare, nothing pinned */

int32_t kv_write(kv_map *k, int pos);  /* the slot where a fresh K,V of pos goes (now its current one) */
int32_t kv_take(kv_map *k);            /* a spare slot */
void kv_give(kv_map *k, int32_t slot); /* back to the spare ones */
void kv_replace(kv_map *k, int pos, int32_t slot); /* slot (taken before) becomes pos's current one */

void kv_pin(kv_map *k, const int32_t *slots, int n);   /* a snapshot of current slots, copied by the caller */
void kv_unpin(kv_map *k, const int32_t *slots, int n);

#endif
