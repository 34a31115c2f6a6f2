// SPDX-License-Identifier: BSD-3-Clause
// Slots of fixed number in every cell: one atomic gives each particle its slot [barbieri2013, section 1; green2008].
// work: the status, then a count per cell.

#include "sorting/cells.h"
#include "sorting/runs.h"

KERNEL fixed(ITEMS, GLOBAL u64* RESTRICT work, GLOBAL u32* RESTRICT slots, const i64 count, const i64 bins,
             const i64 capacity, const i64 cell_stride, const i64 slot_stride ITEM_RECORDS)
{
    WARP(warp);
    GLOBAL u32* counts = (GLOBAL u32*)(work + STATUS_WORDS);
    for (i64 base = GROUP_ID * GROUP_SIZE; base < count; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = base + LOCAL_ID;
        Item item;
        item.bin = -1;
        if (i < count) TAKE_ITEM(work, i);
        const int slot = rank_in_bin(warp, counts, item.bin);
        if (slot >= 0 && slot < capacity) slots[item.bin * cell_stride + slot * slot_stride] = (u32)i;
        if (slot >= capacity) ATOMIC_MAX_U64(work + STATUS_FULLEST, (u64)(slot + 1) << 32 | (u64)item.bin);
    }
}
