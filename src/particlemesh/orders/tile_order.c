// SPDX-License-Identifier: BSD-3-Clause
// The tile of each particle: boxes of 2^bits first nodes per axis. A particle without weight goes after all tiles.

KERNEL tile_keys(GLOBAL const int* RESTRICT node, GLOBAL int* RESTRICT keys, const i64 count, const i64 rows,
                 const i64 low_x, const i64 low_y, const i64 low_z, const i64 tiles_x, const i64 tiles_y,
                 const i64 tiles_z, const i64 bits)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        const i64 x = (node[i] - low_x) >> bits, y = (node[rows + i] - low_y) >> bits;
        const i64 z = (node[2 * rows + i] - low_z) >> bits;
        keys[i] = (int)(node[2 * rows + i] == SKIP ? tiles_x * tiles_y * tiles_z : (x * tiles_y + y) * tiles_z + z);
    }
}
