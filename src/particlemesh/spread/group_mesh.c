// SPDX-License-Identifier: BSD-3-Clause
// Weights stored by groups of 2^SHIFT neighbouring nodes: Count, Scan, Collect, and sums in local memory.
//
// An entry is a particle and a node within its group in one word, and a weight (SLOPES weights for the gradient's
// adjoint, one plane each). WIDE_ENTRY: words of 64 bits; COUNT_IS_64: 2^31 entries or more.

#include "sorting/runs.h"
#include "spread/linear.h"

#if WIDE_ENTRY
typedef u64 entry_t;
#else
typedef u32 entry_t;
#endif

#define NODES (1 << SHIFT)
#define ENTRIES (SUPPORT_X * SUPPORT_Y * SUPPORT_Z)
#define WEIGHTS (SLOPES ? SLOPES : 1)
#define COMPONENTS (CHANNELS * PARTS)

// ------------------------------------------------------------------------------------------------------
// Construction: a lane per node of a stencil. A group takes BATCH particles at a time; the ENTRIES of each fill whole
// warps. Lanes of a row of the stencil are neighbours, so most of them share an atomic.

#define BATCH 32

// The node of entry e of a stencil that begins at `first`; -1: there is none.
DEVICE i64 node_of(int e, PRIVATE const int* first, PRIVATE const Field* field)
{
    const int a = e / (SUPPORT_Y * SUPPORT_Z), b = e / SUPPORT_Z % SUPPORT_Y, c = e % SUPPORT_Z;
    const int x = place(first[0] + a, field->size[0], field->wraps[0]);
    const int y = place(first[1] + b, field->size[1], field->wraps[1]);
    const int z = place(first[2] + c, field->size[2], field->wraps[2]);
    return x < 0 || y < 0 || z < 0 ? -1 : ((i64)x * field->size[1] + y) * field->size[2] + z;
}

// The node of entry t of a batch.
DEVICE i64 node_in_batch(int t, i64 base, GLOBAL const int* node, i64 count, i64 rows, PRIVATE const Field* field)
{
    const i64 i = base + t / ENTRIES;
    if (i >= count || node[2 * rows + i] == SKIP) return -1;
    const int first[3] = {node[i], node[rows + i], node[2 * rows + i]};
    return node_of(t % ENTRIES, first, field);
}

KERNEL group_count(GLOBAL const int* RESTRICT node, GLOBAL count_t* RESTRICT counts, const i64 count, const i64 rows,
                   const Field field_layout)
{
    WARP(warp);
    for (i64 base = GROUP_ID * BATCH; base < count; base += GROUP_COUNT * BATCH)
        for (int t = LOCAL_ID; t < BATCH * ENTRIES; t += GROUP_SIZE) {
            const i64 n = node_in_batch(t, base, node, count, rows, &field_layout);
            rank_in_bin(warp, counts, n < 0 ? -1 : n >> SHIFT);
        }
}

#define TABLE (3 * SUPPORT * BATCH)
#define FACTOR(kind, axis, j, i) table[(kind) * TABLE + ((axis) * SUPPORT + (j)) * BATCH + (i)]

// next: the current end of each of `groups`, at last its end. After them is the number of entries.
KERNEL group_collect(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT fraction,
                     GLOBAL count_t* RESTRICT next, GLOBAL entry_t* RESTRICT entries, GLOBAL real* RESTRICT weights,
                     const i64 count, const i64 rows, const i64 plane, const i64 groups, const Field field_layout,
                     const Window window, const Jacobian jacobian)
{
    WARP(warp);
    const i64 beyond = (i64)next[groups] + GROUP_ID * GROUP_SIZE + LOCAL_ID;
    if (beyond < ((i64)next[groups] + 3) / 4 * 4) { // the last are read by fours: unused ones must be defined
        entries[beyond] = 0;
        UNROLL for (int s = 0; s < WEIGHTS; s++) weights[s * plane + beyond] = 0;
    }
    LOCAL_ARRAY(real, table, (SLOPES ? 2 : 1) * TABLE); // weights of each axis once per particle; slopes after them
    for (i64 base = GROUP_ID * BATCH; base < count; base += GROUP_COUNT * BATCH) {
        for (int t = LOCAL_ID; t < 3 * BATCH; t += GROUP_SIZE) {
            const int axis = t / BATCH, i = t % BATCH;
            const real z = base + i < count ? fraction[axis * rows + base + i] : 0;
            const int missing = axis < 3 - SUPPORT_AXES;
            UNROLL for (int j = 0; j < SUPPORT; j++) {
                FACTOR(0, axis, j, i) = missing ? 1 : weight_of(&window, j, z);
#if SLOPES
                FACTOR(1, axis, j, i) = missing ? 0 : slope_of(&window, j, z);
#endif
            }
        }
        BARRIER();
        for (int t = LOCAL_ID; t < BATCH * ENTRIES; t += GROUP_SIZE) {
            const i64 n = node_in_batch(t, base, node, count, rows, &field_layout);
            const index_t at = rank_in_bin(warp, next, n < 0 ? -1 : n >> SHIFT);
            if (at >= 0) {
                const int i = t / ENTRIES, e = t % ENTRIES;
                const int a = e / (SUPPORT_Y * SUPPORT_Z), b = e / SUPPORT_Z % SUPPORT_Y, c = e % SUPPORT_Z;
                const real x = FACTOR(0, 0, a, i), y = FACTOR(0, 1, b, i), z = FACTOR(0, 2, c, i);
                entries[at] = (entry_t)(base + i) << SHIFT | (entry_t)(n & (NODES - 1));
#if SLOPES
                const real dx = FACTOR(1, 0, a, i), dy = FACTOR(1, 1, b, i), dz = FACTOR(1, 2, c, i);
                const real along[3] = {dx * y * z, x * dy * z, x * y * dz};
                UNROLL for (int s = 0; s < SLOPES; s++) { // from node to user coordinates
                    real sum = 0;
                    UNROLL for (int k = 0; k < 3; k++) sum += along[k] * jacobian.row[3 * k + 3 - SUPPORT_AXES + s];
                    weights[s * plane + at] = sum;
                }
#else
                weights[at] = x * y * z;
#endif
            }
        }
        BARRIER(); // before the table is overwritten
    }
}

