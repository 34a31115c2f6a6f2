// SPDX-License-Identifier: BSD-3-Clause
// From positions to stencils: the first node of each, and the centred fraction for the window.
// Computed once, exactly; only the fraction is rounded. CPUs: locate.py.
//
// PACKED: 16 or 32 bytes per particle (particles/packed.h) instead of node and fraction. COUNTING: particles are also
// counted by blocks, for a later order. SYSTEMS: particles belong to one of several systems, whose nodes lie one behind the
// other along the first axis. PART: the mesh is a part of another, and particles may be elsewhere. STRAYS: those are listed,
// with the first nodes of their stencils, counted as the part's.

#include "particles/coordinates.h"
#if COUNTING
#include "orders/block_count.h"
#else
#include "orders/blocks.h"
#endif

typedef struct { // see particles/stencil.py
    i64 fold[3];
    coordinate slopes[27]; // three parts of nine, the heads first
    coordinate centre[3], edge[3], lower[3], upper[3];
    coordinate unit;
} Nodes;

typedef struct {
    int count[3], base[3];
    int low[3]; // the node that nodes are counted from
#if PART
    int least[3], most[3]; // first nodes of stencils that a part of a mesh takes
#endif
} Axes;

// NEAR_NODES: distance from node 0, in nodes, up to which two parts of a slope suffice. TOO_FAR: distance from which on
// a position has no digits within a node. SHIFT: (x + SHIFT) - SHIFT is the whole number nearest to x; rint and floor
// take several times as long.
#if COORDINATE_IS_DOUBLE
#define NEAR_NODES 2251799813685248.0
#define SHIFT 6755399441055744.0
#else
#define NEAR_NODES 4194304.0f
#define SHIFT 12582912.0f
#endif
#define TOO_FAR ((coordinate)288230376151711744.0)

// Along axis a, in nodes: whole + rest = slopes x + centre, rest in [-1/2, 1/2]. Returns whether x is near. The rest of
// a product is rounded once, whether or not the compiler contracts products: any nearby whole number serves.
DEVICE int split_near(PRIVATE i64* whole, PRIVATE coordinate* rest, PRIVATE const coordinate* x, const int a,
                      PRIVATE const Nodes* nodes, PRIVATE const Frame* frame)
{
    int near = 1;
    coordinate sum = 0, heads = 0, tails = nodes->centre[a];
    for (int b = 0; b < 3; b++) {
        if (frame->orthorhombic && b != a) continue;
        const coordinate slope = nodes->slopes[3 * a + b], product = slope * x[b], nearest = (product + SHIFT) - SHIFT;
        near &= fabs(product) <= NEAR_NODES;
        sum += nearest;
        heads += fma(slope, x[b], -nearest);
        tails = fma(nodes->slopes[9 + 3 * a + b], x[b], tails);
    }
    heads += tails;
    const coordinate carried = (heads + SHIFT) - SHIFT;
    *rest = heads - carried;
    if (near) *whole = (i64)(sum + carried);
    return near;
}

// split_near at any distance.
DEVICE void split_far(PRIVATE i64* whole, PRIVATE coordinate* rest, PRIVATE const coordinate* x, const int a,
                      PRIVATE const Nodes* nodes)
{
    int lost = 0;
    *whole = 0;
    *rest = nodes->centre[a];
    ROLL for (int part = 0; part < 27; part += 9) {
        UNROLL for (int b = 0; b < 3; b++) {
            const coordinate slope = nodes->slopes[part + 3 * a + b], nearest = rint(slope * x[b]);
            lost |= !(fabs(nearest) < TOO_FAR); // or NaN, after an overflow
            const coordinate left = fma(slope, x[b], -nearest), more = rint(left);
            *rest += left - more;
            const coordinate carried = rint(*rest);
            *rest -= carried;
            *whole += lost ? 0 : (i64)nearest + (i64)more + (i64)carried;
        }
    }
    if (lost) *whole = (i64)TOO_FAR, *rest = 0;
}

// Bits of `outside`: beyond an open face of the whole mesh, and in another part.
#define BEYOND 1
#define ELSEWHERE 2

