// SPDX-License-Identifier: BSD-3-Clause
// A warp walks along x over a chunk of particles that are sorted by block (binning/block_order.py), and keeps the
// nodes that the block's stencils reach in registers: the window, LEVELS x 8 x WINDOW_Z nodes.
//
// Lane 4 g + t holds of every level the nodes y = g and z = NODE_Z(t, 0), NODE_Z(t, 1) of each tile of eight along z:
// where a matrix instruction leaves its results. BATCH particles at a time have their weights laid out in local memory,
// as rows of eight at the places that their nodes have in the window, zero elsewhere.
//
// Compile-time facts beside those of stencil.h: LEVELS, Z_TILES, BATCH, SYMMETRIC (the window's table), MATRIX (use
// matrix instructions), GRADIENT.

#include "binning/blocks.h"

#define BLOCK_X (LEVELS - SUPPORT_X + 1) // cells of a block
#define BLOCK_Y (8 - SUPPORT_Y + 1)
#define BLOCK_Z_MOST (WINDOW_Z - SUPPORT_Z + 1)
#define WINDOW_Z (8 * Z_TILES)
#define REALS (CHANNELS * PARTS)
#define INDEX_OF(words) ((i64)(words)[RECORD_WORDS - 1])
#define TERMS (GRADIENT ? 3 : 1) // of a derivative by three coordinates

#if REAL_IS_DOUBLE
#define STEP 4 // particles of a matrix instruction
#define NODE_Z(t, e) ((t) + 4 * (e)) // four lanes fill a memory sector
#define SWIZZLE(row) (((row)&2) << 1 | ((row)&4) >> 1)
#else
#define STEP 8
#define NODE_Z(t, e) (2 * (t) + (e)) // a lane has neighbours: it adds them by one instruction
#define SWIZZLE(row) ((row)&4)
#endif

// Rows of a particle: weights along x and y, with GRADIENT their slopes, and what the kernel has along z.
#define ROW_X 0
#define ROW_Y (GRADIENT ? 2 : 1)
#define ROW_Z (GRADIENT ? 4 : 2)
#define ROWS_USED (ROW_Z + ROWS_Z)
#define ROWS_ODD (ROWS_USED | 1) // so that neighbouring particles lie in other banks
#define PITCH (8 * ROWS_ODD)
#define STAGED (BATCH + STEP) // the last step may reach past the batch, into rows of zeros
#define WARPS (GROUP_SIZE / WARP_SIZE)

// Element e of row r of the particle at `place` in the batch. Swizzled, so that lanes do not meet in a bank when each
// writes its own particle's row nor when they read one column of neighbouring particles.
#define STAGED_AT(place, r, e) ((place)*PITCH + 8 * (r) + ((e) ^ SWIZZLE(place)))

DEVICE void clear_staged(LOCAL real* staged)
{
    for (int k = LANE; k < STAGED * PITCH; k += WARP_SIZE) staged[k] = 0;
}

// All weights of a support at once. Of a symmetric window two at a time: they differ by the sign of odd powers.
DEVICE void weights_of(PRIVATE real* w, PRIVATE const Window* window, const real z)
{
#if SYMMETRIC
    const real zz = z * z;
    UNROLL for (int j = 0; j < (SUPPORT + 1) / 2; j++) {
        PRIVATE const real* c = window->table + j * (DEGREE + 1);
        real even = c[DEGREE & ~1], odd = DEGREE > 0 ? c[(DEGREE - 1) | 1] : (real)0;
        UNROLL for (int k = (DEGREE & ~1) - 2; k >= 0; k -= 2) even = even * zz + c[k];
        UNROLL for (int k = ((DEGREE - 1) | 1) - 2; k >= 1; k -= 2) odd = odd * zz + c[k];
        w[j] = 2 * j + 1 == SUPPORT ? even : even + z * odd;
        if (2 * j + 1 != SUPPORT) w[SUPPORT - 1 - j] = even - z * odd;
    }
#else
    UNROLL for (int j = 0; j < SUPPORT; j++) w[j] = weight_of(window, j, z);
#endif
}

DEVICE void slopes_of(PRIVATE real* w, PRIVATE const Window* window, const real z)
{
    UNROLL for (int j = 0; j < SUPPORT; j++) w[j] = slope_of(window, j, z);
}

// Move a row up by `offset` places, at most by `most`; zeros come in. Registers have no addresses: by powers of two.
DEVICE void move_up(PRIVATE real* row, const int size, const int offset, const int most)
{
    UNROLL for (int step = 1; step < 16; step *= 2)
        if (step <= most) {
            UNROLL for (int e = size - 1; e >= 0; e--) {
                const real lower = e >= step ? row[e - step] : (real)0;
                row[e] = (offset & step) ? lower : row[e];
            }
        }
}

