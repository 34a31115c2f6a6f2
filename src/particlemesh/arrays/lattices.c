// SPDX-License-Identifier: BSD-3-Clause
// Boxes of systems, and what follows from them, in double precision (real). Boxes are given in numbers of `coordinate`.

#include "particles/coordinates.h"
#include "arrays/lattices.h"

#define FACTS 10 // the first wrong box, or the number of boxes; for each axis the largest PER, LENGTH, and 1 / LENGTH

typedef struct {
    real most_per[3]; // a box with more fractions per distance is replaced
    real rows[9];     // by this one
} Allowed;

typedef struct {
    i64 offset, of_box, of_row, of_column; // in numbers
    i64 vectors;                           // whether boxes are lattice vectors; else lengths
} Given;

// Writes the numbers of a box; a wrong one has nothing but WRONG.
DEVICE void derive(GLOBAL real* box, PRIVATE const real* rows, const int missing)
{
    real unit[9], norms[3], across[9], edge = 1;
    const real root = (real)1 / (3 - missing);
    int straight = 1;
    for (int a = 0; a < 3; a++) {
        PRIVATE const real* r = rows + 3 * a;
        const real largest = fmax(fmax(fabs(r[0]), fabs(r[1])), fabs(r[2]));
        const real x = r[0] / largest, y = r[1] / largest, z = r[2] / largest;
        norms[a] = largest * sqrt(x * x + y * y + z * z);
        for (int b = 0; b < 3; b++) {
            unit[3 * a + b] = r[b] / norms[a];
            straight &= a == b || r[b] == 0;
        }
        edge *= pow(norms[a], root);
    }
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            const int c = 3 * ((a + 1) % 3), d = 3 * ((a + 2) % 3), e = (b + 1) % 3, f = (b + 2) % 3;
            across[3 * a + b] = unit[c + e] * unit[d + f] - unit[c + f] * unit[d + e];
        }
    const real flat = unit[0] * across[0] + unit[1] * across[1] + unit[2] * across[2];
    box[WRONG] = !(fabs(flat) > (real)1e-12 && edge - edge == 0);
    if (box[WRONG] != 0) return;
    for (int k = 0; k < 9; k++) {
        box[ROWS + k] = rows[k];
        box[INVERSE + k] = !straight ? across[k] / flat / norms[k / 3] : k % 4 ? 0 : 1 / rows[k];
    }
    for (int a = 0; a < 3; a++) {
        GLOBAL const real* r = box + INVERSE + 3 * a;
        box[PER + a] = sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]);
        box[LENGTH + a] = norms[a];
    }
    box[VOLUME] = fabs(flat) * norms[0] * norms[1] * norms[2];
    box[EDGE] = edge * pow(fabs(flat), root);
    box[STRAIGHT] = straight;
}

// Writes NUMBERS of each box. Wrong boxes, and those that are not allowed, take the numbers of another one: so no kernel
// goes astray before the host has read the facts.
KERNEL derive_lattices(GLOBAL const coordinate* RESTRICT boxes, GLOBAL real* numbers, const i64 systems,
                       const i64 missing, const Given at, const Allowed allowed)
{
    for (i64 s = GROUP_ID * GROUP_SIZE + LOCAL_ID; s < systems; s += GROUP_COUNT * GROUP_SIZE) {
        GLOBAL const coordinate* from = boxes + at.offset + s * at.of_box;
        GLOBAL real* box = numbers + s * NUMBERS;
        real rows[9], per[3], length[3];
        int wrong = 0;
        for (int k = 0; k < 9; k++) rows[k] = k % 4 ? 0 : 1;
        for (int a = (int)missing; a < 3; a++) {
            const i64 row = (a - missing) * at.of_row;
            for (int b = (int)missing; b < 3; b++)
                rows[3 * a + b] = at.vectors  ? from[row + (b - missing) * at.of_column]
                                  : a == b    ? from[row]
                                              : (coordinate)0;
            wrong |= !at.vectors && !(rows[4 * a] > 0);
        }
        derive(box, rows, (int)missing);
        wrong |= box[WRONG] != 0;
        int replaced = wrong;
        for (int a = 0; a < 3; a++) {
            per[a] = wrong ? 0 : box[PER + a], length[a] = wrong ? 1 : box[LENGTH + a];
            replaced |= !(per[a] <= allowed.most_per[a]);
        }
        if (!replaced) continue;
        for (int k = 0; k < 9; k++) rows[k] = allowed.rows[k];
        derive(box, rows, (int)missing);
        for (int a = 0; a < 3; a++) box[PER + a] = per[a], box[LENGTH + a] = length[a];
        box[WRONG] = wrong;
        box[VOLUME] = (real)0 / (real)0; // not a number, nor are the energies of a step that nobody repeats
    }
}

// Writes FACTS about all boxes; one group reads all.
KERNEL facts_of_lattices(GLOBAL const real* RESTRICT numbers, GLOBAL real* RESTRICT facts, const i64 systems)
{
    LOCAL_ARRAY(real, scratch, GROUP_SIZE);
    real best[FACTS]; // as minima
    best[0] = (real)systems;
    for (int f = 1; f < FACTS; f++) best[f] = 0;
    for (i64 s = LOCAL_ID; s < systems && GROUP_ID == 0; s += GROUP_SIZE) {
        GLOBAL const real* box = numbers + s * NUMBERS;
        if (box[WRONG] != 0) {
            best[0] = fmin(best[0], (real)s);
            continue;
        }
        for (int a = 0; a < 3; a++) {
            best[1 + a] = fmin(best[1 + a], -box[PER + a]);
            best[4 + a] = fmin(best[4 + a], -box[LENGTH + a]);
            best[7 + a] = fmin(best[7 + a], -1 / box[LENGTH + a]);
        }
    }
    for (int f = 0; f < FACTS; f++) {
        scratch[LOCAL_ID] = best[f];
        BARRIER();
        for (int reach = GROUP_SIZE / 2; reach > 0; reach /= 2) {
            if (LOCAL_ID < reach) scratch[LOCAL_ID] = fmin(scratch[LOCAL_ID], scratch[LOCAL_ID + reach]);
            BARRIER();
        }
        if (LOCAL_ID == 0 && GROUP_ID == 0) facts[f] = f > 0 ? -scratch[0] : scratch[0];
        BARRIER();
    }
}
