// SPDX-License-Identifier: BSD-3-Clause
// Interpolation by warps that walk along x with a patch of the mesh in registers (walk/walk.h).
//
// Particles' results are a product of matrices: the patch's rows along z (levels and y by z) and the weights along z (z
// by particle). The product is then weighted across and added up. VALUE and GRADIENT select the results; one walk gives
// both.

#define ROWS_Z ((1 + GRADIENT) * Z_TILES)
#include "walk/walk.h"

// Row along z of a tile: weights, or slopes.
#define ROW_OF(slope, tile) (ROW_Z + (slope)*Z_TILES + (tile))
#define ROWS_STAGED (LEFT + BATCH + 7)           // eight are read at once, even if fewer are left

// Results per particle: for every real the value, and a slope per axis.
#define KINDS (VALUE + GRADIENT * SUPPORT_AXES)
#define RESULTS (KINDS * REALS)
#define RESULT(kind, real_) ((kind)*REALS + (real_))
#if MATRIX
#define TAKEN 2     // particles per lane and step
#define LANES_Y_BIT 4 // lanes that differ in this bit or a higher one have other nodes of the same particles
#else
#define STEP_MOST (16 / RESULTS)
#define TAKEN (STEP_MOST >= 8 ? 8 : STEP_MOST >= 4 ? 4 : STEP_MOST >= 2 ? 2 : 1)
#define LANES_Y_BIT 1
#endif
#define PER_STEP (MATRIX ? STEP : TAKEN)
#define SUMS (TAKEN * RESULTS)
#define OWN_SUMS ((SUMS + 32 / LANES_Y_BIT - 1) / (32 / LANES_Y_BIT)) // of them that a lane has in the end, at most

// ---- the patch of the field in a warp's registers: read level by level (walk/walk.h) -------------------------------

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

#define WARP_REALS (ROWS_STAGED * PITCH + BATCH * RECORD_REALS + BLOCK_X * LEVEL_NODES * WARP_SIZE) // of local memory

// ---- results of particles -------------------------------------------------------------------------------------------

// Sums along x and z at the lane's y, with the weights or the slopes along x, or the slopes along z.
typedef struct {
    real plain, along_x, along_z;
} Across;

// The sums of one of the lane's particles, to be added up over lanes.
DEVICE void results_of(PRIVATE real* sums, PRIVATE const Across* across, const real y, const real slope_y,
                       PRIVATE const Jacobian* jacobian)
{
    UNROLL for (int r = 0; r < REALS; r++) {
        if (VALUE) sums[RESULT(0, r)] = y * across[r].plain;
#if GRADIENT
        const real slope[3] = {y * across[r].along_x, slope_y * across[r].plain, y * across[r].along_z};
        UNROLL for (int b = 3 - SUPPORT_AXES; b < 3; b++) {
            real sum = 0;
            UNROLL for (int a = 3 - SUPPORT_AXES; a < 3; a++) sum += slope[a] * jacobian->row[3 * a + b];
            sums[RESULT(VALUE + b - 3 + SUPPORT_AXES, r)] = sum;
        }
#endif
    }
}

#if MATRIX
// The sixteen rows of an instruction: eight y by two parts of a level, as they lie in memory and in registers that one
// read fills; or, if parts are odd, eight y by two levels. Order of the products: all reals, then the next levels.
#define LEVELS_AT_ONCE (PARTS % 2 ? 2 : 1)
#define REALS_AT_ONCE (PARTS % 2 ? 1 : 2)
#define OF_LEVELS (REALS / REALS_AT_ONCE)
#define PRODUCTS ((LEVELS + LEVELS_AT_ONCE - 1) / LEVELS_AT_ONCE * OF_LEVELS)
#define LEVEL_OF(product, half) ((product) / OF_LEVELS * LEVELS_AT_ONCE + (PARTS % 2 ? (half) : 0))
#define REAL_OF(product, half) ((product) % OF_LEVELS * REALS_AT_ONCE + (PARTS % 2 ? 0 : (half)))
#define AT_ONCE (PRODUCTS % 3 ? 4 : 3) // several independent products hide latency

