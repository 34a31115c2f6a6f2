// SPDX-License-Identifier: BSD-3-Clause
// A work-group copies the nodes that a tile's stencils reach to local memory, and interpolates for the tile's particles
// from there. A few neighbouring lanes share a particle, as stencil.h divides stencils.
//
// Compile-time facts beside those of stencil.h, where VECTOR is the reals per read of local memory: COPY (reals per copy
// of the field), TILE_X, TILE_Y (nodes of a tile), CHUNKS (copies of a row along z, with those that only fill it up), LINES
// (of blocks in a tile), FIELD_IS_WIDE, SYMMETRIC, VALUE, GRADIENT.

#define REALS (CHANNELS * PARTS)
#define RESULTS ((VALUE + GRADIENT * SUPPORT_AXES) * REALS)
#include "interpolate/weightless.h"
#include "orders/block_tiles.h"
#include "walk/weights.h"

#if FIELD_IS_WIDE
typedef i64 offset_t;
#define OFF_FIELD NOWHERE
#else
typedef int offset_t; // offsets within the field are below 2^31 reals
#define OFF_FIELD SKIP
#endif

#define ROWS (TILE_X * TILE_Y)
#define ROW_PITCH (CHUNKS * COPY) // reals from one row to the next, and from one level
#define LEVEL_PITCH (TILE_Y * ROW_PITCH)
#define WARPS (GROUP_SIZE / WARP_SIZE)
#define TEAM (WARP_SIZE / LANES) // particles that a warp takes at a time
#define COPIES_OF_NODE (COPY < PARTS ? PARTS / COPY : 1)
#define NODES_OF_COPY (COPY < PARTS ? 1 : COPY / PARTS)
#define NODES_OF_READ (VECTOR < PARTS ? 1 : VECTOR / PARTS)
#define SLOTS_Z (LANE_SLOTS * VECTOR)
#define RESULTS_OF_PART (1 + 3 * GRADIENT)
#define SUMS (PARTS * RESULTS_OF_PART)

// A lane's share of a particle's weights: all along x, of its rows, and of the nodes of its slots. [1] are slopes.
typedef struct {
    real x[1 + GRADIENT][SUPPORT], y[1 + GRADIENT][LANE_ROWS], z[1 + GRADIENT][LANE_SLOTS * NODES_OF_READ];
} Weights;

DEVICE void load_local(LOCAL const real* from, PRIVATE real* f)
{
#if VECTOR == 4
    LOAD_LOCAL_4(from, f);
#elif VECTOR == 2
    LOAD_LOCAL_2(from, f);
#else
    f[0] = *from;
#endif
}

// All weights along an axis, or their slopes.
DEVICE void along(PRIVATE real* w, PRIVATE const Window* window, const int axis, const int slope, const real z)
{
    if (slope)
        slopes_of(w, window, z);
    else
        weights_of(w, window, z);
    if (axis < 3 - SUPPORT_AXES) w[0] = (real)!slope;
}

// Reals from a lane's first slot to the stencil's first node, which begins at `base`.
DEVICE int shift_of(const int base)
{
    return VECTOR > PARTS ? base & (VECTOR - 1) : 0;
}

#if LANES > 1
// The weights of so many particles at a time are computed by all lanes of a warp, and read by those that need them. Each
// has rows of four (float64: two) reals: X along x, Y for each lane that reads rows of its own; along z behind
// FRONT zeros. No weight is ever written to where zeros are.
#define AT_ONCE (TEAM > 8 ? TEAM : 8)
#define SHARE (WARP_SIZE / AT_ONCE) // lanes that compute the weights of a particle
#define WIDE (REAL_IS_DOUBLE ? 2 : 4)
#define FILLED(n) (((n) + WIDE - 1) / WIDE * WIDE)
#define STAGED_Y FILLED(SUPPORT_X)
#define OF_ROWS FILLED(LANE_ROWS)
#define STAGED_Z (STAGED_Y + LANES_Y * OF_ROWS)
#define FRONT (NODES_OF_READ - 1)
#define STAGED (STAGED_Z + FILLED(FRONT + LANES_Z * LANE_SLOTS * NODES_OF_READ))
#define STAGED_PITCH ((1 + GRADIENT) * STAGED / WIDE % 2 ? (1 + GRADIENT) * STAGED : (1 + GRADIENT) * STAGED + WIDE)

