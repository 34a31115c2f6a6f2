// SPDX-License-Identifier: BSD-3-Clause
// A matrix in two parts, times values: the rectangle of every row's first entries (ELL), and the list of the others
// (COO). There are no atomics, and sums have a fixed order.

#include "backends/count.h"
#include "spread/linear.h"
#include "spread/placed.h"

DEVICE void clear(PRIVATE real* sum)
{
    UNROLL for (int c = 0; c < COMPONENTS; c++) sum[c] = 0;
}

// An entry's contribution to its node.
DEVICE void add_entry(PRIVATE real* sum, PRIVATE const real* weight, PRIVATE const real* q)
{
    UNROLL for (int c = 0; c < COMPONENTS; c++)
        UNROLL for (int b = 0; b < WEIGHTS; b++) sum[c] += weight[b] * q[c * WEIGHTS + b];
}

// ---- the rectangle: a work-item a row --------------------------------------------------------------------

#define IN_FLIGHT 4 // entries of a row that are read at once, to hide the latency of memory

KERNEL hybrid_ell(GLOBAL const count_t* RESTRICT lengths, GLOBAL const u32* RESTRICT width,
                  GLOBAL const u32* RESTRICT column, GLOBAL const real* RESTRICT weight,
                  GLOBAL const real* RESTRICT placed, GLOBAL real* RESTRICT field, // added to
                  const i64 nodes, const i64 plane, const Field layout)
{
    const count_t widest = width[0];
    if (widest == 0) return; // for all
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < nodes; n += GROUP_COUNT * GROUP_SIZE) {
        const int length = (int)(lengths[n] < widest ? lengths[n] : widest);
        if (length == 0) continue;
        real sum[COMPONENTS];
        clear(sum);
        for (int first = 0; first < length; first += IN_FLIGHT) {
            u32 who[IN_FLIGHT];
            real w[IN_FLIGHT][WEIGHTS], q[IN_FLIGHT][STEP];
            UNROLL for (int k = 0; k < IN_FLIGHT; k++) { // past the end the last entry is read again: no branches
                const i64 at = (first + k < length ? first + k : length - 1) * nodes + n;
                who[k] = column[at];
                UNROLL for (int b = 0; b < WEIGHTS; b++) w[k][b] = weight[b * plane + at];
            }
            UNROLL for (int k = 0; k < IN_FLIGHT; k++) placed_at(q[k], placed, who[k]);
            UNROLL for (int k = 0; k < IN_FLIGHT; k++) // not with weights of zero: values need not be finite
                if (first + k < length) add_entry(sum, w[k], q[k]);
        }
        add_to_field(field, &layout, n, sum);
    }
}

// ---- the list: segmented sums [bell2009] -----------------------------------------------------------------
// A warp has an interval of INTERVAL entries, sorted by row. The row in which an interval begins may have begun in an
// earlier one: its sum is carried, and added after all intervals are done. Every other row belongs to the interval in
// which it begins.

#define NO_ROW 0xffffffffu

DEVICE void finish_row(GLOBAL real* field, PRIVATE const Field* layout, GLOBAL real* carry, u32 head, u32 row,
                       PRIVATE const real* sum)
{
    if (row == head)
        UNROLL for (int c = 0; c < COMPONENTS; c++) carry[c] = sum[c];
    else
        add_to_field(field, layout, row, sum);
}

