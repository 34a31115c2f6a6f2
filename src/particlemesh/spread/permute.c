// SPDX-License-Identifier: BSD-3-Clause
// The particles' quantities in a given order: planes, `pitch` apart.

#include "spread/values.h"

KERNEL permute_values(GLOBAL const int* RESTRICT order, GLOBAL const real* RESTRICT values,
                      GLOBAL real* RESTRICT brought, const i64 count, const i64 pitch, const Values value_layout,
                      const Jacobian jacobian)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        real q[QUANTITIES];
        values_of(q, values, order[k], &value_layout, &jacobian);
        UNROLL for (int n = 0; n < QUANTITIES; n++) brought[n * pitch + k] = q[n];
    }
}
