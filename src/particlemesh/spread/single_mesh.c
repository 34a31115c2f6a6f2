// SPDX-License-Identifier: BSD-3-Clause
// The spreading operator, stored by rows (CSR), times values: a few neighbouring lanes have a row, and nobody else
// writes to its node. There are no atomics.
//
// A particle brings QUANTITIES reals, with SLOPES its vectors: component by component, an axis after the other.

#include "spread/linear.h"

#if COUNT_IS_64
typedef u64 count_t;
#else
typedef u32 count_t;
#endif

#define COMPONENTS (CHANNELS * PARTS)
#define WEIGHTS (SLOPES ? SLOPES : 1)
#define QUANTITIES (COMPONENTS * WEIGHTS)
#define STEP (QUANTITIES > 2 ? (QUANTITIES + 3) / 4 * 4 : QUANTITIES) // reals from a particle to the next in node order

DEVICE void quantities_of(PRIVATE real* q, GLOBAL const real* values, i64 i, PRIVATE const Values* layout)
{
    UNROLL for (int c = 0; c < CHANNELS; c++)
        UNROLL for (int p = 0; p < PARTS; p++)
            UNROLL for (int b = 0; b < WEIGHTS; b++)
                q[(c * PARTS + p) * WEIGHTS + b] =
                    values[layout->offset + i * layout->particle + c * layout->channel + p * layout->part
                           + b * layout->axis];
}

// Values side by side in node order: those that meet at a node are then neighbours in memory.
KERNEL single_values(GLOBAL const int* RESTRICT order, GLOBAL const real* RESTRICT values,
                     GLOBAL real* RESTRICT placed, const i64 count, const Values layout)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        real q[STEP];
        UNROLL for (int j = QUANTITIES; j < STEP; j++) q[j] = 0;
        quantities_of(q, values, order[k], &layout);
        UNROLL for (int j = 0; j < STEP; j++) placed[k * STEP + j] = q[j];
    }
}

DEVICE void placed_at(PRIVATE real* q, GLOBAL const real* values, u32 t)
{
    GLOBAL const real* own = values + (i64)t * STEP;
#if STEP == 1
    q[0] = READ_1(own);
#elif STEP == 2
    const real2 v = READ_2(own);
    q[0] = v.x, q[1] = v.y;
#else
    UNROLL for (int j = 0; j < STEP; j += 4) {
        const real4 v = READ_4(own + j);
        q[j] = v.x, q[j + 1] = v.y, q[j + 2] = v.z, q[j + 3] = v.w;
    }
#endif
}

// IN_FLIGHT entries are read by a lane at once: with too few of them memory waits for the lanes.
// PLACED: columns are places in node order and values lie in that order; else they are the caller's. A row has
// 2^bits lanes; REDUCE_LOCAL adds their sums through local memory instead of by shuffles.
KERNEL single_apply(GLOBAL const count_t* RESTRICT start, GLOBAL const u32* RESTRICT column,
                    GLOBAL const real* RESTRICT weight, GLOBAL const real* RESTRICT values, GLOBAL real* RESTRICT field,
                    const i64 nodes, const i64 bits, const i64 plane, const Values value_layout, const Field layout)
{
    WARP(warp);
#if REDUCE_LOCAL
    LOCAL_ARRAY(real, partial, COMPONENTS * GROUP_SIZE);
#endif
    const int lanes = 1 << (int)bits, lane = LANE & (lanes - 1);
    const i64 stop = ((nodes << bits) + WARP_SIZE - 1) / WARP_SIZE * WARP_SIZE;
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < stop; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 row = k >> bits;
        const i64 begin = row < nodes ? (i64)start[row] : 0;
        const count_t length = row < nodes ? (count_t)(start[row + 1] - (count_t)begin) : 0;
        real sum[COMPONENTS];
        UNROLL for (int c = 0; c < COMPONENTS; c++) sum[c] = 0;
        GLOBAL const u32* RESTRICT who = column + begin;
        GLOBAL const real* RESTRICT of_row = weight + begin;
        for (count_t first = lane; first < length; first += IN_FLIGHT * lanes) {
            u32 whose[IN_FLIGHT];
            real w[IN_FLIGHT][WEIGHTS], q[IN_FLIGHT][STEP];
            UNROLL for (int n = 0; n < IN_FLIGHT; n++) { // past the end the last entry is read again: no branches
                const count_t e = first + n * lanes < length ? first + n * lanes : length - 1;
                whose[n] = who[e];
                UNROLL for (int b = 0; b < WEIGHTS; b++) w[n][b] = of_row[b * plane + (i64)e];
            }
            UNROLL for (int n = 0; n < IN_FLIGHT; n++) {
#if PLACED
                placed_at(q[n], values, whose[n]);
#else
                quantities_of(q[n], values, whose[n], &value_layout);
#endif
            }
            UNROLL for (int n = 0; n < IN_FLIGHT; n++) // not with weights of zero: values need not be finite
                UNROLL for (int c = 0; c < COMPONENTS; c++) {
                    real more = sum[c];
                    UNROLL for (int b = 0; b < WEIGHTS; b++) more += w[n][b] * q[n][c * WEIGHTS + b];
                    sum[c] = first + n * lanes < length ? more : sum[c];
                }
        }
#if REDUCE_LOCAL
        UNROLL for (int c = 0; c < COMPONENTS; c++) partial[c * GROUP_SIZE + LOCAL_ID] = sum[c];
        for (int step = lanes / 2; step > 0; step /= 2) {
            WARP_SYNC(warp);
            if (lane < step)
                UNROLL for (int c = 0; c < COMPONENTS; c++) {
                    sum[c] += partial[c * GROUP_SIZE + LOCAL_ID + step];
                    partial[c * GROUP_SIZE + LOCAL_ID] = sum[c];
                }
        }
        WARP_SYNC(warp); // before the next rows' sums
#else
        for (int step = lanes / 2; step > 0; step /= 2)
            UNROLL for (int c = 0; c < COMPONENTS; c++) sum[c] += WARP_SHUFFLE(warp, sum[c], LANE ^ step);
#endif
        if (lane == 0 && row < nodes) {
            GLOBAL real* target = field + offset_of(row, &layout);
            UNROLL for (int c = 0; c < CHANNELS; c++)
                UNROLL for (int p = 0; p < PARTS; p++) target[c * layout.channel + p] += sum[c * PARTS + p];
        }
    }
}
