// SPDX-License-Identifier: BSD-3-Clause
// Steps with point dipoles: what pairs take, and results. VIRIAL says whether sums have the nine terms of the virial.

#include "apps/pme/gather.h"

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
        for (int t = 0; t <= TERMS; t++) gather(scratch, total[t], partial + (TERMS + 1) * share + t);
    }
}
