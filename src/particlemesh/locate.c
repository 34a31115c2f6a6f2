// SPDX-License-Identifier: BSD-3-Clause
// Positions to stencils: the first node of each, and the centred fraction the window is evaluated at.
// Computed once, in the positions' precision; only the fraction is rounded to the plan's.

#include "backends/coordinates.h"

typedef struct {
    coordinate scale[3], shift[3]; // node coordinate = fractional * scale - shift
} Nodes;

typedef struct {
    int size[3], support[3], wraps[3];
} Axes;

KERNEL locate(GLOBAL const coordinate* x0, GLOBAL const coordinate* x1, GLOBAL const coordinate* x2,
              GLOBAL int* RESTRICT node, GLOBAL real* RESTRICT fraction,
              GLOBAL u64* RESTRICT status, // not finite, outside, ~(first bad)
              const i64 count, const i64 rows, const Strides strides, const Geometry geometry, const Frame frame,
              const Nodes nodes, const Axes axes)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        coordinate x[3], s[3], turns[3];
        const int bad = fractional(x, s, turns, x0, x1, x2, i, &strides, &geometry, &frame);
        if (bad) {
            record_bad(status, bad, i);
            for (int a = 0; a < 3; a++) node[a * rows + i] = SKIP, fraction[a * rows + i] = 0;
            continue;
        }
        for (int a = 0; a < 3; a++) {
            const int p = axes.support[a];
            const coordinate u = s[a] * nodes.scale[a] - nodes.shift[a];
            const coordinate cell = floor((p & 1) ? u + (coordinate)0.5 : u);
            int first = (int)cell - (p & 1 ? (p - 1) / 2 : p / 2 - 1);
            if (axes.wraps[a]) {
                first %= axes.size[a];
                if (first < 0) first += axes.size[a];
            }
            const coordinate centre = (p & 1) ? (coordinate)0 : (coordinate)0.5;
            node[a * rows + i] = a < frame.missing ? 0 : first;
            fraction[a * rows + i] = a < frame.missing ? (real)0 : (real)(u - cell - centre);
        }
    }
}
