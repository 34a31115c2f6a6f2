// SPDX-License-Identifier: BSD-3-Clause
// Spreading by warps that walk along x with a patch of the mesh in registers (walk/walk.h).
//
// Contributions to the patch are a product of matrices: the weights across (levels and y, by particle), and the values
// times the weights along z (particle by z). Levels that the walk has passed are flushed by adds to memory.

#define ROWS_Z (REALS * TERMS * Z_TILES)
#include "walk/walk.h"
#include "spread/values.h"

#ifndef WHOLE // fixed_walk.c, which is this file with sums of integers, defines more
#define WHOLE 0
typedef real Sum;
#endif
#ifndef DEPOSIT // so does walk_fixed.c, which adds sums of reals as integers
typedef real Sink;
#define DEPOSIT(to, vector) atomic_add_vector(to, vector)
#define PARTS_APART 0 // parts are adjacent
#define MORE_PARAMETERS
#define BROUGHT(q)
#endif

// Row along z of a real, a term of the derivative, and a tile.
#define ROW_OF(real_, term, tile) (ROW_Z + ((real_)*TERMS + (term)) * Z_TILES + (tile))
// The lane's nodes of a level: two per tile.
#define SUM(level, real_, tile, e) ((((level)*REALS + (real_)) * Z_TILES + (tile)) * 2 + (e))
#define LEVEL_SUMS (REALS * Z_TILES * 2)
#define SUM_AT(l, m, k) (SUM((l) + (m) / 2, 0, 0, (m) % 2) + 2 * (k)) // element m of a product, from level l on
#define MOVES ((LEVELS + BLOCK_X - 1) / BLOCK_X) // of the walk until a patch is replaced

// The rows along z: the particle's values times its weights.
DEVICE void stage_z(LOCAL real* to, PRIVATE const Placed* p, PRIVATE const real* q,
                    PRIVATE const Tables* window)
{
    UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++) {
        real row[Z_REALS], own[Z_REALS];
        row_along_z(row, window, slope, p->fraction[2], p->offset[2]);
        UNROLL for (int r = 0; r < REALS; r++)
            UNROLL for (int term = 0; term < TERMS; term++) {
                if (GRADIENT && slope != (term == 2)) continue; // the third term has the slope along z
                UNROLL for (int e = 0; e < Z_REALS; e++) own[e] = q[r * TERMS + term] * row[e];
                stage_along_z(to + ROW_AT(ROW_OF(r, term, 0)), own, p->offset[2]);
            }
    }
}

// Rows of the two factors across of a term: slope along x, slope along y, none.
#define TERM_X(term) (ROW_X + (GRADIENT && (term) == 0))
#define TERM_Y(term) (ROW_Y + (GRADIENT && (term) == 1))

