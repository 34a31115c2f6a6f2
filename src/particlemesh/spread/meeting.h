// SPDX-License-Identifier: BSD-3-Clause
// The particles that reach a node: those whose first node is the node itself, or up to SUPPORT - 1 nodes before it,
// along each axis. In node order they lie in runs along z. A node is given by x, y, z; a particle reaches it with the
// k-th weight of each axis. On an axis that wraps and is shorter than the support it does so several times.
//
//     for (int kx = 0; kx < SUPPORT_X; kx++)
//         for (int ky = 0; ky < SUPPORT_Y; ky++) {
//             const i64 line = line_meeting(&lattice, x, y, kx, ky);
//             if (line < 0) continue;
//             Run run = {0};
//             while (next_run(&run, &lattice, z)) // places start[line + run.cell] to start[line + run.cell + run.cells]
//                 ... a particle whose first node is in cell c along z has kz = run.k + run.cell + run.cells - 1 - c
//         }

#include "particles/lattice.h"

// The cell along an axis whose stencils have the node as their k-th, or -1.
DEVICE int cell_meeting(PRIVATE const Lattice* lattice, int axis, int node, int k)
{
    int cell = node - k;
    if (lattice->wraps[axis]) {
        while (cell < 0) cell += lattice->size[axis];
        return cell;
    }
    cell -= lattice->low[axis];
    return cell < lattice->extent[axis] ? cell : -1; // negative ones do not exist either
}

// The first cell of the line along z from which nodes (x, y) are reached, or -1.
DEVICE i64 line_meeting(PRIVATE const Lattice* lattice, int x, int y, int kx, int ky)
{
    const int cx = cell_meeting(lattice, 0, x, kx), cy = cell_meeting(lattice, 1, y, ky);
    return cx < 0 || cy < 0 ? -1 : cell_at(lattice, cx, cy, 0);
}

typedef struct {
    int next;  // the next k
    int k;     // of the last cell of the run, the least
    int cell;  // first cell of the run, along z
    int cells; // how many
} Run;

// Find the next run of cells that reach node z; 0 if there is none.
DEVICE int next_run(PRIVATE Run* run, PRIVATE const Lattice* lattice, int z)
{
    int last;
    if (lattice->wraps[2]) {
        if (run->next >= SUPPORT_Z) return 0;
        last = cell_meeting(lattice, 2, z, run->next);
    } else {
        last = z - run->next - lattice->low[2];
        const int beyond = last - (lattice->extent[2] - 1);
        if (beyond > 0) run->next += beyond, last -= beyond;
        if (run->next >= SUPPORT_Z || last < 0) return 0;
    }
    const int left = SUPPORT_Z - run->next;
    run->k = run->next;
    run->cells = last + 1 < left ? last + 1 : left;
    run->cell = last + 1 - run->cells;
    run->next += run->cells;
    return 1;
}
