// SPDX-License-Identifier: BSD-3-Clause
// Numbers of systems for a grid, from those of their boxes, in double precision (real).

#include "particles/coordinates.h"
#include "arrays/lattices.h"

#define OF_SYSTEM 45 // as NUMBERS in grid/systems.py

typedef struct {
    real origin[3];
    real edge; // of a cube of the volume of the grid's box
    real unit; // of rounding of coordinates
} Common;

// The first and last coordinates inside, as `faces` in box.py.
DEVICE void faces(const real origin, const real length, PRIVATE coordinate* least, PRIVATE coordinate* most)
{
    const coordinate low = (coordinate)origin, size = (coordinate)length, far = low + size;
    const coordinate end = fmin(low + nextafter(size, (coordinate)0), nextafter(far, low));
    const coordinate large = fmax(fabs(low), size), step = nextafter(large, 2 * large) - large;
    coordinate high = end;
    while ((high - low) / size >= 1) high = fmax(high - step, low);
    if ((real)high >= origin + length) high = fmax(nextafter(high, low - size), low);
    *least = low, *most = high;
}

KERNEL numbers_of_systems(GLOBAL const real* RESTRICT boxes, GLOBAL coordinate* RESTRICT table, const i64 systems,
                          const Frame frame, const Common common)
{
    for (i64 s = GROUP_ID * GROUP_SIZE + LOCAL_ID; s < systems; s += GROUP_COUNT * GROUP_SIZE) {
        GLOBAL const real* box = boxes + s * NUMBERS;
        GLOBAL coordinate* to = table + s * OF_SYSTEM;
        const int straight = box[STRAIGHT] != 0;
        for (int k = 0; k < OF_SYSTEM; k++) to[k] = 0;
        for (int a = frame.missing; a < 3; a++) {
            real slack = 0;
            for (int b = frame.missing; b < 3; b++) {
                const real row = box[ROWS + 3 * a + b], inverse = box[INVERSE + 3 * a + b];
                real size = 2 * fabs(common.origin[b]);
                for (int c = frame.missing; c < 3; c++) size += fabs(box[ROWS + 3 * c + b]);
                slack += 4 * common.unit * fabs(inverse) * size;
                to[3 + 3 * a + b] = (coordinate)inverse;
                to[12 + 3 * a + b] = (coordinate)row;
                to[21 + 3 * a + b] = (coordinate)(row - (real)(coordinate)row);
            }
            const real origin = common.origin[a], length = box[ROWS + 4 * a];
            real per = 0;
            for (int b = 0; b < 3; b++) per += box[INVERSE + 3 * a + b] * box[INVERSE + 3 * a + b];
            coordinate least, most;
            faces(straight ? origin : 0, straight ? length : 1, &least, &most);
            to[a] = (coordinate)origin;
            to[30 + a] = frame.periodic[a] ? least : (coordinate)(straight ? origin : -slack);
            to[33 + a] = frame.periodic[a] ? most : (coordinate)(straight ? origin + length : 1 + slack);
            to[38 + a] = (coordinate)(sqrt(per) * (1 + 4 * common.unit));
            to[41 + a] = (coordinate)(4 * slack);
        }
        to[36] = 1;
        to[37] = straight;
        to[44] = (coordinate)(box[EDGE] / common.edge);
    }
}