// The weights (or slopes) along one axis at their places in the window.
DEVICE void row_of(PRIVATE real* row, const int size, PRIVATE const Window* window, const int axis, const int slope,
                   const real z, const int offset, const int most)
{
    real w[SUPPORT];
    if (slope)
        slopes_of(w, window, z);
    else
        weights_of(w, window, z);
    UNROLL for (int e = 0; e < size; e++) {
        row[e] = e < SUPPORT ? w[e < SUPPORT ? e : 0] : (real)0;
        if (axis < 3 - SUPPORT_AXES) row[e] = e == 0 ? (real)!slope : (real)0;
    }
    move_up(row, size, offset, most);
}

DEVICE void stage_row(LOCAL real* staged, const int place, const int r, PRIVATE const real* row)
{
    LOCAL real* at = staged + place * PITCH + 8 * r;
#if REAL_IS_DOUBLE
    UNROLL for (int e = 0; e < 8; e += 2) STORE_LOCAL_2(at + (e ^ SWIZZLE(place)), row[e], row[e + 1]);
#else
    UNROLL for (int e = 0; e < 8; e += 4) STORE_LOCAL_4(at + (e ^ SWIZZLE(place)), row[e], row[e + 1], row[e + 2], row[e + 3]);
#endif
}

// The weights of LEVELS levels of the particle at `place`.
DEVICE void staged_levels(PRIVATE real* x, LOCAL const real* staged, const int place, const int r)
{
    LOCAL const real* at = staged + place * PITCH + 8 * r;
#if REAL_IS_DOUBLE
    UNROLL for (int l = 0; l < LEVELS; l += 2) LOAD_LOCAL_2(at + (l ^ SWIZZLE(place)), x + l);
#else
    UNROLL for (int l = 0; l < LEVELS; l += 4) LOAD_LOCAL_4(at + (l ^ SWIZZLE(place)), x + l);
#endif
}

DEVICE void stage_x_y(LOCAL real* staged, const int place, PRIVATE const Placed* p, PRIVATE const Window* window)
{
    UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++) {
        real row[8];
        row_of(row, 8, window, 0, slope, p->fraction[0], p->offset[0], BLOCK_X - 1);
        stage_row(staged, place, ROW_X + slope, row);
        row_of(row, 8, window, 1, slope, p->fraction[1], p->offset[1], BLOCK_Y - 1);
        stage_row(staged, place, ROW_Y + slope, row);
    }
}

// ---- where the particles of a chunk are -------------------------------------------------------------------------------
// A line is the blocks of one (by, bz) along x; its particles are start[line * nx] up to start[(line + 1) * nx].

// The line of place i, which all lanes ask for.
DEVICE int line_of(WARP_PARAMETER warp, GLOBAL const u32* start, const i64 i, const int lines, const int nx)
{
    int low = 0, high = lines;
    while (high - low > 1) {
        const int step = (high - low + WARP_SIZE - 1) / WARP_SIZE, probe = low + LANE * step;
        const u32 before = WARP_BALLOT(warp, probe < high && start[(i64)probe * nx] <= i);
        low += (POPCOUNT_U32(before) - 1) * step;
        high = low + step < high ? low + step : high;
    }
    return low;
}

// The line of each lane's place, none before `line`; equal to it where `end` says so.
DEVICE int lines_of(WARP_PARAMETER warp, GLOBAL const u32* start, const i64 i, int line, const int lines, const int nx)
{
    int mine = line, open = 1;
    while (WARP_BALLOT(warp, open)) {
        const int ask = line + 1 + LANE < lines ? line + 1 + LANE : lines;
        const u32 end = start[(i64)ask * nx];
        int over = 0; // how many of 32 lines end before i
        UNROLL for (int step = 16; step > 0; step /= 2)
            if (WARP_SHUFFLE_U32(warp, end, over + step - 1) <= i) over += step;
        if (WARP_SHUFFLE_U32(warp, end, 31) <= i) over = 32;
        if (open) mine = line + over;
        open = open && over == 32;
        line += 32;
    }
    return mine;
}

// ---- the window's place in the field -------------------------------------------------------------------------------

#if FIELD_IS_WIDE
typedef i64 offset_t;
#define OFF_FIELD NOWHERE
#else
typedef int offset_t; // all of the field lies within 2^31 reals
#define OFF_FIELD SKIP
#endif

// Of the lane's nodes; where a vector holds two nodes, the first counts.
typedef struct {
    offset_t at[Z_TILES][2];
} Columns;

DEVICE void columns_of(PRIVATE Columns* columns, PRIVATE const Field* field, PRIVATE const Blocks* blocks, const int line)
{
    const int by = line / blocks->counts[2], bz = line - by * blocks->counts[2];
    const int y = place(blocks->base[1] + by * blocks->cells[1] + LANE / 4, field->size[1], field->wraps[1]);
    const int from = blocks->base[2] + bz * blocks->cells[2];
    UNROLL for (int tile = 0; tile < Z_TILES; tile++)
        UNROLL for (int e = 0; e < 2; e++) {
            const int z = place(from + 8 * tile + NODE_Z(LANE % 4, e), field->size[2], field->wraps[2]);
            columns->at[tile][e] = y < 0 || z < 0 ? OFF_FIELD
                                                  : (offset_t)(y * field->stride[1] + z * field->stride[2]);
        }
}
