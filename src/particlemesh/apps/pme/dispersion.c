// SPDX-License-Identifier: BSD-3-Clause
// Particles of a sum of r**-6: their two numbers, and pairs whose interaction is left out or scaled.

#include "apps/pme/nearest.h"

typedef struct {
    real repels, arithmetic, shifts, inverse_cut, at_cutoff, of_size, of_beta;  // as in the pair function
    real square;  // of the cutoff
} Law;

// Write (2 sqrt(epsilon), sigma) and their product for the mesh, from sigma and epsilon or from a coefficient alone.
// The third word of status is ~i of the first particle i of which one is negative, or 0.
KERNEL coefficients(GLOBAL const real* RESTRICT first, GLOBAL const real* RESTRICT second, GLOBAL real* RESTRICT values,
                    GLOBAL real* RESTRICT charges, GLOBAL u64* RESTRICT status, const i64 count, const i64 first_at,
                    const i64 second_at, const i64 wells)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        real depth = first[first_at + i], size = 1;
        if (wells) {
            size = depth;
            const real well = second[second_at + i];
            depth = 2 * sqrt(well);
            if (size < 0 || well < 0) ATOMIC_MAX_U64(status + 2, ~(u64)i);
        }
        values[2 * i] = depth;
        values[2 * i + 1] = size;
        charges[i] = depth * size * size * size;
    }
}

// 1 if i and j have the same coordinates, -1 if they are otherwise too close for their distance to mean anything, else 0.
DEVICE int in_one_place(GLOBAL const real* x0, GLOBAL const real* x1, GLOBAL const real* x2, const Strides strides,
                        const Lattice box, const i64 i, const i64 j, const real r2)
{
    if (!(r2 <= box.least)) return 0;
    return x0[strides.offset[0] + j * strides.stride[0]] == x0[strides.offset[0] + i * strides.stride[0]]
                && x1[strides.offset[1] + j * strides.stride[1]] == x1[strides.offset[1] + i * strides.stride[1]]
                && x2[strides.offset[2] + j * strides.stride[2]] == x2[strides.offset[2] + i * strides.stride[2]]
            ? 1 : -1;
}

typedef struct {
    real d[3], square, depth, size, lattice;  // of the nearest image
    int place, close;
} Pair;

DEVICE Pair pair_of(GLOBAL const real* x0, GLOBAL const real* x1, GLOBAL const real* x2, GLOBAL const real* values,
                    const Strides strides, const Lattice box, const Law law, const i64 i, const i64 j)
{
    Pair pair;
    pair.square = nearest_image(x0, x1, x2, strides, box, i, j, pair.d);
    pair.place = in_one_place(x0, x1, x2, strides, box, i, j, pair.square);
    const real product = values[2 * i + 1] * values[2 * j + 1];
    const real mean = (real)0.5 * (values[2 * i + 1] + values[2 * j + 1]);
    pair.depth = values[2 * i] * values[2 * j];
    pair.lattice = pair.depth * product * product * product;
    pair.size = law.arithmetic * mean * mean + (1 - law.arithmetic) * product;
    pair.close = pair.square <= law.square && pair.square < law.of_size * pair.size + law.of_beta;
    return pair;
}

// One work-item per particle, which alone writes its sums: energy, force, the six terms of the virial, touching. Sums
// over neighbours have close pairs apart, with a mark of these. If the excluded or scaled pairs have the same mark, they
// are all close ones, and get their factor. Otherwise the factor minus 1 is added to the sums.
KERNEL without_pairs(GLOBAL const real* x0, GLOBAL const real* x1, GLOBAL const real* x2,
                     GLOBAL const int* RESTRICT start, GLOBAL const int* RESTRICT partners,
                     GLOBAL const real* RESTRICT weights, GLOBAL const real* RESTRICT values,
                     GLOBAL const real* RESTRICT sums, GLOBAL real* RESTRICT corrected,
                     GLOBAL const real* RESTRICT boxes, const i64 count, const Strides strides, const Law law)
{
    const Lattice box = lattice_at(boxes);
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        real sum[11], mark = 0;
        for (int n = start[i]; n < start[i + 1]; n++) {
            const Pair pair = pair_of(x0, x1, x2, values, strides, box, law, i, partners[n]);
            if (pair.close) mark += (real)(1 + (partners[n] & 4095));
        }
        const int known = mark == sums[22 * i + 21];
        for (int t = 0; t < 11; t++) sum[t] = sums[22 * i + t];
        if (!known) for (int t = 0; t < 10; t++) sum[t] += sums[22 * i + 11 + t];
        for (int n = start[i]; n < start[i + 1]; n++) {
            const Pair pair = pair_of(x0, x1, x2, values, strides, box, law, i, partners[n]);
            if (pair.place < 0) sum[10] += (real)1;
            if (pair.place > 0 && weights[n] == (real)-1) sum[10] -= (real)1;
            const real inverse = pair.place ? (real)0 : (real)1 / pair.square;
            const real far = pair.size * law.inverse_cut, c6 = far * far * far;
            // Beyond the cutoff a pair has what the mesh gives alone.
            const int within = pair.square <= law.square;
            const real near = pair.size * inverse, ratio = near * near * near;
            const real s6 = within ? pair.depth * ratio : pair.lattice * inverse * inverse * inverse;
            const real repulsion = within ? law.repels * ratio : (real)0;
            const real shift =
                within ? law.shifts * (pair.depth * (law.repels * c6 - 1) * c6 + pair.lattice * law.at_cutoff) : (real)0;
            const real weight = known && pair.close ? weights[n] + 1 : weights[n];
            const real g = weight * 6 * s6 * (1 - 2 * repulsion) * inverse;
            sum[0] += weight * (repulsion - 1) * s6 - weights[n] * shift;
            for (int a = 0; a < 3; a++) {
                sum[1 + a] += g * pair.d[a];
                sum[4 + a] += g * pair.d[a] * pair.d[a];
                sum[7 + a] += g * pair.d[(a + 1) % 3] * pair.d[(a + 2) % 3];
            }
        }
        for (int t = 0; t < 11; t++) corrected[11 * i + t] = sum[t];
    }
}