DEVICE void stage_weights(LOCAL real* to, PRIVATE const Window* window, const int axis, const real z)
{
    to += axis == 0 ? 0 : axis == 1 ? STAGED_Y : STAGED_Z + FRONT;
    const int skip = axis == 1 ? OF_ROWS - LANE_ROWS : 0; // behind each lane's rows
    UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++) {
        real w[SUPPORT];
        along(w, window, axis, slope, z);
        UNROLL for (int j = 0; j < SUPPORT; j++)
            if (j == 0 || axis >= 3 - SUPPORT_AXES) to[slope * STAGED + j + j / LANE_ROWS * skip] = w[j];
    }
}

DEVICE void read_row(PRIVATE real* w, LOCAL const real* from, const int size)
{
    UNROLL for (int j = 0; j < size; j += WIDE) {
        real some[WIDE];
#if REAL_IS_DOUBLE
        LOAD_LOCAL_2(from + j, some);
#else
        LOAD_LOCAL_4(from + j, some);
#endif
        UNROLL for (int k = 0; k < WIDE; k++)
            if (j + k < size) w[j + k] = some[k];
    }
}

DEVICE void own_weights(PRIVATE Weights* w, LOCAL const real* staged, const int base, const int lane)
{
    const int lane_z = lane % LANES_Z, lane_y = lane / LANES_Z;
    LOCAL const real* along_z = staged + (STAGED_Z + FRONT - shift_of(base) / PARTS);
    UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++) {
        read_row(w->x[slope], staged + slope * STAGED, SUPPORT_X);
        read_row(w->y[slope], staged + (slope * STAGED + STAGED_Y + lane_y * OF_ROWS), LANE_ROWS);
        UNROLL for (int m = 0; m < LANE_SLOTS; m++)
            UNROLL for (int n = 0; n < NODES_OF_READ; n++) {
                const int node = (m * LANES_Z + lane_z) * VECTOR / PARTS + n;
                w->z[slope][m * NODES_OF_READ + n] = along_z[slope * STAGED + node];
            }
    }
}
#else
DEVICE void all_weights(PRIVATE Weights* w, PRIVATE const Window* window, PRIVATE const real* fraction, const int base)
{
    const int before = shift_of(base) / PARTS; // nodes of the first slot that are not the stencil's
    UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++) {
        real z[SUPPORT];
        along(w->x[slope], window, 0, slope, fraction[0]);
        along(z, window, 1, slope, fraction[1]);
        UNROLL for (int j = 0; j < SUPPORT_Y; j++) w->y[slope][j] = z[j];
        along(z, window, 2, slope, fraction[2]);
        UNROLL for (int m = 0; m < LANE_SLOTS; m++)
            UNROLL for (int n = 0; n < NODES_OF_READ; n++) {
                const int node = m * VECTOR / PARTS + n - before;
                real own = 0;
                UNROLL for (int j = 0; j < SUPPORT_Z; j++) own = node == j ? z[j] : own;
                w->z[slope][m * NODES_OF_READ + n] = own;
            }
    }
}
#endif

