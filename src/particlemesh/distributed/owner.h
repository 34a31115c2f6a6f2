// SPDX-License-Identifier: BSD-3-Clause
// The part that owns a cell of a mesh, by the planes of its cuts (cuts.py).

#ifndef OWNER_H
#define OWNER_H

// `cell` is within the mesh. A plane has four numbers: axis, node, and the child below and above; parts are -1 - child.
DEVICE int part_of(PRIVATE const int* cell, GLOBAL const int* planes, const int depth)
{
    int at = 0;
    if (depth == 0) return 0;
    for (int level = 0; level < depth && at >= 0; level++)
        at = planes[4 * at + (cell[planes[4 * at]] < planes[4 * at + 1] ? 2 : 3)];
    return -1 - at;
}

#endif