#if MATRIX && !REAL_IS_DOUBLE
// Eight particles: the rows of the lane's two begin at `from`. Values are those of `count` particles, or with `all` of
// all; weights are finite everywhere. Numbers are split in two parts, as an instruction takes 11 bits of each; products
// of two second parts are below rounding. An instruction adds with truncation: long sums would drift towards zero, so
// they are kept outside.
DEVICE void add_eight(WARP_PARAMETER warp, PRIVATE real* sums, LOCAL const real* from, const int all, const int count)
{
    UNROLL for (int term = 0; term < TERMS; term++) {
        real x[2][8], y[2], high[REALS * Z_TILES][2], low[REALS * Z_TILES][2];
        UNROLL for (int n = 0; n < 2; n++) {
            LOCAL const real* own = from + n * PITCH + LANE / 4;
            levels_from(x[n], from + n * PITCH, TERM_X(term));
            y[n] = own[ROW_AT(TERM_Y(term))];
            UNROLL for (int k = 0; k < REALS * Z_TILES; k++) {
                const int row = ROW_OF(k / Z_TILES, term, k % Z_TILES);
                const real b = all || 2 * (LANE % 4) + n < count ? own[ROW_AT(row)] : (real)0;
                high[k][n] = SPLIT_TF32(b), low[k][n] = b - high[k][n];
            }
        }
        // Two levels are the instruction's sixteen rows. Several independent products at once hide latency.
        real a[LEVELS / 2][4], rest[LEVELS / 2][4];
        UNROLL for (int m = 0; m < LEVELS / 2; m++)
            UNROLL for (int n = 0; n < 4; n++) {
                const real weight = x[n / 2][2 * m + n % 2] * y[n / 2];
                a[m][n] = SPLIT_TF32(weight), rest[m][n] = weight - a[m][n];
            }
        UNROLL for (int k = 0; k < REALS * Z_TILES; k++) {
            real c[LEVELS / 2][4];
            UNROLL for (int m = 0; m < LEVELS / 2; m++)
                UNROLL for (int n = 0; n < 4; n++) c[m][n] = FRAGMENTS ? (real)0 : sums[SUM_AT(2 * m, n, k)];
            UNROLL for (int m = 0; m < LEVELS / 2; m++) MMA_16_8_8(warp, c[m], rest[m], high[k]);
            UNROLL for (int m = 0; m < LEVELS / 2; m++) MMA_16_8_8(warp, c[m], a[m], low[k]);
            UNROLL for (int m = 0; m < LEVELS / 2; m++) MMA_16_8_8(warp, c[m], a[m], high[k]);
            UNROLL for (int m = 0; m < LEVELS / 2; m++)
                UNROLL for (int n = 0; n < 4; n++)
                    sums[SUM_AT(2 * m, n, k)] = FRAGMENTS ? sums[SUM_AT(2 * m, n, k)] + c[m][n] : c[m][n];
        }
    }
}
#elif MATRIX
// `depth` times four particles: the rows of the lane's first begin at `from`. Values are those of `count` particles, or
// with `all` of all. No bits are lost. Two levels are an instruction's sixteen rows; a last one is alone.
DEVICE void add_fours(WARP_PARAMETER warp, PRIVATE real* sums, LOCAL const real* from, const int depth, const int all,
                      const int count)
{
    UNROLL for (int term = 0; term < TERMS; term++) {
        real x[2][8], y[2], b[REALS * Z_TILES][2];
        UNROLL for (int n = 0; n < depth; n++) {
            LOCAL const real* own = from + n * PITCH + LANE / 4;
            levels_from(x[n], from + n * PITCH, TERM_X(term));
            y[n] = own[ROW_AT(TERM_Y(term))];
            UNROLL for (int k = 0; k < REALS * Z_TILES; k++)
                b[k][n] = all || depth * (LANE % 4) + n < count ? own[ROW_AT(ROW_OF(k / Z_TILES, term, k % Z_TILES))]
                                                                : (real)0;
        }
        UNROLL for (int l = 0; l + 1 < LEVELS; l += 2) {
            real a[4];
            UNROLL for (int n = 0; n < 2 * depth; n++) a[n] = x[n / 2][l + n % 2] * y[n / 2];
            UNROLL for (int k = 0; k < REALS * Z_TILES; k++) {
                real c[4];
                UNROLL for (int n = 0; n < 4; n++) c[n] = sums[SUM_AT(l, n, k)];
                if (depth == 2) MMA_16_8_8(warp, c, a, b[k]);
                else MMA_16_8_4(warp, c, a, b[k][0]);
                UNROLL for (int n = 0; n < 4; n++) sums[SUM_AT(l, n, k)] = c[n];
            }
        }
#if LEVELS % 2
        UNROLL for (int n = 0; n < depth; n++)
            UNROLL for (int k = 0; k < REALS * Z_TILES; k++)
                MMA_8_8_4(warp, sums + SUM_AT(LEVELS - 1, 0, k), x[n][LEVELS - 1] * y[n], b[k][n]);
#endif
    }
}
DEVICE void add_eight(WARP_PARAMETER warp, PRIVATE real* sums, LOCAL const real* from, const int all, const int count)
{
    if (all || count > 4) add_fours(warp, sums, from, 2, all, count);
    else add_fours(warp, sums, from - LANE % 4 * PITCH, 1, all, count);
}
#endif

