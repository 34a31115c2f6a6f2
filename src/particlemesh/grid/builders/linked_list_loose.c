// SPDX-License-Identifier: BSD-3-Clause
// A linked list of particles per cell, one atomic exchange per particle [barbieri2013, section 2].
// work: the status, then the head of each cell's list. Heads and links hold a particle's index + 1; 0 ends a list.

#include "sorting/cells.h"

KERNEL linked_list_loose(ITEMS, GLOBAL u64* RESTRICT work, GLOBAL u32* RESTRICT next, const i64 count,
                         const i64 bins ITEM_RECORDS)
{
    GLOBAL u32* heads = (GLOBAL u32*)(work + STATUS_WORDS);
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        Item item;
        TAKE_ITEM(work, i);
        if (item.bin >= 0) next[i] = ATOMIC_EXCHANGE_U32(heads + item.bin, i + 1);
    }
}
