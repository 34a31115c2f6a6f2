// SPDX-License-Identifier: BSD-3-Clause
// The mean of values over the neighbours of each particle and itself; one work-item for each particle and batch.

#include "sums.h"

KERNEL neighbour_mean(GLOBAL const i64* start, GLOBAL const int* list, GLOBAL const real* values, GLOBAL real* means,
                      GLOBAL u32* status, const i64 count, const i64 batch, const Rule rule)
{
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < batch * count; n += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = n % count, first = n - i;
        real total = rule.self_weight * values[n];
        for (i64 k = start[i]; k < start[i + 1]; k++) total += values[first + list[k]];
        means[n] = total / sum_of_weights(rule, start[i + 1] - start[i]);
        if (!(fabs(means[n]) <= rule.largest)) ATOMIC_ADD_U32(status, 1);
    }
}
