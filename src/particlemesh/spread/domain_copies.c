// SPDX-License-Identifier: BSD-3-Clause
// A group per block of cells, a work-item per cell. All work-items add to the nodes at the same offset from their
// cells, meet at a barrier, and go on to the next offset: no two add to one node at a time, so nothing is atomic.

#include "orders/domain_copies.h"
#include "spread/values.h"

// The place of a quantity's main segment; vectors have one per axis.
#define SEGMENT(k) (GRADIENT ? (k) / 3 * SUPPORT_AXES + (k) % 3 - FIRST_AXIS : (k))
#define STORED(k) (!GRADIENT || (k) % 3 >= FIRST_AXIS)

// The strengths of particles at their places; those of dummies are zero.
KERNEL copies_store(GLOBAL const u32* RESTRICT start, GLOBAL const int* RESTRICT order,
                    GLOBAL const u32* RESTRICT fullest, GLOBAL const real* RESTRICT values,
                    GLOBAL real* RESTRICT strength, // (quantities, copies, places)
                    const Lattice lattice, const Blocks blocks, const Values value_layout, const Jacobian jacobian)
{
    const i64 places = places_of(&blocks), chunks = blocks_in_all(&blocks) * blocks.chunks;
    for (i64 chunk = GROUP_ID; chunk < chunks; chunk += GROUP_COUNT) {
        const Cell cell = cell_of(chunk, start, &lattice, &blocks);
        const int most = at_most(fullest[chunk], blocks.copies);
        for (int i = 0; i < most; i++) {
            real q[QUANTITIES];
            UNROLL for (int k = 0; k < QUANTITIES; k++) q[k] = 0;
            if (i < cell.count) values_of(q, values, order[cell.first + i], &value_layout, &jacobian);
            UNROLL for (int k = 0; k < QUANTITIES; k++)
                if (STORED(k))
                    strength[((i64)SEGMENT(k) * blocks.copies + i) * places + chunk * GROUP_SIZE + LOCAL_ID] = q[k];
        }
    }
}

KERNEL copies_spread(GLOBAL const real* RESTRICT position, GLOBAL const real* RESTRICT strength,
                     GLOBAL real* extended, // (components, blocks, room), written
                     GLOBAL const u32* RESTRICT fullest, GLOBAL const u32* RESTRICT start,
                     GLOBAL const int* RESTRICT order, GLOBAL const real* RESTRICT fraction,
                     GLOBAL const real* RESTRICT values, const i64 rows, const Lattice lattice, const Blocks blocks,
                     const Values value_layout, const Window window, const Jacobian jacobian POOL)
{
#if WITHIN
    LOCAL_POOL(real, sums);
#endif
    const i64 places = places_of(&blocks), count = blocks_in_all(&blocks);
    const int room = room_of(&blocks);
    for (i64 block = GROUP_ID; block < count; block += GROUP_COUNT) {
#if WITHIN
        const int plane = room;
#else
        const i64 plane = count * room;
        GLOBAL real* sums = extended + block * room;
#endif
        for (int c = 0; c < COMPONENTS; c++)
            for (int n = LOCAL_ID; n < room; n += GROUP_SIZE) sums[c * plane + n] = 0;
        BARRIER();
        for (int chunk = 0; chunk < blocks.chunks; chunk++) {
            const i64 here = block * blocks.chunks + chunk;
            const int most = (int)fullest[here];
            SUMS real* corner = sums + corner_of(chunk, &blocks);
            for (int i = 0; i < most; i++) {
                real at[3] = {0, 0, 0}, q[QUANTITIES];
                UNROLL for (int k = 0; k < QUANTITIES; k++) q[k] = 0;
                if (i < blocks.copies) {
                    const i64 place = i * places + here * GROUP_SIZE + LOCAL_ID, copies = blocks.copies * places;
                    UNROLL for (int a = FIRST_AXIS; a < 3; a++) at[a] = position[(a - FIRST_AXIS) * copies + place];
                    UNROLL for (int k = 0; k < QUANTITIES; k++)
                        if (STORED(k)) q[k] = strength[SEGMENT(k) * copies + place];
                } else { // deeper than the copies
                    const Cell cell = cell_of(here, start, &lattice, &blocks);
                    if (i < cell.count) {
                        const i64 k = cell.first + i;
                        UNROLL for (int a = FIRST_AXIS; a < 3; a++) at[a] = fraction[a * rows + k];
                        values_of(q, values, order[k], &value_layout, &jacobian);
                    }
                }
                real z[SUPPORT_Z];
                UNROLL for (int k = 0; k < SUPPORT_Z; k++) z[k] = weight_of(&window, k, at[2]);
#if GRADIENT
                real dz[SUPPORT_Z];
                UNROLL for (int k = 0; k < SUPPORT_Z; k++) dz[k] = slope_of(&window, k, at[2]);
#endif
                ROLL for (int a = 0; a < SUPPORT_X; a++) {
                    const real x = weight_along(&window, 0, a, at[0]);
                    ROLL for (int b = 0; b < SUPPORT_Y; b++) {
                        const real y = weight_along(&window, 1, b, at[1]);
                        SUMS real* row = corner + (a * blocks.room[1] + b) * blocks.room[2];
                        real flat[COMPONENTS]; // the factor of z
#if GRADIENT
                        real steep[COMPONENTS]; // and that of dz
                        const real dx = slope_along(&window, 0, a, at[0]), dy = slope_along(&window, 1, b, at[1]);
                        UNROLL for (int c = 0; c < COMPONENTS; c++) {
                            flat[c] = dx * y * q[3 * c] + x * dy * q[3 * c + 1];
                            steep[c] = x * y * q[3 * c + 2];
                        }
#else
                        UNROLL for (int c = 0; c < COMPONENTS; c++) flat[c] = x * y * q[c];
#endif
                        UNROLL for (int k = 0; k < SUPPORT_Z; k++) {
                            UNROLL for (int c = 0; c < COMPONENTS; c++) {
                                real more = flat[c] * z[k];
#if GRADIENT
                                more += steep[c] * dz[k];
#endif
                                row[c * plane + k] += more;
                            }
                            BARRIER();
                        }
                    }
                }
            }
        }
#if WITHIN
        for (int c = 0; c < COMPONENTS; c++)
            for (int n = LOCAL_ID; n < room; n += GROUP_SIZE)
                extended[(c * count + block) * room + n] = sums[c * plane + n];
#endif
    }
}

