// SPDX-License-Identifier: BSD-3-Clause
// The spreading operator, stored by rows (CSR), times values. One row's lanes alone write to its node: no atomics.

#include "backends/count.h"
#include "spread/linear.h"
#include "spread/placed.h"

// PLACED: columns are places in node order, and values are in that order; else both are the caller's.

// Read the weights of IN_FLIGHT entries, which are `step` apart, and what their particles carry.
DEVICE void read_entries(PRIVATE real (*w)[WEIGHTS], PRIVATE real (*q)[STEP], GLOBAL const u32* who,
                         GLOBAL const real* weight, GLOBAL const real* values, const count_t first, const count_t step,
                         const count_t length, const i64 plane, PRIVATE const Values* value_layout)
{
    u32 whose[IN_FLIGHT];
    UNROLL for (int n = 0; n < IN_FLIGHT; n++) { // past the end the last entry is read again: no branches
        const count_t e = first + n * step < length ? first + n * step : length - 1;
        whose[n] = READ_ONCE_U32(who + e);
        UNROLL for (int b = 0; b < WEIGHTS; b++) w[n][b] = READ_ONCE(weight + b * plane + (i64)e);
    }
    UNROLL for (int n = 0; n < IN_FLIGHT; n++) {
#if PLACED
        placed_at(q[n], values, whose[n]);
#else
        quantities_of(q[n], values, whose[n], value_layout);
#endif
    }
}

#ifndef CHUNK

// A warp takes 32 neighbouring rows and reads their starts at once. 2^bits lanes have a row, so there are as many
// steps, and in the end each lane has the sum of one row to write. A lane reads IN_FLIGHT entries at once, to hide the
// latency of memory. REDUCE_LOCAL adds up through local memory instead of shuffles.
KERNEL single_apply(GLOBAL const count_t* RESTRICT start, GLOBAL const u32* RESTRICT column,
                    GLOBAL const real* RESTRICT weight, GLOBAL const real* RESTRICT values, GLOBAL real* RESTRICT field,
                    const i64 nodes, const i64 bits, const i64 plane, const Values value_layout, const Field layout)
{
    WARP(warp);
#if REDUCE_LOCAL
    LOCAL_ARRAY(real, partial, COMPONENTS * GROUP_SIZE);
    LOCAL real* of_warp = partial + (LOCAL_ID - LANE);
#endif
    const int lanes = 1 << (int)bits, lane = LANE & (lanes - 1), rows = WARP_SIZE >> (int)bits;
    for (i64 base = GROUP_ID * GROUP_SIZE + LOCAL_ID - LANE; base < nodes; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 own = base + LANE;
        const count_t own_begin = own < nodes ? start[own] : 0, own_end = own < nodes ? start[own + 1] : 0;
        real total[COMPONENTS];
        UNROLL for (int c = 0; c < COMPONENTS; c++) total[c] = 0;
        for (int step = 0; step < lanes; step++) {
            const int row = step * rows + (LANE >> (int)bits);
            const count_t begin = SHUFFLE_COUNT(warp, own_begin, row), end = SHUFFLE_COUNT(warp, own_end, row);
            const count_t length = end - begin;
            GLOBAL const u32* RESTRICT who = column + begin;
            GLOBAL const real* RESTRICT of_row = weight + begin;
            real sum[COMPONENTS];
            UNROLL for (int c = 0; c < COMPONENTS; c++) sum[c] = 0;
            for (count_t first = lane; first < length; first += IN_FLIGHT * lanes) {
                real w[IN_FLIGHT][WEIGHTS], q[IN_FLIGHT][STEP];
                read_entries(w, q, who, of_row, values, first, lanes, length, plane, &value_layout);
                UNROLL for (int n = 0; n < IN_FLIGHT; n++) // not with weights of zero: values need not be finite
                    UNROLL for (int c = 0; c < COMPONENTS; c++) {
                        real more = sum[c];
                        UNROLL for (int b = 0; b < WEIGHTS; b++) more += w[n][b] * q[n][c * WEIGHTS + b];
                        sum[c] = first + n * lanes < length ? more : sum[c];
                    }
            }
            const int from = (LANE & (rows - 1)) << (int)bits; // the lane with the sum of this lane's row, in its step
            const int mine = LANE >> (5 - (int)bits) == step;
#if REDUCE_LOCAL
            WARP_SYNC(warp); // until the previous step's sums are read
            UNROLL for (int c = 0; c < COMPONENTS; c++) of_warp[c * GROUP_SIZE + LANE] = sum[c];
            for (int gap = lanes / 2; gap > 0; gap /= 2) {
                WARP_SYNC(warp);
                if (lane < gap)
                    UNROLL for (int c = 0; c < COMPONENTS; c++) {
                        sum[c] += of_warp[c * GROUP_SIZE + LANE + gap];
                        of_warp[c * GROUP_SIZE + LANE] = sum[c];
                    }
            }
            WARP_SYNC(warp);
            UNROLL for (int c = 0; c < COMPONENTS; c++) total[c] = mine ? of_warp[c * GROUP_SIZE + from] : total[c];
#else
            UNROLL for (int c = 0; c < COMPONENTS; c++) {
                for (int gap = lanes / 2; gap > 0; gap /= 2) sum[c] += WARP_SHUFFLE(warp, sum[c], LANE ^ gap);
                const real other = WARP_SHUFFLE(warp, sum[c], from);
                total[c] = mine ? other : total[c];
            }
#endif
        }
        if (own < nodes) add_to_field(field, &layout, own, total);
    }
}