// The first node along axis a, and the centred fraction in rest.
DEVICE int first_node(PRIVATE coordinate* rest, PRIVATE int* outside, PRIVATE const coordinate* x, const int a,
                      PRIVATE const Nodes* nodes, PRIVATE const Frame* frame, PRIVATE const Axes* axes)
{
    i64 cell;
    if (!split_near(&cell, rest, x, a, nodes, frame)) split_far(&cell, rest, x, a, nodes);
    if (*rest >= (coordinate)0.5) *rest -= 1, cell += 1;
    cell -= nodes->fold[a];
    const int count = axes->count[a];
    int borrow = *rest < nodes->edge[a];
    if (frame->periodic[a]) {
        cell -= borrow;
        if (cell < 0)
            cell += count;
        else if (cell >= count)
            cell -= count;
        if (cell < 0 || cell >= count) { // more than one period away
            cell %= count;
            if (cell < 0) cell += count;
        }
    } else {
        const coordinate tested = frame->orthorhombic ? x[a] : (coordinate)cell + (*rest - nodes->edge[a]);
        if (!(tested >= nodes->lower[a] && tested <= nodes->upper[a])) *outside |= BEYOND;
        cell -= borrow;
        if (cell < 0 || cell >= count) { // on a face, or beyond it by rounding
            cell = cell < 0 ? 0 : count;
            borrow = 0;
            *rest = nodes->edge[a];
        }
    }
#if PART
    const int first = (int)cell + borrow + axes->base[a];
    if (first < axes->least[a] || first > axes->most[a]) *outside |= ELSEWHERE;
#endif
    return (int)cell + borrow + axes->base[a];
}

#if SYSTEMS
#define OF_SYSTEMS GLOBAL const int *RESTRICT system, const i64 systems, const i64 pitch,
#else
#define OF_SYSTEMS
#endif

#if STRAYS
#define OF_STRAYS GLOBAL u64 *RESTRICT strays, const i64 most_strays,

// Lists a particle at the place that follows strays[0], which counts all of them, if there is room.
DEVICE void record_stray(GLOBAL u64* strays, const i64 most, const i64 i, PRIVATE const int* first, const int bad)
{
    const u64 place = ATOMIC_ADD_U64(strays, 1);
    if (place >= (u64)most) return;
    GLOBAL u64* own = strays + 4 * (place + 1);
    own[0] = i;
    for (int a = 0; a < 3; a++) own[1 + a] = (u64)(i64)(bad ? SKIP : first[a]);
}
#else
#define OF_STRAYS
#endif

DEVICE int locate_one(PRIVATE Located* located, PRIVATE int* first, PRIVATE int* elsewhere, GLOBAL const coordinate* x0, GLOBAL const coordinate* x1,
                      GLOBAL const coordinate* x2, i64 i, PRIVATE const Strides* strides,
                      PRIVATE const Frame* frame, PRIVATE const Nodes* nodes, PRIVATE const Axes* axes)
{
    coordinate x[3];
    int bad = read_position(x, x0, x1, x2, i, strides, frame), outside = 0;
    for (int a = 0; a < 3; a++) x[a] *= nodes->unit;
    for (int a = 0; a < 3; a++) {
        located->at[a] = first[a] = 0;
        located->fraction[a] = KEPT((real)0);
        if (bad || a < frame->missing) continue;
        coordinate rest;
        first[a] = first_node(&rest, &outside, x, a, nodes, frame, axes);
        located->at[a] = first[a] - axes->low[a];
        located->fraction[a] = KEPT((real)rest);
    }
    if (!bad && outside) {
        bad = OUTSIDE;
        for (int a = 0; a < 3; a++) located->at[a] = 0, located->fraction[a] = KEPT((real)0);
    }
    located->taken = !bad;
    *elsewhere = outside == ELSEWHERE;
    return bad;
}

KERNEL locate(GLOBAL const coordinate* x0, GLOBAL const coordinate* x1, GLOBAL const coordinate* x2,
              GLOBAL int* RESTRICT node, GLOBAL real* RESTRICT fraction, GLOBAL u32* RESTRICT packed,
              GLOBAL u64* RESTRICT status, // not finite, outside, ~(first bad)
              GLOBAL u32* RESTRICT work, OF_SYSTEMS OF_STRAYS const i64 count, const i64 rows, const Strides strides,
              const Nodes nodes, const Frame frame, const Axes axes, const Blocks blocks)
{
#if COUNTING
    WARP(warp);
#endif
    for (i64 base = GROUP_ID * GROUP_SIZE; base < count; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = base + LOCAL_ID;
        Located located;
        located.taken = 0;
        if (i < count) {
            int first[3], elsewhere;
            int bad = locate_one(&located, first, &elsewhere, x0, x1, x2, i, &strides, &frame, &nodes, &axes);
#if SYSTEMS
            const int none = system[i] < 0 || system[i] >= systems;
            if (none) {
                for (int a = 0; a < 3; a++) located.at[a] = 0, located.fraction[a] = KEPT((real)0);
                bad = bad ? bad : OUTSIDE, located.taken = 0;
            }
            if (!bad) located.at[frame.missing] += (int)(system[i] * pitch);
#endif
#if STRAYS
            if (bad) record_stray(strays, most_strays, i, first, !elsewhere);
            if (!elsewhere)
#endif
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
// Unpacks node and fraction.
KERNEL unpack_particles(GLOBAL const u32* RESTRICT packed, GLOBAL int* RESTRICT node, GLOBAL real* RESTRICT fraction,
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
