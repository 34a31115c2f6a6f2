// SPDX-License-Identifier: BSD-3-Clause
// A warp walks along x over a chunk of particles sorted by block (orders/block_order.py). It keeps the nodes that the
// block's stencils reach in registers: the patch, LEVELS x 8 x PATCH_Z nodes.
//
// On every level lane 4 g + t holds the nodes y = g and z = NODE_Z(t, 0), NODE_Z(t, 1) of each tile of eight along z:
// the layout of a matrix instruction's results. The weights of BATCH particles at a time are in local memory, as rows
// of eight at their nodes' places in the patch, zero elsewhere.
//
// Compile-time facts beside those of stencil.h: LEVELS, Z_TILES, BATCH, WARPS (of a group, that walk), SYMMETRIC, MATRIX (use matrix instructions), GRADIENT.

#include "orders/blocks.h"
#include "orders/lines.h"
#include "walk/weights.h"

#define BLOCK_X (LEVELS - SUPPORT_X + 1) // cells of a block
#define BLOCK_Y (8 - SUPPORT_Y + 1)
#define BLOCK_Z_MOST (PATCH_Z - SUPPORT_Z + 1)
#define PATCH_Z (8 * Z_TILES)
#define REALS (CHANNELS * PARTS)
#define INDEX_OF(words) ((i64)(words)[RECORD_WORDS - 1])
#define TERMS (GRADIENT ? 3 : 1) // of a derivative along three coordinates

#ifndef TABLE_ALONG // of an axis
#define Tables Window
#define TABLE_ALONG(window, axis) (window)
#endif

#define STEP 8 // particles that go through matrix instructions together
#if VECTOR > PARTS
#define NODE_Z(t, e) (2 * (t) + (e)) // adjacent nodes, moved by one instruction: Patch.pairs in walk/patch.py
#else
#define NODE_Z(t, e) ((t) + 4 * (e)) // four lanes have adjacent nodes, wherever a patch begins
#endif
#define ELEMENT_Z(t, e) (2 * (t) + (e)) // the place of that node's weight in a row along z
#define WIDE (REAL_IS_DOUBLE ? 2 : 4)           // reals per read of local memory

// Rows of a particle: weights along x and y, with GRADIENT their slopes, and the kernel's rows along z. Stencils of more
// than eight nodes take two rows along x.
#define ROWS_X ((LEVELS + 7) / 8)
#define ROW_X 0
#define ROW_Y (GRADIENT ? 2 * ROWS_X : ROWS_X)
#define ROW_Z (ROW_Y + (GRADIENT ? 2 : 1))
#define ROWS_USED (ROW_Z + ROWS_Z)
// Where row r begins: eight reals each, but those along x have only what is read by vectors.
#ifndef LEVELS_STORED
#define LEVELS_STORED ((LEVELS + WIDE - 1) / WIDE * WIDE)
#endif
#define ROW_AT(r) (8 * (r) - (8 - LEVELS_STORED) * ((r) < ROW_Y ? (r) : ROW_Y))
// The stride between particles' rows: an odd number of vectors, so that lanes that store rows of eight neighbours use all
// banks, and so do lanes that read those of every other particle: a lane takes two neighbours of eight.
#define PITCH ((ROW_AT(ROWS_USED) / WIDE | 1) * WIDE)
// Before a batch are the particles left over from the previous batch, too few for an instruction. After it are rows of
// zeros, which the last instruction of a walk may read.
#define LEFT (REAL_IS_DOUBLE ? 4 : 8)
#define STAGED (LEFT + BATCH + LEFT)

// Element e of row r of the particle at `place` in the batch.
#define STAGED_AT(place, r, e) ((place)*PITCH + ROW_AT(r) + (e))

DEVICE void clear_staged(LOCAL real* staged)
{
    for (int k = LANE; k < STAGED * PITCH; k += WARP_SIZE) staged[k] = 0;
}

// Shift a row up by `offset` places, at most by `most`, and fill with zeros; by powers of two, without addresses.
DEVICE void move_up(PRIVATE real* row, const int size, const int offset, const int most)
{
    UNROLL for (int step = 1; step < 32; step *= 2)
        if (step <= most) {
            UNROLL for (int e = size - 1; e >= 0; e--) {
                const real lower = e >= step ? row[e - step] : (real)0;
                row[e] = (offset & step) ? lower : row[e];
            }
        }
}

