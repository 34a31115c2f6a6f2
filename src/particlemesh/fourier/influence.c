// SPDX-License-Identifier: BSD-3-Clause
// Factors of modes for boxes of systems, in double precision (real): a Green function over the compensation of a window
// and the volume; and tables of the virial, as `strain_tables` makes them on the host. Results are numbers of `coordinate`.

#include "particles/coordinates.h"
#include "arrays/lattices.h"

typedef struct {
    i64 shape[3]; // modes along each axis; axes that the box does not have are first
    i64 nodes[3];
    i64 modes, systems;
} Band;

// A Green function: exp(-rate k2) p(2 k2 / edge2 - 1) / (k2 + kappa2) below edge2, and 0 from there on. Coefficients of
// the polynomial p and of its derivative by k2 / edge2 are pairs.
typedef struct {
    real kappa2, rate, edge2, zero; // zero: the value at k = 0
    i64 terms;
} Green;

DEVICE real number_of(const i64 k, const i64 nodes)
{
    return (real)(2 * k <= nodes ? k : k - nodes);
}

DEVICE void green_at(const real k2, PRIVATE const Green* green, GLOBAL const real* RESTRICT pairs, PRIVATE real* value,
                     PRIVATE real* slope)
{
    *value = *slope = 0;
    if (!(k2 < green->edge2)) return;
    const real x = 2 * k2 / green->edge2 - 1, screened = k2 + green->kappa2, decay = exp(-green->rate * k2);
    real smooth = 0, bent = 0;
    for (i64 n = green->terms - 1; n >= 0; n--) {
        smooth = smooth * x + pairs[2 * n];
        bent = bent * x + pairs[2 * n + 1];
    }
    bent = decay * (bent / green->edge2 - green->rate * smooth);
    smooth *= decay;
    *value = smooth / screened;
    *slope = (bent - *value) / screened;
}

// Writes factors (systems, modes), or with TERMS the tables (systems, TERMS, modes) of the virial. Divisors are those of the
// modes of each axis. The highest mode of an even axis has both signs.
KERNEL influence(GLOBAL const real* RESTRICT boxes, GLOBAL const real* RESTRICT divisors,
                 GLOBAL const real* RESTRICT pairs, GLOBAL coordinate* RESTRICT out, const i64 missing, const Band band,
                 const Green green)
{
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < band.modes * band.systems; n += GROUP_COUNT * GROUP_SIZE) {
        const i64 s = n / band.modes, k = n - s * band.modes, row = k / band.shape[2];
        const i64 at[3] = {row / band.shape[1], row % band.shape[1], k - row * band.shape[2]};
        GLOBAL const real* box = boxes + s * NUMBERS;
        real weight = 1 / box[VOLUME], sum = 0, table[6];
        int highest = 0;
        i64 before = 0;
        for (int a = 0; a < 3; a++) {
            weight /= divisors[before + at[a]];
            before += band.shape[a];
            if (2 * at[a] == band.nodes[a]) highest |= 1 << a;
        }
        for (int t = 0; t < 6; t++) table[t] = 0;
        int signs = 0;
        for (int flipped = 0; flipped < 8; flipped++) {
            if (flipped & ~highest) continue;
            real q[3] = {0, 0, 0}, value, slope;
            for (int a = 0; a < 3; a++) {
                const real number = number_of(at[a], band.nodes[a]) * (flipped >> a & 1 ? -1 : 1);
                for (int c = 0; c < 3; c++) q[c] += number * box[INVERSE + 3 * a + c];
            }
            for (int c = 0; c < 3; c++) q[c] *= (real)6.283185307179586477;
            green_at(q[0] * q[0] + q[1] * q[1] + q[2] * q[2], &green, pairs, &value, &slope);
            sum += value;
            for (int a = 0, t = 0; a < 3; a++)
                for (int b = a; b < 3; b++) table[t++] += slope * q[a] * q[b];
            signs++;
        }
        const real factor = k == 0 ? green.zero * weight : sum / signs * weight;
#if TERMS
        const real twice = at[2] == 0 || 2 * at[2] == band.nodes[2] ? 1 : 2;
        int term = 0;
        for (int a = 0, t = 0; a < 3; a++)
            for (int b = a; b < 3; b++, t++) {
                if (a < missing) continue;
                const real of_all = k == 0 ? 0 : table[t] / signs * weight;
                out[(s * TERMS + term++) * band.modes + k] =
                    (coordinate)(-twice * (of_all + (a == b ? factor / 2 : 0)));
            }
#else
        out[n] = (coordinate)factor;
#endif
    }
}

// Writes reciprocal vectors (systems, 3, axes) times 2 pi, missing axes first.
KERNEL reciprocals(GLOBAL const real* RESTRICT boxes, GLOBAL coordinate* RESTRICT out, const i64 systems,
                   const i64 missing)
{
    const i64 axes = 3 - missing;
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < 3 * axes * systems; n += GROUP_COUNT * GROUP_SIZE) {
        const i64 s = n / (3 * axes), a = n / axes % 3, c = n % axes;
        const real number = boxes[s * NUMBERS + INVERSE + 3 * a + missing + c];
        out[n] = (coordinate)(a < missing ? 0 : number * (real)6.283185307179586477);
    }
}