// Add particles from `first` to `end`, eight at a time; with `all` also the rest. Return where the rest begins.
#if WHOLE
// Each product is rounded as spread/rows.h rounds it, then to an integer.
DEVICE int add_run(WARP_PARAMETER warp, PRIVATE Sum* sums, LOCAL const real* staged, const int first, const int end,
                   const int all)
{
    LOCAL const real* from = staged + first * PITCH;
    ROLL for (int next = first; next < end; next++, from += PITCH) {
        real across[TERMS][8];
        UNROLL for (int term = 0; term < TERMS; term++) {
            levels_from(across[term], from, TERM_X(term));
            UNROLL for (int l = 0; l < LEVELS; l++) across[term][l] *= from[ROW_AT(TERM_Y(term)) + LANE / 4];
        }
        UNROLL for (int k = 0; k < REALS * Z_TILES; k++) {
            real along[TERMS][2];
            UNROLL for (int term = 0; term < TERMS; term++)
                LOAD_LOCAL_2(from + ROW_AT(ROW_OF(k / Z_TILES, term, k % Z_TILES)) + 2 * (LANE % 4), along[term]);
            UNROLL for (int e = 0; e < 2; e++)
                UNROLL for (int l = 0; l < LEVELS; l++) {
                    real product = across[0][l] * along[0][e];
#if GRADIENT
                    product = fma(across[0][l], along[0][e], across[1][l] * along[1][e]);
                    product = fma(across[2][l], along[2][e], product);
#endif
                    sums[SUM(l, 0, 0, e) + 2 * k] += NEAREST_I64(product);
                }
        }
    }
    return end;
}
#elif MATRIX
DEVICE int add_run(WARP_PARAMETER warp, PRIVATE Sum* sums, LOCAL const real* staged, const int first, const int end,
                   const int all)
{
    LOCAL const real* from = staged + (first + 2 * (LANE % 4)) * PITCH;
    int next = first;
    ROLL for (; next + 8 <= end; next += 8, from += 8 * PITCH) add_eight(warp, sums, from, 1, 8);
    if (next + (all ? 1 : LEFT) <= end) {
        const int stop = all ? end : next + LEFT;
        add_eight(warp, sums, from, 0, stop - next);
        next = stop;
    }
    return next;
}
#else
DEVICE int add_run(WARP_PARAMETER warp, PRIVATE Sum* sums, LOCAL const real* staged, const int first, const int end,
                   const int all)
{
    const int g = LANE / 4, t = LANE % 4;
    ROLL for (int next = first; next < end; next++)
        UNROLL for (int term = 0; term < TERMS; term++) {
            real x[8];
            UNROLL for (int l = 0; l < LEVELS; l++) x[l] = staged[STAGED_AT(next, TERM_X(term), l)];
            const real y = staged[STAGED_AT(next, TERM_Y(term), g)];
            UNROLL for (int r = 0; r < REALS; r++)
                UNROLL for (int tile = 0; tile < Z_TILES; tile++)
                    UNROLL for (int e = 0; e < 2; e++) {
                        const real yz = y * staged[STAGED_AT(next, ROW_OF(r, term, tile), ELEMENT_Z(t, e))];
                        UNROLL for (int l = 0; l < LEVELS; l++) sums[SUM(l, r, tile, e)] += x[l] * yz;
                    }
        }
    return end;
}
#endif

// Flush the levels of the block that the walk leaves to the field.
DEVICE void leave(PRIVATE const Sum* sums, GLOBAL Sink* field, PRIVATE Abscissa* x, PRIVATE const Field* layout,
                  PRIVATE const Columns* columns)
{
    UNROLL for (int l = 0; l < BLOCK_X; l++) {
        if (inside(x, layout)) {
            GLOBAL Sink* level = field + x->at;
            UNROLL for (int c = 0; c < CHANNELS; c++)
                UNROLL for (int tile = 0; tile < Z_TILES; tile++) {
                    Sum own[2 * PARTS]; // in memory order: a vector is within a node, or both if it is wider
                    UNROLL for (int e = 0; e < 2; e++)
                        UNROLL for (int p = 0; p < PARTS; p++)
                            own[e * PARTS + p] = sums[SUM(l, c * PARTS + p, tile, e)];
                    UNROLL for (int first = 0; first < 2 * PARTS; first += VECTOR) {
                        const offset_t at = columns->at[tile][VECTOR > PARTS ? 0 : first / PARTS];
                        const int part = VECTOR > PARTS ? 0 : first % PARTS;
                        if (at != OFF_FIELD) {
                            GLOBAL Sink* there = level + at + (PARTS_APART ? PARTS * c : c) * layout->channel;
                            DEPOSIT(there + (PARTS_APART ? part * layout->channel : part), own + first);
                        }
                    }
                }
        }
        next_node(x, layout);
    }
}

