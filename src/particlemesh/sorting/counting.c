// SPDX-License-Identifier: BSD-3-Clause
// Counting sort: one atomic per item, whose return value is the item's rank in its bin; an exclusive scan of the counts
// (scan.c); then every item goes to its place. COUNT_IS_64: 2^31 items or more; KEY_IS_64: as many bins. Items left out
// or faulty have the rank -1 and no place. Outputs: WANT_ORDER indices, WANT_RANK the place of each item, WANT_RECORDS
// folded positions with their indices.

#include "sorting/cells.h"
#include "sorting/runs.h"

// work: the status, then a count per bin.
KERNEL count_keys(ITEMS, GLOBAL u64* RESTRICT work, GLOBAL index_t* RESTRICT rank, const i64 count,
                  const i64 bins ITEM_RECORDS)
{
    WARP(warp);
    GLOBAL count_t* counts = (GLOBAL count_t*)(work + STATUS_WORDS);
    for (i64 base = GROUP_ID * GROUP_SIZE; base < count; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = base + LOCAL_ID;
        Item item;
        item.bin = -1;
        if (i < count) TAKE_ITEM(work, i);
        const index_t within = rank_in_bin(warp, counts, item.bin);
        if (i < count) rank[i] = within;
    }
}

KERNEL place_keys(ITEMS, GLOBAL const u64* RESTRICT status, GLOBAL const count_t* RESTRICT start,
                  GLOBAL index_t* RESTRICT rank, GLOBAL index_t* RESTRICT order, GLOBAL real* RESTRICT records,
                  GLOBAL u64* RESTRICT turns, const i64 count, const i64 bins ITEM_RECORDS)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        const index_t within = rank[i];
        if (within < 0) continue;
        Item item;
        ITEM(i);
        const i64 place = within + (i64)start[item.bin];
#if WANT_RANK
        rank[i] = (index_t)place;
#endif
#if WANT_ORDER
        order[place] = (index_t)i;
#endif
#if WANT_RECORDS
        STORE_4(records + 4 * place, item.x[0], item.x[1], item.x[2], REAL_FROM_INDEX(i));
        if (status[STATUS_FOLDED]) turns[i] = packed_turns(item.turns);
#endif
    }
}

#if !KEYS_ARE_POSITIONS

// For the stable order keys are sorted (radix.c). Those left out go after all bins.
KERNEL sortable_keys(GLOBAL const item_t* RESTRICT keys, GLOBAL u32* RESTRICT sortable, const i64 count,
                     const i64 bins)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE)
        sortable[i] = keys[i] < 0 || keys[i] >= bins ? (u32)bins : (u32)keys[i];
}

// The place of each item, and the counts of bins: a run of a bin adds its end and subtracts its beginning.
KERNEL invert_order(GLOBAL const u32* RESTRICT sorted, GLOBAL const index_t* RESTRICT order,
                    GLOBAL u64* RESTRICT work, GLOBAL index_t* RESTRICT rank, const i64 count, const i64 bins)
{
    GLOBAL count_t* counts = (GLOBAL count_t*)(work + STATUS_WORDS);
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        const u32 bin = sorted[k];
        const int taken = bin < bins;
        rank[order[k]] = taken ? (index_t)k : (index_t)-1;
        if (taken && (k == 0 || sorted[k - 1] != bin)) ATOMIC_ADD_COUNT(counts + bin, (count_t)0 - (count_t)k);
        if (taken && (k == count - 1 || sorted[k + 1] != bin)) ATOMIC_ADD_COUNT(counts + bin, k + 1);
    }
}

#endif
