// SPDX-License-Identifier: BSD-3-Clause
// Cells by sorting: the key of every particle, and the place of each cell in the sorted keys [barbieri2013, section 1;
// green2008]. Keys are cell numbers, or places along a Morton curve (CURVE_IS_MORTON). Items without a cell get a key
// from the caller. If it is the last cell's, which saves a bit, they are removed afterwards.

#include "sorting/cells.h"

#if CURVE_IS_MORTON
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define MOST_BITS(bits) LARGER((bits)[0], LARGER((bits)[1], (bits)[2]))

// Interleaved bits of the cell along each axis, the last axis lowest; axes with few cells run out early.
DEVICE u32 morton_of(PRIVATE const int* cell, PRIVATE const int* bits)
{
    u32 key = 0;
    int at = 0;
    for (int bit = 0; bit < MOST_BITS(bits); bit++)
        for (int a = 2; a >= 0; a--)
            if (bit < bits[a]) key |= (u32)(cell[a] >> bit & 1) << at++;
    return key;
}

DEVICE i64 cell_at(u32 key, PRIVATE const int* bits, PRIVATE const int* size)
{
    int cell[3] = {0, 0, 0}, at = 0;
    for (int bit = 0; bit < MOST_BITS(bits); bit++)
        for (int a = 2; a >= 0; a--)
            if (bit < bits[a]) cell[a] |= (int)(key >> at++ & 1) << bit;
    return ((i64)cell[0] * size[1] + cell[1]) * size[2] + cell[2];
}

DEVICE void bits_of(PRIVATE int* bits, PRIVATE const int* size)
{
    for (int a = 0; a < 3; a++) bits[a] = 32 - LEADING_ZEROS_U32((u32)(size[a] - 1));
}
#endif

KERNEL sort_keys(ITEMS, GLOBAL u64* RESTRICT status, GLOBAL u32* RESTRICT keys, const i64 count, const i64 bins,
                 const i64 no_cell ITEM_RECORDS)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        Item item;
        TAKE_ITEM(status, i);
        u32 key = (u32)item.bin;
#if CURVE_IS_MORTON
        if (item.bin >= 0) {
            int cell[3], bits[3];
            u32 rest = (u32)item.bin;
            for (int a = 2; a >= 0; a--) cell[a] = (int)(rest % (u32)cells.size[a]), rest /= (u32)cells.size[a];
            bits_of(bits, cells.size);
            key = morton_of(cell, bits);
        }
#endif
        keys[i] = item.bin < 0 ? (u32)no_cell : key;
    }
}

// The number of keys below `wanted`, for a whole warp: 32 probes at a time.
DEVICE i64 keys_below(WARP_PARAMETER warp, GLOBAL const u32* keys, i64 count, i64 wanted)
{
    i64 low = 0, high = count;
    while (low < high) {
        const i64 step = (high - low) / 33 + 1, probe = low + (LANE + 1) * step - 1;
        const int below = probe < high && (i64)keys[probe] < wanted;
        const int n = POPCOUNT_U32(WARP_BALLOT(warp, below));
        low += n * step;
        high = low + step - 1 < high ? low + step - 1 : high;
    }
    return low;
}