KERNEL hybrid_coo(GLOBAL const count_t* RESTRICT start, GLOBAL const u32* RESTRICT rows,
                  GLOBAL const u32* RESTRICT column, GLOBAL const real* RESTRICT weight,
                  GLOBAL const real* RESTRICT placed, GLOBAL real* RESTRICT field, // added to
                  GLOBAL u32* RESTRICT carry_rows, GLOBAL real* RESTRICT carries, const i64 nodes, const i64 plane,
                  const Field layout)
{
    WARP(warp);
    const i64 all = (i64)start[nodes], intervals = (all + INTERVAL - 1) / INTERVAL;
    const i64 warps = GROUP_COUNT * (GROUP_SIZE / WARP_SIZE);
    for (i64 own = (GROUP_ID * GROUP_SIZE + LOCAL_ID) / WARP_SIZE; own < intervals; own += warps) {
        const i64 begin = own * INTERVAL, end = begin + INTERVAL < all ? begin + INTERVAL : all;
        const u32 head = begin > 0 && rows[begin - 1] == rows[begin] ? rows[begin] : NO_ROW;
        GLOBAL real* carry = carries + own * COMPONENTS;
        u32 open = NO_ROW; // the row that may continue, and its sum so far
        real before[COMPONENTS];
        clear(before);
        for (i64 base = begin; base < end; base += WARP_SIZE) {
            const i64 at = base + LANE;
            u32 row = NO_ROW;
            real sum[COMPONENTS];
            clear(sum);
            if (at < end) {
                real w[WEIGHTS], q[STEP];
                row = rows[at];
                UNROLL for (int b = 0; b < WEIGHTS; b++) w[b] = weight[b * plane + at];
                placed_at(q, placed, column[at]);
                add_entry(sum, w, q);
            }
            if (LANE == 0 && open != NO_ROW) {
                if (row == open)
                    UNROLL for (int c = 0; c < COMPONENTS; c++) sum[c] += before[c];
                else
                    finish_row(field, &layout, carry, head, open, before);
            }
            for (int step = 1; step < WARP_SIZE; step *= 2) {
                const int from = (LANE - step) & (WARP_SIZE - 1);
                const int same = WARP_SHUFFLE_U32(warp, row, from) == row && LANE >= step;
                UNROLL for (int c = 0; c < COMPONENTS; c++) {
                    const real ahead = WARP_SHUFFLE(warp, sum[c], from);
                    if (same) sum[c] += ahead;
                }
            }
            const u32 next = WARP_SHUFFLE_U32(warp, row, (LANE + 1) & (WARP_SIZE - 1));
            if (LANE < WARP_SIZE - 1 && row != NO_ROW && next != row) finish_row(field, &layout, carry, head, row, sum);
            open = WARP_SHUFFLE_U32(warp, row, WARP_SIZE - 1);
            UNROLL for (int c = 0; c < COMPONENTS; c++) before[c] = WARP_SHUFFLE(warp, sum[c], WARP_SIZE - 1);
        }
        if (LANE == 0) {
            if (open != NO_ROW) finish_row(field, &layout, carry, head, open, before);
            carry_rows[own] = head;
        }
    }
}

// A row's carries are adjacent. A warp adds those of every row that begins among 32 of them.
KERNEL hybrid_carry(GLOBAL const count_t* RESTRICT start, GLOBAL const u32* RESTRICT carry_rows,
                    GLOBAL const real* RESTRICT carries, GLOBAL real* RESTRICT field, const i64 nodes,
                    const Field layout)
{
    WARP(warp);
    const i64 intervals = ((i64)start[nodes] + INTERVAL - 1) / INTERVAL;
    const i64 stop = (intervals + WARP_SIZE - 1) / WARP_SIZE * WARP_SIZE;
    for (i64 mine = GROUP_ID * GROUP_SIZE + LOCAL_ID; mine < stop; mine += GROUP_COUNT * GROUP_SIZE) {
        const u32 own = mine < intervals ? carry_rows[mine] : NO_ROW;
        const int first = own != NO_ROW && (mine == 0 || carry_rows[mine - 1] != own);
        u32 left = WARP_BALLOT(warp, first);
        while (left) {
            const int lane = 31 - LEADING_ZEROS_U32(left);
            left &= ~((u32)1 << lane);
            const u32 row = WARP_SHUFFLE_U32(warp, own, lane);
            real sum[COMPONENTS];
            clear(sum);
            int going = 1;
            for (i64 base = mine - LANE + lane; going; base += WARP_SIZE) {
                const i64 at = base + LANE;
                const int same = at < intervals && carry_rows[at] == row;
                if (same)
                    UNROLL for (int c = 0; c < COMPONENTS; c++) sum[c] += carries[at * COMPONENTS + c];
                going = WARP_BALLOT(warp, same) == 0xffffffffu;
            }
            for (int step = WARP_SIZE / 2; step > 0; step /= 2)
                UNROLL for (int c = 0; c < COMPONENTS; c++) sum[c] += WARP_SHUFFLE(warp, sum[c], LANE ^ step);
            if (LANE == 0) add_to_field(field, &layout, row, sum);
        }
    }
}
