// SPDX-License-Identifier: BSD-3-Clause
// The matrix of line_mesh.c. A cell of a line is a place along the last axis where stencils that reach the line begin.
// Its entries are the particles that begin there on any of the SUPPORT_X SUPPORT_Y lines that reach the line.

#include "backends/count.h"
#include "spread/meeting.h"

KERNEL line_counts(GLOBAL const u32* RESTRICT begins, GLOBAL count_t* RESTRICT counts, const i64 cells,
                   const Lattice lattice)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < cells; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 line = k / lattice.extent[2];
        const int c = (int)(k - line * lattice.extent[2]);
        const int x = (int)(line / lattice.size[1]), y = (int)(line % lattice.size[1]);
        count_t count = 0;
        for (int kx = 0; kx < SUPPORT_X; kx++)
            for (int ky = 0; ky < SUPPORT_Y; ky++) {
                const i64 there = line_meeting(&lattice, x, y, kx, ky);
                if (there >= 0) count += begins[there + c + 1] - begins[there + c];
            }
        counts[k] = count;
    }
}

// LANES_CELL lanes per cell. GRADIENT: the slopes across the line instead of the weights.
KERNEL line_fill(GLOBAL const u32* RESTRICT begins, GLOBAL const count_t* RESTRICT start,
                 GLOBAL const real* RESTRICT fraction, GLOBAL u32* RESTRICT place, GLOBAL real* RESTRICT weight,
                 GLOBAL real* RESTRICT other, const i64 cells, const i64 rows, const Lattice lattice,
                 const Window window)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < cells * LANES_CELL; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 cell = k / LANES_CELL, line = cell / lattice.extent[2];
        const int c = (int)(cell - line * lattice.extent[2]), lane = (int)(k % LANES_CELL);
        const int x = (int)(line / lattice.size[1]), y = (int)(line % lattice.size[1]);
        count_t entry = start[cell];
        for (int kx = 0; kx < SUPPORT_X; kx++)
            for (int ky = 0; ky < SUPPORT_Y; ky++) {
                const i64 there = line_meeting(&lattice, x, y, kx, ky);
                if (there < 0) continue;
                const u32 begin = begins[there + c], end = begins[there + c + 1];
                for (u32 p = begin + lane; p < end; p += LANES_CELL) {
                    const count_t at = entry + (p - begin);
                    const real wx = SUPPORT_AXES > 2 ? weight_of(&window, kx, fraction[p]) : (real)1;
                    const real wy = SUPPORT_AXES > 1 ? weight_of(&window, ky, fraction[rows + p]) : (real)1;
#if GRADIENT
                    const real dx = SUPPORT_AXES > 2 ? slope_of(&window, kx, fraction[p]) : (real)0;
                    const real dy = SUPPORT_AXES > 1 ? slope_of(&window, ky, fraction[rows + p]) : (real)0;
                    weight[at] = dx * wy;
                    other[at] = wx * dy;
#else
                    weight[at] = wx * wy;
                    place[at] = p;
#endif
                }
                entry += end - begin;
            }
    }
}
