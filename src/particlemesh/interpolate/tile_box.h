// SPDX-License-Identifier: BSD-3-Clause
// The nodes that the stencils of a tile reach, and how they lie in local memory: level by level along x, row by row along
// y. Missing nodes are zeros; nodes that no stencil reaches may be anything.
//
// Compile-time facts: COPY, ALIGN, TILE_Y, ROW_PITCH, LEVEL_PITCH, as tile.c has them.

#define NODES_OF_COPY (COPY < PARTS ? 1 : COPY / PARTS)
#define COPIES_OF_NODE (COPY < PARTS ? PARTS / COPY : 1)

// The tile's first node along each axis, the node behind the last, and where its rows begin, aligned.
typedef struct {
    int first[3], past[3], row;
} Box;

DEVICE void box_of(PRIVATE Box* box, PRIVATE const int* first, PRIVATE const Blocks* blocks, PRIVATE const Tiles* tiles)
{
    const int support[3] = {SUPPORT_X, SUPPORT_Y, SUPPORT_Z};
    UNROLL for (int a = 0; a < 3; a++) {
        const int past = first[a] + tiles->blocks[a], count = blocks->counts[a];
        box->first[a] = begin_of(blocks, a, first[a]);
        box->past[a] = begin_of(blocks, a, past < count ? past : count) + support[a] - 1;
    }
    box->row = box->first[2] & ~(ALIGN - 1);
}

// Marks of what is copied, instead of offsets in the field.
#define LEFT_OUT OFF_FIELD                  // no stencil reaches it
#define MISSING ((offset_t)(OFF_FIELD + 1)) // no such node
