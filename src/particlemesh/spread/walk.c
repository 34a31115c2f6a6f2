// SPDX-License-Identifier: BSD-3-Clause
// Spreading by warps that walk along x with a window of the mesh in registers (binning/walk.h).
//
// What particles add to the window is a product of matrices: of the weights across (levels and y, by particle) and the
// values times the weights along z (particle by z). Levels that the walk has passed leave by adds to memory.

#define ROWS_Z (REALS * TERMS * Z_TILES)
#include "binning/walk.h"
#include "spread/values.h"

// Row along z of a real, a term of the derivative, and a tile.
#define ROW_OF(real_, term, tile) (ROW_Z + ((real_)*TERMS + (term)) * Z_TILES + (tile))
// The lane's nodes of a level: two a tile.
#define SUM(level, real_, tile, e) ((((level)*REALS + (real_)) * Z_TILES + (tile)) * 2 + (e))
#define LEVEL_SUMS (REALS * Z_TILES * 2)
#define MOVES ((LEVELS + BLOCK_X - 1) / BLOCK_X) // of the walk until nothing is left of a window

// The rows along z: what the particle brings times its weights.
DEVICE void stage_z(LOCAL real* staged, const int place, PRIVATE const Placed* p, PRIVATE const real* q,
                    PRIVATE const Window* window)
{
    UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++) {
        real row[WINDOW_Z];
        row_of(row, WINDOW_Z, window, 2, slope, p->fraction[2], p->offset[2], BLOCK_Z_MOST - 1);
        UNROLL for (int r = 0; r < REALS; r++)
            UNROLL for (int term = 0; term < TERMS; term++) {
                if (GRADIENT && slope != (term == 2)) continue; // the third term has the slope along z
                UNROLL for (int tile = 0; tile < Z_TILES; tile++) {
                    real own[8];
                    UNROLL for (int e = 0; e < 8; e++) own[e] = q[r * TERMS + term] * row[8 * tile + e];
                    stage_row(staged, place, ROW_OF(r, term, tile), own);
                }
            }
    }
}

// Rows of the two factors across of a term: slope along x, slope along y, none.
#define TERM_X(term) (ROW_X + (GRADIENT && (term) == 0))
#define TERM_Y(term) (ROW_Y + (GRADIENT && (term) == 1))

