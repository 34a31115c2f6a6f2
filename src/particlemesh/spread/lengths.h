// SPDX-License-Identifier: BSD-3-Clause
// Lengths of rows from node order: the particles that reach a row lie in runs, one per line of first nodes, so differences
// of `start` count them.

#include "backends/count.h"
#include "spread/meeting.h"

KERNEL row_lengths(GLOBAL const u32* RESTRICT start, GLOBAL count_t* RESTRICT lengths, const i64 nodes,
                   const Lattice lattice)
{
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < nodes; n += GROUP_COUNT * GROUP_SIZE) {
        int at[3];
        coordinates_of(n, lattice.size, at);
        count_t length = 0;
        Run run = {0};
        while (next_run(&run, &lattice, at[2]))
            for (int kx = 0; kx < SUPPORT_X; kx++)
                for (int ky = 0; ky < SUPPORT_Y; ky++) {
                    const i64 line = line_meeting(&lattice, at[0], at[1], kx, ky);
                    if (line >= 0) length += start[line + run.cell + run.cells] - start[line + run.cell];
                }
        lengths[n] = length;
    }
}
