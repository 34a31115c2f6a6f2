// SPDX-License-Identifier: BSD-3-Clause
// Sums of a function of pairs over the neighbours of each particle, without a list. LANES work-items per particle, in
// cell order, share its neighbours; the first of them adds their sums up. RESULTS sums, VALUES reals per particle.

#include "grid/queries/search.h"

#ifndef LANES
#define LANES 1
#endif
#define AT_LEAST_ONE(n) ((n) > 0 ? (n) : 1)

typedef struct {
    coordinate radius, limit; // the largest square of a distance within it
} Ask;

// PARAMETERS: how many the function has. So few are arguments of the kernel, which GPUs read without loads; 0 if more.
#if PARAMETERS
typedef struct {
    real p[PARAMETERS];
} Parameters;
#define PARAMETER_MEMORY PRIVATE
#define PARAMETER_ARRAY
#define PARAMETER_RECORD , const Parameters parameters
#define PARAMETER_VALUES parameters.p
#else
#define PARAMETER_MEMORY GLOBAL
#define PARAMETER_ARRAY GLOBAL const real *RESTRICT parameters,
#define PARAMETER_RECORD
#define PARAMETER_VALUES parameters
#endif

// Visible to the user's C code: the squared distance, the vector from particle i to particle j's image, their indices
// in the caller's order, their values, parameters, and the sums of particle i.
DEVICE void pair_function(const real r2, PRIVATE const real* d, const i64 i, const i64 j, PRIVATE const real* a,
                          PRIVATE const real* b, PARAMETER_MEMORY const real* p, PRIVATE real* sum)
{
#include <pair function>
}

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
    const coordinate limit = ask.limit;
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
            pair_function(r2, d, i, INDEX_OF_REAL(other.w), a, b, PARAMETER_VALUES, sum);     \
        }                                                                                     \
    }
#include "grid/queries/strips.h"
        }
#if LANES > 1
        for (int r = 0; r < RESULTS; r++) shared[r * GROUP_SIZE + LOCAL_ID] = sum[r];
        BARRIER();
        if (lane == 0)
            for (int other = 1; other < LANES; other++)
                for (int r = 0; r < RESULTS; r++) sum[r] += shared[r * GROUP_SIZE + LOCAL_ID + other];
        BARRIER(); // read before the next particles' are written
#endif
        if (k < valid && lane == 0)
            for (int r = 0; r < RESULTS; r++) sums[sums_at + i * sums_step + r * sums_column] = sum[r];
    }
}
