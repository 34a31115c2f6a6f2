// SPDX-License-Identifier: BSD-3-Clause
// Values side by side in node order.

#include "spread/placed.h"

KERNEL place_values(GLOBAL const int* RESTRICT order, GLOBAL const real* RESTRICT values, GLOBAL real* RESTRICT placed,
                    const i64 count, const Values layout)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        GLOBAL const real* own = values + layout.offset + order[k] * layout.particle;
        real q[STEP];
        UNROLL for (int j = QUANTITIES; j < STEP; j++) q[j] = 0;
        UNROLL for (int c = 0; c < CHANNELS; c++)
            UNROLL for (int p = 0; p < PARTS; p++)
                UNROLL for (int b = 0; b < WEIGHTS; b++)
                    q[(c * PARTS + p) * WEIGHTS + b] = own[c * layout.channel + p * layout.part + b * layout.axis];
        UNROLL for (int j = 0; j < STEP; j++) placed[k * STEP + j] = q[j];
    }
}
