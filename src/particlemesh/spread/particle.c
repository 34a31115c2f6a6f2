// SPDX-License-Identifier: BSD-3-Clause
// A few neighbouring lanes per particle; every contribution is an atomic add. LISTED takes the particles of a list,
// whose length is on the device, and ordered.c those in block order.

typedef real Sink;
#define DEPOSIT(field, at, vector) atomic_add_vector((field) + (at), vector)
#include "spread/rows.h"

#ifndef LISTED
#define LISTED 0
#endif

#ifdef ORDERED
#include "orders/ordered.h"

KERNEL spread_ordered(GLOBAL const u32* RESTRICT records, GLOBAL const u32* RESTRICT start,
                      GLOBAL const real* RESTRICT values,
                      GLOBAL real* RESTRICT field, // added to
                      const Values value_layout, const Field field_layout, const Window window,
                      const Jacobian jacobian, const Blocks blocks)
{
    WARP(warp);
    const i64 all = start[(i64)blocks.counts[0] * blocks.counts[1] * blocks.counts[2]];
    const i64 stop = (all * LANES + GROUP_SIZE - 1) / GROUP_SIZE * GROUP_SIZE; // lanes search for their lines together
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < stop; k += GROUP_COUNT * GROUP_SIZE) {
        const int here = k / LANES < all;
        int first[3];
        real z[3];
        const i64 i = ordered_particle(warp, records, start, k / LANES, here, &blocks, first, z);
        if (here) { // no lane runs ahead to the next search for lines
            Stencil s;
            stencil_at(&s, first, z, (int)(k % LANES), &field_layout, &window);
            real q[QUANTITIES];
            values_of(q, values, i, &value_layout, &jacobian);
            spread_rows(&s, q, field, &field_layout);
        }
    }
}
#else
KERNEL spread_particle(GLOBAL const int* RESTRICT node,       // (3, rows), first of each stencil
                       GLOBAL const real* RESTRICT fraction,  // (3, rows), centred
                       GLOBAL const real* RESTRICT values,
                       GLOBAL real* RESTRICT field,           // added to
                       GLOBAL const int* RESTRICT list,       // read if LISTED
                       GLOBAL const u32* RESTRICT listed,     // how many, read if LISTED
                       const i64 count, const i64 rows,
                       const Values value_layout, const Field field_layout,
                       const Window window, const Jacobian jacobian)
{
    const i64 all = LISTED ? listed[0] : count;
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < all * LANES; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = LISTED ? list[k / LANES] : k / LANES;
        if (node[2 * rows + i] == SKIP) continue;
        Stencil s;
        stencil_of(&s, node, fraction, i, rows, (int)(k % LANES), &field_layout, &window);
        real q[QUANTITIES];
        values_of(q, values, i, &value_layout, &jacobian);
        spread_rows(&s, q, field, &field_layout);
    }
}
#endif
