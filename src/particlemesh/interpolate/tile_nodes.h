// SPDX-License-Identifier: BSD-3-Clause
// The nodes that a tile's stencils reach come to local memory. Missing nodes are zeros; nodes that no stencil reaches may
// be anything.
//
// Compile-time facts: COPY, ALIGN, TILE_X, TILE_Y, CHUNKS, ROW_PITCH, as tile.c has them.

#define ROWS (TILE_X * TILE_Y)
#define LEVEL_PITCH (TILE_Y * ROW_PITCH)
#define NODES_OF_COPY (COPY < PARTS ? 1 : COPY / PARTS)
#define COPIES_OF_NODE (COPY < PARTS ? PARTS / COPY : 1)
#define ROWS_AT_ONCE (GROUP_SIZE / CHUNKS > 0 ? GROUP_SIZE / CHUNKS : 1)

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

// Where rows and the copies of a row are in the field. There may be more places for rows than rows.
#define LEFT_OUT OFF_FIELD                  // no stencil reaches it
#define MISSING ((offset_t)(OFF_FIELD + 1)) // no such node
#define SOME 4                              // copies whose offsets are read at a time
#define PLACES_OF_ROWS ((ROWS + SOME * ROWS_AT_ONCE - 1) / (SOME * ROWS_AT_ONCE) * (SOME * ROWS_AT_ONCE))

DEVICE void offsets_of(LOCAL offset_t* offsets, PRIVATE const Box* box, PRIVATE const Field* field)
{
    ROLL for (int n = LOCAL_ID; n < PLACES_OF_ROWS + CHUNKS; n += GROUP_SIZE) {
        offset_t at = LEFT_OUT;
        if (n < PLACES_OF_ROWS) {
            const int x = box->first[0] + n / TILE_Y, y = box->first[1] + n % TILE_Y;
            if (n < ROWS && x < box->past[0] && y < box->past[1]) {
                const int node_x = place(x, field->size[0], field->wraps[0]);
                const int node_y = place(y, field->size[1], field->wraps[1]);
                at = node_x < 0 || node_y < 0 ? MISSING : (offset_t)(node_x * field->stride[0] + node_y * field->stride[1]);
            }
        } else {
            const int chunk = n - PLACES_OF_ROWS, z = box->row + chunk / COPIES_OF_NODE * NODES_OF_COPY;
            const int node_z = place(z, field->size[2], field->wraps[2]);
            if (z < box->past[2])
                at = node_z < 0 ? MISSING : (offset_t)(node_z * field->stride[2]) + chunk % COPIES_OF_NODE * COPY;
        }
        offsets[n] = at;
    }
}

DEVICE void copy_nodes(LOCAL real* nodes, GLOBAL const real* plane, LOCAL const offset_t* offsets)
{
    if (LOCAL_ID >= ROWS_AT_ONCE * CHUNKS) return;
    for (int chunk = LOCAL_ID % CHUNKS; chunk < CHUNKS; chunk += GROUP_SIZE) {
        const offset_t of_z = offsets[PLACES_OF_ROWS + chunk];
        if (of_z == LEFT_OUT) continue;
        GLOBAL const real* from = plane + (of_z == MISSING ? 0 : of_z);
        const offset_t most = of_z == MISSING ? MISSING : (offset_t)(((u64)1 << (8 * sizeof(offset_t) - 1)) - 1);
        ROLL for (int row = LOCAL_ID / CHUNKS; row < ROWS; row += SOME * ROWS_AT_ONCE) {
            LOCAL real* to = nodes + (row * ROW_PITCH + chunk * COPY);
            LOCAL const offset_t* of_rows = offsets + row;
            offset_t at[SOME];
            UNROLL for (int k = 0; k < SOME; k++) at[k] = of_rows[k * ROWS_AT_ONCE];
            UNROLL for (int k = 0; k < SOME; k++) {
                LOCAL real* own = to + k * ROWS_AT_ONCE * ROW_PITCH;
                at[k] = at[k] < most ? at[k] : most;
                if (at[k] > MISSING)
                    COPY_LOCAL(own, from + at[k], COPY, 1);
                else if (at[k] == MISSING)
                    UNROLL for (int n = 0; n < COPY; n++) own[n] = 0;
            }
        }
    }
}
