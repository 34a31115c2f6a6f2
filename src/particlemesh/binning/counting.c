// SPDX-License-Identifier: BSD-3-Clause
// Counting sort: one atomic an item, whose return value is the item's rank in its bin, an exclusive scan of the
// counts (scan.c), and every item to its place. COUNT_IS_64 for 2^31 items and more, KEY_IS_64 for as many bins.
// What is left out or bad has the rank -1 and no place. Of what there is to write, WANT_ORDER takes the indices,
// WANT_RANK the place of each item, WANT_RECORDS positions, folded, with their indices.

#include "binning/cells.h"

#if COUNT_IS_64
typedef u64 count_t;
typedef i64 index_t;
#define ATOMIC_ADD_COUNT(pointer, value) ATOMIC_ADD_U64(pointer, value)
#else
typedef u32 count_t;
typedef int index_t;
#define ATOMIC_ADD_COUNT(pointer, value) ATOMIC_ADD_U32(pointer, value)
#endif

// Neighbouring lanes that want the same bin share one atomic: sorted input has long runs of them.
KERNEL count_keys(ITEMS, GLOBAL u64* RESTRICT status, GLOBAL count_t* RESTRICT counts, GLOBAL index_t* RESTRICT rank,
                  const i64 count, const i64 bins ITEM_RECORDS)
{
    WARP(warp);
    for (i64 base = GROUP_ID * GROUP_SIZE; base < count; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = base + LOCAL_ID;
        Item item;
        item.bin = -1;
        if (i < count) {
            record_item(status, ITEM(i), i);
#if KEYS_ARE_POSITIONS
            if (item.bin >= 0 && was_folded(&item)) status[STATUS_FOLDED] = 1; // all write the same
#endif
        }
        const u32 low = (u32)item.bin;
        const u32 before = WARP_SHUFFLE_U32(warp, low, LANE - 1);
#if KEY_IS_64
        const u32 high = (u32)(item.bin >> 32);
        const u32 high_before = WARP_SHUFFLE_U32(warp, high, LANE - 1);
        const int first = LANE == 0 || low != before || high != high_before;
#else
        const int first = LANE == 0 || low != before;
#endif
        const u32 firsts = WARP_BALLOT(warp, first);
        const int leader = 31 - LEADING_ZEROS_U32(firsts & (0xffffffffu >> (31 - LANE)));
        const u32 later = LANE == 31 ? 0 : firsts >> (LANE + 1); // of a leader: the runs behind it
        index_t mine = -1;
        if (first && item.bin >= 0) {
            const int length = later ? 32 - LEADING_ZEROS_U32(later & (0u - later)) : 32 - LANE;
            mine = (index_t)ATOMIC_ADD_COUNT(counts + item.bin, length);
        }
#if COUNT_IS_64
        const u64 upper = (u64)WARP_SHUFFLE_U32(warp, (u32)((u64)mine >> 32), leader) << 32;
        const index_t ahead = (index_t)(upper | WARP_SHUFFLE_U32(warp, (u32)mine, leader));
#else
        const index_t ahead = (index_t)WARP_SHUFFLE_U32(warp, (u32)mine, leader);
#endif
        if (i < count) rank[i] = item.bin < 0 ? (index_t)-1 : ahead + (LANE - leader);
    }
}

#define PER_ITEM 16 // counts of one work-item in the scan
#define TILE (GROUP_SIZE * PER_ITEM)

// Sum of `mine` over the group; every work-item gets it, and in `before` the sum of those ahead of it.
DEVICE count_t group_scan(LOCAL count_t* sums, count_t mine, PRIVATE count_t* before)
{
    sums[LOCAL_ID] = mine;
    BARRIER();
    for (int step = 1; step < GROUP_SIZE; step *= 2) {
        const count_t ahead = LOCAL_ID >= step ? sums[LOCAL_ID - step] : 0;
        BARRIER();
        sums[LOCAL_ID] += ahead;
        BARRIER();
    }
    *before = sums[LOCAL_ID] - mine;
    const count_t total = sums[GROUP_SIZE - 1];
    BARRIER();
    return total;
}

KERNEL tile_totals(GLOBAL const count_t* RESTRICT counts, GLOBAL count_t* RESTRICT totals, const i64 bins,
                   const i64 tiles)
{
    LOCAL_ARRAY(count_t, sums, GROUP_SIZE);
    for (i64 tile = GROUP_ID; tile < tiles; tile += GROUP_COUNT) {
        count_t mine = 0, before;
        for (int k = 0; k < PER_ITEM; k++) {
            const i64 b = tile * TILE + k * GROUP_SIZE + LOCAL_ID;
            mine += b < bins ? counts[b] : 0;
        }
        const count_t total = group_scan(sums, mine, &before);
        if (LOCAL_ID == 0) totals[tile] = total;
    }
}

// start[b] = counts before b, start[bins] = all. `bases` holds the tiles' totals, or their scan if `scanned`.
KERNEL scan_tiles(GLOBAL const count_t* RESTRICT counts, GLOBAL const count_t* RESTRICT bases,
                  GLOBAL count_t* RESTRICT start, const i64 bins, const i64 tiles, const i64 scanned)
{
    LOCAL_ARRAY(count_t, sums, GROUP_SIZE);
    for (i64 tile = GROUP_ID; tile < tiles; tile += GROUP_COUNT) {
        count_t mine = 0, before;
        if (!scanned)
            for (i64 t = LOCAL_ID; t < tile; t += GROUP_SIZE) mine += bases[t];
        const count_t ahead = scanned ? bases[tile] : 0;
        const count_t base = group_scan(sums, mine, &before) + ahead;

        count_t own[PER_ITEM];
        mine = 0;
        for (int k = 0; k < PER_ITEM; k++) {
            const i64 b = tile * TILE + LOCAL_ID * PER_ITEM + k;
            own[k] = b < bins ? counts[b] : 0;
            mine += own[k];
        }
        const count_t total = group_scan(sums, mine, &before);
        before += base;
        for (int k = 0; k < PER_ITEM; k++) {
            const i64 b = tile * TILE + LOCAL_ID * PER_ITEM + k;
            if (b < bins) start[b] = before;
            before += own[k];
        }
        if (tile == tiles - 1 && LOCAL_ID == 0) start[bins] = base + total;
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

// The stable order comes from a library's sort; its inverse and the bins' counts from here.
KERNEL invert_order(GLOBAL const u32* RESTRICT sorted, GLOBAL const item_t* RESTRICT keys,
                    GLOBAL count_t* RESTRICT counts, GLOBAL index_t* RESTRICT rank,
                    GLOBAL index_t* RESTRICT order, const i64 count)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = sorted[k];
        const int taken = keys[i] >= 0;
        rank[i] = taken ? (index_t)k : (index_t)-1;
        if (taken) {
            order[k] = (index_t)i;
            ATOMIC_ADD_COUNT(counts + keys[i], 1);
        }
    }
}

// A library's sort has no place for negative keys: they go behind all bins.
KERNEL sortable_keys(GLOBAL const item_t* RESTRICT keys, GLOBAL u32* RESTRICT sortable, const i64 count,
                     const i64 bins)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE)
        sortable[i] = keys[i] < 0 ? (u32)bins : (u32)keys[i];
}

#endif
