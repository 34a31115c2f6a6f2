// SPDX-License-Identifier: BSD-3-Clause
// Nodes by one number, counted along z first: ((x size_y) + y) size_z + z.

// Coordinates of a node. Nearly all meshes have fewer than 2^32 nodes, and 32 bits divide several times faster.
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

// Where a node's first real lies in the field.
DEVICE i64 offset_of(i64 n, PRIVATE const Field* field)
{
    int at[3];
    coordinates_of(n, field->size, at);
    return field->offset + at[0] * field->stride[0] + at[1] * field->stride[1] + at[2] * field->stride[2];
}
