// SPDX-License-Identifier: BSD-3-Clause
// Steps with point dipoles: what pairs take, pairs that are left out or scaled, and results. One work-item per particle.
// VIRIAL says whether sums have the nine terms of the virial.

#include "apps/pme/nearest.h"

// Of sums: potential, its gradient, that of the gradient along the dipole, nine of the virial, particles in one place.
#define COLUMNS (VIRIAL ? 17 : 8)
#define TERMS (VIRIAL ? 10 : 1)  // energy and virial

// Words of status, as in assemble.c: ~i of the first particle i with a charge or dipole that is not finite, or 0.
#define BAD 3
#define BAD_DIPOLE 4

// Write rows (charge, dipole), and say which are not finite.
KERNEL pack(GLOBAL const real* RESTRICT charges, GLOBAL const real* RESTRICT dipoles, GLOBAL real* RESTRICT values,
            GLOBAL u64* status, const i64 count, const i64 charges_at, const i64 dipoles_at)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        const real q = charges[charges_at + i];
        real zero = 0;
        values[4 * i] = q;
        for (int a = 0; a < 3; a++) {
            const real m = dipoles[dipoles_at + 3 * i + a];
            values[4 * i + 1 + a] = m;
            zero += m - m;
        }
        if (!(q - q == 0)) ATOMIC_MAX_U64(status + BAD, ~(u64)i);
        if (!(zero == 0)) ATOMIC_MAX_U64(status + BAD_DIPOLE, ~(u64)i);
    }
}

typedef struct {
    real first, second;  // erf(alpha r) / r and its first factor, at r = 0
} Limits;

// Add what pairs lose or gain by their factors to the sums of their particles. Of an excluded pair in one place the sums
// have nothing and the mesh has the smooth part, whose limits are finite.
KERNEL without_pairs(GLOBAL const real* x0, GLOBAL const real* x1, GLOBAL const real* x2,
                     GLOBAL const int* RESTRICT start, GLOBAL const int* RESTRICT partners,
                     GLOBAL const real* RESTRICT weights, GLOBAL const real* RESTRICT values,
                     GLOBAL real* RESTRICT sums, const i64 count, const Strides strides, const Lattice box,
                     const Limits limits)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        GLOBAL real* sum = sums + COLUMNS * i;
        GLOBAL const real* a = values + 4 * i;
        for (int n = start[i]; n < start[i + 1]; n++) {
            const i64 j = partners[n];
            GLOBAL const real* b = values + 4 * j;
            real d[3], weight = weights[n];
            const real r2 = nearest_image(x0, x1, x2, strides, box, i, j, d);
            const int place = in_one_place(x0, x1, x2, strides, box, i, j, r2);
            const real inverse = place ? (real)1 : (real)1 / r2;
            real b0 = sqrt(inverse), b1 = b0 * inverse;
            const real b2 = 3 * b1 * inverse, b3 = 5 * b2 * inverse;
            if (place) {
                b0 = limits.first;
                b1 = limits.second;
            }
            real own = 0, theirs = 0, both = 0;
            for (int c = 0; c < 3; c++) {
                own += a[1 + c] * d[c];
                theirs += b[1 + c] * d[c];
                both += a[1 + c] * b[1 + c];
            }
            // Pairs that are scaled and in one place have no finite interaction: they stay counted.
            if (place < 0) sum[COLUMNS - 1] += (real)1;
            if (place > 0 && weight == (real)-1) sum[COLUMNS - 1] -= (real)1;
            if (place && weight != (real)-1) weight = 0;
            const real along = b[0] * b1 - theirs * b2, second = b[0] * own * b2 - theirs * own * b3 + both * b2;
            sum[0] += weight * (b[0] * b0 - theirs * b1);
            for (int c = 0; c < 3; c++) {
                const real slope = weight * (along * d[c] + b1 * b[1 + c]);
                const real turn = weight * (second * d[c] + own * b2 * b[1 + c] - along * a[1 + c]);
                sum[1 + c] += slope;
                sum[4 + c] += turn;
#if VIRIAL
                for (int e = 0; e < 3; e++) sum[7 + 3 * c + e] -= (a[0] * slope + turn) * d[e];
#endif
            }
        }
    }
}

