// SPDX-License-Identifier: BSD-3-Clause
// Entries of rows from node order, without atomics. The particles that reach a node are visited in their order: the
// first `width` go to the rectangle (ELL), entry k of all rows side by side, the others to the list (COO).
//
// SLOPES = d writes d planes of slopes in user coordinates, for the existing entries.

#include "spread/lengths.h"
#include "spread/linear.h"
#include "spread/table.h"

#define WEIGHTS (SLOPES ? SLOPES : 1)

// ---- lengths of rows, and the width --------------------------------------------------------------------

// histogram[k] rows have k entries, histogram[LONGEST] have that many or more.
KERNEL hybrid_histogram(GLOBAL const count_t* RESTRICT lengths, GLOBAL u32* RESTRICT histogram, const i64 nodes)
{
    LOCAL_ARRAY(u32, own, LONGEST + 1);
    for (int k = LOCAL_ID; k <= LONGEST; k += GROUP_SIZE) own[k] = 0;
    BARRIER();
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < nodes; n += GROUP_COUNT * GROUP_SIZE)
        ATOMIC_ADD_U32(own + (lengths[n] < LONGEST ? (int)lengths[n] : LONGEST), 1);
    BARRIER();
    for (int k = LOCAL_ID; k <= LONGEST; k += GROUP_SIZE)
        if (own[k]) ATOMIC_ADD_U32(histogram + k, own[k]);
}

// Bell and Garland: a column pays if at least a third of the rows fill it, and no fewer than `least`.
DEVICE int pays(GLOBAL const u32* shorter, i64 k, i64 nodes, i64 least)
{
    const i64 filled = nodes - shorter[k]; // rows of k entries and more
    return filled >= least && 3 * filled >= nodes;
}

// shorter: the number of rows with fewer than k entries. The width is the k that pays where k + 1 does not.
KERNEL hybrid_width(GLOBAL const u32* RESTRICT shorter, GLOBAL u32* RESTRICT width, const i64 nodes, const i64 least,
                    const i64 forced)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k <= LONGEST; k += GROUP_COUNT * GROUP_SIZE)
        if (forced >= 0) {
            if (k == 0) width[0] = (u32)forced;
        } else if ((k == 0 || pays(shorter, k, nodes, least)) && (k == LONGEST || !pays(shorter, k + 1, nodes, least)))
            width[0] = (u32)k;
}

KERNEL hybrid_excess(GLOBAL const count_t* RESTRICT lengths, GLOBAL const u32* RESTRICT width,
                     GLOBAL count_t* RESTRICT excess, const i64 nodes)
{
    const count_t most = width[0];
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < nodes; n += GROUP_COUNT * GROUP_SIZE)
        excess[n] = lengths[n] > most ? lengths[n] - most : 0;
}

// ---- weights -------------------------------------------------------------------------------------------
// Lanes need different nodes of the window at once, so its table is in local memory.

DEVICE real weight_in(LOCAL const real* table, int axis, int k, real z)
{
    const Polynomial p = polynomial(table, k);
    return axis < 3 - SUPPORT_AXES ? 1 : value_at(&p, z);
}

DEVICE real slope_in(LOCAL const real* table, int axis, int k, real z)
{
    const Polynomial p = polynomial(table, k);
    return axis < 3 - SUPPORT_AXES ? 0 : slope_at(&p, z);
}

// The destination and content of an entry, shared by the two kernels that fill.
typedef struct {
    i64 nodes, rows;          // of the field; from axis to axis of node order
    i64 ell_plane, coo_plane; // from a plane of weights to the next
} Sizes;

#define MATRIX                                                                                           \
    GLOBAL u32 *RESTRICT ell_column, GLOBAL real *RESTRICT ell_weight, GLOBAL u32 *RESTRICT coo_row,     \
        GLOBAL u32 *RESTRICT coo_column, GLOBAL real *RESTRICT coo_weight
#define MATRIX_NAMES ell_column, ell_weight, coo_row, coo_column, coo_weight

// The particle at place t gives its node (kx, ky, kz) the entry `rank` of row n.
DEVICE void put(MATRIX, GLOBAL const real* fraction, LOCAL const real* table, PRIVATE const Jacobian* jacobian,
                PRIVATE const Sizes* sizes, i64 n, count_t rank, count_t width, count_t coo_start, u32 t, int kx,
                int ky, int kz)
{
    const real zx = fraction[t], zy = fraction[sizes->rows + t], zz = fraction[2 * sizes->rows + t];
    const real x = weight_in(table, 0, kx, zx), y = weight_in(table, 1, ky, zy);
    const real z = weight_in(table, 2, kz, zz);
    real w[WEIGHTS];
#if SLOPES
    const real along_x = slope_in(table, 0, kx, zx) * y * z, along_y = x * slope_in(table, 1, ky, zy) * z;
    const real along_z = x * y * slope_in(table, 2, kz, zz);
    UNROLL for (int b = 0; b < SLOPES; b++) {
        PRIVATE const real* across = jacobian->row + 3 - SLOPES + b;
        w[b] = across[0] * along_x + across[3] * along_y + across[6] * along_z;
    }
#else
    w[0] = x * y * z;
#endif
    if (rank < width) {
        const i64 at = (i64)rank * sizes->nodes + n;
        UNROLL for (int b = 0; b < WEIGHTS; b++) ell_weight[b * sizes->ell_plane + at] = w[b];
#if !SLOPES
        ell_column[at] = t;
#endif
    } else {
        const i64 at = (i64)(coo_start + (rank - width));
        UNROLL for (int b = 0; b < WEIGHTS; b++) coo_weight[b * sizes->coo_plane + at] = w[b];
#if !SLOPES
        coo_row[at] = (u32)n;
        coo_column[at] = t;
#endif
    }
}