// Eight particles: the rows of the lane's two begin at `across_rows`, and `z` is the lane's place in the rows along z of
// its column of the product.
DEVICE void take(WARP_PARAMETER warp, PRIVATE real* sums, PRIVATE const real* nodes, LOCAL const real* across_rows,
                 LOCAL const real* z, PRIVATE const Jacobian* jacobian)
{
    real b[1 + GRADIENT][Z_TILES][2];
    UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++)
        UNROLL for (int tile = 0; tile < Z_TILES; tile++) {
            LOAD_LOCAL_2(z + ROW_AT(ROW_OF(slope, tile)), b[slope][tile]);
        }
#if !REAL_IS_DOUBLE
    real b_low[1 + GRADIENT][Z_TILES][2];
    UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++)
        UNROLL for (int tile = 0; tile < Z_TILES; tile++)
            UNROLL for (int e = 0; e < 2; e++)
                b_low[slope][tile][e] = b[slope][tile][e] - SPLIT_TF32(b[slope][tile][e]);
#endif
    real x[2][8], slope_x[2][8];
    UNROLL for (int n = 0; n < 2; n++) {
        levels_from(x[n], across_rows + n * PITCH, ROW_X);
        if (GRADIENT) levels_from(slope_x[n], across_rows + n * PITCH, ROW_X + GRADIENT);
    }
    Across across[2][REALS];
    UNROLL for (int n = 0; n < 2; n++)
        UNROLL for (int r = 0; r < REALS; r++)
            across[n][r].plain = across[n][r].along_x = across[n][r].along_z = 0;
    UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++)
        UNROLL for (int first = 0; first < PRODUCTS; first += AT_ONCE) {
#define EACH_PRODUCT UNROLL for (int m = 0; m < AT_ONCE && first + m < PRODUCTS; m++)
            real c[AT_ONCE][4];
            EACH_PRODUCT UNROLL for (int n = 0; n < 4; n++) c[m][n] = 0;
#if REAL_IS_DOUBLE
            UNROLL for (int tile = 0; tile < Z_TILES; tile++)
                EACH_PRODUCT {
                    const int l = LEVEL_OF(first + m, 0), r = REAL_OF(first + m, 0);
                    if (LEVEL_OF(first + m, 1) < LEVELS) {
                        real a[4];
                        UNROLL for (int n = 0; n < 4; n++)
                            a[n] = nodes[NODE(LEVEL_OF(first + m, n % 2), REAL_OF(first + m, n % 2), tile, n / 2)];
                        MMA_16_8_8(warp, c[m], a, b[slope][tile]);
                    } else { // the last of an odd number is alone
                        UNROLL for (int e = 0; e < 2; e++)
                            MMA_8_8_4(warp, c[m], nodes[NODE(l, r, tile, e)], b[slope][tile][e]);
                    }
                }
#else
            // An instruction takes the first 11 bits of numbers. Products with the small remainders are added first;
            // those of two remainders are below rounding. To keep the nodes' remainders would cost too many registers.
            UNROLL for (int term = 0; term < 3; term++)
                UNROLL for (int tile = 0; tile < Z_TILES; tile++)
                    EACH_PRODUCT {
                        real a[4];
                        UNROLL for (int n = 0; n < 4; n++) {
                            const int k = NODE(LEVEL_OF(first + m, n % 2), REAL_OF(first + m, n % 2), tile, n / 2);
                            a[n] = term > 0 ? nodes[k] : nodes[k] - SPLIT_TF32(nodes[k]);
                        }
                        MMA_16_8_8(warp, c[m], a, term == 1 ? b_low[slope][tile] : b[slope][tile]);
                    }
#endif
            EACH_PRODUCT UNROLL for (int k = 0; k < 4; k++) {
                const int l = LEVEL_OF(first + m, k / 2), r = REAL_OF(first + m, k / 2), n = k % 2;
                if (l >= LEVELS) continue;
                if (slope) {
                    across[n][r].along_z += x[n][l] * c[m][k];
                } else {
                    across[n][r].plain += x[n][l] * c[m][k];
                    if (GRADIENT) across[n][r].along_x += slope_x[n][l] * c[m][k];
                }
            }
        }
    UNROLL for (int n = 0; n < 2; n++) {
        LOCAL const real* y = across_rows + n * PITCH + LANE / 4;
        results_of(sums + n * RESULTS, across[n], y[ROW_AT(ROW_Y)], y[ROW_AT(ROW_Y + GRADIENT)], jacobian);
    }
}
#else
// TAKEN particles from `first` on: a lane adds the contributions of its nodes.
DEVICE void take(PRIVATE real* sums, PRIVATE const real* nodes, LOCAL const real* staged, const int first,
                 PRIVATE const Jacobian* jacobian)
{
    UNROLL for (int n = 0; n < TAKEN; n++) {
        const int place = first + n;
        Across across[REALS];
        UNROLL for (int r = 0; r < REALS; r++) across[r].plain = across[r].along_x = across[r].along_z = 0;
        UNROLL for (int tile = 0; tile < Z_TILES; tile++)
            UNROLL for (int e = 0; e < 2; e++) {
                const real z = staged[STAGED_AT(place, ROW_OF(0, tile), ELEMENT_Z(LANE % 4, e))];
                const real slope_z = staged[STAGED_AT(place, ROW_OF(GRADIENT, tile), ELEMENT_Z(LANE % 4, e))];
                UNROLL for (int r = 0; r < REALS; r++) {
                    real sum = 0, slope = 0;
                    UNROLL for (int l = 0; l < LEVELS; l++) {
                        sum += staged[STAGED_AT(place, ROW_X, l)] * nodes[NODE(l, r, tile, e)];
                        if (GRADIENT) slope += staged[STAGED_AT(place, ROW_X + GRADIENT, l)] * nodes[NODE(l, r, tile, e)];
                    }
                    across[r].plain += z * sum;
                    if (GRADIENT) across[r].along_x += z * slope, across[r].along_z += slope_z * sum;
                }
            }
        results_of(sums + n * RESULTS, across, staged[STAGED_AT(place, ROW_Y, LANE / 4)],
                   staged[STAGED_AT(place, ROW_Y + GRADIENT, LANE / 4)], jacobian);
    }
}
#endif

