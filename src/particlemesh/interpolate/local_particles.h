// SPDX-License-Identifier: BSD-3-Clause
// A group's particles whose stencils are in local memory. They are runs of the order, one for each line of blocks along x.
// They are dealt to warps, and a few neighbouring lanes share a particle, as shares.h divides stencils.
//
// Compile-time facts beside those of tile_box.h and shares.h: VECTOR (reals per read of local memory), LINES (of blocks),
// LINES_Z (of them along z), and RING if that many levels lie on a ring. BY_OCTETS: warps take particles as octets.h has it.

#ifndef BY_OCTETS
#define BY_OCTETS 0
#endif

#define WARPS (GROUP_SIZE / WARP_SIZE)
#define DEAL (LANES > 1 ? TEAM : WARP_SIZE) // warps get multiples of so many particles
#define HALF_OF_LINES (LINES > 16 ? 16 : LINES > 8 ? 8 : LINES > 4 ? 4 : LINES > 2 ? 2 : LINES > 1 ? 1 : 0)

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

#ifdef RING
// The next place of a ring, `by` places on.
DEVICE int further(const int slot, const int by)
{
    return slot + by < RING ? slot + by : slot + by - RING;
}
#endif

// The same place of the next level.
DEVICE int next_level(const int at)
{
#ifdef RING
    if (at >= (RING - 1) * LEVEL_PITCH) return at - (RING - 1) * LEVEL_PITCH;
#endif
    return at + LEVEL_PITCH;
}

// The runs of particles of a group; every lane of a warp has one.
typedef struct {
    u32 shift; // from a particle's number to its place in the order
    u32 end;   // of the line's particles
    int base;  // where the line begins in a level
} Line;

// What a warp has of its group's particles, which are numbered through all runs: from `before` + `begin` to `before` +
// `end`. Of particles at block bx, levels count from the one at `slot`.
typedef struct {
    Line line;
    u32 before;
    int begin, end, bx, slot;
} Share;

// Where the line (by, bz) of blocks begins in a level of the nodes of `box`.
DEVICE int base_of_line(PRIVATE const Box* box, PRIVATE const Blocks* blocks, const int by, const int bz)
{
    return (begin_of(blocks, 1, by) - box->first[1]) * ROW_PITCH + (begin_of(blocks, 2, bz) - box->row) * PARTS;
}

// How many particles the runs of all lines have. Numbers through all of them become the lane's.
DEVICE u32 number_runs(WARP_PARAMETER warp, PRIVATE Line* line, PRIVATE const u32* run)
{
    u32 sum = run[1] - run[0]; // of the lines up to this one
    UNROLL for (int step = 1; step < LINES; step *= 2) {
        const u32 lower = WARP_SHUFFLE_U32(warp, sum, LANE - step);
        if (LANE >= step) sum += lower;
    }
    line->end = sum, line->shift = run[1] - sum;
    return WARP_SHUFFLE_U32(warp, sum, LINES - 1);
}

// Deal `size` particles to the warps, from number `before` on; octets are dealt later.
DEVICE void deal(PRIVATE Share* own, const u32 before, const int size)
{
#if BY_OCTETS
    own->before = before, own->begin = 0, own->end = size;
#else
    const int each = (size + WARPS * DEAL - 1) / (WARPS * DEAL) * DEAL; // equal shares: warps wait for each other
    own->before = before;
    own->begin = LOCAL_ID / WARP_SIZE * each;
    own->end = own->begin + each < size ? own->begin + each : size;
#endif
}

