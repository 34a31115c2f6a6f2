// SPDX-License-Identifier: BSD-3-Clause
// The spreading operator by rows (CSR): a row is a node, an entry a particle that reaches it and the weight.
//
// row_lengths, single_fill: from node order, without atomics. Neighbouring rows along z share their lines: a group fills
// up to 32 of them together. A lane has a particle of a line and gives each row that it reaches its entry. Entries that
// are adjacent in memory come from different lines, so they are ordered in local memory and written consecutively.
// Weights are recomputed for every line: a few multiplications, next to eight or twelve bytes of memory, are cheaper
// than reading them.
//
// single_count, single_collect: Guo et al. 2015, each with a thread per node of every particle, with atomics.
//
// SLOPES = d: an entry has d slopes in user coordinates instead of the weight, in d planes, `plane` reals apart.

#include "spread/lengths.h"
#include "spread/linear.h"

#define WEIGHTS (SLOPES ? SLOPES : 1)
#define LINES (SUPPORT_X * SUPPORT_Y)
#define WARPS (GROUP_SIZE / WARP_SIZE)

// ---- weights -----------------------------------------------------------------------------------------

// Factors of a line's nodes (kx, ky) for the weights along z: weight b is factor[b] w, plus bend[b] dw for slopes.
DEVICE void factors_of(PRIVATE real* factor, PRIVATE real* bend, PRIVATE const Window* window,
                       PRIVATE const Jacobian* jacobian, int kx, int ky, real zx, real zy)
{
    const real x = weight_along(window, 0, kx, zx), y = weight_along(window, 1, ky, zy);
#if SLOPES
    const real dx_y = slope_along(window, 0, kx, zx) * y, x_dy = x * slope_along(window, 1, ky, zy);
    UNROLL for (int b = 0; b < SLOPES; b++) {
        PRIVATE const real* across = jacobian->row + 3 - SLOPES + b;
        factor[b] = across[0] * dx_y + across[3] * x_dy;
        bend[b] = across[6] * (x * y);
    }
#else
    factor[0] = x * y;
#endif
}

DEVICE void weights_of(PRIVATE real* w, PRIVATE const real* factor, PRIVATE const real* bend,
                       PRIVATE const Window* window, int kz, real zz)
{
    const real z = weight_of(window, kz, zz);
#if SLOPES
    const real dz = slope_of(window, kz, zz);
    UNROLL for (int b = 0; b < SLOPES; b++) w[b] = factor[b] * z + bend[b] * dz;
#else
    w[0] = factor[0] * z;
#endif
}

// ---- from node order ---------------------------------------------------------------------------------

// The places of a line whose first nodes are in [from, to) along z: how many, and the first. `origin` is the place of
// the line's first cell. On an axis that wraps, nodes are counted below zero, and the line comes once per turn.
DEVICE u32 places_between(GLOBAL const u32* start, i64 line, int from, int to, int origin, int extent,
                          PRIVATE u32* first)
{
    from = (from > origin ? from : origin) - origin;
    to = (to < origin + extent ? to : origin + extent) - origin;
    *first = 0;
    if (from >= to) return 0;
    *first = start[line + from];
    return start[line + to] - *first;
}

#if SLOPES
#define STAGED (STAGED_BYTES / (int)(SLOPES * sizeof(real))) // entries in local memory
#else
#define STAGED (STAGED_BYTES / (int)(4 + sizeof(real)))
#endif

