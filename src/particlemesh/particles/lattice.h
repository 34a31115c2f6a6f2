// SPDX-License-Identifier: BSD-3-Clause
// Nodes of the field, and the first nodes of stencils: the cells of node order.

#ifndef LATTICE_H
#define LATTICE_H

typedef struct {
    int size[3];
    int wraps[3];
    int low[3]; // first nodes lie in [low, low + extent)
    int extent[3];
} Lattice;

DEVICE i64 cell_at(PRIVATE const Lattice* lattice, int x, int y, int z)
{
    return ((i64)x * lattice->extent[1] + y) * lattice->extent[2] + z;
}

// Coordinates of the n-th of `size` items, counted along z first. 32 bits nearly always suffice, and divide several
// times faster.
DEVICE void coordinates_of(i64 n, PRIVATE const int* size, PRIVATE int* at)
{
    if (n < (i64)1 << 32) {
        const u32 low = (u32)n, line = low / (u32)size[2];
        at[2] = (int)(low - line * (u32)size[2]);
        at[0] = (int)(line / (u32)size[1]);
        at[1] = (int)(line - (u32)at[0] * (u32)size[1]);
    } else {
        const i64 line = n / size[2];
        at[2] = (int)(n - line * size[2]);
        at[0] = (int)(line / size[1]);
        at[1] = (int)(line - (i64)at[0] * size[1]);
    }
}

#endif
