// SPDX-License-Identifier: BSD-3-Clause
// Positions to stencils: the first node of each, and the centred fraction the window is evaluated at.
// Computed once, in the positions' precision; only the fraction is rounded to the plan's.
//
// PACKED: 16 or 32 bytes a particle (particles/packed.h) instead of node and fraction. COUNTING: particles are counted by
// blocks on the way, for an order that will be asked for.

#include "backends/coordinates.h"
#if COUNTING
#include "orders/block_count.h"
#else
#include "orders/blocks.h"
#endif

typedef struct {
    coordinate scale[3], shift[3]; // node coordinate = fractional * scale - shift
} Nodes;

typedef struct {
    int size[3], support[3], wraps[3];
    int low[3]; // what nodes are counted from
} Axes;

DEVICE int into_period(int node, int size)
{
    if (node < 0)
        node += size;
    else if (node >= size)
        node -= size;
    if (node < 0 || node >= size) { // a mesh smaller than the support
        node %= size;
        if (node < 0) node += size;
    }
    return node;
}

DEVICE int locate_one(PRIVATE Located* located, GLOBAL const coordinate* x0, GLOBAL const coordinate* x1,
                      GLOBAL const coordinate* x2, i64 i, PRIVATE const Strides* strides,
                      PRIVATE const Geometry* geometry, PRIVATE const Frame* frame, PRIVATE const Nodes* nodes,
                      PRIVATE const Axes* axes)
{
    coordinate x[3], s[3], turns[3];
    const int bad = fractional(x, s, turns, x0, x1, x2, i, strides, geometry, frame);
    located->taken = !bad;
    for (int a = 0; a < 3; a++) {
        located->at[a] = 0;
        located->fraction[a] = KEPT((real)0);
        if (bad || a < frame->missing) continue;
        const int p = axes->support[a];
        const coordinate u = s[a] * nodes->scale[a] - nodes->shift[a];
        const coordinate cell = floor((p & 1) ? u + (coordinate)0.5 : u);
        const coordinate centre = (p & 1) ? (coordinate)0 : (coordinate)0.5;
        int first = (int)cell - (p & 1 ? (p - 1) / 2 : p / 2 - 1);
        if (axes->wraps[a]) first = into_period(first, axes->size[a]);
        located->at[a] = first - axes->low[a];
        located->fraction[a] = KEPT((real)(u - cell - centre));
    }
    return bad;
}

KERNEL locate(GLOBAL const coordinate* x0, GLOBAL const coordinate* x1, GLOBAL const coordinate* x2,
              GLOBAL int* RESTRICT node, GLOBAL real* RESTRICT fraction, GLOBAL u32* RESTRICT packed,
              GLOBAL u64* RESTRICT status, // not finite, outside, ~(first bad)
              GLOBAL u32* RESTRICT work, const i64 count, const i64 rows, const Strides strides,
              const Geometry geometry, const Frame frame, const Nodes nodes, const Axes axes, const Blocks blocks)
{
#if COUNTING
    WARP(warp);
#endif
    for (i64 base = GROUP_ID * GROUP_SIZE; base < count; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = base + LOCAL_ID;
        Located located;
        located.taken = 0;
        if (i < count) {
            const int bad = locate_one(&located, x0, x1, x2, i, &strides, &geometry, &frame, &nodes, &axes);
            if (bad) record_bad(status, bad, i);
#if PACKED
            u32 words[PACKED_WORDS];
            pack_located(words, &located);
            write_quads(packed + PACKED_WORDS * i, words, PACKED_WORDS / 4);
#else
            for (int a = 0; a < 3; a++) {
                node[a * rows + i] = bad ? SKIP : located.at[a] + axes.low[a];
                fraction[a * rows + i] = CENTRED(located.fraction[a]);
            }
#endif
        }
#if COUNTING
        count_located(warp, work, &located, &blocks, base / GROUP_SIZE);
#endif
    }
}

#if PACKED
// Node and fraction of packed particles, for who reads these.
KERNEL spell_out(GLOBAL const u32* RESTRICT packed, GLOBAL int* RESTRICT node, GLOBAL real* RESTRICT fraction,
                      const i64 count, const i64 rows, const Axes axes)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        u32 words[PACKED_WORDS];
        Located located;
        read_quads(words, packed + PACKED_WORDS * i, PACKED_WORDS / 4);
        unpack_located(&located, words);
        for (int a = 0; a < 3; a++) {
            node[a * rows + i] = located.taken ? located.at[a] + axes.low[a] : SKIP;
            fraction[a * rows + i] = CENTRED(located.fraction[a]);
        }
    }
}
#endif