KERNEL single_fill(GLOBAL const u32* RESTRICT start, GLOBAL const int* RESTRICT node,
                   GLOBAL const real* RESTRICT fraction, GLOBAL const count_t* RESTRICT row_start,
                   GLOBAL u32* RESTRICT column, GLOBAL real* RESTRICT weight, const i64 rows, const i64 plane,
                   const i64 blocks, const i64 blocks_z, const i64 block, const Lattice lattice, const Window window,
                   const Jacobian jacobian)
{
    WARP(warp);
#if !SLOPES
    LOCAL_ARRAY(u32, staged_column, STAGED);
#endif
    LOCAL_ARRAY(real, staged_weight, WEIGHTS * STAGED);
    LOCAL_ARRAY(count_t, of_lane, GROUP_SIZE);
    const int own = LOCAL_ID / WARP_SIZE;
    LOCAL count_t* shift = of_lane + own * WARP_SIZE;
    const int first_line = own * LINES / WARPS, last_line = (own + 1) * LINES / WARPS;
    const int extent = lattice.extent[2], low = lattice.low[2];

    for (i64 b = GROUP_ID; b < blocks; b += GROUP_COUNT) {
        const i64 xy = b / blocks_z;
        const int x = (int)(xy / lattice.size[1]), y = (int)(xy % lattice.size[1]);
        const int z0 = (int)((b % blocks_z) * block);
        const int held = lattice.size[2] - z0 < (int)block ? lattice.size[2] - z0 : (int)block;
        const int z = z0 + LANE; // a lane has a row, and later a particle
        const i64 row = xy * lattice.size[2] + z0;
        const count_t begin = row_start[row], total = row_start[row + held] - begin;
        const int staged = total <= STAGED; // else lanes write to memory: entries of long rows are adjacent
        const int back = lattice.wraps[2] && z0 < SUPPORT_Z - 1 ? (SUPPORT_Z - 2 - z0) / lattice.size[2] + 1 : 0;

        count_t at = 0; // entries of this lane's row in lines of earlier warps
        for (int l = first_line; l < last_line; l++) {
            const i64 line =
                line_meeting(&lattice, x, y, SUPPORT_X - 1 - l / SUPPORT_Y, SUPPORT_Y - 1 - l % SUPPORT_Y);
            for (int turn = back; turn >= 0 && line >= 0; turn--) {
                u32 place;
                at += places_between(start, line, z - SUPPORT_Z + 1, z + 1, low - turn * lattice.size[2], extent, &place);
            }
        }
        of_lane[LOCAL_ID] = at;
        BARRIER();
        at = LANE < held ? row_start[row + LANE] - begin : 0;
        for (int w = 0; w < own; w++) at += of_lane[w * WARP_SIZE + LANE];
        BARRIER();

        for (int l = first_line; l < last_line; l++) {
            const int kx = SUPPORT_X - 1 - l / SUPPORT_Y, ky = SUPPORT_Y - 1 - l % SUPPORT_Y;
            const i64 line = line_meeting(&lattice, x, y, kx, ky);
            const int turns = line < 0 ? 0 : back + 1;
            for (int turn = turns - 1; turn >= 0; turn--) {
                const int origin = low - turn * lattice.size[2];
                u32 place, first;
                const u32 count = places_between(start, line, z - SUPPORT_Z + 1, z + 1, origin, extent, &place);
                const u32 all =
                    places_between(start, line, z0 - SUPPORT_Z + 1, z0 + held, origin, extent, &first);
                WARP_SYNC(warp);
                shift[LANE] = at - place; // the entry of a particle at place t is shift + t
                WARP_SYNC(warp);
                at += count;
                for (u32 k = LANE; k < all; k += WARP_SIZE) {
                    const u32 t = first + k;
                    const int r0 = node[2 * rows + t] + origin - low - z0;
                    const real zz = fraction[2 * rows + t];
                    real factor[WEIGHTS], bend[WEIGHTS], w[WEIGHTS];
                    factors_of(factor, bend, &window, &jacobian, kx, ky, fraction[t], fraction[rows + t]);
                    UNROLL_ROWS for (int kz = 0; kz < SUPPORT_Z; kz++) {
                        const int r = r0 + kz;
                        if (r < 0 || r >= held) continue;
                        const count_t e = shift[r] + t;
                        weights_of(w, factor, bend, &window, kz, zz);
                        if (staged) {
#if !SLOPES
                            staged_column[e] = t;
#endif
                            UNROLL for (int a = 0; a < WEIGHTS; a++) staged_weight[a * STAGED + e] = w[a];
                        } else {
#if !SLOPES
                            column[begin + e] = t;
#endif
                            UNROLL for (int a = 0; a < WEIGHTS; a++) weight[a * plane + (i64)(begin + e)] = w[a];
                        }
                    }
                }
            }
        }
        BARRIER();
        for (count_t e = LOCAL_ID; staged && e < total; e += GROUP_SIZE) {
#if !SLOPES
            column[begin + e] = staged_column[e];
#endif
            UNROLL for (int a = 0; a < WEIGHTS; a++) weight[a * plane + (i64)(begin + e)] = staged_weight[a * STAGED + e];
        }
        BARRIER();
    }
}