// ---- filling -------------------------------------------------------------------------------------------
// A row belongs to one work-item; if more than LONG of its entries are in the list, a warp fills the list.

#define LONG 64
#define OVER(width, length) ((length) > (width) ? (length) - (width) : 0)

KERNEL hybrid_fill(GLOBAL const u32* RESTRICT start, GLOBAL const int* RESTRICT node,
                   GLOBAL const real* RESTRICT fraction, GLOBAL const count_t* RESTRICT lengths,
                   GLOBAL const u32* RESTRICT widths, GLOBAL const count_t* RESTRICT coo_start, MATRIX, const i64 nodes,
                   const i64 rows, const i64 ell_plane, const i64 coo_plane, const Lattice lattice, const Window window,
                   const Jacobian jacobian)
{
    TABLE(table, window);
    const Sizes sizes = {nodes, rows, ell_plane, coo_plane};
    const count_t width = widths[0];
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < nodes; n += GROUP_COUNT * GROUP_SIZE) {
        int at[3];
        coordinates_of(n, lattice.size, at);
        const count_t length = lengths[n], first = coo_start[n];
        const count_t stop = OVER(width, length) > LONG ? width : length;
        count_t rank = 0;
        for (int kx = 0; kx < SUPPORT_X && rank < stop; kx++)
            for (int ky = 0; ky < SUPPORT_Y && rank < stop; ky++) {
                const i64 line = line_meeting(&lattice, at[0], at[1], kx, ky);
                if (line < 0) continue;
                Run run = {0};
                while (rank < stop && next_run(&run, &lattice, at[2])) {
                    const u32 end = start[line + run.cell + run.cells];
                    const int last = run.k + run.cell + run.cells - 1 + lattice.low[2];
                    for (u32 t = start[line + run.cell]; t < end && rank < stop; t++, rank++)
                        put(MATRIX_NAMES, fraction, table, &jacobian, &sizes, n, rank, width, first, t, kx, ky,
                            last - node[2 * rows + t]);
                }
            }
    }
}

KERNEL hybrid_fill_long(GLOBAL const u32* RESTRICT start, GLOBAL const int* RESTRICT node,
                        GLOBAL const real* RESTRICT fraction, GLOBAL const count_t* RESTRICT lengths,
                        GLOBAL const u32* RESTRICT widths, GLOBAL const count_t* RESTRICT coo_start, MATRIX,
                        const i64 nodes, const i64 rows, const i64 ell_plane, const i64 coo_plane,
                        const Lattice lattice, const Window window, const Jacobian jacobian)
{
    WARP(warp);
    TABLE(table, window);
    const Sizes sizes = {nodes, rows, ell_plane, coo_plane};
    const count_t width = widths[0];
    const i64 stop = (nodes + WARP_SIZE - 1) / WARP_SIZE * WARP_SIZE;
    for (i64 mine = GROUP_ID * GROUP_SIZE + LOCAL_ID; mine < stop; mine += GROUP_COUNT * GROUP_SIZE) {
        const int is_long = mine < nodes && OVER(width, lengths[mine]) > LONG;
        u32 left = WARP_BALLOT(warp, is_long);
        while (left) {
            const i64 n = mine - LANE + 31 - LEADING_ZEROS_U32(left);
            left &= ~(0x80000000u >> LEADING_ZEROS_U32(left));
            int at[3];
            coordinates_of(n, lattice.size, at);
            const count_t first = coo_start[n];
            count_t before = 0; // entries of the row in earlier runs
            for (int kx = 0; kx < SUPPORT_X; kx++)
                for (int ky = 0; ky < SUPPORT_Y; ky++) {
                    const i64 line = line_meeting(&lattice, at[0], at[1], kx, ky);
                    if (line < 0) continue;
                    Run run = {0};
                    while (next_run(&run, &lattice, at[2])) {
                        const u32 begin = start[line + run.cell], end = start[line + run.cell + run.cells];
                        const int last = run.k + run.cell + run.cells - 1 + lattice.low[2];
                        // those in the rectangle are there already
                        const count_t room = width > before ? width - before : 0;
                        const u32 skip = room < end - begin ? (u32)room : end - begin;
                        for (u32 t = begin + skip + LANE; t < end; t += WARP_SIZE)
                            put(MATRIX_NAMES, fraction, table, &jacobian, &sizes, n, before + (t - begin), width, first,
                                t, kx, ky, last - node[2 * rows + t]);
                        before += end - begin;
                    }
                }
        }
    }
}