#if KEYS_ARE_POSITIONS
// Items without a cell lie among those of the last cell, with its key. A single group moves the others up, and gives
// these the key `last` + 1. Nearly always there is nothing to do.
KERNEL expel(ITEMS, GLOBAL const u64* RESTRICT status, GLOBAL u32* RESTRICT keys, GLOBAL u32* RESTRICT order,
             const i64 count, const i64 bins, const i64 last ITEM_RECORDS)
{
    WARP(warp);
    LOCAL_ARRAY(u32, kept, GROUP_SIZE / 32);
    const i64 bad = (i64)(status[STATUS_NOT_FINITE] + status[STATUS_OUTSIDE] + status[STATUS_BAD_RADIUS]);
    if (GROUP_ID == 0 && bad > 0) {
        const i64 first = keys_below(warp, keys, count, last);
        i64 to = first;
        for (i64 tile = first; tile < count; tile += GROUP_SIZE) {
            const i64 k = tile + LOCAL_ID;
            const i64 i = k < count ? (i64)order[k] : 0;
            Item item;
            item.bin = -1;
            if (k < count) ITEM(i);
            const u32 votes = WARP_BALLOT(warp, item.bin >= 0);
            if (LANE == 0) kept[LOCAL_ID / 32] = (u32)POPCOUNT_U32(votes);
            BARRIER();
            i64 place = to + POPCOUNT_U32(votes & (((u32)1 << LANE) - 1));
            for (int w = 0; w < GROUP_SIZE / 32; w++) {
                if (w < LOCAL_ID / 32) place += kept[w];
                to += kept[w];
            }
            if (item.bin >= 0) order[place] = (u32)i;
            BARRIER();
        }
        for (i64 k = to + LOCAL_ID; k < count; k += GROUP_SIZE) keys[k] = (u32)(last + 1);
    }
}
#endif

// start[c]: the number of keys below c, for c up to `bins`. A group has a range of cells; it goes through their keys
// or, if these are many, searches among them.
KERNEL cell_starts(GLOBAL const u32* RESTRICT keys, GLOBAL u32* RESTRICT start, const i64 count, const i64 bins)
{
    WARP(warp);
    LOCAL_ARRAY(i64, ends, 2);
    const i64 tile = 2 * GROUP_SIZE; // small, so that there are enough groups to fill the device
    for (i64 first = GROUP_ID * tile; first <= bins; first += GROUP_COUNT * tile) {
        const i64 next = first + tile <= bins ? first + tile : bins + 1;
        if (GROUP_SIZE == WARP_SIZE || LOCAL_ID < WARP_SIZE) {
            const i64 low = keys_below(warp, keys, count, first), high = keys_below(warp, keys, count, next);
            if (LOCAL_ID == 0) ends[0] = low, ends[1] = high;
        }
        BARRIER();
        const i64 low = ends[0], high = ends[1];
        if (high - low < 16 * tile) {
            // All cells after the previous place's, up to this place's, start at place k.
            for (i64 k = low + LOCAL_ID; k <= high; k += GROUP_SIZE) {
                const i64 before = k == low ? first - 1 : (i64)keys[k - 1], own = k == high ? next - 1 : (i64)keys[k];
                for (i64 c = before + 1; c <= own; c++) start[c] = (u32)k;
            }
        } else {
            for (i64 c = first + LOCAL_ID; c < next; c += GROUP_SIZE) {
                i64 from = low, to = high;
                while (from < to) {
                    const i64 middle = (from + to) / 2;
                    if ((i64)keys[middle] < c) from = middle + 1;
                    else to = middle;
                }
                start[c] = (u32)from;
            }
        }
        BARRIER();
    }
}

#if CURVE_IS_MORTON
// The first and last particle of a cell set its start and end; those of other cells are zero. start[bins]: all.
KERNEL cell_bounds(GLOBAL const u32* RESTRICT keys, GLOBAL u32* RESTRICT start, GLOBAL u32* RESTRICT ends,
                   const i64 count, const i64 bins, const i64 last, const Cells cells)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        const u32 key = keys[k];
        if (key == (u32)last) {
            if (k == 0) start[bins] = 0;
            continue;
        }
        int bits[3];
        bits_of(bits, cells.size);
        const i64 cell = cell_at(key, bits, cells.size);
        if (k == 0 || keys[k - 1] != key) start[cell] = (u32)k;
        if (k == count - 1 || keys[k + 1] != key) {
            ends[cell] = (u32)(k + 1);
            if (k == count - 1 || keys[k + 1] == (u32)last) start[bins] = (u32)(k + 1);
        }
    }
}
#endif
