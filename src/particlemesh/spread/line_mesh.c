// SPDX-License-Identifier: BSD-3-Clause
// A group takes TILE nodes of a line along the last axis. First, LANES_CELL lanes per cell whose stencils reach them
// compute the sums, over the cell's entries, of weight times value times each of the SUPPORT_Z weights along the line.
// Then each node adds up the sums of SUPPORT_Z cells. No two lanes write to one place.

#include "backends/count.h"
#include "spread/meeting.h"
#include "spread/values.h"

// The particles' quantities, in node order, each with its fraction along the line.
KERNEL line_records(GLOBAL const int* RESTRICT order, GLOBAL const real* RESTRICT fraction,
                    GLOBAL const real* RESTRICT values, GLOBAL real* RESTRICT records, const i64 count,
                    const i64 rows, const Values value_layout, const Jacobian jacobian)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        real q[QUANTITIES];
        values_of(q, values, order[k], &value_layout, &jacobian);
        GLOBAL real* record = records + k * RECORD;
        record[0] = fraction[2 * rows + k];
        UNROLL for (int n = 0; n < QUANTITIES; n++) record[n + 1] = q[n];
    }
}

#define REALS (CHANNELS * PARTS)
#define REACH (TILE + SUPPORT_Z - 1) // cells

DEVICE void read_record(PRIVATE real* record, GLOBAL const real* from)
{
#if RECORD == 2
    const real2 t = READ_2(from);
    record[0] = t.x, record[1] = t.y;
#else
    UNROLL for (int n = 0; n < RECORD; n += 4) {
        const real4 t = READ_4(from + n);
        record[n] = t.x, record[n + 1] = t.y, record[n + 2] = t.z, record[n + 3] = t.w;
    }
#endif
}

KERNEL line_spread(GLOBAL const count_t* RESTRICT start, GLOBAL const u32* RESTRICT place,
                   GLOBAL const real* RESTRICT weight, GLOBAL const real* RESTRICT slope_x, // read if GRADIENT
                   GLOBAL const real* RESTRICT slope_y, GLOBAL const real* RESTRICT records,
                   GLOBAL real* RESTRICT field, const i64 lines, const i64 tiles, const Lattice lattice,
                   const Field layout, const Window window)
{
    WARP(warp);
    LOCAL_ARRAY(real, sums, SUPPORT_Z * REALS * REACH);
    const int lane = LOCAL_ID % LANES_CELL;
    for (i64 g = GROUP_ID; g < lines * tiles; g += GROUP_COUNT) {
        const i64 line = g / tiles, first = line * lattice.extent[2];
        const int z0 = (int)(g % tiles) * TILE;
        const int x = (int)(line / lattice.size[1]), y = (int)(line % lattice.size[1]);
        if (start[first] == start[first + lattice.extent[2]]) continue;

        for (int base = 0; base < REACH; base += GROUP_SIZE / LANES_CELL) {
            const int j = base + LOCAL_ID / LANES_CELL;
            real sum[SUPPORT_Z * REALS];
            UNROLL for (int n = 0; n < SUPPORT_Z * REALS; n++) sum[n] = 0;
            const int begins = z0 + j < lattice.size[2] + SUPPORT_Z - 1; // beyond, no node needs them
            const int cell = begins ? cell_meeting(&lattice, 2, z0 + j, SUPPORT_Z - 1) : -1;
            if (j < REACH && cell >= 0) {
                const count_t end = start[first + cell + 1];
                for (count_t e = start[first + cell] + lane; e < end; e += LANES_CELL) {
                    real record[RECORD];
                    read_record(record, records + (i64)place[e] * RECORD);
                    const real across = weight[e];
#if GRADIENT
                    const real dx = slope_x[e], dy = slope_y[e];
#endif
                    UNROLL for (int k = 0; k < SUPPORT_Z; k++) {
                        const real w = weight_of(&window, k, record[0]);
#if GRADIENT
                        const real d = slope_of(&window, k, record[0]);
                        UNROLL for (int r = 0; r < REALS; r++)
                            sum[k * REALS + r] += (dx * record[1 + 3 * r] + dy * record[2 + 3 * r]) * w
                                                + across * record[3 + 3 * r] * d;
#else
                        UNROLL for (int r = 0; r < REALS; r++) sum[k * REALS + r] += across * record[1 + r] * w;
#endif
                    }
                }
            }
            UNROLL for (int n = 0; n < SUPPORT_Z * REALS; n++) {
                UNROLL for (int step = LANES_CELL / 2; step > 0; step /= 2)
                    sum[n] += WARP_SHUFFLE(warp, sum[n], LANE ^ step);
                if (lane == 0 && j < REACH) sums[n * REACH + j] = sum[n];
            }
        }
        BARRIER();
        for (int t = LOCAL_ID; t < TILE * REALS; t += GROUP_SIZE) {
            const int part = t % PARTS, z = t / PARTS % TILE, channel = t / PARTS / TILE;
            if (z0 + z >= lattice.size[2]) continue;
            const int r = channel * PARTS + part;
            real sum = 0;
            UNROLL for (int k = 0; k < SUPPORT_Z; k++)
                sum += sums[(k * REALS + r) * REACH + z - k + SUPPORT_Z - 1];
            field[layout.offset + channel * layout.channel + x * layout.stride[0] + y * layout.stride[1]
                  + (z0 + z) * layout.stride[2] + part] += sum;
        }
        BARRIER();
    }
}