// One lane's share of a particle's results: of each part the value, and with GRADIENT the slopes in node coordinates.
DEVICE void gather(PRIVATE real* sums, LOCAL const real* nodes, const int base, const int lane, PRIVATE const Weights* w)
{
    const int lane_z = lane % LANES_Z, row = lane / LANES_Z * LANE_ROWS; // the first of its rows
    LOCAL const real* from = nodes + (base - shift_of(base) + lane_z * VECTOR + row * ROW_PITCH);
    real flat[SLOTS_Z], along_x[SLOTS_Z], along_y[SLOTS_Z]; // sums over levels
    UNROLL for (int v = 0; v < SLOTS_Z; v++) flat[v] = along_x[v] = along_y[v] = 0;
    UNROLL_ROWS for (int a = 0; a < SUPPORT_X; a++) {
        real level[SLOTS_Z], slope[SLOTS_Z]; // sums over rows
        UNROLL for (int v = 0; v < SLOTS_Z; v++) level[v] = slope[v] = 0;
        UNROLL_ROWS for (int b = 0; b < LANE_ROWS; b++) {
            const int there = (LANES_Y - 1) * LANE_ROWS + b < SUPPORT_Y || row + b < SUPPORT_Y;
            UNROLL for (int m = 0; m < LANE_SLOTS; m++) {
                real f[VECTOR];
                UNROLL for (int v = 0; v < VECTOR; v++) f[v] = 0;
                if (there) load_local(from + a * LEVEL_PITCH + b * ROW_PITCH + m * LANES_Z * VECTOR, f);
                UNROLL for (int v = 0; v < VECTOR; v++) {
                    level[m * VECTOR + v] += w->y[0][b] * f[v];
                    if (GRADIENT) slope[m * VECTOR + v] += w->y[GRADIENT][b] * f[v];
                }
            }
        }
        UNROLL for (int v = 0; v < SLOTS_Z; v++) {
            flat[v] += w->x[0][a] * level[v];
            if (GRADIENT) along_x[v] += w->x[GRADIENT][a] * level[v], along_y[v] += w->x[0][a] * slope[v];
        }
    }
    // Slots have nodes along z that are not the stencil's: their weight is zero, and they may not be finite.
    UNROLL for (int k = 0; k < SUMS; k++) sums[k] = 0;
    UNROLL for (int n = 0; n < SLOTS_Z; n++) {
        const int m = n / VECTOR, v = n % VECTOR, node = m * NODES_OF_READ + (VECTOR < PARTS ? 0 : v / PARTS);
        const int part = VECTOR < PARTS ? ((m * LANES_Z + lane_z) * VECTOR + v) % PARTS : v % PARTS;
        UNROLL for (int p = 0; p < PARTS; p++)
            if (part == p) {
                PRIVATE real* of_part = sums + p * RESULTS_OF_PART;
                of_part[0] += weighted(flat[n], w->z[0][node]);
                if (GRADIENT) {
                    of_part[GRADIENT] += weighted(along_x[n], w->z[0][node]);
                    of_part[2 * GRADIENT] += weighted(along_y[n], w->z[0][node]);
                    of_part[3 * GRADIENT] += weighted(flat[n], w->z[GRADIENT][node]);
                }
            }
    }
}

DEVICE void write_results(PRIVATE const real* sums, GLOBAL real* values, GLOBAL real* gradient, const i64 i,
                          const int channel, PRIVATE const Values* value_layout,
                          PRIVATE const Values* gradient_layout, PRIVATE const Jacobian* jacobian)
{
    UNROLL for (int p = 0; p < PARTS; p++) {
        PRIVATE const real* of_part = sums + p * RESULTS_OF_PART;
        if (VALUE)
            values[value_layout->offset + i * value_layout->particle + channel * value_layout->channel
                   + p * value_layout->part] = of_part[0];
#if GRADIENT
        UNROLL for (int b = 3 - SUPPORT_AXES; b < 3; b++)
            gradient[gradient_layout->offset + i * gradient_layout->particle + channel * gradient_layout->channel
                     + p * gradient_layout->part + (b - 3 + SUPPORT_AXES) * gradient_layout->axis] =
                of_part[1] * jacobian->row[b] + of_part[2] * jacobian->row[3 + b] + of_part[3] * jacobian->row[6 + b];
#endif
    }
}

// A tile's runs of particles, a line of blocks along x each; every lane of a warp has one.
typedef struct {
    u32 shift; // from a particle's number in the tile to its place in the order
    u32 end;   // of the line's particles in the tile
    int base;  // where the line begins in local memory
} Line;

// The record of the tile's particle `q`, and where its line begins. The whole warp calls it.
DEVICE int find_record(WARP_PARAMETER warp, GLOBAL const u32* records, PRIVATE const Line* line, const u32 q,
                       const int there, PRIVATE u32* words)
{
    int own = 0; // the line: how many end at q or before
    UNROLL for (int step = WARP_SIZE / 2; step > 0; step /= 2)
        if (LINES > step && WARP_SHUFFLE_U32(warp, line->end, own + step - 1) <= q) own += step;
    const u32 shift = WARP_SHUFFLE_U32(warp, line->shift, own);
    const int base = (int)WARP_SHUFFLE_U32(warp, (u32)line->base, own);
    if (there) read_record(records, (i64)(q + shift), words);
    return base;
}

