// SPDX-License-Identifier: BSD-3-Clause
// Sums of a function of pairs over the neighbours of each particle, without a list. LANES work-items per particle, in
// cell order, share its neighbours; the first of them adds their sums up. RESULTS sums, VALUES reals per particle.

#include "grid/queries/search.h"
#include "grid/queries/pair_function.h"

#ifndef LANES
#define LANES 1
#endif

// Values in cell order, so that those of neighbours are adjacent.
KERNEL gather_values(GLOBAL const real* RESTRICT records, GLOBAL const u32* RESTRICT start,
                     GLOBAL const real* RESTRICT given, GLOBAL real* RESTRICT values, const i64 count,
                     const i64 bins, const i64 first, const i64 step, const i64 column)
{
    const i64 valid = start[bins];
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < count * VALUES; n += GROUP_COUNT * GROUP_SIZE) {
        const i64 k = n / AT_LEAST_ONE(VALUES), v = n - k * VALUES;
        if (k < valid) values[n] = given[first + INDEX_OF_REAL(records[4 * k + 3]) * step + v * column];
    }
}

KERNEL stream(SYSTEM_ARRAYS GLOBAL const real* RESTRICT records, GLOBAL const u32* RESTRICT start,
              GLOBAL const u32* RESTRICT ends, GLOBAL const real* RESTRICT values, PARAMETER_ARRAY
              GLOBAL real* RESTRICT sums, const i64 count, const i64 bins, const i64 sums_at, const i64 sums_step,
              const i64 sums_column, BOX_RECORDS, const Ask ask PARAMETER_RECORD)
{
    const i64 valid = start[bins];
    const coordinate limit = IN_REGISTER(ask.limit);
    const int lane = LOCAL_ID % LANES, together = GROUP_SIZE / LANES; // particles of a group
#if LANES > 1
    LOCAL_ARRAY(real, shared, GROUP_SIZE * RESULTS);
#endif
    for (i64 first = GROUP_ID * together; first < valid; first += GROUP_COUNT * together) {
        const i64 k = first + LOCAL_ID / LANES;
        i64 i = 0;
        real sum[RESULTS];
        for (int r = 0; r < RESULTS; r++) sum[r] = 0;
        if (k < valid) {
            IN_SYSTEM_OF_PARTICLE(k)
            const real4 own = READ_4(records + 4 * k);
            i = INDEX_OF_REAL(own.w);
            const coordinate x[3] = {own.x, own.y, own.z};
            coordinate s[3];
            fractions(s, x, &geometry);
            real a[AT_LEAST_ONE(VALUES)], b[AT_LEAST_ONE(VALUES)];
            for (int v = 0; v < VALUES; v++) a[v] = values[k * VALUES + v];
#define FIRST_LEVEL 0
#define REACH_OF(level) ask.radius
#define STRIP                                                                                 \
    for (i64 q = from + lane; q < to; q += LANES) {                                           \
        const real4 other = READ_4(records + 4 * q);                                          \
        coordinate d[3];                                                                      \
        VECTOR(d, other, x, shift);                                                           \
        const real r2 = SQUARED(d);                                                           \
        if (r2 <= limit && (turned || q != k)) {                                              \
            for (int v = 0; v < VALUES; v++) b[v] = values[q * VALUES + v];                   \
            add_pair(r2, d, i, INDEX_OF_REAL(other.w), a, b, PARAMETER_VALUES, sum);          \
        }                                                                                     \
    }
#include "grid/queries/strips.h"
        }
#if LANES > 1
        for (int r = 0; r < RESULTS; r++) shared[r * GROUP_SIZE + LOCAL_ID] = sum[r];
        BARRIER();
        if (lane == 0)
            for (int other = 1; other < LANES; other++)
                for (int r = 0; r < RESULTS; r++)
                    sum[r] = TOGETHER(r, sum[r], shared[r * GROUP_SIZE + LOCAL_ID + other]);
        BARRIER(); // read before the next particles' are written
#endif
        if (k < valid && lane == 0)
            for (int r = 0; r < RESULTS; r++) sums[sums_at + i * sums_step + r * sums_column] = sum[r];
    }
}
