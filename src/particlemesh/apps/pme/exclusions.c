// SPDX-License-Identifier: BSD-3-Clause
// Corrections of excluded and scaled pairs, added to the sums over neighbours: a function of pairs, of RESULTS sums and
// VALUES reals per particle, for the nearest images of listed ones. One work-item per particle, which alone adds to its
// sums.

#include "apps/pme/nearest.h"

#define APART 4  // word of status: ~i of the first particle i whose partner is in another system, or 0

DEVICE void of_pair(const real r2, PRIVATE const real* d, const i64 i, const i64 j, PRIVATE const real* a,
                    PRIVATE const real* b, GLOBAL const real* p, PRIVATE real* sum)
{
#include <pair function>
}

typedef struct {
    i64 sums, values, of_row, of_column;  // where sums and values begin, and strides of values
} Places;

// The partners of particle i are those from start[i] on; weights are their factors minus 1. Boxes are rows of 20 numbers,
// one for each system. With no systems all particles have the first box.
KERNEL listed(GLOBAL const real* x0, GLOBAL const real* x1, GLOBAL const real* x2, GLOBAL const int* RESTRICT start,
              GLOBAL const int* RESTRICT partners, GLOBAL const real* RESTRICT weights,
              GLOBAL const real* RESTRICT values, GLOBAL const real* RESTRICT p, GLOBAL real* RESTRICT sums,
              GLOBAL const real* RESTRICT boxes, GLOBAL const int* RESTRICT system, GLOBAL u64* status, const i64 count,
              const i64 systems, const Strides strides, const Places at)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        const int home = systems ? system[i] : 0;
        if (home < 0 || (systems && home >= systems)) continue;
        const Lattice box = lattice_at(boxes + 20 * (i64)home);
        for (int n = start[i]; n < start[i + 1]; n++) {
            const i64 j = partners[n];
            if (systems && system[j] != home) {
                ATOMIC_MAX_U64(status + APART, ~(u64)i);
                continue;
            }
            real d[3], a[VALUES], b[VALUES], sum[RESULTS];
            const real r2 = nearest_image(x0, x1, x2, strides, box, i, j, d);
            for (int v = 0; v < VALUES; v++) {
                a[v] = values[at.values + i * at.of_row + v * at.of_column];
                b[v] = values[at.values + j * at.of_row + v * at.of_column];
            }
            for (int k = 0; k < RESULTS; k++) sum[k] = 0;
            of_pair(r2, d, i, j, a, b, p, sum);
            for (int k = 0; k < RESULTS; k++) sums[at.sums + RESULTS * i + k] += weights[n] * sum[k];
        }
    }
}