// The places of a node of the field among those that cells reach: one, or one per period where the axis wraps.
typedef struct {
    int first, end, step;
} Replicas;

DEVICE Replicas replicas_of(int axis, int node, int support, PRIVATE const Lattice* lattice)
{
    Replicas r;
    r.end = lattice->extent[axis] + support - 1;
    r.first = node - lattice->low[axis];
    if (r.first < 0) r.first = r.end;
    r.step = lattice->wraps[axis] ? lattice->size[axis] : r.end;
    return r;
}

// The first and the last block whose extended block has the node at `v`.
DEVICE int first_block(int axis, int v, int support, PRIVATE const Blocks* b)
{
    const int before = v - (b->cells[axis] + support - 2);
    return before <= 0 ? 0 : (before + b->cells[axis] - 1) / b->cells[axis];
}
DEVICE int last_block(int axis, int v, PRIVATE const Blocks* b)
{
    const int block = v / b->cells[axis];
    return block < b->blocks[axis] ? block : b->blocks[axis] - 1;
}

// Each node of the field adds up the extended blocks' sums for it, in a fixed order.
KERNEL copies_stitch(GLOBAL const real* RESTRICT extended, GLOBAL real* RESTRICT field, const i64 nodes,
                     const Lattice lattice, const Blocks blocks, const Field layout)
{
    const i64 count = blocks_in_all(&blocks);
    const int room = room_of(&blocks);
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < nodes; n += GROUP_COUNT * GROUP_SIZE) {
        int at[3];
        coordinates_of(n, layout.size, at);
        real sums[COMPONENTS];
        UNROLL for (int c = 0; c < COMPONENTS; c++) sums[c] = 0;
        const Replicas x = replicas_of(0, at[0], SUPPORT_X, &lattice), y = replicas_of(1, at[1], SUPPORT_Y, &lattice);
        const Replicas z = replicas_of(2, at[2], SUPPORT_Z, &lattice);
        for (int u = x.first; u < x.end; u += x.step)
            for (int i = first_block(0, u, SUPPORT_X, &blocks); i <= last_block(0, u, &blocks); i++)
                for (int v = y.first; v < y.end; v += y.step)
                    for (int j = first_block(1, v, SUPPORT_Y, &blocks); j <= last_block(1, v, &blocks); j++)
                        for (int w = z.first; w < z.end; w += z.step)
                            for (int k = first_block(2, w, SUPPORT_Z, &blocks); k <= last_block(2, w, &blocks); k++) {
                                const i64 block = ((i64)i * blocks.blocks[1] + j) * blocks.blocks[2] + k;
                                const int line = (u - i * blocks.cells[0]) * blocks.room[1] + v - j * blocks.cells[1];
                                const int node = line * blocks.room[2] + w - k * blocks.cells[2];
                                UNROLL for (int c = 0; c < COMPONENTS; c++)
                                    sums[c] += extended[(c * count + block) * room + node];
                            }
        const i64 to = layout.offset + at[0] * layout.stride[0] + at[1] * layout.stride[1] + at[2] * layout.stride[2];
        UNROLL for (int c = 0; c < COMPONENTS; c++) field[to + c / PARTS * layout.channel + c % PARTS] += sums[c];
    }
}
