// SPDX-License-Identifier: BSD-3-Clause
// Energies and forces of charges in systems, and the totals of each system. Numbers of particles are of the type
// `coordinate`, totals are in double precision (real) where the device has it.
//
// Totals are sums of 64-bit integers, whose order does not matter: the same particles give the same bits. Their unit is a
// power of two for each term of a system, and follows from its largest number. So particles are read twice.

#include "particles/coordinates.h"
#include "particles/magnitude.h"

#if MULTIPOLES
#define TERMS 10  // energy and virial
#else
#define TERMS (1 + 6 * VIRIAL)    // energy and six terms of the virial
#define COLUMNS (5 + 6 * VIRIAL)  // of sums: potential, field, six terms, particles in one place
#endif

// The first reading finds the largest magnitudes, the second one adds.
#define MEASURE 0
#define ADD 1

// Words of status, as in assemble.c.
#define TOUCHING 0
#define INFINITE 1
#define BAD 3

typedef struct {
    coordinate coulomb, mesh, self;
} Factors;

typedef struct {
    i64 charges, energies, forces, energy, virial, potentials, fields;
} Places;

#define IS_FINITE(magnitude) ((magnitude) >> EXPONENT_BITS != EXPONENT_ALL)

// The power of two that scales a term, so that no sum of 2**crowd of them overflows.
DEVICE int scale_of(const u64 magnitude, const i64 crowd)
{
    return 62 - (int)crowd - ((int)(magnitude >> EXPONENT_BITS) - EXPONENT_BIAS);
}

DEVICE u64 joined(const i64 pass, const u64 a, const u64 b)
{
    return pass == ADD ? a + b : a > b ? a : b;
}

// Join what a work-item or a group has of a system with the words of the system, and forget it.
DEVICE void join(GLOBAL u64* words, const i64 pass, const int system, PRIVATE u64* own)
{
    for (int t = 0; t < TERMS; t++) {
        GLOBAL u64* word = words + (i64)system * TERMS + t;
        if (system >= 0 && own[t] != 0) {
            if (pass == ADD) ATOMIC_ADD_U64(word, own[t]);
            else ATOMIC_MAX_U64(word, own[t]);
        }
        own[t] = 0;
    }
}

