/* kv.c - slots of the K,V store: current, spare, pinned. */
#include "decode/kv.h"

#include <string.h>

#include "base/mem.h"

llada_status kv_open(kv_map *k, int positions, int slots, llada_err *err)
{
    *k = (kv_map){.positions = positions, .slots = slots};
    k->current = mem_array((size_t)positions, sizeof *k->current);
    k->spare = mem_array((size_t)slots, sizeof *k->spare);
    k->pins = mem_array((size_t)slots, sizeof *k->pins);
    k->orphan = mem_array((size_t)slots, sizeof *k->orphan);
    if (!k->current || !k->spare || !k->pins || !k->orphan) {
        kv_free(k);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for a K,V map of %d slots", slots);
    }
    kv_reset(k);
    return LLADA_OK;
}

void kv_free(kv_map *k)
{
    mem_free(k->current);
    mem_free(k->spare);
    mem_free(k->pins);
    mem_free(k->orphan);
    *k = (kv_map){0};
}

void kv_reset(kv_map *k)
{
    for (int i = 0; i < k->positions; i++) k->current[i] = i;
    k->n_spare = 0;
    for (int s = k->slots - 1; s >= k->positions; s--) k->spare[k->n_spare++] = s;
    memset(k->pins, 0, (size_t)k->slots * sizeof *k->pins);
    memset(k->orphan, 0, (size_t)k->slots);
}

int32_t kv_take(kv_map *k) { return k->n_spare ? k->spare[--k->n_spare] : -1; }

void kv_give(kv_map *k, int32_t slot) { k->spare[k->n_spare++] = slot; }

/* The position's slot is no longer current: spare at once, or when the last snapshot lets go of it. */
static void leave(kv_map *k, int32_t slot)
{
    if (k->pins[slot])
        k->orphan[slot] = 1;
    else
        kv_give(k, slot);
}

int32_t kv_write(kv_map *k, int pos)
{
    int32_t old = k->current[pos];
    if (!k->pins[old]) return old;
    int32_t slot = kv_take(k);
    if (slot < 0) return -1;
    leave(k, old);
    k->current[pos] = slot;
    return slot;
}

void kv_replace(kv_map *k, int pos, int32_t slot)
{
    leave(k, k->current[pos]);
    k->current[pos] = slot;
}

void kv_pin(kv_map *k, const int32_t *slots, int n)
{
    for (int i = 0; i < n; i++) k->pins[slots[i]]++;
}

void kv_unpin(kv_map *k, const int32_t *slots, int n)
{
    for (int i = 0; i < n; i++) {
        int32_t s = slots[i];
        if (--k->pins[s] || !k->orphan[s]) continue;
        k->orphan[s] = 0;
        kv_give(k, s);
    }
}