// ---- lanes' sums of results: added up over the warp, and written to the caller's arrays ----------------------------

#include "interpolate/halving.h"

// Add up over the lanes that differ in bits from LANES_Y_BIT on. Bit by bit and not in a loop: where warp verbs are
// barriers, one in a branch makes compilers duplicate all code after it.
DEVICE void add_up(WARP_PARAMETER warp, PRIVATE real* sums)
{
    add_two(warp, sums, SUMS, LANES_Y_BIT);
    add_two(warp, sums, FEWER(SUMS), 2 * LANES_Y_BIT);
    add_two(warp, sums, FEWER(FEWER(SUMS)), 4 * LANES_Y_BIT);
#if !MATRIX
    add_two(warp, sums, FEWER(FEWER(FEWER(SUMS))), 8);
    add_two(warp, sums, FEWER(FEWER(FEWER(FEWER(SUMS)))), 16);
#endif
}

// The sums that a lane has then: the first, and how many.
DEVICE int own_sums(PRIVATE int* count)
{
    Halved sums = {0, SUMS, SUMS};
    for (int bit = LANES_Y_BIT; bit < WARP_SIZE; bit *= 2) halve(&sums, bit);
    *count = sums.count;
    return sums.from;
}
#include "interpolate/weightless.h"

KERNEL interpolate_walk(GLOBAL const u32* RESTRICT records, GLOBAL const u32* RESTRICT start,
                        GLOBAL const u32* RESTRICT located, // read if PACKED
                        GLOBAL const int* RESTRICT node,    // (3, rows), read if not, nor WEIGHTLESS_LAST
                        GLOBAL const real* RESTRICT field,
                        GLOBAL real* RESTRICT values,   // written if VALUE
                        GLOBAL real* RESTRICT gradient, // written if GRADIENT, per user length
                        const i64 chunk, const i64 warps, const i64 particles, const i64 rows, const Blocks blocks,
                        const Values value_layout, const Values gradient_layout, const Field field_layout,
                        const Window window, const Jacobian jacobian WITH_LOCAL_POOL)
{
    WARP(warp);
    // Of each warp rows, records of the next batch, and the next block of levels; then indices of particles.
    LOCAL_POOL(real, memory);
    LOCAL real* staged = memory + LOCAL_ID / WARP_SIZE * WARP_REALS;
    LOCAL real* own_ahead = staged + ROWS_STAGED * PITCH + LANE % BATCH * RECORD_REALS;
    LOCAL real* block = staged + ROWS_STAGED * PITCH + BATCH * RECORD_REALS + LANE * VECTOR;
    // Of the particles with staged rows.
    LOCAL u32* index = (LOCAL u32*)(memory + WARPS * WARP_REALS) + LOCAL_ID / WARP_SIZE * ROWS_STAGED;
    const int nx = blocks.counts[0], lines = blocks.counts[1] * blocks.counts[2];
    const i64 count = start[(i64)lines * nx];
    field += field_layout.offset;
    int own;
    const int from = own_sums(&own);
    // Which of a step's particles the lane has results of, if any.
    const int which = own == 0 ? 0 : MATRIX ? 2 * (LANE % 4) + from / RESULTS : from / RESULTS;
    Target target[OWN_SUMS];
    UNROLL for (int k = 0; k < OWN_SUMS; k++)
        target_of(&target[k], (from + k) % RESULTS, values, gradient, &value_layout, &gradient_layout);

    i64 walk = GROUP_ID * WARPS + LOCAL_ID / WARP_SIZE;
#if WARPS < GROUP_SIZE / WARP_SIZE
    if (LOCAL_ID / WARP_SIZE >= WARPS) walk = warps; // no local memory for it
#endif
    for (; walk < warps; walk += GROUP_COUNT * WARPS) {
        if (walk * chunk >= count) continue;
        const u32 begin = (u32)(walk * chunk);
        const int size = (int)(begin + chunk < count ? chunk : count - begin); // particles; below, from begin on
        GLOBAL const u32* mine = records + RECORD_WORDS * (i64)begin;
        if (LANE < BATCH) copy_record(own_ahead, mine, LANE, LANE < size); // while the line is searched
        real nodes[NODES];
        UNROLL for (int k = 0; k < NODES; k++) nodes[k] = 0;
        Columns columns;
        Abscissa x;   // of the first level that is not loaded
        int slot = 0; // its slot, that of the patch's first level
        int line = line_of(warp, start, begin, lines, nx);
        int line_end = end_of(start, begin, size, line, nx);
        int line_now = -1, next = LEFT; // the patch's line; the first row not yet taken
        u32 now = 0;                    // the patch's block
        COPY_WAIT();
        WARP_SYNC(warp); // lanes beyond the batch read others' records, and none uses them

        for (int base = 0; base < size; base += BATCH) {
            const int n = size - base < BATCH ? size - base : BATCH;
            const int here = LANE < n;
            Placed p;
            u32 words[RECORD_WORDS];
            copied_record(words, own_ahead);
            particle_of(words, &p);
            if (here) {
                LOCAL real* to = staged + (LEFT + LANE) * PITCH;
                stage_across(to, &p, &window);
                UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++) {
                    real row[Z_REALS];
                    row_along_z(row, &window, slope, p.fraction[2], p.offset[2]);
                    stage_along_z(to + ROW_AT(ROW_OF(slope, 0)), row, p.offset[2]);
                }
                index[LEFT + LANE] = p.index;
            }
            // Where warps share no registers, compilers duplicate all code after a verb in a branch: no branch here.
            const int beyond = base + n > line_end;
            const i64 asked = (i64)begin + base + (here ? LANE : n - 1);
            const int own_line = lines_from(warp, start, asked, line, lines, nx, beyond);
            line = (int)WARP_SHUFFLE_U32(warp, own_line, n - 1);
            if (beyond) line_end = end_of(start, begin, size, line, nx);
            // Keys of different lines are more than MOVES apart.
            const u32 key = (u32)own_line * (u32)(nx + MOVES) + (u32)p.bx;
            u32 before = WARP_SHUFFLE_U32(warp, key, LANE - 1);
            if (LANE == 0) before = line_now < 0 ? ~key : now;
            u32 firsts = WARP_BALLOT(warp, here && key != before); // particles at which another block begins
            WARP_SYNC(warp);
            if (here) copy_record(own_ahead, mine, base + BATCH + LANE, base + BATCH + LANE < size);
            for (int going = 1; going;) {
                const int first = firsts ? FIRST_BIT_U32(firsts) : n, end = LEFT + first;
                going = firsts != 0;
                const int all = going || base + BATCH >= size;
                // Particles too few for a step wait for the next batch, unless others come in between.
#if MATRIX
                LOCAL const real* across = staged + (next + 2 * (LANE % 4)) * PITCH;
                LOCAL const real* z = staged + (next + LANE / 4) * PITCH + ELEMENT_Z(LANE % 4, 0);
#endif
                ROLL for (; next + PER_STEP <= end || next + (all ? 1 : LEFT) <= end; next += PER_STEP) {
                    const int place = next + which;
                    // Volatile: compilers would move it after the sums, which hide its latency. Lanes beyond the end
                    // read any index within the rows that are read eight at once.
                    const i64 i = *(volatile LOCAL const u32*)(index + place);
                    real sums[SUMS];
#if MATRIX
                    take(warp, sums, nodes, across, z, &jacobian);
                    across += PER_STEP * PITCH, z += PER_STEP * PITCH;
#else
                    take(sums, nodes, staged, next, &jacobian);
#endif
                    add_up(warp, sums);
                    if (place < end)
                        UNROLL for (int k = 0; k < OWN_SUMS; k++)
                            if (k < own) target[k].to[i * target[k].step] = sums[k];
                }
                if (next > end) next = end;
                if (going) {
                    firsts &= firsts - 1;
                    const u32 then = WARP_SHUFFLE_U32(warp, key, first);
                    const u32 on_by = line_now < 0 ? MOVES : then - now;
                    now = then;
                    if (on_by < MOVES) {
                        ROLL for (u32 moves = on_by; moves > 0; moves--) {
                            next_block(nodes, slot, block, field, &x, &field_layout, &columns);
                            slot = slot + BLOCK_X < LEVELS ? slot + BLOCK_X : slot + BLOCK_X - LEVELS;
                        }
                    } else { // beyond the patch
                        const int run_line = (int)(then / (u32)(nx + MOVES));
                        const int run_bx = (int)(then - (u32)run_line * (u32)(nx + MOVES));
                        if (run_line != line_now) columns_of(&columns, &field_layout, &blocks, run_line);
                        start_at(&x, &field_layout, &blocks, run_bx);
                        line_now = run_line, slot = slot_of(run_bx);
                        read_patch(nodes, slot, block, field, &x, &field_layout, &columns);
                    }
                }
            }
            WARP_SYNC(warp);
            if (next < LEFT + n) {
                const int left = LEFT + n - next;
                leave_over(staged, left);
                if (LANE < left) index[LEFT - left + LANE] = index[LEFT + BATCH - left + LANE];
            }
            COPY_WAIT(); // none is on its way when the next batch or another walk begins, or the warp ends
            WARP_SYNC(warp);
            next -= n; // only a full batch leaves any
        }
    }
    if (count < particles)
        clear_weightless(located, node, values, gradient, count, particles, rows, &value_layout, &gradient_layout);
}