#if BY_OCTETS
#include "interpolate/octets.h"
#else
#if IN_TURN
// One lane's share of a particle's results: of each part the value, and with GRADIENT the slopes in node coordinates.
DEVICE void gather(PRIVATE real* sums, LOCAL const real* nodes, const int base, const int lane, PRIVATE const Weights* w)
{
    const int lane_z = lane % LANES_Z, lane_y = lane / LANES_Z;
    int at = base - shift_of(base) + lane_z * VECTOR + lane_y * ROW_PITCH, next = next_level(at), level = 0;
    real flat[SLOTS_Z], along_x[SLOTS_Z], along_y[SLOTS_Z]; // sums over rows
    UNROLL for (int v = 0; v < SLOTS_Z; v++) flat[v] = along_x[v] = along_y[v] = 0;
    UNROLL for (int first = 0; first < SUPPORT_X * SUPPORT_Y; first += LANES_Y) { // of the rows that lanes have at a time
        const int a = first / SUPPORT_Y, row = first % SUPPORT_Y, own = first / LANES_Y % OWN_ROWS;
        if (a > level) at = next, next = next_level(next), level = a;
        const int behind = a + 1 < SUPPORT_X && row + lane_y >= SUPPORT_Y; // in the next level
        const int there = first + LANES_Y <= SUPPORT_X * SUPPORT_Y || first + lane_y < SUPPORT_X * SUPPORT_Y;
        LOCAL const real* from = nodes + (behind ? next + (row - SUPPORT_Y) * ROW_PITCH : at + row * ROW_PITCH);
        const int last = a + 1 < SUPPORT_X ? a + 1 : a;
        real weight[2]; // along x, and its slope
        UNROLL for (int s = 0; s < 1 + GRADIENT; s++) weight[s] = behind ? w->x[s][last] : w->x[s][a];
        UNROLL for (int m = 0; m < LANE_SLOTS; m++) {
            real f[VECTOR];
            UNROLL for (int v = 0; v < VECTOR; v++) f[v] = 0;
            if (there) load_local(from + m * LANES_Z * VECTOR, f);
            UNROLL for (int v = 0; v < VECTOR; v++) {
                flat[m * VECTOR + v] += weight[0] * w->y[0][own] * f[v];
                if (GRADIENT) {
                    along_x[m * VECTOR + v] += weight[GRADIENT] * w->y[0][own] * f[v];
                    along_y[m * VECTOR + v] += weight[0] * w->y[GRADIENT][own] * f[v];
                }
            }
        }
    }
    sums_along_z(sums, flat, along_x, along_y, lane_z, w);
}
#else
// One lane's share of a particle's results: of each part the value, and with GRADIENT the slopes in node coordinates.
DEVICE void gather(PRIVATE real* sums, LOCAL const real* nodes, const int base, const int lane, PRIVATE const Weights* w)
{
    const int lane_z = lane % LANES_Z, row = lane / LANES_Z * LANE_ROWS; // the first of its rows
    int at = base - shift_of(base) + lane_z * VECTOR + row * ROW_PITCH;
    real flat[SLOTS_Z], along_x[SLOTS_Z], along_y[SLOTS_Z]; // sums over levels
    UNROLL for (int v = 0; v < SLOTS_Z; v++) flat[v] = along_x[v] = along_y[v] = 0;
    UNROLL_ROWS for (int a = 0; a < SUPPORT_X; a++) {
        LOCAL const real* from = nodes + at;
        real level[SLOTS_Z], slope[SLOTS_Z]; // sums over rows
        UNROLL for (int v = 0; v < SLOTS_Z; v++) level[v] = slope[v] = 0;
        UNROLL_ROWS for (int b = 0; b < LANE_ROWS; b++) {
            const int there = (LANES_Y - 1) * LANE_ROWS + b < SUPPORT_Y || row + b < SUPPORT_Y;
            UNROLL for (int m = 0; m < LANE_SLOTS; m++) {
                real f[VECTOR];
                UNROLL for (int v = 0; v < VECTOR; v++) f[v] = 0;
                if (there) load_local(from + b * ROW_PITCH + m * LANES_Z * VECTOR, f);
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
        at = next_level(at);
    }
    sums_along_z(sums, flat, along_x, along_y, lane_z, w);
}
#endif

// The record of the lane's particle in the batch at `batch` of a share, and where its line begins. The whole warp calls it.
DEVICE int find_record(WARP_PARAMETER warp, GLOBAL const u32* records, PRIVATE const Share* share, const int batch,
                       PRIVATE u32* words)
{
    const u32 q = share->before + (u32)(batch + LANE);
    int own = 0; // the line: how many end at q or before
    UNROLL for (int step = HALF_OF_LINES; step > 0; step /= 2) {
        const u32 end = WARP_SHUFFLE_U32(warp, share->line.end, own + step - 1); // in no branch: it may hold a barrier
        if (end <= q) own += step;
    }
    const u32 shift = WARP_SHUFFLE_U32(warp, share->line.shift, own);
    const int base = (int)WARP_SHUFFLE_U32(warp, (u32)share->line.base, own);
    if (batch + LANE < share->end) read_record(records, (i64)(q + shift), words);
    return base;
}

// The record of the lane's first particle of a share, and where its line begins.
DEVICE int first_records(WARP_PARAMETER warp, GLOBAL const u32* records, PRIVATE const Share* share, PRIVATE u32* words)
{
    return find_record(warp, records, share, share->begin, words);
}

#if LANES > 1 // fractions and beginnings of a warp's particles, and their indices: what its lanes tell each other
#define SHARED_PARTICLES                                                                       \
    LOCAL_ARRAY(real4, origin_memory, GROUP_SIZE);                                             \
    LOCAL_ARRAY(u32, indices, GROUP_SIZE);                                                     \
    LOCAL real* origins = (LOCAL real*)origin_memory + LOCAL_ID / WARP_SIZE * (4 * WARP_SIZE); \
    LOCAL u32* index = indices + LOCAL_ID / WARP_SIZE * WARP_SIZE
#else
#define SHARED_PARTICLES     \
    LOCAL real* origins = 0; \
    LOCAL u32* index = 0
#endif

// Interpolate for a warp's share; `words` has the lane's first record, and `of_line` where its line begins.
DEVICE void take_share(WARP_PARAMETER warp, LOCAL const real* nodes, PRIVATE const Share* own, PRIVATE u32* words, int of_line,
                       LOCAL real* origins, LOCAL u32* index, GLOBAL const u32* records, GLOBAL real* values,
                       GLOBAL real* gradient, const int channel, PRIVATE const Blocks* blocks,
                       PRIVATE const Values* value_layout, PRIVATE const Values* gradient_layout,
                       PRIVATE const Window* window, PRIVATE const Jacobian* jacobian)
{
    for (int batch = own->begin; batch < own->end; batch += WARP_SIZE) {
        Placed p;
        particle_of(words, &p);
        int level = own->slot + (p.bx - own->bx) * blocks->cells[0] + p.offset[0];
#ifdef RING
        if (level >= RING) level -= RING;
#endif
        int base = level * LEVEL_PITCH + p.offset[1] * ROW_PITCH + p.offset[2] * PARTS + of_line;
        if (batch + LANE >= own->end) base = own->slot * LEVEL_PITCH; // its results are not written
#if HAS_WARP // elsewhere a barrier may not stand in a branch
        if (batch + WARP_SIZE < own->end)
#endif
            of_line = find_record(warp, records, own, batch + WARP_SIZE, words);
        Weights w;
        real sums[SUMS];
#if LANES > 1
        STORE_LOCAL_4(origins + 4 * LANE, p.fraction[0], p.fraction[1], p.fraction[2], REAL_FROM_INDEX(base));
        index[LANE] = p.index;
        WARP_SYNC(warp);
        ROLL for (int team = 0; team < WARP_SIZE && batch + team < own->end; team += TEAM) {
            const int mine = team + LANE / LANES;
            real origin[4];
#if REAL_IS_DOUBLE
            LOAD_LOCAL_2(origins + 4 * mine, origin);
            LOAD_LOCAL_2(origins + 4 * mine + 2, origin + 2);
#else
            LOAD_LOCAL_4(origins + 4 * mine, origin);
#endif
            base = (int)INDEX_OF_REAL(origin[3]);
            const i64 i = index[mine];
            weights_of_lane(&w, window, origin, base, LANE % LANES);
            gather(sums, nodes, base, LANE % LANES, &w);
            deal_results(warp, sums, batch + mine < own->end, values, gradient, i, channel, value_layout,
                         gradient_layout, jacobian);
        }
        WARP_SYNC(warp);
#else
        weights_of_lane(&w, window, p.fraction, base, 0);
        gather(sums, nodes, base, 0, &w);
        deal_results(warp, sums, batch + LANE < own->end, values, gradient, (i64)p.index, channel, value_layout,
                     gradient_layout, jacobian);
#endif
    }
}
#endif
