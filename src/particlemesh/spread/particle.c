// SPDX-License-Identifier: BSD-3-Clause
// A few neighbouring lanes per particle; every contribution is an atomic add.

typedef real Sink;
#define DEPOSIT(field, at, vector) atomic_add_vector((field) + (at), vector)
#include "spread/rows.h"

KERNEL spread_particle(GLOBAL const int* RESTRICT node,       // (3, rows), first of each stencil
                       GLOBAL const real* RESTRICT fraction,  // (3, rows), centred
                       GLOBAL const real* RESTRICT values,
                       GLOBAL real* RESTRICT field,           // added to
                       const i64 count, const i64 rows,
                       const Values value_layout, const Field field_layout,
                       const Window window, const Jacobian jacobian)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count * LANES; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = k / LANES;
        if (node[2 * rows + i] == SKIP) continue;
        Stencil s;
        stencil_of(&s, node, fraction, i, rows, (int)(k % LANES), &field_layout, &window);
        real q[QUANTITIES];
        values_of(q, values, i, &value_layout, &jacobian);
        spread_rows(&s, q, field, &field_layout);
    }
}
