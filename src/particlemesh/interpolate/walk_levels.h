// SPDX-License-Identifier: BSD-3-Clause
// The patch of the field in a warp's registers, for interpolation by a walk: read level by level (walk/walk.h).

// The lane's nodes of a level: two per tile. Levels form a ring, node x of the field at x modulo LEVELS (counted from
// the first block). So the registers that matrix instructions read stay in place during the walk.
#define NODE(level, real_, tile, e) ((((level)*REALS + (real_)) * Z_TILES + (tile)) * 2 + (e))
#define LEVEL_NODES (REALS * Z_TILES * 2)
#define NODES (LEVELS * LEVEL_NODES)
#define MOVES ((LEVELS + BLOCK_X - 1) / BLOCK_X) // of the walk until a patch is replaced

// Rotate a ring of LEVELS numbers, by powers of two: registers have no addresses.
DEVICE void turn(PRIVATE real* ring, const int by)
{
    UNROLL for (int step = 1; step < LEVELS; step *= 2) {
        real before[LEVELS];
        UNROLL for (int l = 0; l < LEVELS; l++) before[l] = ring[l];
        UNROLL for (int l = 0; l < LEVELS; l++) ring[l] = (by & step) ? before[(l + LEVELS - step) % LEVELS] : before[l];
    }
}

// The lane's nodes of the level at x.
DEVICE void read_level(PRIVATE real* to, GLOBAL const real* field, PRIVATE const Abscissa* x, PRIVATE const Field* layout,
                       PRIVATE const Columns* columns)
{
    const int there = inside(x, layout);
    GLOBAL const real* level = field + x->at;
    UNROLL for (int c = 0; c < CHANNELS; c++)
        UNROLL for (int tile = 0; tile < Z_TILES; tile++)
            UNROLL for (int first = 0; first < 2 * PARTS; first += VECTOR) {
                const offset_t at = columns->at[tile][VECTOR > PARTS ? 0 : first / PARTS];
                real own[VECTOR]; // in memory order
                UNROLL for (int v = 0; v < VECTOR; v++) own[v] = 0;
                if (there && at != OFF_FIELD)
                    load_vector(level + at + c * layout->channel + (VECTOR > PARTS ? 0 : first % PARTS), own);
                UNROLL for (int v = 0; v < VECTOR; v++)
                    to[NODE(0, c * PARTS + (first + v) % PARTS, tile, (first + v) / PARTS)] = own[v];
            }
}

// The block of levels at x, to `to` of the lane in local memory: a walk needs it next, and goes on meanwhile.
#define PIECES (LEVEL_NODES / VECTOR) // of a level, each by one instruction
#define PIECE(c, tile, first) ((((c)*Z_TILES + (tile)) * 2 * PARTS + (first)) / VECTOR)
DEVICE void copy_block(LOCAL real* to, GLOBAL const real* field, PRIVATE const Abscissa* x, PRIVATE const Field* layout,
                       PRIVATE const Columns* columns)
{
    Abscissa here = *x;
    UNROLL for (int l = 0; l < BLOCK_X; l++) {
        const int there = inside(&here, layout);
        GLOBAL const real* level = field + here.at;
        UNROLL for (int c = 0; c < CHANNELS; c++)
            UNROLL for (int tile = 0; tile < Z_TILES; tile++)
                UNROLL for (int first = 0; first < 2 * PARTS; first += VECTOR) {
                    const offset_t at = columns->at[tile][VECTOR > PARTS ? 0 : first / PARTS];
                    COPY_LOCAL(to + (l * PIECES + PIECE(c, tile, first)) * WARP_SIZE * VECTOR,
                               level + at + c * layout->channel + (VECTOR > PARTS ? 0 : first % PARTS), VECTOR,
                               there && at != OFF_FIELD);
                }
        next_node(&here, layout);
    }
}

// The lane's nodes of a level that was copied.
DEVICE void take_level(PRIVATE real* to, LOCAL const real* copied)
{
    UNROLL for (int c = 0; c < CHANNELS; c++)
        UNROLL for (int tile = 0; tile < Z_TILES; tile++)
            UNROLL for (int first = 0; first < 2 * PARTS; first += VECTOR) {
                LOCAL const real* from = copied + PIECE(c, tile, first) * WARP_SIZE * VECTOR;
                real piece[VECTOR]; // in memory order
#if VECTOR == 4
                LOAD_LOCAL_4(from, piece);
#elif VECTOR == 2
                LOAD_LOCAL_2(from, piece);
#else
                piece[0] = *from;
#endif
                UNROLL for (int v = 0; v < VECTOR; v++)
                    to[NODE(0, c * PARTS + (first + v) % PARTS, tile, (first + v) / PARTS)] = piece[v];
            }
}

// Take the block that was copied into the ring, from `slot` on, and copy the next one.
DEVICE void next_block(PRIVATE real* nodes, int slot, LOCAL real* copied, GLOBAL const real* field, PRIVATE Abscissa* x,
                       PRIVATE const Field* layout, PRIVATE const Columns* columns)
{
    COPY_WAIT();
    UNROLL for (int l = 0; l < BLOCK_X; l++) {
        UNROLL for (int m = 0; m < LEVELS; m++) // by branches: selects would be as many as there are nodes
            if (m == slot) take_level(nodes + m * LEVEL_NODES, copied + l * PIECES * WARP_SIZE * VECTOR);
        slot = slot + 1 == LEVELS ? 0 : slot + 1;
        next_node(x, layout);
    }
    copy_block(copied, field, x, layout, columns);
}

// Read the whole patch at x into the ring, from `slot` on, and copy the block after it.
DEVICE void read_patch(PRIVATE real* nodes, const int slot, LOCAL real* copied, GLOBAL const real* field,
                       PRIVATE Abscissa* x, PRIVATE const Field* layout, PRIVATE const Columns* columns)
{
    UNROLL for (int l = 0; l < LEVELS; l++) {
        read_level(nodes + l * LEVEL_NODES, field, x, layout, columns);
        next_node(x, layout);
    }
    COPY_WAIT(); // for what another line has left
    copy_block(copied, field, x, layout, columns);
    UNROLL for (int k = 0; k < LEVEL_NODES; k++) {
        real along[LEVELS];
        UNROLL for (int l = 0; l < LEVELS; l++) along[l] = nodes[l * LEVEL_NODES + k];
        turn(along, slot);
        UNROLL for (int l = 0; l < LEVELS; l++) nodes[l * LEVEL_NODES + k] = along[l];
    }
}

// The place of the patch's first level in the ring.
DEVICE int slot_of(const int bx)
{
    return bx * BLOCK_X % LEVELS;
}

// The rows across, of the particle whose rows begin at `to`; along x in the ring's order.
DEVICE void stage_across(LOCAL real* to, PRIVATE const Placed* p, PRIVATE const Window* window)
{
    UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++) {
        real row[8];
        row_of(row, 8, window, 0, slope, p->fraction[0], 0, 0);
        turn(row, (p->bx * BLOCK_X + p->offset[0]) % LEVELS);
        stage(to + ROW_AT(ROW_X + slope), row, LEVELS);
        row_of(row, 8, window, 1, slope, p->fraction[1], p->offset[1], BLOCK_Y - 1);
        stage(to + ROW_AT(ROW_Y + slope), row, 8);
    }
}
