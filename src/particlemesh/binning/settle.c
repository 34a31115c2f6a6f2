// SPDX-License-Identifier: BSD-3-Clause
// Items of a bin in the order of their indices, after atomics have put them there in any. In bins of few, every item
// counts those before it; bins of many are queued, and a group sorts each by radix, so that no bin takes a time that
// grows with the square of its items.

#include "binning/cells.h"

#define CROWDED 64      // items that compare with one another at most
#define STATUS_QUEUED 6 // word of the status: how many bins are queued
#define DIGITS 256
#define WARPS (GROUP_SIZE / 32)

// Item i has found its place.
#define SETTLE(i, place)                                                                              \
    do {                                                                                              \
        SETTLE_ORDER(i, place);                                                                       \
        SETTLE_RANK(i, place);                                                                        \
        SETTLE_RECORD(i, place);                                                                      \
    } while (0)
#if WANT_ORDER
#define SETTLE_ORDER(i, place) settled[place] = (int)(i)
#else
#define SETTLE_ORDER(i, place)
#endif
#if WANT_RANK
#define SETTLE_RANK(i, place) rank[i] = (int)(place)
#else
#define SETTLE_RANK(i, place)
#endif
#if WANT_RECORDS
#define SETTLE_RECORD(i, place)                                                                           \
    STORE_4(records + 4 * (i64)(place), item.x[0], item.x[1], item.x[2], REAL_FROM_INDEX(i));              \
    if (status[STATUS_FOLDED]) turns[i] = packed_turns(item.turns)
#else
#define SETTLE_RECORD(i, place)
#endif

KERNEL settle(ITEMS, GLOBAL u64* RESTRICT status, GLOBAL const u32* RESTRICT start, GLOBAL int* RESTRICT rank,
              GLOBAL const int* RESTRICT scattered, GLOBAL u32* RESTRICT queue, GLOBAL int* RESTRICT settled,
              GLOBAL real* RESTRICT records, GLOBAL u64* RESTRICT turns, const i64 count, const i64 bins ITEM_RECORDS)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        const int within = rank[i];
        if (within < 0) continue;
        Item item;
        ITEM(i);
        const u32 first = start[item.bin], size = start[item.bin + 1] - first;
        if (size > CROWDED) {
            if (within == 0) queue[ATOMIC_ADD_U64(status + STATUS_QUEUED, 1)] = (u32)item.bin;
            continue;
        }
        u32 place = first;
        for (u32 k = first; k < first + size; k++) place += scattered[k] < (int)i;
        SETTLE(i, place);
    }
}

KERNEL settle_crowded(ITEMS, GLOBAL u64* RESTRICT status, GLOBAL const u32* RESTRICT start, GLOBAL int* RESTRICT rank,
                      GLOBAL int* scattered, GLOBAL int* spare, GLOBAL const u32* RESTRICT queue,
                      GLOBAL int* RESTRICT settled, GLOBAL real* RESTRICT records, GLOBAL u64* RESTRICT turns,
                      const i64 count, const i64 bins, const i64 bits ITEM_RECORDS)
{
    LOCAL_ARRAY(u32, base, DIGITS);
    LOCAL_ARRAY(u32, of_warp, WARPS * DIGITS);
    WARP(warp);
    const i64 queued = (i64)status[STATUS_QUEUED];
    for (i64 q = GROUP_ID; q < queued; q += GROUP_COUNT) {
        const u32 first = start[queue[q]], size = start[queue[q] + 1] - first;
        GLOBAL int* from = scattered + first;
        GLOBAL int* to = spare + first;
        for (int shift = 0; shift < (int)bits; shift += 8) {
            for (int digit = LOCAL_ID; digit < DIGITS; digit += GROUP_SIZE) base[digit] = 0;
            BARRIER();
            for (u32 k = LOCAL_ID; k < size; k += GROUP_SIZE)
                ATOMIC_ADD_U32(base + ((u32)from[k] >> shift & (DIGITS - 1)), 1);
            BARRIER();
            if (LOCAL_ID == 0) {
                u32 before = 0;
                for (int digit = 0; digit < DIGITS; digit++) {
                    const u32 here = base[digit];
                    base[digit] = before;
                    before += here;
                }
            }
            BARRIER();
            for (u32 tile = 0; tile < size; tile += GROUP_SIZE) {
                const u32 k = tile + LOCAL_ID;
                const int index = k < size ? from[k] : 0;
                const u32 digit = k < size ? (u32)index >> shift & (DIGITS - 1) : DIGITS;
                for (int n = LOCAL_ID; n < WARPS * DIGITS; n += GROUP_SIZE) of_warp[n] = 0;
                BARRIER();
                u32 alike = 0xffffffffu; // lanes with the same digit
                for (int bit = 0; bit < 9; bit++) {
                    const u32 votes = WARP_BALLOT(warp, digit >> bit & 1);
                    alike &= digit >> bit & 1 ? votes : ~votes;
                }
                const int before = POPCOUNT_U32(alike & ((1u << LANE) - 1));
                if (k < size && before == 0) of_warp[LOCAL_ID / 32 * DIGITS + digit] = (u32)POPCOUNT_U32(alike);
                BARRIER();
                if (k < size) {
                    u32 place = base[digit] + before;
                    for (int w = 0; w < LOCAL_ID / 32; w++) place += of_warp[w * DIGITS + digit];
                    to[place] = index;
                }
                BARRIER();
                for (int n = LOCAL_ID; n < DIGITS; n += GROUP_SIZE)
                    for (int w = 0; w < WARPS; w++) base[n] += of_warp[w * DIGITS + n];
                BARRIER();
            }
            GLOBAL int* swapped = from;
            from = to;
            to = swapped;
        }
        for (u32 k = LOCAL_ID; k < size; k += GROUP_SIZE) {
            const int i = from[k];
            Item item;
            ITEM(i);
            SETTLE(i, first + k);
        }
        BARRIER();
    }
}