#if MATRIX && !REAL_IS_DOUBLE
// Eight particles from `first` on; those from `end` on count nothing. Numbers are split in two, of which one instruction
// takes the first 11 digits each; products of the second ones are below rounding. An instruction adds with
// truncation: sums over more than a step would drift towards zero, so they are kept outside.
DEVICE void add_step(WARP_PARAMETER warp, PRIVATE real* sums, LOCAL const real* staged, const int first, const int end)
{
    const int g = LANE / 4, t = LANE % 4, one = first + t, two = one + 4;
    UNROLL for (int term = 0; term < TERMS; term++) {
        real x_one[8], x_two[8], y_one = 0, y_two = 0;
        staged_levels(x_one, staged, one, TERM_X(term));
        staged_levels(x_two, staged, two, TERM_X(term));
        if (one < end) y_one = staged[STAGED_AT(one, TERM_Y(term), g)];
        if (two < end) y_two = staged[STAGED_AT(two, TERM_Y(term), g)];
        real high[REALS * Z_TILES][2], low[REALS * Z_TILES][2];
        UNROLL for (int r = 0; r < REALS; r++)
            UNROLL for (int tile = 0; tile < Z_TILES; tile++) {
                const int k = r * Z_TILES + tile;
                real b[2] = {0, 0};
                if (one < end) b[0] = staged[STAGED_AT(one, ROW_OF(r, term, tile), g)];
                if (two < end) b[1] = staged[STAGED_AT(two, ROW_OF(r, term, tile), g)];
                UNROLL for (int n = 0; n < 2; n++) high[k][n] = SPLIT_TF32(b[n]), low[k][n] = b[n] - high[k][n];
            }
        UNROLL for (int l = 0; l < LEVELS; l += 2) {
            real a[4], rest[4];
            a[0] = x_one[l] * y_one, a[1] = x_one[l + 1] * y_one;
            a[2] = x_two[l] * y_two, a[3] = x_two[l + 1] * y_two;
            UNROLL for (int n = 0; n < 4; n++) {
                const real upper = SPLIT_TF32(a[n]);
                rest[n] = a[n] - upper, a[n] = upper;
            }
            UNROLL for (int k = 0; k < REALS * Z_TILES; k++) {
                PRIVATE real* lower = sums + SUM(l, 0, 0, 0) + 2 * k;
                PRIVATE real* upper = sums + SUM(l + 1, 0, 0, 0) + 2 * k;
#if FRAGMENTS
                real c[4] = {0, 0, 0, 0};
#else
                real c[4] = {lower[0], lower[1], upper[0], upper[1]};
#endif
                MMA_16_8_8(warp, c, rest, high[k]);
                MMA_16_8_8(warp, c, a, low[k]);
                MMA_16_8_8(warp, c, a, high[k]);
#if FRAGMENTS
                lower[0] += c[0], lower[1] += c[1], upper[0] += c[2], upper[1] += c[3];
#else
                lower[0] = c[0], lower[1] = c[1], upper[0] = c[2], upper[1] = c[3];
#endif
            }
        }
    }
}
#define PARTICLES_A_STEP 8
#elif MATRIX
// Four particles; nothing is lost.
DEVICE void add_step(WARP_PARAMETER warp, PRIVATE real* sums, LOCAL const real* staged, const int first, const int end)
{
    const int g = LANE / 4, t = LANE % 4, one = first + t;
    UNROLL for (int term = 0; term < TERMS; term++) {
        real x[8], y = 0, b[REALS * Z_TILES];
        staged_levels(x, staged, one, TERM_X(term));
        if (one < end) y = staged[STAGED_AT(one, TERM_Y(term), g)];
        UNROLL for (int r = 0; r < REALS; r++)
            UNROLL for (int tile = 0; tile < Z_TILES; tile++) {
                const int row = ROW_OF(r, term, tile);
                // column n of the result is the node z = n / 2 + 4 (n % 2)
                b[r * Z_TILES + tile] = 0;
                if (one < end) b[r * Z_TILES + tile] = staged[STAGED_AT(one, row, NODE_Z(g >> 1, g & 1))];
            }
        UNROLL for (int l = 0; l < LEVELS; l++)
            UNROLL for (int k = 0; k < REALS * Z_TILES; k++) MMA_8_8_4(warp, sums + SUM(l, 0, 0, 0) + 2 * k, x[l] * y, b[k]);
    }
}
#define PARTICLES_A_STEP 4
#else
// One particle.
DEVICE void add_step(WARP_PARAMETER warp, PRIVATE real* sums, LOCAL const real* staged, const int first, const int end)
{
    const int g = LANE / 4, t = LANE % 4;
    UNROLL for (int term = 0; term < TERMS; term++) {
        real x[8];
        staged_levels(x, staged, first, TERM_X(term));
        const real y = staged[STAGED_AT(first, TERM_Y(term), g)];
        UNROLL for (int r = 0; r < REALS; r++)
            UNROLL for (int tile = 0; tile < Z_TILES; tile++)
                UNROLL for (int e = 0; e < 2; e++) {
                    const real yz = y * staged[STAGED_AT(first, ROW_OF(r, term, tile), NODE_Z(t, e))];
                    UNROLL for (int l = 0; l < LEVELS; l++) sums[SUM(l, r, tile, e)] += x[l] * yz;
                }
    }
}
#define PARTICLES_A_STEP 1
#endif

// Add the first levels, which begin at node x, to the field: those of the block that the walk leaves.
DEVICE void leave(PRIVATE const real* sums, GLOBAL real* field, PRIVATE const Field* layout,
                  PRIVATE const Columns* columns, const int x)
{
    UNROLL for (int l = 0; l < BLOCK_X; l++) {
        const int at_x = place(x + l, layout->size[0], layout->wraps[0]);
        if (at_x < 0) continue;
        GLOBAL real* level = field + layout->offset + at_x * layout->stride[0];
        UNROLL for (int c = 0; c < CHANNELS; c++)
            UNROLL for (int tile = 0; tile < Z_TILES; tile++) {
                real own[2 * PARTS]; // as they lie in memory, where nodes are neighbours
                UNROLL for (int e = 0; e < 2; e++)
                    UNROLL for (int p = 0; p < PARTS; p++) own[e * PARTS + p] = sums[SUM(l, c * PARTS + p, tile, e)];
                UNROLL for (int first = 0; first < 2 * PARTS; first += VECTOR) {
                    const offset_t at = columns->at[tile][VECTOR > PARTS ? 0 : first / PARTS];
                    int any = 0; // many nodes of a sparse window have got nothing
                    UNROLL for (int v = 0; v < VECTOR; v++) any |= own[first + v] != 0;
                    if (at != OFF_FIELD && any)
                        atomic_add_vector(level + c * layout->channel + at + (VECTOR > PARTS ? 0 : first % PARTS),
                                          own + first);
                }
            }
    }
}

// What is left of the window when the walk goes on by a block.
DEVICE void shift(PRIVATE real* sums)
{
    UNROLL for (int l = 0; l < LEVELS; l++)
        UNROLL for (int k = 0; k < LEVEL_SUMS; k++)
            sums[l * LEVEL_SUMS + k] =
                l + BLOCK_X < LEVELS ? sums[(l + BLOCK_X < LEVELS ? l + BLOCK_X : l) * LEVEL_SUMS + k] : (real)0;
}

