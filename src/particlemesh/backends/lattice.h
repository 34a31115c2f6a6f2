// SPDX-License-Identifier: BSD-3-Clause
// Nodes of the field, and the nodes at which stencils may begin: the cells of node order.

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
