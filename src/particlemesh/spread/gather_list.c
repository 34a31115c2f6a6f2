// SPDX-License-Identifier: BSD-3-Clause
// Each node gathers from the particles of the cells around it, any number per cell: in node order they are runs along
// z. Every node adds up alone and in a fixed order, so nothing is atomic and results are reproducible.

#include "spread/gathering.h"

KERNEL gather_runs(GLOBAL const u32* RESTRICT start,      // of the particles of each cell
                   GLOBAL const int* RESTRICT first,      // (3, rows), of each stencil, in node order
                   GLOBAL const real* RESTRICT fraction,  // (3, rows), in node order
                   GLOBAL const real* RESTRICT brought,   // (QUANTITIES, rows), in node order
                   GLOBAL real* RESTRICT field, const i64 nodes, const i64 rows, const Lattice lattice,
                   const Field layout, const Window window)
{
    TABLE(table, window);
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < nodes; n += GROUP_COUNT * GROUP_SIZE) {
        int node[3];
        coordinates_of(n, layout.size, node);
        real sum[SUMS];
        UNROLL for (int c = 0; c < SUMS; c++) sum[c] = 0;
        Polynomial along[3]; // the axes' weights with which a particle reaches the node
        ROLL for (int kx = 0; kx < SUPPORT_X; kx++) {
            along[0] = polynomial(table, kx);
            ROLL for (int ky = 0; ky < SUPPORT_Y; ky++) {
                along[1] = polynomial(table, ky);
                const i64 line = line_meeting(&lattice, node[0], node[1], kx, ky);
                if (line < 0) continue;
                Run run = {0, 0, 0, 0};
                while (next_run(&run, &lattice, node[2])) {
                    const i64 stop = start[line + run.cell + run.cells];
                    const int last = lattice.low[2] + run.cell + run.cells - 1 + run.k;
                    for (i64 at = start[line + run.cell]; at < stop; at++) {
                        along[2] = polynomial(table, last - first[2 * rows + at]);
                        real weight[3] = {1, 1, 1}, slope[3] = {0, 0, 0};
                        UNROLL for (int a = 3 - SUPPORT_AXES; a < 3; a++) {
                            const real z = READ_1(fraction + a * rows + at);
                            weight[a] = value_at(&along[a], z);
#if GRADIENT
                            slope[a] = slope_at(&along[a], z);
#endif
                        }
                        take(sum, weight, slope, brought, rows, at);
                    }
                }
            }
        }
        give(field, node, sum, &layout);
    }
}