// ---- with atomics ------------------------------------------------------------------------------------

#define NODES (LINES * SUPPORT_Z)

// The row of a particle's node (kx, ky, kz), or -1.
DEVICE i64 row_of(GLOBAL const int* node, i64 i, i64 rows, PRIVATE const Lattice* lattice, int kx, int ky, int kz)
{
    if (node[2 * rows + i] == SKIP) return -1;
    const int x = place(node[i] + kx, lattice->size[0], lattice->wraps[0]);
    const int y = place(node[rows + i] + ky, lattice->size[1], lattice->wraps[1]);
    const int z = place(node[2 * rows + i] + kz, lattice->size[2], lattice->wraps[2]);
    return x < 0 || y < 0 || z < 0 ? -1 : ((i64)x * lattice->size[1] + y) * lattice->size[2] + z;
}

KERNEL single_count(GLOBAL const int* RESTRICT node, GLOBAL count_t* RESTRICT lengths, const i64 count, const i64 rows,
                    const Lattice lattice)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count * NODES; k += GROUP_COUNT * GROUP_SIZE) {
        const int j = (int)(k % NODES);
        const i64 row = row_of(node, k / NODES, rows, &lattice, j / (SUPPORT_Y * SUPPORT_Z), j / SUPPORT_Z % SUPPORT_Y,
                               j % SUPPORT_Z);
        if (row >= 0) ATOMIC_ADD_COUNT(lengths + row, 1);
    }
}

// `filled` counts the entries of every row so far, from zero on. With slopes the plain weights are written again:
// entries come in another order each time.
KERNEL single_collect(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT fraction,
                      GLOBAL const count_t* RESTRICT row_start, GLOBAL count_t* RESTRICT filled,
                      GLOBAL u32* RESTRICT column, GLOBAL real* RESTRICT weight, GLOBAL real* RESTRICT slopes,
                      const i64 count, const i64 rows, const i64 plane, const Lattice lattice, const Window window,
                      const Jacobian jacobian)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count * NODES; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = k / NODES;
        const int j = (int)(k % NODES);
        const int kx = j / (SUPPORT_Y * SUPPORT_Z), ky = j / SUPPORT_Z % SUPPORT_Y, kz = j % SUPPORT_Z;
        const i64 row = row_of(node, i, rows, &lattice, kx, ky, kz);
        if (row < 0) continue;
        const real zx = fraction[i], zy = fraction[rows + i], zz = fraction[2 * rows + i];
        const i64 e = (i64)(row_start[row] + ATOMIC_ADD_COUNT(filled + row, 1));
        column[e] = (u32)i;
        weight[e] = weight_along(&window, 0, kx, zx) * weight_along(&window, 1, ky, zy) * weight_of(&window, kz, zz);
#if SLOPES
        real factor[WEIGHTS], bend[WEIGHTS], w[WEIGHTS];
        factors_of(factor, bend, &window, &jacobian, kx, ky, zx, zy);
        weights_of(w, factor, bend, &window, kz, zz);
        UNROLL for (int a = 0; a < WEIGHTS; a++) slopes[a * plane + e] = w[a];
#endif
    }
}
