// SPDX-License-Identifier: BSD-3-Clause
// Corrections of excluded and scaled pairs, added to the sums over neighbours. One work-item per particle, which alone
// adds to its sums. WIDTH sums for each set of charges: potential, field, and with 10 the six terms of the virial.

#include "apps/pme/nearest.h"

#define APART 4  // word of status: ~i of the first particle i whose partner is in another system, or 0

// Add to a particle's sums what it loses or gains by a partner j, whose interaction has a factor of weight + 1.
DEVICE void correct(GLOBAL const real* x0, GLOBAL const real* x1, GLOBAL const real* x2, GLOBAL const real* charges,
                    GLOBAL real* own, const Strides strides, const Lattice box, const real weight, const i64 i,
                    const i64 j, const i64 count, const i64 sets)
{
    const i64 width = sets * WIDTH + 1;
    real d[3];
    const real r2 = nearest_image(x0, x1, x2, strides, box, i, j, d);
    const int place = in_one_place(x0, x1, x2, strides, box, i, j, r2);
    const real inverse = place ? (real)0 : weight / sqrt(r2);
    if (place < 0) own[width - 1] += (real)1;
    if (place > 0 && weight == (real)-1) own[width - 1] -= (real)1;
    for (i64 c = 0; c < sets; c++) {
        GLOBAL real* sum = own + c * WIDTH;
        const real value = charges[c * count + j] * inverse;
        const real g = place ? (real)0 : -value / r2;
        sum[0] += value;
        for (int a = 0; a < 3; a++) {
            sum[1 + a] += g * d[a];
#if WIDTH > 4
            sum[4 + a] += g * d[a] * d[a];
            sum[7 + a] += g * d[(a + 1) % 3] * d[(a + 2) % 3];
#endif
        }
    }
}

KERNEL exclusions(GLOBAL const real* x0, GLOBAL const real* x1, GLOBAL const real* x2, GLOBAL const int* RESTRICT start,
                  GLOBAL const int* RESTRICT partners, GLOBAL const real* RESTRICT weights,
                  GLOBAL const real* RESTRICT charges, GLOBAL real* RESTRICT sums, const i64 count, const i64 sets,
                  const i64 charges_at, const i64 sums_at, const Strides strides, const Lattice box)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        GLOBAL real* own = sums + sums_at + i * (sets * WIDTH + 1);
        for (int n = start[i]; n < start[i + 1]; n++)
            correct(x0, x1, x2, charges + charges_at, own, strides, box, weights[n], i, partners[n], count, sets);
    }
}

// The same for particles of systems, whose boxes are rows of 20 numbers.
KERNEL exclusions_of_systems(GLOBAL const real* x0, GLOBAL const real* x1, GLOBAL const real* x2,
                             GLOBAL const int* RESTRICT start, GLOBAL const int* RESTRICT partners,
                             GLOBAL const real* RESTRICT weights, GLOBAL const real* RESTRICT charges,
                             GLOBAL real* RESTRICT sums, const i64 count, const i64 sets, const i64 charges_at,
                             const i64 sums_at, GLOBAL const real* RESTRICT boxes, GLOBAL const int* RESTRICT system,
                             GLOBAL u64* status, const i64 systems, const Strides strides)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        GLOBAL real* own = sums + sums_at + i * (sets * WIDTH + 1);
        const int home = system[i];
        if (home < 0 || home >= systems) continue;
        const Lattice box = lattice_at(boxes + 20 * (i64)home);
        for (int n = start[i]; n < start[i + 1]; n++) {
            if (system[partners[n]] == home)
                correct(x0, x1, x2, charges + charges_at, own, strides, box, weights[n], i, partners[n], count, sets);
            else
                ATOMIC_MAX_U64(status + APART, ~(u64)i);
        }
    }
}
