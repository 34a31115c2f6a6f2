// SPDX-License-Identifier: BSD-3-Clause
// Boxes of an array of nodes, and where these nodes lie in messages: all boxes in one launch.

#if INTEGERS
#define NUMBER i64
#else
#define NUMBER real
#endif

#define PACK 0
#define UNPACK 1
#define CELL 7 // begin, first node on three axes, nodes on the last two, first term
#define TERM 5 // nodes of the message before the piece, nodes of the piece, begin in it, its strides on two axes

// For all fields and all nodes of all cells: PACK writes the node to its terms, UNPACK reads it from its term, and
// otherwise its terms are added to it in their order. WORDS numbers are a node.
KERNEL pack_boxes(GLOBAL NUMBER* RESTRICT array, GLOBAL NUMBER* RESTRICT buffer, GLOBAL const i64* RESTRICT cells,
                  GLOBAL const i64* RESTRICT terms, const i64 cell_count, const i64 nodes, const i64 fields,
                  const i64 mode, const i64 per_field, const i64 stride_x, const i64 stride_y, const i64 stride_z)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < fields * nodes; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 field = k / nodes, node = k - field * nodes;
        i64 low = 0, high = cell_count;
        while (high - low > 1) {
            const i64 middle = (low + high) / 2;
            if (cells[CELL * middle] <= node) low = middle;
            else high = middle;
        }
        GLOBAL const i64* cell = cells + CELL * low;
        const i64 rest = node - cell[0];
        i64 x, y, z;
        if (rest < 2147483648) { // division of 64 bits takes four times as many instructions
            const u32 r = (u32)rest, ny = (u32)cell[4], nz = (u32)cell[5], row = r / nz;
            z = r - row * nz;
            x = row / ny;
            y = row - x * ny;
        } else {
            const i64 row = rest / cell[5];
            z = rest - row * cell[5];
            x = row / cell[4];
            y = row - x * cell[4];
        }
        GLOBAL NUMBER* at = array + WORDS * (field * per_field + (cell[1] + x) * stride_x + (cell[2] + y) * stride_y
                                             + (cell[3] + z) * stride_z);
        NUMBER number[WORDS];
        if (mode != UNPACK)
            for (int w = 0; w < WORDS; w++) number[w] = at[w];
        for (i64 t = cell[6]; t < cell[CELL + 6]; t++) {
            GLOBAL const i64* term = terms + TERM * t;
            GLOBAL NUMBER* there = buffer + WORDS * (fields * term[0] + field * term[1] + term[2] + x * term[3]
                                                     + y * term[4] + z);
            for (int w = 0; w < WORDS; w++) {
                if (mode == PACK) there[w] = number[w];
                else if (mode == UNPACK) number[w] = there[w];
                else number[w] += there[w];
            }
        }
        if (mode != PACK)
            for (int w = 0; w < WORDS; w++) at[w] = number[w];
    }
}