// The part of the patch that stays when the walk advances by a block.
DEVICE void shift(PRIVATE Sum* sums)
{
    UNROLL for (int l = 0; l < LEVELS; l++)
        UNROLL for (int k = 0; k < LEVEL_SUMS; k++)
            sums[l * LEVEL_SUMS + k] =
                l + BLOCK_X < LEVELS ? sums[(l + BLOCK_X < LEVELS ? l + BLOCK_X : l) * LEVEL_SUMS + k] : (Sum)0;
}

KERNEL spread_walk(GLOBAL const u32* RESTRICT records, GLOBAL const u32* RESTRICT start,
                   GLOBAL const real* RESTRICT values, GLOBAL Sink* RESTRICT field // added to
                   MORE_PARAMETERS,
                   const i64 chunk, const i64 warps, const Blocks blocks, const Values value_layout,
                   const Field field_layout, const Tables window, const Jacobian jacobian WITH_LOCAL_POOL)
{
    WARP(warp);
    LOCAL_POOL(real, staged_memory); // rows, then records of two batches
#if WARPS < GROUP_SIZE / WARP_SIZE
    if (LOCAL_ID / WARP_SIZE >= WARPS) return; // no local memory for it; no group meets at a barrier
#endif
    LOCAL real* staged = staged_memory + LOCAL_ID / WARP_SIZE * (STAGED * PITCH);
#if COPIES
    LOCAL real* copied = staged_memory + WARPS * STAGED * PITCH
                       + (LOCAL_ID / WARP_SIZE * 2 * BATCH + LANE % BATCH) * RECORD_REALS; // of the lane
#endif
    const int nx = blocks.counts[0], lines = blocks.counts[1] * blocks.counts[2];
    const i64 count = start[(i64)lines * nx];
    field += field_layout.offset;
    clear_staged(staged);
    WARP_SYNC(warp);

    for (i64 walk = GROUP_ID * WARPS + LOCAL_ID / WARP_SIZE; walk < warps; walk += GROUP_COUNT * WARPS) {
        if (walk * chunk >= count) continue;
        const u32 begin = (u32)(walk * chunk);
        const int size = (int)(begin + chunk < count ? chunk : count - begin); // particles; below, from begin on
        GLOBAL const u32* own = records + RECORD_WORDS * (i64)begin;
        Sum sums[LEVELS * LEVEL_SUMS];
        UNROLL for (int k = 0; k < LEVELS * LEVEL_SUMS; k++) sums[k] = 0;
        Columns columns;
        Abscissa x;
        // Records are read two batches ahead, so that values can be read one batch ahead: to registers, or with COPIES to
        // local memory.
        u32 words[RECORD_WORDS];
        real q[QUANTITIES];
        UNROLL for (int k = 0; k < RECORD_WORDS; k++) words[k] = 0;
        UNROLL for (int k = 0; k < QUANTITIES; k++) q[k] = 0;
#if COPIES
        if (LANE < BATCH) {
            copy_record(copied, own, LANE, LANE < size);
            copy_record(copied + BATCH * RECORD_REALS, own, BATCH + LANE, BATCH + LANE < size);
        }
#else
        u32 ahead[RECORD_WORDS];
        UNROLL for (int k = 0; k < RECORD_WORDS; k++) ahead[k] = 0;
        if (LANE < BATCH && LANE < size) read_record(own, LANE, words);
        if (LANE < BATCH && BATCH + LANE < size) read_record(own, BATCH + LANE, ahead);
#endif
        int line = line_of(warp, start, begin, lines, nx);
        int line_end = end_of(start, begin, size, line, nx);
        int line_now = -1, next = LEFT; // the patch's line; the first row not yet in the sums
        u32 now = 0;                    // the patch's block
#if COPIES
        COPY_WAIT();
        WARP_SYNC(warp); // lanes beyond the batch read others' records, and none uses them
        copied_record(words, copied);
#endif
        if (LANE < BATCH && LANE < size) values_of(q, values, INDEX_OF(words), &value_layout, &jacobian);

        for (int base = 0; base < size; base += BATCH) {
            const int n = size - base < BATCH ? size - base : BATCH;
            const int here = LANE < n;
            Placed p;
#if COPIES
            LOCAL real* now_copied = copied + base / BATCH % 2 * (BATCH * RECORD_REALS);
            LOCAL real* next_copied = copied + (1 - base / BATCH % 2) * (BATCH * RECORD_REALS);
            copied_record(words, now_copied);
#endif
            particle_of(words, &p);
            if (here) {
                BROUGHT(q);
                stage_x_y(staged + (LEFT + LANE) * PITCH, &p, &window);
                stage_z(staged + (LEFT + LANE) * PITCH, &p, q, &window);
            }
#if !COPIES
            UNROLL for (int k = 0; k < RECORD_WORDS; k++) words[k] = ahead[k];
            if (here && base + BATCH + LANE < size) values_of(q, values, INDEX_OF(words), &value_layout, &jacobian);
            if (here && base + 2 * BATCH + LANE < size) read_record(own, base + 2 * BATCH + LANE, ahead);
#endif
            int own_line = line;
            if (base + n > line_end) {
                own_line = lines_of(warp, start, (i64)begin + base + (here ? LANE : n - 1), line, lines, nx);
                line = (int)WARP_SHUFFLE_U32(warp, own_line, n - 1);
                line_end = end_of(start, begin, size, line, nx);
            }
            // Keys of different lines are more than MOVES apart.
            const u32 key = (u32)own_line * (u32)(nx + MOVES) + (u32)p.bx;
            u32 before = WARP_SHUFFLE_U32(warp, key, LANE - 1);
            if (LANE == 0) before = line_now < 0 ? ~key : now;
            u32 firsts = WARP_BALLOT(warp, here && key != before); // particles at which another block begins
            WARP_SYNC(warp);
#if COPIES
            if (here) {
                copied_record(words, next_copied);
                copy_record(now_copied, own, base + 2 * BATCH + LANE, base + 2 * BATCH + LANE < size);
                if (base + BATCH + LANE < size) values_of(q, values, INDEX_OF(words), &value_layout, &jacobian);
            }
#endif
            for (int going = 1; going;) {
                const int first = firsts ? FIRST_BIT_U32(firsts) : n;
                going = firsts != 0;
                next = add_run(warp, sums, staged, next, LEFT + first, going || base + BATCH >= size);
                if (going) {
                    firsts &= firsts - 1;
                    const u32 then = WARP_SHUFFLE_U32(warp, key, first);
                    const u32 on = line_now < 0 ? MOVES + 1 : then - now;
                    now = then;
                    if (line_now >= 0) {
                        ROLL for (u32 moves = on < MOVES ? on : MOVES; moves > 0; moves--) {
                            leave(sums, field, &x, &field_layout, &columns);
                            shift(sums);
                        }
                    }
                    if (on > MOVES) { // beyond the patch
                        const int run_line = (int)(then / (u32)(nx + MOVES));
                        const int run_bx = (int)(then - (u32)run_line * (u32)(nx + MOVES));
                        if (run_line != line_now) columns_of(&columns, &field_layout, &blocks, run_line);
                        start_at(&x, &field_layout, &blocks, run_bx);
                        line_now = run_line;
                    }
                }
            }
#if COPIES
            COPY_WAIT(); // none is on its way when the next batch or another walk begins, or the warp ends
#endif
            WARP_SYNC(warp);
            if (next < LEFT + n) {
                leave_over(staged, LEFT + n - next);
                WARP_SYNC(warp);
            }
            next -= n; // only a full batch leaves any
        }
        ROLL for (int moves = MOVES; moves > 0; moves--) {
            leave(sums, field, &x, &field_layout, &columns);
            shift(sums);
        }
    }
}
