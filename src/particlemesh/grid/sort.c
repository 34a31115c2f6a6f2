// SPDX-License-Identifier: BSD-3-Clause
// Cells by sorting: the key of every particle, and where each cell is in the sorted keys [barbieri2013, section 1;
// green2008]. Keys are numbers of cells, or places along a Morton curve (CURVE_IS_MORTON). Particles that take no
// part have the key after all others.

#include "binning/cells.h"

#if CURVE_IS_MORTON
// Bits of the cell along each axis, taken in turns, the last axis lowest; axes with few cells drop out early.
DEVICE u32 morton_of(PRIVATE const int* cell, PRIVATE const int* bits)
{
    u32 key = 0;
    int at = 0;
    for (int bit = 0; bit < 31; bit++)
        for (int a = 2; a >= 0; a--)
            if (bit < bits[a]) key |= (u32)(cell[a] >> bit & 1) << at++;
    return key;
}

DEVICE i64 cell_at(u32 key, PRIVATE const int* bits, PRIVATE const int* size)
{
    int cell[3] = {0, 0, 0}, at = 0;
    for (int bit = 0; bit < 31; bit++)
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
                 const i64 last ITEM_RECORDS)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        Item item;
        TAKE_ITEM(status, i);
        u32 key = (u32)item.bin;
#if CURVE_IS_MORTON
        if (item.bin >= 0) {
            int cell[3], bits[3];
            i64 rest = item.bin;
            for (int a = 2; a >= 0; a--) cell[a] = (int)(rest % cells.size[a]), rest /= cells.size[a];
            bits_of(bits, cells.size);
            key = morton_of(cell, bits);
        }
#endif
        keys[i] = item.bin < 0 ? (u32)last : key;
    }
}

// start[c]: how many keys are below c, for c up to `bins`. The cells of a group lie close together in the keys.
KERNEL cell_starts(GLOBAL const u32* RESTRICT keys, GLOBAL u32* RESTRICT start, const i64 count, const i64 bins)
{
    LOCAL_ARRAY(i64, ends, 2);
    const i64 tile = 8 * GROUP_SIZE;
    for (i64 first = GROUP_ID * tile; first <= bins; first += GROUP_COUNT * tile) {
        if (LOCAL_ID < 2) {
            i64 low = 0, high = count;
            const i64 wanted = first + LOCAL_ID * (tile - 1);
            while (low < high) {
                const i64 middle = (low + high) / 2;
                if ((i64)keys[middle] < wanted) low = middle + 1;
                else high = middle;
            }
            ends[LOCAL_ID] = low;
        }
        BARRIER();
        for (i64 c = first + LOCAL_ID; c < first + tile && c <= bins; c += GROUP_SIZE) {
            i64 low = ends[0], high = ends[1];
            while (low < high) {
                const i64 middle = (low + high) / 2;
                if ((i64)keys[middle] < c) low = middle + 1;
                else high = middle;
            }
            start[c] = (u32)low;
        }
        BARRIER();
    }
}

#if CURVE_IS_MORTON
// The first and last particle of a cell tell where it is; start and ends of the others are zero. start[bins]: all.
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
