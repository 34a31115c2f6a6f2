// SPDX-License-Identifier: BSD-3-Clause
// A work-group copies the nodes that a tile's stencils reach to local memory, and interpolates for the tile's particles
// from there. A few neighbouring lanes share a particle, as stencil.h divides stencils.
//
// Compile-time facts beside those of stencil.h, where VECTOR is the reals per read of local memory: COPY (reals per copy
// of the field), TILE_X, TILE_Y (nodes of a tile), CHUNKS (copies of a row along z), ROW_PITCH, LEVEL_PITCH (reals from
// one row or level to the next), FIELD_IS_WIDE, SYMMETRIC, VALUE, GRADIENT.

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

#define WARPS (GROUP_SIZE / WARP_SIZE)
#define TEAM (WARP_SIZE / LANES) // particles that a warp takes at a time
#define COPIES_OF_NODE (COPY < PARTS ? PARTS / COPY : 1)
#define NODES_OF_COPY (COPY < PARTS ? 1 : COPY / PARTS)
#define SLOTS_Z (LANE_SLOTS * VECTOR)
#define SUMS (PARTS * (1 + 3 * GRADIENT))

// What a particle's results are computed from: where its stencil begins in local memory, and its fractions.
typedef struct {
    int base;
    real fraction[3];
} Origin;

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

// All weights along an axis, and slopes with GRADIENT.
DEVICE void along(PRIVATE real* w, PRIVATE real* d, PRIVATE const Window* window, const int axis, const real z)
{
    if (axis < 3 - SUPPORT_AXES) {
        w[0] = 1;
        if (GRADIENT) d[0] = 0;
    } else {
        weights_of(w, window, z);
        if (GRADIENT) slopes_of(d, window, z);
    }
}

// One lane's share of a particle's results: of each part the value, and with GRADIENT the slopes in node coordinates.
DEVICE void gather(PRIVATE real* sums, LOCAL const real* nodes, PRIVATE const Origin* at, const int lane,
                   PRIVATE const Window* window)
{
    const int lane_z = lane % LANES_Z, lane_y = lane / LANES_Z;
    const int shift = VECTOR > PARTS ? at->base & (VECTOR - 1) : 0; // reals from the first slot to the first node
    LOCAL const real* from = nodes + (at->base - shift + lane_z * VECTOR + lane_y * ROW_PITCH);
    real x[SUPPORT], dx[SUPPORT], y[SUPPORT], dy[SUPPORT], own_y[LANE_ROWS], own_dy[LANE_ROWS];
    real flat[SLOTS_Z], along_x[SLOTS_Z], along_y[SLOTS_Z]; // sums over levels
    along(x, dx, window, 0, at->fraction[0]);
    along(y, dy, window, 1, at->fraction[1]);
    UNROLL for (int b = 0; b < LANE_ROWS; b++) {
        own_y[b] = 0, own_dy[b] = 0;
        UNROLL for (int k = 0; k < LANES_Y; k++) {
            const int row = b * LANES_Y + k;
            if (row < SUPPORT_Y && lane_y == k) {
                own_y[b] = y[row];
                if (GRADIENT) own_dy[b] = dy[row];
            }
        }
    }
    UNROLL for (int v = 0; v < SLOTS_Z; v++) flat[v] = along_x[v] = along_y[v] = 0;
    UNROLL_ROWS for (int a = 0; a < SUPPORT_X; a++) {
        real level[SLOTS_Z], slope[SLOTS_Z]; // sums over rows
        UNROLL for (int v = 0; v < SLOTS_Z; v++) level[v] = slope[v] = 0;
        UNROLL_ROWS for (int b = 0; b < LANE_ROWS; b++) {
            const int there = (b + 1) * LANES_Y <= SUPPORT_Y || b * LANES_Y + lane_y < SUPPORT_Y;
            UNROLL for (int m = 0; m < LANE_SLOTS; m++) {
                real f[VECTOR];
                UNROLL for (int v = 0; v < VECTOR; v++) f[v] = 0;
                if (there) load_local(from + a * LEVEL_PITCH + b * LANES_Y * ROW_PITCH + m * LANES_Z * VECTOR, f);
                UNROLL for (int v = 0; v < VECTOR; v++) {
                    level[m * VECTOR + v] += own_y[b] * f[v];
                    if (GRADIENT) slope[m * VECTOR + v] += own_dy[b] * f[v];
                }
            }
        }
        UNROLL for (int v = 0; v < SLOTS_Z; v++) {
            flat[v] += x[a] * level[v];
            if (GRADIENT) along_x[v] += dx[a] * level[v], along_y[v] += x[a] * slope[v];
        }
    }
    // Along z slots have nodes that are not the stencil's: their weight is zero, and they may not be finite.
    real z[SUPPORT], dz[SUPPORT];
    along(z, dz, window, 2, at->fraction[2]);
    UNROLL for (int k = 0; k < SUMS; k++) sums[k] = 0;
    UNROLL for (int m = 0; m < LANE_SLOTS; m++)
        UNROLL for (int v = 0; v < VECTOR; v++) {
            const int n = m * VECTOR + v, real_ = (m * LANES_Z + lane_z) * VECTOR + v - shift; // of the stencil's row
            real weight = 0, slope = 0;
            UNROLL for (int j = 0; j < SUPPORT_Z; j++)
                if (real_ >= 0 && real_ / PARTS == j) {
                    weight = z[j];
                    if (GRADIENT) slope = dz[j];
                }
            UNROLL for (int p = 0; p < PARTS; p++)
                if ((VECTOR < PARTS ? real_ % PARTS : v % PARTS) == p) {
                    PRIVATE real* of_part = sums + p * (1 + 3 * GRADIENT);
                    of_part[0] += weighted(flat[n], weight);
                    if (GRADIENT) {
                        of_part[1] += weighted(along_x[n], weight);
                        of_part[2] += weighted(along_y[n], weight);
                        of_part[3 * GRADIENT] += weighted(flat[n], slope);
                    }
                }
        }
}