// Groups take shares of the particles. Particles of a system mostly follow each other: a work-item joins what it has of
// one system, and a group what its work-items have, before anything is joined in memory. The first reading writes energies
// and forces. words: magnitudes (systems, TERMS), then sums (systems, TERMS). Multipoles have rows of terms instead of sums.
KERNEL assemble(GLOBAL const coordinate* RESTRICT charges, GLOBAL const coordinate* RESTRICT sums,
                GLOBAL const coordinate* RESTRICT potential, GLOBAL const coordinate* RESTRICT gradient,
                GLOBAL coordinate* RESTRICT energies, GLOBAL coordinate* RESTRICT forces,
                GLOBAL coordinate* RESTRICT potentials, GLOBAL coordinate* RESTRICT fields, GLOBAL u64* words,
                GLOBAL const int* RESTRICT system, GLOBAL u64* status, const i64 count, const i64 systems,
                const i64 shares, const i64 pass, const i64 crowd, const i64 has_fields, const Places at,
                const Factors f)
{
    LOCAL_ARRAY(u64, scratch, GROUP_SIZE);
    LOCAL_ARRAY(int, homes, GROUP_SIZE);
    GLOBAL u64* target = pass == ADD ? words + systems * TERMS : words;
    const i64 length = (count + shares - 1) / shares;
    for (i64 share = GROUP_ID; share < shares; share += GROUP_COUNT) {
        const i64 end = (share + 1) * length < count ? (share + 1) * length : count;
        int home = -1;
        u64 own[TERMS];
        for (int t = 0; t < TERMS; t++) own[t] = 0;
        for (i64 i = share * length + LOCAL_ID; i < end; i += GROUP_SIZE) {
            if (system[i] < 0 || system[i] >= systems) {
#if !MULTIPOLES
                energies[at.energies + i] = 0;
                for (int a = 0; a < 3; a++) forces[at.forces + 3 * i + a] = 0;
                if (has_fields) {
                    potentials[at.potentials + i] = 0;
                    for (int a = 0; a < 3; a++) fields[at.fields + 3 * i + a] = 0;
                }
#endif
                continue;
            }
            if (system[i] != home) {
                join(target, pass, home, own);
                home = system[i];
            }
#if MULTIPOLES
            GLOBAL const coordinate* sum = sums + (TERMS + 1) * i;
            if (pass == MEASURE && sum[TERMS] > 0) status[TOUCHING] = 1;
#else
            GLOBAL const coordinate* sum = sums + COLUMNS * i;
            const coordinate q = charges[at.charges + i], scaled = f.coulomb * q;
            const coordinate whole = sum[0] + f.mesh * potential[i] - f.self * q, energy = scaled * whole / 2;
            if (pass == MEASURE) {
                energies[at.energies + i] = energy;
                if (has_fields) potentials[at.potentials + i] = f.coulomb * whole;
                for (int a = 0; a < 3; a++) {
                    const coordinate field = sum[1 + a] - f.mesh * gradient[3 * i + a];
                    forces[at.forces + 3 * i + a] = scaled * field;
                    if (has_fields) fields[at.fields + 3 * i + a] = f.coulomb * field;
                }
                if (sum[COLUMNS - 1] > 0) status[TOUCHING] = 1;
                if (!(q - q == 0)) ATOMIC_MAX_U64(status + BAD, ~(u64)i);
            }
#endif
            for (int t = 0; t < TERMS; t++) {
#if MULTIPOLES
                const real term = (real)sum[t];
#else
                const real term = t == 0 ? (real)energy : (real)scaled * sum[3 + t] / 2;
#endif
                if (pass == MEASURE) {
                    own[t] = joined(pass, own[t], (u64)MAGNITUDE(term));
                    continue;
                }
                const u64 most = words[(i64)home * TERMS + t];
                if (IS_FINITE(most)) own[t] += (u64)(i64)rint(ldexp(term, scale_of(most, crowd)));
            }
        }
        homes[LOCAL_ID] = home;
        BARRIER();
        // Work-items without particles have no system, and nothing to join.
        int same = 1;
        for (int k = 0; k < GROUP_SIZE; k++) same &= homes[k] == homes[0] || homes[k] < 0;
        if (!same) join(target, pass, home, own);
        for (int t = 0; t < TERMS; t++) {
            scratch[LOCAL_ID] = own[t];
            BARRIER();
            for (int reach = GROUP_SIZE / 2; reach > 0; reach /= 2) {
                if (LOCAL_ID < reach)
                    scratch[LOCAL_ID] = joined(pass, scratch[LOCAL_ID], scratch[LOCAL_ID + reach]);
                BARRIER();
            }
            own[t] = scratch[0];
            BARRIER();
        }
        if (LOCAL_ID == 0) join(target, pass, homes[0], own);
        BARRIER();
    }
}

DEVICE real total_of(GLOBAL const u64* words, const i64 systems, const i64 place, const i64 crowd)
{
    const u64 most = words[place];
    if (!IS_FINITE(most)) return (real)REAL_FROM_BITS_U32(0x7fc00000u);
    return ldexp((real)(i64)words[systems * TERMS + place], -scale_of(most, crowd));
}

// Write energies and virials of systems; mesh has the virials of the mesh.
KERNEL totals_of_systems(GLOBAL const u64* RESTRICT words, GLOBAL const coordinate* RESTRICT mesh,
                         GLOBAL coordinate* RESTRICT energy, GLOBAL coordinate* RESTRICT virial, GLOBAL u64* status,
                         const i64 systems, const i64 crowd, const Places at, const Factors f)
{
    for (i64 s = GROUP_ID * GROUP_SIZE + LOCAL_ID; s < systems; s += GROUP_COUNT * GROUP_SIZE) {
        energy[at.energy + s] = (coordinate)total_of(words, systems, TERMS * s, crowd);
        const coordinate value = energy[at.energy + s];
        if (!(value - value == 0)) ATOMIC_MAX_U64(status + INFINITE, ~(u64)s);
#if MULTIPOLES
        for (int t = 0; t < (VIRIAL ? 9 : 0); t++) {
            const real part = total_of(words, systems, TERMS * s + 1 + t, crowd);
            virial[at.virial + 9 * s + t] = (coordinate)(part + (real)f.coulomb * f.mesh * mesh[9 * s + t]);
        }
#else
        for (int t = 0; t < 6 * VIRIAL; t++) {  // the order is 00, 11, 22, 12, 20, 01
            const int a = t < 3 ? t : (t - 2) % 3, b = t < 3 ? t : (t - 1) % 3;
            const real part = total_of(words, systems, TERMS * s + 1 + t, crowd)
                              + (real)f.coulomb * f.mesh * mesh[9 * s + 3 * a + b];
            virial[at.virial + 9 * s + 3 * a + b] = (coordinate)part;
            virial[at.virial + 9 * s + 3 * b + a] = (coordinate)part;
        }
#endif
    }
}
