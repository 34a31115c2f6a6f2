// SPDX-License-Identifier: BSD-3-Clause
// Energies and forces from the sums over neighbours and the mesh, and their totals. Groups add up shares of the
// particles, the second kernel adds up the shares in order, so that results are reproducible. With WEIGHTED the sums
// over neighbours are those of the others' charges, and are multiplied with the particle's own.

#include "apps/pme/gather.h"

typedef struct {
    real coulomb, mesh, self;
} Factors;

// Words of status: whether particles are in one place, then ~i of the first set i whose energy is not finite, and of the
// first particles i with a negative number, a charge, and another number that is not finite, or 0.
#define TOUCHING 0
#define INFINITE 1
#define BAD 3

// Of each set: energy, then six terms of the virial with WIDTH 10, and all nine with WIDTH 13. The last total is the number
// of touching particles.
#define TERMS (WIDTH - 3)

KERNEL assemble(GLOBAL const real* RESTRICT charges, GLOBAL const real* RESTRICT sums,
                GLOBAL const real* RESTRICT potential, GLOBAL const real* RESTRICT gradient,
                GLOBAL real* RESTRICT energies, GLOBAL real* RESTRICT forces, GLOBAL real* RESTRICT potentials,
                GLOBAL real* RESTRICT fields, GLOBAL real* RESTRICT partial,
                const i64 count, const i64 sets, const i64 shares, const i64 charges_at, const i64 energies_at,
                const i64 forces_at, const i64 potential_at, const i64 gradient_at, const i64 potentials_at,
                const i64 fields_at, const i64 has_fields, GLOBAL u64* status, const Factors f)
{
    LOCAL_ARRAY(real, scratch, GROUP_SIZE);
    const i64 width = sets * WIDTH + 1, terms = sets * TERMS + 1, length = (count + shares - 1) / shares;
    for (i64 share = GROUP_ID; share < shares; share += GROUP_COUNT) {
        const i64 end = (share + 1) * length < count ? (share + 1) * length : count;
        for (i64 c = 0; c <= sets; c++) {  // the last round counts touching particles
            real total[TERMS];
            for (int t = 0; t < TERMS; t++) total[t] = 0;
            for (i64 i = share * length + LOCAL_ID; i < end; i += GROUP_SIZE) {
                GLOBAL const real* sum = sums + i * width + c * WIDTH;
                if (c == sets) {
                    total[0] += sum[0];
                    continue;
                }
                const real q = charges[charges_at + c * count + i], scaled = f.coulomb * q;
                const i64 at = c * count + i;
                if (!(q - q == 0)) ATOMIC_MAX_U64(status + BAD, ~(u64)i);  // of the first one it is the largest
                const real weight = WEIGHTED ? scaled : (real)1;
                const real smooth = f.mesh * potential[potential_at + at] - f.self * q;
                const real energy = (real)0.5 * (weight * sum[0] + scaled * smooth);
                energies[energies_at + at] = energy;
                for (int a = 0; a < 3; a++)
                    forces[forces_at + 3 * at + a] =
                        weight * sum[1 + a] - scaled * f.mesh * gradient[gradient_at + 3 * at + a];
                if (has_fields) {  // what a unit charge would have in the place of this one
                    potentials[potentials_at + at] = f.coulomb * (sum[0] + smooth);
                    for (int a = 0; a < 3; a++)
                        fields[fields_at + 3 * at + a] =
                            f.coulomb * (sum[1 + a] - f.mesh * gradient[gradient_at + 3 * at + a]);
                }
                total[0] += energy;
#if WIDTH > 4
                for (int t = 0; t < 6; t++) total[1 + t] += (real)0.5 * weight * sum[4 + t];
#endif
            }
            for (int t = 0; t < (c == sets ? 1 : TERMS); t++)
                gather(scratch, total[t], partial + share * terms + c * TERMS + t);
        }
    }
}

// LANES work-items add up each total of all shares. What rounding loses is kept, since shares are many.
#define LANES 32

DEVICE void add(real* sum, real* lost, const real more)
{
    const real part = more - *lost, next = *sum + part;
    *lost = (next - *sum) - part;
    *sum = next;
}

// mesh holds the virial of the mesh, (sets, 3, 3).
KERNEL totals(GLOBAL const real* RESTRICT partial, GLOBAL const real* RESTRICT mesh, GLOBAL real* RESTRICT energy,
              GLOBAL real* RESTRICT virial, GLOBAL u64* RESTRICT status, const i64 sets, const i64 shares,
              const i64 mesh_at, const i64 energy_at, const i64 virial_at, const i64 first, const Factors f)
{
    LOCAL_ARRAY(real, scratch, 2 * GROUP_SIZE);
    const i64 terms = sets * TERMS + 1;
    const int lane = LOCAL_ID % LANES;
    for (i64 begin = GROUP_ID * GROUP_SIZE; begin < terms * LANES; begin += GROUP_COUNT * GROUP_SIZE) {
        const i64 n = (begin + LOCAL_ID) / LANES;
        real sum = 0, lost = 0;
        for (i64 share = n < terms ? lane : shares; share < shares; share += LANES)
            add(&sum, &lost, partial[share * terms + n]);
        scratch[LOCAL_ID] = sum;
        scratch[GROUP_SIZE + LOCAL_ID] = -lost;
        BARRIER();
        if (lane == 0)
            for (int k = 1; k < LANES; k++) {
                add(&sum, &lost, scratch[LOCAL_ID + k]);
                add(&sum, &lost, scratch[GROUP_SIZE + LOCAL_ID + k]);
            }
        BARRIER();
        if (lane > 0 || n >= terms) continue;
        const i64 c = n / TERMS;
        const int t = (int)(n - c * TERMS);
        if (c == sets) {
            if (first) status[TOUCHING] = sum != 0;
        } else if (t == 0) {
            energy[energy_at + c] = sum;
            if (!(sum - sum == 0)) ATOMIC_MAX_U64(status + INFINITE, ~(u64)c);
        } else {
#if WIDTH > 10
            const i64 at = 9 * c + t - 1;
            virial[virial_at + at] = sum + f.coulomb * f.mesh * mesh[mesh_at + at];
#elif WIDTH > 4
            // The order is 00, 11, 22, 12, 20, 01.
            const int a = t < 4 ? t - 1 : (t - 3) % 3, b = t < 4 ? t - 1 : (t - 2) % 3;
            const real value = sum + f.coulomb * f.mesh * mesh[mesh_at + 9 * c + 3 * a + b];
            virial[virial_at + 9 * c + 3 * a + b] = value;
            virial[virial_at + 9 * c + 3 * b + a] = value;
#endif
        }
    }
}
