// SPDX-License-Identifier: BSD-3-Clause
// Nodes numbered along z first: ((x size_y) + y) size_z + z.

#include "particles/lattice.h"

// The place of a node's first real in the field.
DEVICE i64 offset_of(i64 n, PRIVATE const Field* field)
{
    int at[3];
    coordinates_of(n, field->size, at);
    return field->offset + at[0] * field->stride[0] + at[1] * field->stride[1] + at[2] * field->stride[2];
}
