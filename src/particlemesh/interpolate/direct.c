// SPDX-License-Identifier: BSD-3-Clause
// A few neighbouring lanes read each particle's stencil from the field, as shares.h divides it; particles come in block
// order. The loads of several levels are issued before the first of them is used, and no branch is between them.
//
// Compile-time facts beside those of shares.h: LEVELS (along x, loaded at a time), OPEN (a node of a stencil may be
// missing), ROUND (all axes wrap, and no stencil goes around the mesh twice), FIELD_IS_WIDE, SYMMETRIC.

#define REALS (CHANNELS * PARTS)
#define RESULTS ((VALUE + GRADIENT * SUPPORT_AXES) * REALS)
#include "interpolate/shares.h"
#include "interpolate/weightless.h"
#include "orders/batches.h"
#include "orders/ordered.h"

// ---- particles in block order, as ordered.h returns them, in less time where they are spread evenly -----------------


typedef struct {
    real each; // lines per particle
} Even;

// The particle at place `at`: where its stencil begins, its fractions, and its index. The line of a place is looked for
// where it is expected, and all loads are independent. All lanes of a warp call it with
// consecutive places; LANES of them share one. `here` becomes 0 at places without a particle, whose results are
// undefined. There are `count` in order, and memory for the records of `particles`: those behind are read, not used.
DEVICE i64 expected_particle(WARP_PARAMETER warp, GLOBAL const u32* records, GLOBAL const u32* start, const i64 at,
                             const i64 particles, const u32 count, PRIVATE const Even* even, PRIVATE const Blocks* blocks,
                             PRIVATE int* here, PRIVATE int* first, PRIVATE real* fraction)
{
    const int nx = blocks->counts[LINES_ALONG], lines = lines_of_blocks(blocks);
    u32 words[RECORD_WORDS];
    UNROLL for (int k = 0; k < RECORD_WORDS; k++) words[k] = 0;
    if (at < particles) read_record(records, at, words);
    const i64 begin = at - LANE / LANES; // of the warp
    const int guess = (int)((real)(u32)begin * even->each) - WARP_SIZE / 4, most = lines - WARP_SIZE;
    const int low = guess < most ? guess : most, from = low < 0 ? 0 : low;
    const u32 begins = start[(i64)(from + LANE < lines ? from + LANE : lines) * nx];
    *here = at < count;
    const u32 asked = *here ? (u32)at : count - 1, earliest = begin < count ? (u32)begin : count - 1;
    const u32 before = WARP_BALLOT(warp, begins <= earliest);
    const int passed = POPCOUNT_U32(before);
    int line = from + passed - 1;
    u32 end = WARP_SHUFFLE_U32(warp, begins, passed % WARP_SIZE); // of the line
    if (passed == 0 || passed == WARP_SIZE) line = line_of(warp, start, earliest, lines, nx), end = 0;
    if (WARP_BALLOT(warp, asked >= end)) line = lines_of(warp, start, asked, line, lines, nx);
    return particle_in_line(words, line, blocks, first, fraction);
}

#define WARPS (GROUP_SIZE / WARP_SIZE)

// A loop keeps the weights along x in memory. Unrolled, wider windows need more registers than there are.
#if SUPPORT > (GRADIENT ? 8 : 10)
#define LEVELS_UNROLLED ROLL
#else
#define LEVELS_UNROLLED UNROLL
#endif

// Where a lane's nodes are in the field, along each axis; OFF_FIELD where there are none.
typedef struct {
    offset_t x[SUPPORT_X], y[LANE_ROWS], z[LANE_SLOTS];
} Places;

DEVICE offset_t offset_of(const int node, const int size, const int wraps, const i64 stride)
{
#if ROUND // whichever of them is in the mesh is the least: negative numbers become large
    const u32 before = (u32)(node + size), after = (u32)(node - size), least = before < (u32)node ? before : (u32)node;
    return (offset_t)((after < least ? after : least) * stride);
#else
    const int folded = wraps && node < 0 ? node + size : node, at = place(folded, size, wraps);
    return OPEN && at < 0 ? OFF_FIELD : (offset_t)(at * stride);
#endif
}

// Rows and slots that the stencil does not have are those of its first node: their weight is zero.
DEVICE void places_of(PRIVATE Places* at, PRIVATE const int* first, const int lane, PRIVATE const Field* field)
{
    const int lane_z = lane % LANES_Z, row = lane / LANES_Z * LANE_ROWS, shift = shift_of(first[2] * PARTS);
    UNROLL for (int a = 0; a < SUPPORT_X; a++)
        at->x[a] = offset_of(first[0] + a, field->size[0], field->wraps[0], field->stride[0]);
    UNROLL for (int b = 0; b < LANE_ROWS; b++)
        at->y[b] = offset_of(first[1] + (row + b < SUPPORT_Y ? row + b : 0), field->size[1], field->wraps[1], field->stride[1]);
    UNROLL for (int m = 0; m < LANE_SLOTS; m++) {
        const int real_ = (m * LANES_Z + lane_z) * VECTOR, used = real_ - shift < ROW;
        const int from = (used ? real_ : real_ % PARTS) - shift; // of the stencil's row
        const int node = first[2] + (from + PARTS * VECTOR) / PARTS - VECTOR;
        at->z[m] = offset_of(node, field->size[2], field->wraps[2], field->stride[2]);
        if (VECTOR < PARTS && at->z[m] != OFF_FIELD) at->z[m] += real_ % PARTS;
    }
}

