// SPDX-License-Identifier: BSD-3-Clause
// Weights of particles in a given order, written consecutively. A group computes the factors along each axis of a few
// particles in local memory, then multiplies them. SLOPES: d times as many slopes in user coordinates instead of
// weights, axis after axis.

#define ENTRIES (SUPPORT_X * SUPPORT_Y * SUPPORT_Z)
#define PLANES (SLOPES ? SUPPORT_AXES : 1)
#define HELD (GROUP_SIZE / 4) // particles of a group at a time: with 16 nodes in double precision they take 24 KB
#define FACTORS (6 * SUPPORT) // weights along three axes, then their slopes

KERNEL store_weights(GLOBAL const int* RESTRICT node,      // (3, rows), first of each stencil
                     GLOBAL const real* RESTRICT fraction, // (3, rows), centred
                     GLOBAL const int* RESTRICT order,
                     GLOBAL real* RESTRICT places,         // not written with slopes: first node and particle, as bits
                     GLOBAL real* RESTRICT weights,        // written
                     const i64 count, const i64 rows, const Window window, const Jacobian jacobian)
{
    LOCAL_ARRAY(real, factors, HELD * FACTORS);
    for (i64 first = GROUP_ID * HELD; first < count; first += GROUP_COUNT * HELD) {
        const int held = count - first < HELD ? (int)(count - first) : HELD;
        for (int t = LOCAL_ID; t < held * 3 * SUPPORT; t += GROUP_SIZE) {
            const int k = t / (3 * SUPPORT), axis = t / SUPPORT % 3, j = t % SUPPORT;
            const i64 i = order[first + k];
            real weight = 0, slope = 0;
            if (axis < 3 - SUPPORT_AXES) {
                weight = j == 0;
            } else if (node[2 * rows + i] != SKIP) {
                const real z = fraction[axis * rows + i];
                weight = weight_of(&window, j, z);
                slope = slope_of(&window, j, z);
            }
            factors[k * FACTORS + axis * SUPPORT + j] = weight;
            factors[k * FACTORS + (3 + axis) * SUPPORT + j] = slope;
#if !SLOPES
            if (t % (3 * SUPPORT) == 0)
                STORE_4(places + 4 * (first + k), REAL_FROM_INDEX(node[i]), REAL_FROM_INDEX(node[rows + i]),
                        REAL_FROM_INDEX(node[2 * rows + i]), REAL_FROM_INDEX(i));
#endif
        }
        BARRIER();
        for (int t = LOCAL_ID; t < held * PLANES * ENTRIES; t += GROUP_SIZE) {
            const int e = t % ENTRIES;
            LOCAL const real* x = factors + t / (PLANES * ENTRIES) * FACTORS + e / (SUPPORT_Y * SUPPORT_Z);
            LOCAL const real* y = factors + t / (PLANES * ENTRIES) * FACTORS + SUPPORT + e / SUPPORT_Z % SUPPORT_Y;
            LOCAL const real* z = factors + t / (PLANES * ENTRIES) * FACTORS + 2 * SUPPORT + e % SUPPORT_Z;
#if SLOPES
            const int b = t / ENTRIES % PLANES + 3 - SUPPORT_AXES;
            const real weight = jacobian.row[b] * x[3 * SUPPORT] * y[0] * z[0]
                              + jacobian.row[3 + b] * x[0] * y[3 * SUPPORT] * z[0]
                              + jacobian.row[6 + b] * x[0] * y[0] * z[3 * SUPPORT];
#else
            const real weight = x[0] * y[0] * z[0];
#endif
            weights[first * (PLANES * ENTRIES) + t] = weight;
        }
        BARRIER();
    }
}
