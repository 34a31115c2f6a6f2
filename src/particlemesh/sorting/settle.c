// SPDX-License-Identifier: BSD-3-Clause
// Items of a bin by increasing index, after atomics have placed them in any order. In small bins every item counts
// those before it. Crowded bins are queued, and a group sorts each by radix, so that no bin takes time quadratic in its
// items.

#include "sorting/cells.h"

#define CROWDED 64      // the most items of a bin that are compared with each other
#define STATUS_QUEUED 6 // word of the status: the number of queued bins
#define DIGITS 256
#define WARPS (GROUP_SIZE / 32)

// The unordered output of the atomics: records of positions with WANT_RECORDS, else indices.
#if WANT_RECORDS
#define LOOSE GLOBAL const real* RESTRICT loose
#define INDEX_AT(k) ((int)INDEX_OF_REAL(loose[4 * (i64)(k) + 3]))
#else
#define LOOSE GLOBAL const int* RESTRICT loose
#define INDEX_AT(k) loose[k]
#endif

#if WANT_RECORDS
// The bin of a place. A folded position is in its original cell, except for rounding and levels.
DEVICE i64 bin_of_place(u32 k, const real4 own, GLOBAL const u32* start, i64 bins, PRIVATE const Geometry* geometry,
                        PRIVATE const Cells* cells)
{
    const coordinate x[3] = {own.x, own.y, own.z};
    coordinate s[3];
    fractions(s, x, geometry);
    i64 low = 0;
    for (int a = 0; a < 3; a++) {
        const int cell = (int)(s[a] * (coordinate)cells->size[a]);
        low = low * cells->size[a] + (cell < cells->size[a] ? cell : cells->size[a] - 1);
    }
    if (low >= 0 && low < bins && start[low] <= k && k < start[low + 1]) return low;
    low = 0;
    for (i64 high = bins; low < high;) { // the first bin that ends after k
        const i64 middle = (low + high) / 2;
        if (start[middle + 1] <= k) low = middle + 1;
        else high = middle;
    }
    return low;
}
#endif

KERNEL settle(ITEMS, LOOSE, GLOBAL u64* RESTRICT status, GLOBAL const u32* RESTRICT start,
              GLOBAL u32* RESTRICT queue, GLOBAL int* RESTRICT settled, GLOBAL real* RESTRICT records, const i64 count,
              const i64 bins ITEM_RECORDS)
{
    const i64 taken = start[bins];
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        if (k >= taken) continue;
#if WANT_RECORDS
        const real4 own = READ_4(loose + 4 * k);
        const int i = (int)INDEX_OF_REAL(own.w);
        const i64 bin = bin_of_place((u32)k, own, start, bins, &geometry, &cells);
#else
        const int i = loose[k];
        Item item;
        ITEM(i);
        const i64 bin = item.bin;
#endif
        const u32 first = start[bin], size = start[bin + 1] - first;
        if (size > CROWDED) {
            if (k == first) queue[ATOMIC_ADD_U64(status + STATUS_QUEUED, 1)] = (u32)bin;
            continue;
        }
        u32 place = first;
        for (u32 m = first; m < first + size; m++) place += INDEX_AT(m) < i;
#if WANT_ORDER
        settled[place] = i;
#endif
#if WANT_RECORDS
        STORE_4(records + 4 * (i64)place, own.x, own.y, own.z, own.w);
#endif
    }
}

KERNEL settle_crowded(ITEMS, LOOSE, GLOBAL const u64* RESTRICT status, GLOBAL const u32* RESTRICT start,
                      GLOBAL int* indices, GLOBAL int* spare,
                      GLOBAL const u32* RESTRICT queue, GLOBAL int* RESTRICT settled, GLOBAL real* RESTRICT records,
                      const i64 count, const i64 bins, const i64 bits ITEM_RECORDS)
{
    LOCAL_ARRAY(u32, base, DIGITS);
    LOCAL_ARRAY(u32, of_warp, WARPS * DIGITS);
    WARP(warp);
    const i64 queued = (i64)status[STATUS_QUEUED];
    for (i64 q = GROUP_ID; q < queued; q += GROUP_COUNT) {
        const u32 first = start[queue[q]], size = start[queue[q] + 1] - first;
        GLOBAL int* from = indices + first;
        GLOBAL int* to = spare + first;
        for (u32 k = LOCAL_ID; k < size; k += GROUP_SIZE) from[k] = INDEX_AT(first + k);
        BARRIER();
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
#if WANT_ORDER
            settled[first + k] = i;
#endif
#if WANT_RECORDS
            Item item;
            ITEM(i);
            STORE_4(records + 4 * (i64)(first + k), item.x[0], item.x[1], item.x[2], REAL_FROM_INDEX(i));
#endif
        }
        BARRIER();
    }
}
