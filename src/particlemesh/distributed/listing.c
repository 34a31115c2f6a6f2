// SPDX-License-Identifier: BSD-3-Clause
// Lists of particles by bin: which bin each goes to, and where bins end once the list is sorted. A list holds numbers
// from 1 on; 0 is where nothing was written, and comes first.

#include "distributed/owner.h"

typedef struct {
    int nodes[3], periodic[3], shift[3]; // shift: from first nodes of stencils to cells of the mesh
    int axes, depth, none; // none: the bin of bad particles
} Parts;

// The strays that a plan has listed (particles/locate.c), in the bins of the parts that own them.
KERNEL list_strays(GLOBAL const u64* RESTRICT strays, GLOBAL const int* RESTRICT planes, GLOBAL u32* RESTRICT index,
                   GLOBAL u32* RESTRICT bin, const i64 room, const Parts parts)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < room; k += GROUP_COUNT * GROUP_SIZE) {
        if ((u64)k >= strays[0]) continue;
        GLOBAL const u64* entry = strays + 4 * (k + 1);
        int cell[3] = {0, 0, 0};
        for (int a = 0; a < parts.axes; a++) {
            const i64 n = parts.nodes[a];
            i64 c = (i64)entry[4 - parts.axes + a] + parts.shift[a];
            if (parts.periodic[a]) c = (c % n + n) % n;
            cell[a] = (int)(c < 0 ? 0 : c < n ? c : n - 1);
        }
        const int bad = (int)(i64)entry[3] == SKIP;
        index[k] = (u32)entry[0] + 1;
        bin[k] = (u32)(bad ? parts.none : part_of(cell, planes, parts.depth)) + 1;
    }
}

// Where bins end in a sorted list: ends[0] is that of what was not written, ends[b + 1] that of bin b.
KERNEL list_ends(GLOBAL const u32* RESTRICT bin, GLOBAL u64* RESTRICT ends, const i64 bins, const i64 first,
                 const i64 room)
{
    for (i64 b = GROUP_ID * GROUP_SIZE + LOCAL_ID; b <= bins; b += GROUP_COUNT * GROUP_SIZE) {
        i64 low = 0, high = room;
        while (low < high) {
            const i64 middle = (low + high) / 2;
            if ((i64)bin[middle] <= b) low = middle + 1;
            else high = middle;
        }
        ends[first + b] = (u64)low;
    }
}

// The particles of a sorted list; 0 where nothing was written.
KERNEL list_particles(GLOBAL const u32* RESTRICT index, GLOBAL i64* RESTRICT particle, const i64 room)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < room; k += GROUP_COUNT * GROUP_SIZE)
        particle[k] = index[k] == 0 ? 0 : (i64)index[k] - 1;
}