// One lane's share of a particle's results.
DEVICE void gather(PRIVATE real* sums, GLOBAL const real* plane, PRIVATE const Places* at, const int lane,
                   PRIVATE const Weights* w)
{
    real flat[SLOTS_Z], along_x[SLOTS_Z], along_y[SLOTS_Z]; // sums over levels
    UNROLL for (int v = 0; v < SLOTS_Z; v++) flat[v] = along_x[v] = along_y[v] = 0;
    GLOBAL const real* from[LANE_SLOTS];
    UNROLL for (int m = 0; m < LANE_SLOTS; m++) {
        from[m] = plane + (OPEN && at->z[m] == OFF_FIELD ? 0 : at->z[m]);
        POINTER_ANEW(from[m]); // else the compiler adds up all three offsets for each load, and the plane's
    }
    LEVELS_UNROLLED for (int begin = 0; begin < SUPPORT_X; begin += LEVELS) {
        real f[LEVELS][LANE_ROWS][SLOTS_Z];
        UNROLL for (int l = 0; l < LEVELS; l++)
            UNROLL for (int b = 0; b < LANE_ROWS; b++)
                UNROLL for (int m = 0; m < LANE_SLOTS; m++) {
                    const int a = begin + l < SUPPORT_X ? begin + l : SUPPORT_X - 1;
                    const int there = !OPEN || (at->x[a] != OFF_FIELD && at->y[b] != OFF_FIELD && at->z[m] != OFF_FIELD);
                    PRIVATE real* to = &f[l][b][m * VECTOR];
                    UNROLL for (int v = 0; v < VECTOR; v++) to[v] = 0;
                    if (begin + l < SUPPORT_X) if (there) load_vector(from[m] + (at->x[a] + at->y[b]), to);
                }
        UNROLL for (int l = 0; l < LEVELS; l++) {
            const int a = begin + l < SUPPORT_X ? begin + l : SUPPORT_X - 1;
            UNROLL for (int v = 0; v < SLOTS_Z; v++) {
                real level = 0, slope = 0; // sums over rows
                UNROLL for (int b = 0; b < LANE_ROWS; b++) {
                    level += w->y[0][b] * f[l][b][v];
                    if (GRADIENT) slope += w->y[GRADIENT][b] * f[l][b][v];
                }
                if (begin + l >= SUPPORT_X) continue;
                flat[v] += w->x[0][a] * level;
                if (GRADIENT) along_x[v] += w->x[GRADIENT][a] * level, along_y[v] += w->x[0][a] * slope;
            }
        }
    }
    sums_along_z(sums, flat, along_x, along_y, lane % LANES_Z, w);
}

KERNEL interpolate_direct(GLOBAL const u32* RESTRICT records, GLOBAL const u32* RESTRICT start,
                          GLOBAL const u32* RESTRICT located, // read if PACKED
                          GLOBAL const int* RESTRICT node,    // (3, rows), read if not, nor WEIGHTLESS_LAST
                          GLOBAL const real* RESTRICT field,
                          GLOBAL real* RESTRICT values,   // written if VALUE
                          GLOBAL real* RESTRICT gradient, // written if GRADIENT, per user length
                          const i64 particles, const i64 rows, const Blocks blocks, const Values value_layout,
                          const Values gradient_layout, const Field field_layout, const Batches batches,
                          const Window window, const Jacobian jacobian, const Even even)
{
    WARP(warp);
    const u32 all = start[(i64)lines_of_blocks(&blocks) * blocks.counts[LINES_ALONG]];
    const i64 teams = (particles + TEAM - 1) / TEAM; // not of `all`: the first loads would wait for it
    for (i64 turn = GROUP_ID * WARPS + LOCAL_ID / WARP_SIZE; turn < GROUPS_OF(batches) * teams; turn += GROUP_COUNT * WARPS) {
        const i64 batch = BATCH_OF(turn, teams), at = (turn - batch * teams) * TEAM + LANE / LANES;
        const int lane = LANE % LANES;
        int here, first[3];
        real fraction[3], sums[SUMS];
        const i64 i = expected_particle(warp, records, start, at, particles, all, &even, &blocks, &here, first, fraction);
        if (!here) first[0] = first[1] = first[2] = 0; // its results are not written
        Weights w;
        Places places;
        places_of(&places, first, lane, &field_layout);
        weights_of_lane(&w, &window, fraction, first[2] * PARTS, lane);
        for (int c = 0; c < CHANNELS; c++) {
#if CHANNELS > 1 // else the offsets of all nodes are kept for the next channel, beyond registers
            UNROLL for (int a = 0; a < SUPPORT_X; a++) OFFSET_ANEW(places.x[a]);
#endif
            gather(sums, field + batch * batches.field + field_layout.offset + c * field_layout.channel, &places, lane, &w);
            deal_results(warp, sums, here, values + batch * batches.values, gradient + batch * batches.gradient, i, c,
                         &value_layout, &gradient_layout, &jacobian);
        }
    }
    if (all < particles)
        for (i64 batch = 0; batch < GROUPS_OF(batches); batch++)
            clear_weightless(located, node, values + batch * batches.values, gradient + batch * batches.gradient, all,
                             particles, rows, &value_layout, &gradient_layout);
}