typedef struct {
    real coulomb, mesh, self, twist;  // twist: a dipole's own field
} Factors;

typedef struct {
    i64 energies, forces, potentials, fields, torques;
} Places;

// Write the results of particles. Of each share of them write the energy, the virial without that of the field on the
// mesh, and how many particles are in one place. Dipoles stay while the mesh is strained: their part of its slope does not.
KERNEL assemble(GLOBAL const real* RESTRICT values, GLOBAL const real* RESTRICT sums,
                GLOBAL const real* RESTRICT potential, GLOBAL const real* RESTRICT gradient,
                GLOBAL const real* RESTRICT hessian, GLOBAL real* RESTRICT energies, GLOBAL real* RESTRICT forces,
                GLOBAL real* RESTRICT potentials, GLOBAL real* RESTRICT fields, GLOBAL real* RESTRICT torques,
                GLOBAL real* RESTRICT partial, const i64 count, const i64 shares, const Places at, const Factors f)
{
    LOCAL_ARRAY(real, scratch, GROUP_SIZE);
    const i64 length = (count + shares - 1) / shares;
    for (i64 share = GROUP_ID; share < shares; share += GROUP_COUNT) {
        const i64 end = (share + 1) * length < count ? (share + 1) * length : count;
        real total[TERMS + 1];
        for (int t = 0; t <= TERMS; t++) total[t] = 0;
        for (i64 i = share * length + LOCAL_ID; i < end; i += GROUP_SIZE) {
            GLOBAL const real* sum = sums + COLUMNS * i;
            const real q = values[4 * i], phi = f.coulomb * (sum[0] + f.mesh * potential[i] - f.self * q);
            real mu[3], field[3], energy = q * phi;
            for (int a = 0; a < 3; a++) mu[a] = values[4 * i + 1 + a];
            for (int a = 0; a < 3; a++) {
                const real slope = sum[1 + a] + f.mesh * gradient[3 * i + a];
                real turn = 0;
                for (int b = 0; b < 3; b++) turn += hessian[9 * i + 3 * a + b] * mu[b];
#if VIRIAL
                for (int b = 0; b < 3; b++)
                    total[1 + 3 * a + b] +=
                        f.coulomb * (sum[7 + 3 * a + b] / 2 - f.mesh * gradient[3 * i + a] * mu[b]);
#endif
                field[a] = f.coulomb * (f.twist * mu[a] - slope);
                fields[at.fields + 3 * i + a] = field[a];
                forces[at.forces + 3 * i + a] = -f.coulomb * (q * slope + sum[4 + a] + f.mesh * turn);
                energy -= mu[a] * field[a];
            }
            for (int a = 0; a < 3; a++) {
                const int b = (a + 1) % 3, c = (a + 2) % 3;
                torques[at.torques + 3 * i + a] = mu[b] * field[c] - mu[c] * field[b];
            }
            potentials[at.potentials + i] = phi;
            energies[at.energies + i] = energy / 2;
            total[0] += energy / 2;
            total[TERMS] += sum[COLUMNS - 1];
        }
        for (int t = 0; t <= TERMS; t++) {
            scratch[LOCAL_ID] = total[t];
            BARRIER();
            for (int reach = GROUP_SIZE / 2; reach > 0; reach /= 2) {
                if (LOCAL_ID < reach) scratch[LOCAL_ID] += scratch[LOCAL_ID + reach];
                BARRIER();
            }
            if (LOCAL_ID == 0) partial[(TERMS + 1) * share + t] = scratch[0];
            BARRIER();
        }
    }
}