// ------------------------------------------------------------------------------------------------------
// Application: TEAM work-items have a group of nodes, with sums in local memory. They alone write these nodes.

#define TEAMS (GROUP_SIZE / TEAM)
#define SUMS (COMPONENTS * NODES)
#if TEAM == WARP_SIZE
#define TEAM_SYNC(warp) WARP_SYNC(warp)
#else
#define TEAM_SYNC(warp) BARRIER()
#endif

// A particle's contribution to one component of its entry's node.
DEVICE real product(GLOBAL const real* value, PRIVATE const real* weight, i64 axis)
{
#if SLOPES
    real sum = 0;
    UNROLL for (int s = 0; s < SLOPES; s++) sum += weight[4 * s] * value[s * axis];
    return sum;
#else
    return weight[0] * value[0];
#endif
}

KERNEL group_apply(GLOBAL const count_t* RESTRICT ends, GLOBAL const entry_t* RESTRICT entries,
                   GLOBAL const real* RESTRICT weights, GLOBAL const real* RESTRICT values,
                   GLOBAL real* RESTRICT field, // added to
                   const i64 groups, const i64 nodes, const i64 plane, const Values value_layout,
                   const Field field_layout)
{
    WARP(warp);
    LOCAL_ARRAY(real, all_sums, TEAMS * SUMS);
    LOCAL real* sums = all_sums + LOCAL_ID / TEAM * SUMS; // component after component
    const int member = LOCAL_ID % TEAM;
    for (i64 turn = GROUP_ID * TEAMS; turn < groups; turn += GROUP_COUNT * TEAMS) {
        const i64 group = turn + LOCAL_ID / TEAM;
        const i64 begin = group > 0 && group < groups ? (i64)ends[group - 1] : 0;
        const i64 end = group < groups ? (i64)ends[group] : 0;
        for (int n = member; n < SUMS; n += TEAM) sums[n] = 0;
        TEAM_SYNC(warp);
        // Four consecutive entries per lane, from a multiple of four on: some belong to the groups before and after.
        for (i64 at = begin / 4 * 4 + 4 * member; at < end; at += 4 * TEAM) {
            entry_t own[4];
            real weight[4 * WEIGHTS];
#if WIDE_ENTRY
            UNROLL for (int k = 0; k < 4; k++) own[k] = entries[at + k];
#else
            const uint4 read = *(GLOBAL const uint4*)(entries + at);
            own[0] = read.x, own[1] = read.y, own[2] = read.z, own[3] = read.w;
#endif
            UNROLL for (int s = 0; s < WEIGHTS; s++) {
                const real4 four = READ_4(weights + s * plane + at);
                weight[4 * s] = four.x, weight[4 * s + 1] = four.y;
                weight[4 * s + 2] = four.z, weight[4 * s + 3] = four.w;
            }
            UNROLL for (int k = 0; k < 4; k++) {
                if (at + k < begin || at + k >= end) continue;
                const int n = (int)(own[k] & (NODES - 1));
                GLOBAL const real* value = values + value_layout.offset + (i64)(own[k] >> SHIFT) * value_layout.particle;
                UNROLL for (int c = 0; c < CHANNELS; c++)
                    UNROLL for (int p = 0; p < PARTS; p++) {
                        GLOBAL const real* v = value + c * value_layout.channel + p * value_layout.part;
                        LOCAL real* sum = sums + (c * NODES + n) * PARTS + p;
                        ATOMIC_ADD_LOCAL(sum, product(v, weight + k, value_layout.axis));
                    }
            }
        }
        TEAM_SYNC(warp);
        if (begin < end)
            for (int t = member; t < NODES * PARTS; t += TEAM) {
                const i64 n = (group << SHIFT) + t / PARTS;
                if (n >= nodes) continue;
                const i64 at = offset_of(n, &field_layout) + t % PARTS;
                UNROLL for (int c = 0; c < CHANNELS; c++)
                    field[at + c * field_layout.channel] += sums[c * NODES * PARTS + t];
            }
        TEAM_SYNC(warp); // before the sums are cleared
    }
}