KERNEL spread_walk(GLOBAL const u32* RESTRICT records, GLOBAL const u32* RESTRICT start,
                   GLOBAL const real* RESTRICT values, GLOBAL real* RESTRICT field, // added to
                   const i64 chunk, const i64 warps, const Blocks blocks, const Values value_layout,
                   const Field field_layout, const Window window, const Jacobian jacobian)
{
    WARP(warp);
    LOCAL_ARRAY(real4, staged_memory, WARPS * STAGED * PITCH / 4);
    LOCAL real* staged = (LOCAL real*)staged_memory + LOCAL_ID / WARP_SIZE * (STAGED * PITCH);
    const int nx = blocks.counts[0], lines = blocks.counts[1] * blocks.counts[2];
    const i64 count = start[(i64)lines * nx];
    clear_staged(staged);
    WARP_SYNC(warp);

    for (i64 walk = GROUP_ID * WARPS + LOCAL_ID / WARP_SIZE; walk < warps; walk += GROUP_COUNT * WARPS) {
        const i64 begin = walk * chunk, end = begin + chunk < count ? begin + chunk : count;
        real sums[LEVELS * LEVEL_SUMS];
        UNROLL for (int k = 0; k < LEVELS * LEVEL_SUMS; k++) sums[k] = 0;
        Columns columns;
        int line_now = -1, bx_now = 0, line = 0;
        i64 line_end = 0;
        if (begin < end) {
            line = line_of(warp, start, begin, lines, nx);
            line_end = start[(i64)(line + 1) * nx];
        }
        // Records are read two batches ahead, so that values can be one batch ahead.
        u32 words[RECORD_WORDS], ahead[RECORD_WORDS];
        real q[QUANTITIES];
        UNROLL for (int k = 0; k < RECORD_WORDS; k++) words[k] = ahead[k] = 0;
        UNROLL for (int k = 0; k < QUANTITIES; k++) q[k] = 0;
        if (LANE < BATCH && begin + LANE < end) read_record(records, begin + LANE, words);
        if (LANE < BATCH && begin + BATCH + LANE < end) read_record(records, begin + BATCH + LANE, ahead);
        if (LANE < BATCH && begin + LANE < end) values_of(q, values, INDEX_OF(words), &value_layout, &jacobian);

        for (i64 base = begin; base < end; base += BATCH) {
            const int n = end - base < BATCH ? (int)(end - base) : BATCH;
            const int here = LANE < n;
            Placed p;
            particle_of(words, &p);
            if (here) {
                stage_x_y(staged, LANE, &p, &window);
                stage_z(staged, LANE, &p, q, &window);
            }
            UNROLL for (int k = 0; k < RECORD_WORDS; k++) words[k] = ahead[k];
            if (here && base + BATCH + LANE < end) values_of(q, values, INDEX_OF(words), &value_layout, &jacobian);
            if (here && base + 2 * BATCH + LANE < end) read_record(records, base + 2 * BATCH + LANE, ahead);
            int own_line = line;
            if (base + n > line_end) {
                own_line = lines_of(warp, start, base + (here ? LANE : n - 1), line, lines, nx);
                line = (int)WARP_SHUFFLE_U32(warp, own_line, n - 1);
                line_end = start[(i64)(line + 1) * nx];
            }
            const int line_before = (int)WARP_SHUFFLE_U32(warp, own_line, LANE - 1);
            const int bx_before = (int)WARP_SHUFFLE_U32(warp, p.bx, LANE - 1);
            u32 firsts = WARP_BALLOT(warp, here && (LANE == 0 || own_line != line_before || p.bx != bx_before));
            WARP_SYNC(warp);
            while (firsts) {
                const int first = FIRST_BIT_U32(firsts);
                firsts &= firsts - 1;
                const int stop = firsts ? FIRST_BIT_U32(firsts) : n;
                const int run_line = (int)WARP_SHUFFLE_U32(warp, own_line, first);
                const int run_bx = (int)WARP_SHUFFLE_U32(warp, p.bx, first);
                int moves = run_line != line_now || run_bx - bx_now > MOVES ? MOVES : run_bx - bx_now;
                if (line_now < 0) moves = 0;
                int x = blocks.base[0] + bx_now * BLOCK_X;
                ROLL for (; moves > 0; moves--) {
                    leave(sums, field, &field_layout, &columns, x);
                    shift(sums);
                    x += BLOCK_X;
                }
                if (run_line != line_now) columns_of(&columns, &field_layout, &blocks, run_line);
                line_now = run_line, bx_now = run_bx;
                for (int at = first; at < stop; at += PARTICLES_A_STEP) add_step(warp, sums, staged, at, stop);
            }
            WARP_SYNC(warp);
        }
        int x = blocks.base[0] + bx_now * BLOCK_X;
        ROLL for (int moves = line_now < 0 ? 0 : MOVES; moves > 0; moves--) {
            leave(sums, field, &field_layout, &columns, x);
            shift(sums);
            x += BLOCK_X;
        }
    }
}
