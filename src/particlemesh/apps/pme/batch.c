// SPDX-License-Identifier: BSD-3-Clause
// Energies and forces of charges in systems, and the totals of each system. Numbers of particles are of the type
// `coordinate`, totals are in double precision (real) where the device has it.

#include "backends/coordinates.h"

#define TERMS 7    // energy and six terms of the virial
#define COLUMNS 11  // of sums: potential, field, six terms, particles in one place

// Words of status, as in assemble.c.
#define TOUCHING 0
#define INFINITE 1
#define BAD 3

typedef struct {
    coordinate coulomb, mesh, self;
} Factors;

typedef struct {
    i64 charges, energies, forces, energy, virial;
} Places;

DEVICE void add(GLOBAL real* totals, const int system, PRIVATE real* own)
{
    for (int t = 0; t < TERMS; t++) {
        if (system >= 0 && own[t] != 0) ATOMIC_ADD(totals + (i64)system * TERMS + t, own[t]);
        own[t] = 0;
    }
}

// Groups take shares of the particles. Particles of a system mostly follow each other: a work-item adds up what it has of
// one system, and a group what its work-items have, before anything is added to the totals in memory.
KERNEL assemble(GLOBAL const coordinate* RESTRICT charges, GLOBAL const coordinate* RESTRICT sums,
                GLOBAL const coordinate* RESTRICT potential, GLOBAL const coordinate* RESTRICT gradient,
                GLOBAL coordinate* RESTRICT energies, GLOBAL coordinate* RESTRICT forces, GLOBAL real* totals,
                GLOBAL const int* RESTRICT system, GLOBAL u64* status, const i64 count, const i64 systems,
                const i64 shares, const Places at, const Factors f)
{
    LOCAL_ARRAY(real, scratch, GROUP_SIZE);
    LOCAL_ARRAY(int, homes, GROUP_SIZE);
    const i64 length = (count + shares - 1) / shares;
    for (i64 share = GROUP_ID; share < shares; share += GROUP_COUNT) {
        const i64 end = (share + 1) * length < count ? (share + 1) * length : count;
        int home = -1;
        real own[TERMS];
        for (int t = 0; t < TERMS; t++) own[t] = 0;
        for (i64 i = share * length + LOCAL_ID; i < end; i += GROUP_SIZE) {
            if (system[i] < 0 || system[i] >= systems) {
                energies[at.energies + i] = 0;
                for (int a = 0; a < 3; a++) forces[at.forces + 3 * i + a] = 0;
                continue;
            }
            if (system[i] != home) {
                add(totals, home, own);
                home = system[i];
            }
            GLOBAL const coordinate* sum = sums + COLUMNS * i;
            const coordinate q = charges[at.charges + i], scaled = f.coulomb * q;
            const coordinate energy = scaled * (sum[0] + f.mesh * potential[i] - f.self * q) / 2;
            energies[at.energies + i] = energy;
            for (int a = 0; a < 3; a++)
                forces[at.forces + 3 * i + a] = scaled * (sum[1 + a] - f.mesh * gradient[3 * i + a]);
            own[0] += energy;
            for (int t = 0; t < 6; t++) own[1 + t] += (real)scaled * sum[4 + t] / 2;
            if (sum[COLUMNS - 1] > 0) status[TOUCHING] = 1;
            if (!(q - q == 0)) ATOMIC_MAX_U64(status + BAD, ~(u64)i);
        }
        homes[LOCAL_ID] = home;
        BARRIER();
        // Work-items without particles have no system, and nothing to add.
        int same = 1;
        for (int k = 0; k < GROUP_SIZE; k++) same &= homes[k] == homes[0] || homes[k] < 0;
        if (!same) add(totals, home, own);
        for (int t = 0; t < TERMS; t++) {
            scratch[LOCAL_ID] = own[t];
            BARRIER();
            for (int reach = GROUP_SIZE / 2; reach > 0; reach /= 2) {
                if (LOCAL_ID < reach) scratch[LOCAL_ID] += scratch[LOCAL_ID + reach];
                BARRIER();
            }
            own[t] = scratch[0];
            BARRIER();
        }
        if (LOCAL_ID == 0) add(totals, homes[0], own);
        BARRIER();
    }
}

// Write energies and virials of systems; mesh has the virials of the mesh.
KERNEL totals_of_systems(GLOBAL const real* RESTRICT totals, GLOBAL const coordinate* RESTRICT mesh,
                         GLOBAL coordinate* RESTRICT energy, GLOBAL coordinate* RESTRICT virial, GLOBAL u64* status,
                         const i64 systems, const Places at, const Factors f)
{
    for (i64 s = GROUP_ID * GROUP_SIZE + LOCAL_ID; s < systems; s += GROUP_COUNT * GROUP_SIZE) {
        const real sum = totals[TERMS * s];
        energy[at.energy + s] = (coordinate)sum;
        const coordinate value = energy[at.energy + s];
        if (!(value - value == 0)) ATOMIC_MAX_U64(status + INFINITE, ~(u64)s);
        for (int t = 0; t < 6; t++) {  // the order is 00, 11, 22, 12, 20, 01
            const int a = t < 3 ? t : (t - 2) % 3, b = t < 3 ? t : (t - 1) % 3;
            const real part = totals[TERMS * s + 1 + t] + (real)f.coulomb * f.mesh * mesh[9 * s + 3 * a + b];
            virial[at.virial + 9 * s + 3 * a + b] = (coordinate)part;
            virial[at.virial + 9 * s + 3 * b + a] = (coordinate)part;
        }
    }
}