KERNEL interpolate_tile(GLOBAL const u32* RESTRICT records, GLOBAL const u32* RESTRICT start,
                        GLOBAL const u32* RESTRICT located, // read if PACKED
                        GLOBAL const int* RESTRICT node,    // (3, rows), read if not, nor WEIGHTLESS_LAST
                        GLOBAL const u32* RESTRICT listed, GLOBAL const u32* RESTRICT parts,
                        GLOBAL const real* RESTRICT field,
                        GLOBAL real* RESTRICT values,   // written if VALUE
                        GLOBAL real* RESTRICT gradient, // written if GRADIENT, per user length
                        const i64 most, const i64 particles, const i64 rows, const Blocks blocks, const Tiles tiles,
                        const Values value_layout, const Values gradient_layout, const Field field_layout,
                        const Window window, const Jacobian jacobian WITH_LOCAL_POOL)
{
    WARP(warp);
    LOCAL_POOL(real, nodes);
    LOCAL_ARRAY(offset_t, offsets, ROWS + CHUNKS); // of rows and of their copies in the field
#if LANES > 1
    LOCAL_ARRAY(real4, origin_memory, GROUP_SIZE); // fractions and beginnings of a warp's particles
    LOCAL_ARRAY(real4, staged_memory, WARPS * AT_ONCE * STAGED_PITCH / 4 + 1);
    LOCAL_ARRAY(u32, indices, GROUP_SIZE);
    LOCAL real* origins = (LOCAL real*)origin_memory + LOCAL_ID / WARP_SIZE * (4 * WARP_SIZE);
    LOCAL real* staged = (LOCAL real*)staged_memory + LOCAL_ID / WARP_SIZE * (AT_ONCE * STAGED_PITCH);
    LOCAL u32* index = indices + LOCAL_ID / WARP_SIZE * WARP_SIZE;
    for (int n = LANE; n < AT_ONCE * STAGED_PITCH; n += WARP_SIZE) staged[n] = 0;
#endif
    const i64 all = listed[0];
    const int nx = blocks.counts[0];
    for (i64 k = GROUP_ID; k < all; k += GROUP_COUNT) {
        int first[3];
        blocks_of_tile(&tiles, parts[2 * k], first);
        u32 run[2] = {0, 0};
        if (LANE < LINES) run_of(start, &blocks, &tiles, first, LANE, run);
        // The tile's first node along each axis, and the node behind those that its stencils reach.
        const int past_x = first[0] + tiles.blocks[0] < nx ? first[0] + tiles.blocks[0] : nx;
        const int past_y = first[1] + tiles.blocks[1] < blocks.counts[1] ? first[1] + tiles.blocks[1] : blocks.counts[1];
        const int past_z = first[2] + tiles.blocks[2] < blocks.counts[2] ? first[2] + tiles.blocks[2] : blocks.counts[2];
        const int x0 = begin_of(&blocks, 0, first[0]), x1 = begin_of(&blocks, 0, past_x) + SUPPORT_X - 1;
        const int y0 = begin_of(&blocks, 1, first[1]), y1 = begin_of(&blocks, 1, past_y) + SUPPORT_Y - 1;
        const int z0 = begin_of(&blocks, 2, first[2]), z1 = begin_of(&blocks, 2, past_z) + SUPPORT_Z - 1;
        const int row0 = z0 & ~(NODES_OF_COPY - 1); // rows begin where copies are aligned
        ROLL for (int n = LOCAL_ID; n < ROWS + CHUNKS; n += GROUP_SIZE) {
            offset_t at = OFF_FIELD;
            if (n < ROWS) {
                const int x = x0 + n / TILE_Y, y = y0 + n % TILE_Y;
                const int node_x = x < x1 ? place(x, field_layout.size[0], field_layout.wraps[0]) : -1;
                const int node_y = y < y1 ? place(y, field_layout.size[1], field_layout.wraps[1]) : -1;
                if (node_x >= 0 && node_y >= 0)
                    at = (offset_t)(node_x * field_layout.stride[0] + node_y * field_layout.stride[1]);
            } else {
                const int chunk = n - ROWS, z = row0 + chunk / COPIES_OF_NODE * NODES_OF_COPY;
                const int node_z = z < z1 ? place(z, field_layout.size[2], field_layout.wraps[2]) : -1;
                if (node_z >= 0) at = (offset_t)(node_z * field_layout.stride[2]) + chunk % COPIES_OF_NODE * COPY;
            }
            offsets[n] = at;
        }
        BARRIER();
        for (int c = 0; c < CHANNELS; c++) {
            GLOBAL const real* plane = field + field_layout.offset + c * field_layout.channel;
            for (int n = LOCAL_ID; n < ROWS * CHUNKS; n += GROUP_SIZE) {
                const int row = (int)((u32)n / CHUNKS);
                const offset_t of_row = offsets[row], of_z = offsets[ROWS + n - row * CHUNKS];
                const int there = of_row != OFF_FIELD && of_z != OFF_FIELD;
                COPY_LOCAL(nodes + n * COPY, plane + (of_row + of_z), COPY, there);
            }

            Line line;
            u32 sum = run[1] - run[0]; // of the lines up to this one
            UNROLL for (int step = 1; step < LINES; step *= 2) {
                const u32 before = WARP_SHUFFLE_U32(warp, sum, LANE - step);
                if (LANE >= step) sum += before;
            }
            line.end = sum, line.shift = run[1] - sum;
            const int jy = LANE / tiles.blocks[2], by = first[1] + jy, bz = first[2] + LANE - jy * tiles.blocks[2];
            line.base = (begin_of(&blocks, 1, by) - y0) * ROW_PITCH + (begin_of(&blocks, 2, bz) - row0) * PARTS;
            const u32 in_tile = WARP_SHUFFLE_U32(warp, sum, LINES - 1), before = parts[2 * k + 1] * (u32)most;
            const int size = in_tile - before < (u32)most ? (int)(in_tile - before) : (int)most;

            u32 words[RECORD_WORDS];
            UNROLL for (int w = 0; w < RECORD_WORDS; w++) words[w] = 0;
            int batch = LOCAL_ID / WARP_SIZE * WARP_SIZE;
            int of_line = find_record(warp, records, &line, before + (u32)(batch + LANE), batch + LANE < size, words);
            COPY_WAIT();
            BARRIER();
            for (; batch < size; batch += WARPS * WARP_SIZE) {
                Placed p;
                particle_of(words, &p);
                int base = ((p.bx - first[0]) * blocks.cells[0] + p.offset[0]) * LEVEL_PITCH
                         + p.offset[1] * ROW_PITCH + p.offset[2] * PARTS + of_line;
                if (batch + LANE >= size) base = 0; // its results are not written
                const int next = batch + WARPS * WARP_SIZE + LANE;
                of_line = find_record(warp, records, &line, before + (u32)next, next < size, words);
                Weights w;
                real sums[SUMS];
#if LANES > 1
                STORE_LOCAL_4(origins + 4 * LANE, p.fraction[0], p.fraction[1], p.fraction[2], REAL_FROM_INDEX(base));
                index[LANE] = p.index;
                WARP_SYNC(warp);
                ROLL for (int some = 0; some < WARP_SIZE && batch + some < size; some += AT_ONCE) {
                    UNROLL for (int k = 0; k < 3; k += SHARE) {
                        const int axis = k + LANE % SHARE, one = LANE / SHARE;
                        if (axis < 3)
                            stage_weights(staged + one * STAGED_PITCH, &window, axis, origins[4 * (some + one) + axis]);
                    }
                    WARP_SYNC(warp);
                    ROLL for (int turn = 0; turn < AT_ONCE; turn += TEAM) {
                        const int one = turn + LANE / LANES, mine = some + one;
                        base = (int)INDEX_OF_REAL(origins[4 * mine + 3]);
                        own_weights(&w, staged + one * STAGED_PITCH, base, LANE % LANES);
                        gather(sums, nodes, base, LANE % LANES, &w);
                        UNROLL for (int step = LANES / 2; step > 0; step /= 2)
                            UNROLL for (int n = 0; n < SUMS; n++) sums[n] += WARP_SHUFFLE(warp, sums[n], LANE ^ step);
                        if (LANE % LANES == 0 && batch + mine < size)
                            write_results(sums, values, gradient, (i64)index[mine], c, &value_layout, &gradient_layout,
                                          &jacobian);
                    }
                    WARP_SYNC(warp);
                }
#else
                all_weights(&w, &window, p.fraction, base);
                gather(sums, nodes, base, 0, &w);
                if (batch + LANE < size)
                    write_results(sums, values, gradient, (i64)p.index, c, &value_layout, &gradient_layout, &jacobian);
#endif
            }
            BARRIER(); // before the next nodes come
        }
    }
    const i64 taken = start[(i64)nx * blocks.counts[1] * blocks.counts[2]];
    if (taken < particles)
        clear_weightless(located, node, values, gradient, taken, particles, rows, &value_layout, &gradient_layout);
}
