// SPDX-License-Identifier: BSD-3-Clause
// From slots and lists to particles in cell order, and from an order to its other outputs. LINKS: the links of a list,
// 1 an array, 4 the last of four reals per particle. work: the status, then counts or heads of the cells.

#include "sorting/cells.h"

#if LINKS == 4
DEVICE u32 link_of(GLOBAL const real* nodes, u32 i) { return (u32)INDEX_OF_REAL(nodes[4 * (i64)i + 3]); }
#define LINKS_PARAMETER GLOBAL const real* RESTRICT links
#else
DEVICE u32 link_of(GLOBAL const u32* next, u32 i) { return next[i]; }
#define LINKS_PARAMETER GLOBAL const u32* RESTRICT links
#endif

KERNEL list_lengths(GLOBAL const u64* RESTRICT work, LINKS_PARAMETER, GLOBAL u32* RESTRICT lengths, const i64 bins)
{
    GLOBAL const u32* heads = (GLOBAL const u32*)(work + STATUS_WORDS);
    for (i64 c = GROUP_ID * GROUP_SIZE + LOCAL_ID; c < bins; c += GROUP_COUNT * GROUP_SIZE) {
        u32 length = 0;
        for (u32 entry = heads[c]; entry; entry = link_of(links, entry - 1)) length++;
        lengths[c] = length;
    }
}

KERNEL list_order(GLOBAL const u64* RESTRICT work, LINKS_PARAMETER, GLOBAL const u32* RESTRICT start,
                  GLOBAL int* RESTRICT order, const i64 bins)
{
    GLOBAL const u32* heads = (GLOBAL const u32*)(work + STATUS_WORDS);
    for (i64 c = GROUP_ID * GROUP_SIZE + LOCAL_ID; c < bins; c += GROUP_COUNT * GROUP_SIZE) {
        u32 place = start[c];
        for (u32 entry = heads[c]; entry; entry = link_of(links, entry - 1)) order[place++] = (int)(entry - 1);
    }
}

// Counts, limited to the capacity.
KERNEL slot_lengths(GLOBAL const u64* RESTRICT work, GLOBAL u32* RESTRICT lengths, const i64 bins, const i64 capacity)
{
    GLOBAL const u32* counts = (GLOBAL const u32*)(work + STATUS_WORDS);
    for (i64 c = GROUP_ID * GROUP_SIZE + LOCAL_ID; c < bins; c += GROUP_COUNT * GROUP_SIZE)
        lengths[c] = counts[c] < (u32)capacity ? counts[c] : (u32)capacity;
}

KERNEL slot_order(GLOBAL const u32* RESTRICT slots, GLOBAL const u32* RESTRICT start, GLOBAL int* RESTRICT order,
                  const i64 bins, const i64 cell_stride, const i64 slot_stride)
{
    for (i64 c = GROUP_ID * GROUP_SIZE + LOCAL_ID; c < bins; c += GROUP_COUNT * GROUP_SIZE) {
        const u32 first = start[c];
        for (u32 place = first; place < start[c + 1]; place++)
            order[place] = (int)slots[c * cell_stride + (place - first) * slot_stride];
    }
}

// Positions and turns of particles in an order; its first start[bins] places are valid.
#if KEYS_ARE_POSITIONS
KERNEL gather(ITEMS, GLOBAL const u64* RESTRICT status, GLOBAL const u32* RESTRICT start, GLOBAL const int* RESTRICT order,
              GLOBAL real* RESTRICT records, GLOBAL u64* RESTRICT turns, const i64 count,
              const i64 bins ITEM_RECORDS)
{
    const i64 valid = start[bins];
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        if (k >= valid) continue;
        const i64 i = order[k];
        Item item;
        ITEM(i);
        STORE_4(records + 4 * k, item.x[0], item.x[1], item.x[2], REAL_FROM_INDEX(i));
        if (status[STATUS_FOLDED]) turns[i] = packed_turns(item.turns);
    }
}
#endif

KERNEL order_of_records(GLOBAL const real* RESTRICT records, GLOBAL int* RESTRICT order, const i64 count)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE)
        order[k] = (int)INDEX_OF_REAL(records[4 * k + 3]);
}

KERNEL no_ranks(GLOBAL int* RESTRICT rank, const i64 count)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) rank[i] = -1;
}

KERNEL ranks_of_order(GLOBAL const int* RESTRICT order, GLOBAL int* RESTRICT rank, const i64 count)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) rank[order[k]] = (int)k;
}
