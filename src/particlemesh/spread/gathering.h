// SPDX-License-Identifier: BSD-3-Clause
// A node that gathers: its index, the contribution of a particle that reaches it, and its addition to the field.
// Quantities of particles lie in planes, `pitch` apart.

#include "spread/meeting.h"
#include "spread/table.h"
#include "spread/values.h"

#define SUMS (CHANNELS * PARTS)

// Add the contribution of the particle at a place, by its weights and (GRADIENT) their slopes along the three axes.
DEVICE void take(PRIVATE real* sum, PRIVATE const real* weight, PRIVATE const real* slope,
                 GLOBAL const real* brought, i64 pitch, i64 at)
{
#if GRADIENT
    const real by[3] = {slope[0] * weight[1] * weight[2], weight[0] * slope[1] * weight[2],
                        weight[0] * weight[1] * slope[2]};
    UNROLL for (int c = 0; c < SUMS; c++)
        UNROLL for (int a = 3 - SUPPORT_AXES; a < 3; a++) sum[c] += by[a] * READ_1(brought + (3 * c + a) * pitch + at);
#else
    const real by = weight[0] * weight[1] * weight[2];
    UNROLL for (int c = 0; c < SUMS; c++) sum[c] += by * READ_1(brought + c * pitch + at);
#endif
}

DEVICE void give(GLOBAL real* field, PRIVATE const int* node, PRIVATE const real* sum, PRIVATE const Field* layout)
{
    i64 at = layout->offset;
    for (int a = 0; a < 3; a++) at += node[a] * layout->stride[a];
    UNROLL for (int c = 0; c < CHANNELS; c++)
        UNROLL for (int p = 0; p < PARTS; p++) field[at + c * layout->channel + p] += sum[c * PARTS + p];
}
