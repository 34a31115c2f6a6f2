// SPDX-License-Identifier: BSD-3-Clause
// What type 3 does with coordinates and values: extents, phases, products. Phases are computed as coordinates, in double
// precision, since products of coordinates are large.
#include "particles/coordinates.h"

// The smallest and the largest number of each share of x; NaN if one of them is.
KERNEL extents(GLOBAL const real* x, GLOBAL real* partial, const i64 count, const i64 shares, const i64 at,
               const i64 stride)
{
    LOCAL_ARRAY(real, lows, GROUP_SIZE);
    LOCAL_ARRAY(real, highs, GROUP_SIZE);
    const i64 length = (count + shares - 1) / shares;
    for (i64 share = GROUP_ID; share < shares; share += GROUP_COUNT) {
        const i64 begin = share * length < count ? share * length : count - 1;
        const i64 end = (share + 1) * length < count ? (share + 1) * length : count;
        real low = x[at + begin * stride], high = low;
        for (i64 i = begin + LOCAL_ID; i < end; i += GROUP_SIZE) {
            const real v = x[at + i * stride];
            low = v < low || v != v ? v : low;  // a NaN stays: it is not above anything
            high = v > high || v != v ? v : high;
        }
        lows[LOCAL_ID] = low, highs[LOCAL_ID] = high;
        BARRIER();
        for (int reach = GROUP_SIZE / 2; reach > 0; reach /= 2) {
            if (LOCAL_ID < reach) {
                const real a = lows[LOCAL_ID + reach], b = highs[LOCAL_ID + reach];
                if (a < lows[LOCAL_ID] || a != a) lows[LOCAL_ID] = a;
                if (b > highs[LOCAL_ID] || b != b) highs[LOCAL_ID] = b;
            }
            BARRIER();
        }
        if (LOCAL_ID == 0) partial[share] = lows[0], partial[shares + share] = highs[0];
        BARRIER();
    }
}

typedef struct {
    coordinate centre[3], middle[3], spacing[3];
    i64 at[3], stride[3];
} Axes;

// exp(i sum of middle (x - centre)) over the window's transform, a Chebyshev series, along each of AXES axes.
KERNEL phases(GLOBAL const real* x, GLOBAL const real* y, GLOBAL const real* z, GLOBAL const coordinate* series,
              GLOBAL real* out, const i64 count, const i64 terms, const Axes axes)
{
    for (i64 j = GROUP_ID * GROUP_SIZE + LOCAL_ID; j < count; j += GROUP_COUNT * GROUP_SIZE) {
        coordinate angle = 0, product = 1;
        for (int a = 0; a < AXES; a++) {
            GLOBAL const real* column = a == 0 ? x : a == 1 ? y : z;
            const coordinate u = (coordinate)column[axes.at[a] + j * axes.stride[a]] - axes.centre[a];
            angle += axes.middle[a] * u;
            if (terms > 0) {
                const coordinate k = axes.spacing[a] * u / 3.14159265358979323846, t = 2 * (2 * k * k - 1);
                coordinate one = 0, two = 0;  // Clenshaw's recurrence
                for (i64 n = terms - 1; n > 0; n--) {
                    const coordinate next = series[n] + t * one - two;
                    two = one, one = next;
                }
                product *= series[0] + t / 2 * one - two;
            }
        }
        out[2 * j] = (real)(cos(angle) / product), out[2 * j + 1] = (real)(sin(angle) / product);
    }
}

// values (rows, count) of IN reals, times the factor of each column or its conjugate, or as they are; OUT reals of it.
KERNEL times(GLOBAL const real* values, GLOBAL const real* factor, GLOBAL real* out, const i64 rows, const i64 count,
             const i64 values_at, const i64 conjugate)
{
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < rows * count; n += GROUP_COUNT * GROUP_SIZE) {
        const real a = values[values_at + IN * n], b = IN > 1 ? values[values_at + IN * n + IN - 1] : 0;
#if FACTORS
        const i64 j = n % count;
        const real c = factor[2 * j], d = conjugate ? -factor[2 * j + 1] : factor[2 * j + 1];
#else
        const real c = 1, d = 0;
#endif
        out[OUT * n] = a * c - b * d;
        if (OUT > 1) out[OUT * n + OUT - 1] = a * d + b * c;
    }
}
