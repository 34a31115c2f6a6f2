// SPDX-License-Identifier: BSD-3-Clause
// Particles of a sum of r**-6: their two numbers, and pairs whose interaction is left out or scaled.

#include "apps/pme/nearest.h"

typedef struct {
    real repels, arithmetic, shifts, inverse_cut, at_cutoff, square;  // as in the pair function; the cutoff's square
} Law;

// Write (2 sqrt(epsilon), sigma) and their product for the mesh, from sigma and epsilon or from a coefficient alone.
// The third word of status says whether one of them is negative.
KERNEL coefficients(GLOBAL const real* RESTRICT first, GLOBAL const real* RESTRICT second, GLOBAL real* RESTRICT values,
                    GLOBAL real* RESTRICT charges, GLOBAL real* RESTRICT status, const i64 count, const i64 first_at,
                    const i64 second_at, const i64 wells)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        real depth = first[first_at + i], size = 1;
        if (wells) {
            size = depth;
            const real well = second[second_at + i];
            depth = 2 * sqrt(well);
            if (size < 0 || well < 0) status[2] = 1;
        }
        values[2 * i] = depth;
        values[2 * i + 1] = size;
        charges[i] = depth * size * size * size;
    }
}

// One work-item per particle, which alone adds to its sums: energy, force, the six terms of the virial, touching.
KERNEL without_pairs(GLOBAL const real* x0, GLOBAL const real* x1, GLOBAL const real* x2,
                     GLOBAL const int* RESTRICT start, GLOBAL const int* RESTRICT partners,
                     GLOBAL const real* RESTRICT weights, GLOBAL const real* RESTRICT values, GLOBAL real* RESTRICT sums,
                     const i64 count, const Strides strides, const Lattice box, const Law law)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        GLOBAL real* sum = sums + 11 * i;
        for (int n = start[i]; n < start[i + 1]; n++) {
            const i64 j = partners[n];
            real d[3];
            const real r2 = nearest_image(x0, x1, x2, strides, box, i, j, d);
            const int place = in_one_place(x0, x1, x2, strides, box, i, j, r2);
            if (place < 0) sum[10] += (real)1;
            if (place > 0 && weights[n] == (real)-1) sum[10] -= (real)1;
            const real depth = values[2 * i] * values[2 * j], product = values[2 * i + 1] * values[2 * j + 1];
            const real mean = (real)0.5 * (values[2 * i + 1] + values[2 * j + 1]);
            const real lattice = depth * product * product * product;
            const real size = law.arithmetic * mean * mean + (1 - law.arithmetic) * product;
            const real inverse = place ? (real)0 : (real)1 / r2, far = size * law.inverse_cut, c6 = far * far * far;
            // Beyond the cutoff a pair has what the mesh gives alone.
            const int within = r2 <= law.square;
            const real near = size * inverse, ratio = near * near * near;
            const real s6 = within ? depth * ratio : lattice * inverse * inverse * inverse;
            const real repulsion = within ? law.repels * ratio : (real)0;
            const real shift =
                within ? law.shifts * (depth * (law.repels * c6 - 1) * c6 + lattice * law.at_cutoff) : (real)0;
            const real g = weights[n] * 6 * s6 * (1 - 2 * repulsion) * inverse;
            sum[0] += weights[n] * ((repulsion - 1) * s6 - shift);
            for (int a = 0; a < 3; a++) {
                sum[1 + a] += g * d[a];
                sum[4 + a] += g * d[a] * d[a];
                sum[7 + a] += g * d[(a + 1) % 3] * d[(a + 2) % 3];
            }
        }
    }
}
