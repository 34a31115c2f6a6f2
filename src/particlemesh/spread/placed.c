// SPDX-License-Identifier: BSD-3-Clause
// Values side by side in node order.

#include "spread/placed.h"

KERNEL place_values(GLOBAL const int* RESTRICT order, GLOBAL const real* RESTRICT values, GLOBAL real* RESTRICT placed,
                    const i64 count, const Values layout)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        real q[STEP];
        UNROLL for (int j = QUANTITIES; j < STEP; j++) q[j] = 0;
        quantities_of(q, values, order[k], &layout);
        UNROLL for (int j = 0; j < STEP; j++) placed[k * STEP + j] = q[j];
    }
}
