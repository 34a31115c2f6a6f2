// SPDX-License-Identifier: BSD-3-Clause
// Short lattice vectors of the boxes of systems, as `Images` makes them on the host, in double precision (real).

#include "particles/coordinates.h"
#include "arrays/lattices.h"

#define IMAGE 20      // numbers of a box, as nearest.h reads them
#define MOST_TURNS 1000

typedef struct {
    real least; // what rounding takes of a unit of length, where distances mean nothing
} Rounding;

DEVICE real dot(PRIVATE const real* a, PRIVATE const real* b)
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

// Adds m times b to a.
DEVICE void add_times(PRIVATE real* a, const real m, PRIVATE const real* b)
{
    for (int c = 0; c < 3; c++) a[c] += m * b[c];
}

// Puts the three vectors in the order of their lengths; equal ones keep theirs.
DEVICE void sort_by_length(PRIVATE const real* rows, PRIVATE int* order)
{
    for (int a = 0; a < 3; a++) order[a] = a;
    for (int turn = 0; turn < 3; turn++)
        for (int a = 0; a < 2; a++) {
            PRIVATE const real *first = rows + 3 * order[a], *second = rows + 3 * order[a + 1];
            if (dot(second, second) < dot(first, first)) {
                const int kept = order[a];
                order[a] = order[a + 1], order[a + 1] = kept;
            }
        }
}

DEVICE void shorten(PRIVATE real* rows)
{
    for (int turn = 0, changed = 1; turn < MOST_TURNS && changed; turn++) {
        int order[3];
        sort_by_length(rows, order);
        PRIVATE real *a = rows + 3 * order[0], *b = rows + 3 * order[1], *c = rows + 3 * order[2];
        const real of_b = rint(dot(b, a) / dot(a, a));
        changed = of_b != 0;
        add_times(b, -of_b, a);
        const real aa = dot(a, a), ab = dot(a, b), bb = dot(b, b), ac = dot(a, c), bc = dot(b, c), det = aa * bb - ab * ab;
        const real m = rint((bb * ac - ab * bc) / det), n = rint((aa * bc - ab * ac) / det);
        real best[3], least = 0;
        for (int k = 0; k < 9; k++) {
            const int u = k / 3, v = k % 3; // 0, -1, 1
            real next[3] = {c[0], c[1], c[2]};
            add_times(next, -(m + (u == 2 ? 1 : -u)), a);
            add_times(next, -(n + (v == 2 ? 1 : -v)), b);
            if (k > 0 && !(dot(next, next) < least)) continue;
            least = dot(next, next);
            for (int e = 0; e < 3; e++) best[e] = next[e];
        }
        if (!(least < dot(c, c) * (1 - (real)1e-12))) continue;
        changed = 1;
        for (int e = 0; e < 3; e++) c[e] = best[e];
    }
}

KERNEL images(GLOBAL const real* RESTRICT boxes, GLOBAL coordinate* RESTRICT lattices, const i64 systems,
              const Rounding rounding)
{
    for (i64 s = GROUP_ID * GROUP_SIZE + LOCAL_ID; s < systems; s += GROUP_COUNT * GROUP_SIZE) {
        GLOBAL const real* box = boxes + s * NUMBERS;
        GLOBAL coordinate* to = lattices + s * IMAGE;
        real rows[9], thinnest = 0, longest = 0;
        for (int k = 0; k < 9; k++) rows[k] = box[ROWS + k];
        shorten(rows);
        for (int a = 0; a < 3; a++) {
            PRIVATE const real *r = rows + 3 * a, *b = rows + (3 * a + 3) % 9, *c = rows + (3 * a + 6) % 9;
            const real across[3] = {b[1] * c[2] - b[2] * c[1], b[2] * c[0] - b[0] * c[2], b[0] * c[1] - b[1] * c[0]};
            const real volume = dot(r, across);
            for (int e = 0; e < 3; e++) {
                to[3 * a + e] = (coordinate)r[e];
                to[9 + 3 * a + e] = (coordinate)(across[e] / volume);
            }
            thinnest = fmax(thinnest, dot(across, across) / (volume * volume)); // 1 / thickness**2
            longest = fmax(longest, dot(r, r));
        }
        to[18] = (coordinate)(1 / (4 * thinnest));
        to[19] = (coordinate)(rounding.least * rounding.least * longest);
    }
}