DEVICE void write_results(PRIVATE const real* sums, GLOBAL real* values, GLOBAL real* gradient, const i64 i,
                          const int channel, PRIVATE const Values* value_layout,
                          PRIVATE const Values* gradient_layout, PRIVATE const Jacobian* jacobian)
{
    UNROLL for (int p = 0; p < PARTS; p++) {
        PRIVATE const real* of_part = sums + p * (1 + 3 * GRADIENT);
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
    LOCAL_ARRAY(offset_t, offsets, TILE_X + TILE_Y + CHUNKS); // of levels, rows and copies in the field
#if LANES > 1
    LOCAL_ARRAY(real4, staged_memory, GROUP_SIZE); // fractions and beginnings of a warp's particles
    LOCAL_ARRAY(u32, indices, GROUP_SIZE);
    LOCAL real* staged = (LOCAL real*)staged_memory + LOCAL_ID / WARP_SIZE * (4 * WARP_SIZE);
    LOCAL u32* index = indices + LOCAL_ID / WARP_SIZE * WARP_SIZE;
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
        for (int n = LOCAL_ID; n < TILE_X + TILE_Y + CHUNKS; n += GROUP_SIZE) {
            int at, part = 0;
            i64 stride;
            if (n < TILE_X) {
                at = x0 + n < x1 ? place(x0 + n, field_layout.size[0], field_layout.wraps[0]) : -1;
                stride = field_layout.stride[0];
            } else if (n < TILE_X + TILE_Y) {
                at = y0 + n - TILE_X < y1 ? place(y0 + n - TILE_X, field_layout.size[1], field_layout.wraps[1]) : -1;
                stride = field_layout.stride[1];
            } else {
                const int chunk = n - TILE_X - TILE_Y, z = row0 + chunk / COPIES_OF_NODE * NODES_OF_COPY;
                at = z < z1 ? place(z, field_layout.size[2], field_layout.wraps[2]) : -1;
                stride = field_layout.stride[2];
                part = chunk % COPIES_OF_NODE * COPY;
            }
            offsets[n] = at < 0 ? OFF_FIELD : (offset_t)(at * stride) + part;
        }
        BARRIER();
        for (int c = 0; c < CHANNELS; c++) {
            GLOBAL const real* plane = field + field_layout.offset + c * field_layout.channel;
            for (int n = LOCAL_ID; n < TILE_X * TILE_Y * CHUNKS; n += GROUP_SIZE) {
                const int row = n / CHUNKS, chunk = n - row * CHUNKS, x = row / TILE_Y, y = row - x * TILE_Y;
                const offset_t of_x = offsets[x], of_y = offsets[TILE_X + y], of_z = offsets[TILE_X + TILE_Y + chunk];
                const int there = of_x != OFF_FIELD && of_y != OFF_FIELD && of_z != OFF_FIELD;
                COPY_LOCAL(nodes + x * LEVEL_PITCH + y * ROW_PITCH + chunk * COPY,
                           plane + (there ? of_x + of_y + of_z : 0), COPY, there);
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
                Origin own;
                particle_of(words, &p);
                own.base = ((p.bx - first[0]) * blocks.cells[0] + p.offset[0]) * LEVEL_PITCH + p.offset[1] * ROW_PITCH
                         + p.offset[2] * PARTS + of_line;
                if (batch + LANE >= size) own.base = 0; // its results are not written
                for (int a = 0; a < 3; a++) own.fraction[a] = p.fraction[a];
                const int next = batch + WARPS * WARP_SIZE + LANE;
                of_line = find_record(warp, records, &line, before + (u32)next, next < size, words);
#if LANES > 1
                STORE_LOCAL_4(staged + 4 * LANE, own.fraction[0], own.fraction[1], own.fraction[2],
                              REAL_FROM_INDEX(own.base));
                index[LANE] = p.index;
                WARP_SYNC(warp);
                ROLL for (int turn = 0; turn < WARP_SIZE && batch + turn < size; turn += TEAM) {
                    const int mine = turn + LANE / LANES;
                    real four[4], sums[SUMS];
                    LOAD_LOCAL_4(staged + 4 * mine, four);
                    for (int a = 0; a < 3; a++) own.fraction[a] = four[a];
                    own.base = (int)INDEX_OF_REAL(four[3]);
                    gather(sums, nodes, &own, LANE % LANES, &window);
                    UNROLL for (int step = LANES / 2; step > 0; step /= 2)
                        UNROLL for (int n = 0; n < SUMS; n++) sums[n] += WARP_SHUFFLE(warp, sums[n], LANE ^ step);
                    if (LANE % LANES == 0 && batch + mine < size)
                        write_results(sums, values, gradient, (i64)index[mine], c, &value_layout, &gradient_layout, &jacobian);
                }
                WARP_SYNC(warp);
#else
                real sums[SUMS];
                gather(sums, nodes, &own, 0, &window);
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