#else

// The entries of neighbouring rows are consecutive in memory: a group multiplies CHUNK of them at a time into local
// memory, where 2^bits lanes per row add up.
KERNEL single_stream(GLOBAL const count_t* RESTRICT start, GLOBAL const u32* RESTRICT column,
                     GLOBAL const real* RESTRICT weight, GLOBAL const real* RESTRICT values,
                     GLOBAL real* RESTRICT field, const i64 nodes, const i64 bits, const i64 plane,
                     const Values value_layout, const Field layout)
{
    WARP(warp);
    LOCAL_ARRAY(real, product, COMPONENTS * CHUNK);
    const int lanes = 1 << (int)bits, lane = LOCAL_ID & (lanes - 1), rows = GROUP_SIZE >> (int)bits;
    for (i64 base = GROUP_ID * rows; base < nodes; base += GROUP_COUNT * rows) {
        const i64 last = base + rows < nodes ? base + rows : nodes, own = base + (LOCAL_ID >> (int)bits);
        const count_t begin = start[base], end = start[last];
        const count_t own_begin = own < last ? start[own] : end, own_end = own < last ? start[own + 1] : end;
        real sum[COMPONENTS];
        UNROLL for (int c = 0; c < COMPONENTS; c++) sum[c] = 0;
        for (count_t at = begin; at < end; at += CHUNK) {
            const int count = end - at < CHUNK ? (int)(end - at) : CHUNK;
            GLOBAL const u32* RESTRICT who = column + at;
            GLOBAL const real* RESTRICT of_chunk = weight + at;
            for (int first = LOCAL_ID; first < count; first += IN_FLIGHT * GROUP_SIZE) {
                real w[IN_FLIGHT][WEIGHTS], q[IN_FLIGHT][STEP];
                read_entries(w, q, who, of_chunk, values, first, GROUP_SIZE, count, plane, &value_layout);
                UNROLL for (int n = 0; n < IN_FLIGHT; n++)
                    UNROLL for (int c = 0; c < COMPONENTS; c++) {
                        real more = 0;
                        UNROLL for (int b = 0; b < WEIGHTS; b++) more += w[n][b] * q[n][c * WEIGHTS + b];
                        if (first + n * GROUP_SIZE < count) product[c * CHUNK + first + n * GROUP_SIZE] = more;
                    }
            }
            BARRIER();
            const int from = own_begin > at ? (int)(own_begin - at < CHUNK ? own_begin - at : CHUNK) : 0;
            const int to = own_end > at ? (int)(own_end - at < CHUNK ? own_end - at : CHUNK) : 0;
            for (int e = from + lane; e < to; e += lanes)
                UNROLL for (int c = 0; c < COMPONENTS; c++) sum[c] += product[c * CHUNK + e];
            BARRIER();
        }
        UNROLL for (int c = 0; c < COMPONENTS; c++)
            for (int gap = lanes / 2; gap > 0; gap /= 2) sum[c] += WARP_SHUFFLE(warp, sum[c], LANE ^ gap);
        if (lane == 0 && own < last) add_to_field(field, &layout, own, sum);
    }
}

#endif