// The weights (or slopes) along one axis at their places in the patch.
DEVICE void row_of(PRIVATE real* row, const int size, PRIVATE const Tables* window, const int axis, const int slope,
                   const real z, const int offset, const int most)
{
    real w[SUPPORT];
    if (slope)
        slopes_of(w, TABLE_ALONG(window, axis), z);
    else
        weights_of(w, TABLE_ALONG(window, axis), z);
    UNROLL for (int e = 0; e < size; e++) {
        row[e] = e < SUPPORT ? w[e < SUPPORT ? e : 0] : (real)0;
        if (axis < 3 - SUPPORT_AXES) row[e] = e == 0 ? (real)!slope : (real)0;
    }
    move_up(row, size, offset, most);
}

// The first `size` elements of a row; those beyond are never read.
DEVICE void stage(LOCAL real* to, PRIVATE const real* row, const int size)
{
#if REAL_IS_DOUBLE
    UNROLL for (int e = 0; e < size; e += 2) STORE_LOCAL_2(to + e, row[e], row[e + 1]);
#else
    UNROLL for (int e = 0; e < size; e += 4) STORE_LOCAL_4(to + e, row[e], row[e + 1], row[e + 2], row[e + 3]);
#endif
}

// Rows along z, whose elements have another order. In one tile, weights are moved to their places in registers. In two,
// that would take most of a batch's instructions: there they are stored one by one.
#define Z_REALS (Z_TILES == 1 ? 8 : SUPPORT_Z)

DEVICE void row_along_z(PRIVATE real* row, PRIVATE const Tables* window, const int slope, const real z, const int offset)
{
    row_of(row, Z_REALS, window, 2, slope, z, Z_TILES == 1 ? offset : 0, Z_TILES == 1 ? BLOCK_Z_MOST - 1 : 0);
}

DEVICE void stage_along_z(LOCAL real* to, PRIVATE const real* row, const int offset)
{
    real own[8];
#if Z_TILES == 1
    UNROLL for (int k = 0; k < 8; k++) own[ELEMENT_Z(k % 4, k / 4)] = row[NODE_Z(k % 4, k / 4)];
    stage(to, own, 8);
#else
    UNROLL for (int k = 0; k < 8; k++) own[k] = 0;
    UNROLL for (int tile = 0; tile < Z_TILES; tile++) stage(to + 8 * tile, own, 8);
    UNROLL for (int k = 0; k < SUPPORT_Z; k++) {
        const int z = offset + k;
        to[VECTOR > PARTS ? z : (z & ~7) | (z & 3) << 1 | (z >> 2 & 1)] = row[k]; // as NODE_Z and ELEMENT_Z say
    }
#endif
}

// Row r along x of the particle whose rows begin at `from`.
DEVICE void levels_from(PRIVATE real* x, LOCAL const real* from, const int r)
{
    UNROLL for (int v = 0; v < 8 && v < LEVELS; v += WIDE) {
#if REAL_IS_DOUBLE
        LOAD_LOCAL_2(from + ROW_AT(r) + v, x + v);
#else
        LOAD_LOCAL_4(from + ROW_AT(r) + v, x + v);
#endif
    }
}

// Move the `count` particles before `end`, the batch's end, to before the next batch.
DEVICE void leave_over(LOCAL real* staged, const int count)
{
    LOCAL real* to = staged + (LEFT - count) * PITCH;
    UNROLL for (int first = 0; first < (LEFT - 1) * PITCH; first += 4 * WARP_SIZE) {
        const int k = first + 4 * LANE;
        real four[4];
        if (k >= count * PITCH) continue;
        LOAD_LOCAL_4(to + BATCH * PITCH + k, four);
        STORE_LOCAL_4(to + k, four[0], four[1], four[2], four[3]);
    }
}

