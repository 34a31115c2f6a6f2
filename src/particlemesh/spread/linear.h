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

// Add what is summed up for node n, of CHANNELS and PARTS.
DEVICE void add_to_field(GLOBAL real* field, PRIVATE const Field* layout, i64 n, PRIVATE const real* sum)
{
    GLOBAL real* target = field + offset_of(n, layout);
    UNROLL for (int c = 0; c < CHANNELS; c++)
        UNROLL for (int p = 0; p < PARTS; p++) target[c * layout->channel + p] += sum[c * PARTS + p];
}