// The rows across, of the particle whose rows begin at `to`.
DEVICE void stage_x_y(LOCAL real* to, PRIVATE const Placed* p, PRIVATE const Tables* window)
{
    UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++) {
        real row[8];
        row_of(row, 8, window, 0, slope, p->fraction[0], p->offset[0], BLOCK_X - 1);
        stage(to + ROW_AT(ROW_X + slope), row, LEVELS);
        row_of(row, 8, window, 1, slope, p->fraction[1], p->offset[1], BLOCK_Y - 1);
        stage(to + ROW_AT(ROW_Y + slope), row, 8);
    }
}

// ---- records of the next batch --------------------------------------------------------------------------------------
// They go to local memory while a batch is processed. Registers that wait for them would be spilled, or moved, by an
// instruction that waits for the read.

#define RECORD_REALS (RECORD_WORDS * 4 / (int)sizeof(real))

// The record of a place, to `to` of the lane, if it is `there`.
DEVICE void copy_record(LOCAL real* to, GLOBAL const u32* records, const i64 place, const int there)
{
    GLOBAL const real* from = (GLOBAL const real*)(records + RECORD_WORDS * place);
    UNROLL for (int k = 0; k < RECORD_REALS; k += WIDE) COPY_LOCAL(to + k, from + k, WIDE, there);
}

// What was copied, after COPY_WAIT.
DEVICE void copied_record(PRIVATE u32* words, LOCAL const real* from)
{
    real record[RECORD_REALS];
    UNROLL for (int k = 0; k < RECORD_REALS; k += WIDE) {
#if REAL_IS_DOUBLE
        LOAD_LOCAL_2(from + k, record + k);
#else
        LOAD_LOCAL_4(from + k, record + k);
#endif
    }
    UNROLL for (int k = 0; k < RECORD_REALS; k++) {
#if REAL_IS_DOUBLE
        const u64 bits = (u64)INDEX_OF_REAL(record[k]);
        words[2 * k] = (u32)bits, words[2 * k + 1] = (u32)(bits >> 32);
#else
        words[k] = BITS_OF_FLOAT(record[k]);
#endif
    }
}

// ---- the patch's place in the field --------------------------------------------------------------------------------

#if FIELD_IS_WIDE
typedef i64 offset_t;
#define OFF_FIELD NOWHERE
#else
typedef int offset_t; // offsets within the field are below 2^31 reals
#define OFF_FIELD SKIP
#endif

// Of the lane's nodes; of a vector with two nodes, the first.
typedef struct {
    offset_t at[Z_TILES][2];
} Columns;

DEVICE void columns_of(PRIVATE Columns* columns, PRIVATE const Field* field, PRIVATE const Blocks* blocks, const int line)
{
    const int by = line / blocks->counts[2], bz = line - by * blocks->counts[2];
    const int y = place(begin_of(blocks, 1, by) + LANE / 4, field->size[1], field->wraps[1]);
    const int from = begin_of(blocks, 2, bz);
    UNROLL for (int tile = 0; tile < Z_TILES; tile++)
        UNROLL for (int e = 0; e < 2; e++) {
            const int z = place(from + 8 * tile + NODE_Z(LANE % 4, e), field->size[2], field->wraps[2]);
            columns->at[tile][e] = y < 0 || z < 0 ? OFF_FIELD
                                                  : (offset_t)(y * field->stride[1] + z * field->stride[2]);
        }
}

// The walk's place along x: the node of the patch's first level, and its contribution to an offset.
typedef struct {
    int node, turn; // where the axis wraps, node `turn` is node 0
    offset_t at;
} Abscissa;

DEVICE void start_at(PRIVATE Abscissa* x, PRIVATE const Field* layout, PRIVATE const Blocks* blocks, const int bx)
{
    const int node = blocks->base[0] + bx * BLOCK_X;
    x->node = layout->wraps[0] ? wrapped(node, layout->size[0]) : node;
    x->turn = layout->wraps[0] ? layout->size[0] : SKIP;
    x->at = (offset_t)(x->node * layout->stride[0]);
}

DEVICE int inside(PRIVATE const Abscissa* x, PRIVATE const Field* layout)
{
    return (u32)x->node < (u32)layout->size[0];
}

DEVICE void next_node(PRIVATE Abscissa* x, PRIVATE const Field* layout)
{
    x->node += 1;
    x->at += (offset_t)layout->stride[0];
    if (x->node == x->turn) x->node = 0, x->at = 0;
}
