// SPDX-License-Identifier: BSD-3-Clause
// Rows of pairs by clusters (grid/queries/clusters.h): their lengths, or the lists of rows that begin at `place`. Rows
// are those of all particles within one radius. HALF: as in within.h. BY_INDEX, ROWS_BY_INDEX, SWAP, WANT_I, WANT_J,
// WANT_SHIFT, WANT_DISTANCE, WANT_VECTOR: as in pairs.c. LISTS: whether lists are written, with NAMING; else COUNT_IS_64.

#include "grid/queries/within.h"
#include "grid/queries/clusters.h"

#if ROWS_BY_INDEX
#define ROW_OF_MEMBER(m) INDEX_OF_REAL(members[4 * (m) + 3])
#else
#define ROW_OF_MEMBER(m) ((i64)first + (m))
#endif

// Whether the lane's particle is in the row of a member.
#if HALF == 2
#define IN_ROW_OF(m) ((int)j + forward > (int)INDEX_OF_REAL(x[3]))
#elif HALF == 1
#define IN_ROW_OF(m) (q + forward > (int)first + m)
#else
#define IN_ROW_OF(m) (m != itself)
#endif

#define NEAR_PARTICLE                                                     \
    const coordinate limit = there ? ask.limit : (coordinate)-1;          \
    const i64 j = INDEX_OF_REAL(other.w);                                 \
    const int forward = beyond && turns_forward(turn);                    \
    UNROLL for (int m = 0; m < MEMBERS; m++) {                            \
        real x[4];                                                        \
        LOAD_LOCAL_4(members + 4 * m, x);                                 \
        coordinate d[3];                                                  \
        VECTOR(d, other, x, shift);                                       \
        const int hit = SQUARED(d) <= limit && IN_ROW_OF(m);              \
        WITH_PAIR                                                         \
    }

#if !LISTS
#if COUNT_IS_64
typedef u64 count_t;
#else
typedef int count_t;
#endif

KERNEL count_pairs(SYSTEM_ARRAYS GLOBAL const real* RESTRICT records, GLOBAL const u32* RESTRICT start,
                   GLOBAL count_t* RESTRICT counts, const i64 bins, BOX_RECORDS, const Ask ask)
{
    WARP(warp);
#define CLUSTER_BEGINS    \
    u32 lengths[MEMBERS]; \
    UNROLL for (int m = 0; m < MEMBERS; m++) lengths[m] = 0;
#define WITH_PAIR lengths[m] += hit;
#define CLUSTER_ENDS                                                                                      \
    UNROLL for (int m = 0; m < MEMBERS; m++) {                                                            \
        for (int bit = 1; bit < WARP_SIZE; bit *= 2) lengths[m] += WARP_SHUFFLE_U32(warp, lengths[m], LANE ^ bit); \
        if (LANE == m && members[4 * m] == members[4 * m]) counts[ROW_OF_MEMBER(m)] = (count_t)lengths[m]; \
    }
#include "grid/queries/each_cluster.h"
}
#else
#define ROWS_FILLED 1 // writes in the order of the search have a third of the memory's speed, those along a list all
#include "grid/queries/pair_output.h"

// Writes i of all rows, each by NAMING lanes. Lists begin at multiples of 16 bytes.
KERNEL name_rows(GLOBAL const real* RESTRICT records, GLOBAL const i64* RESTRICT place, GLOBAL int* RESTRICT out_i,
                 const i64 rows, const i64 capacity)
{
    const int lane = LOCAL_ID % NAMING;
    const i64 step = (i64)GROUP_COUNT * (GROUP_SIZE / NAMING);
    for (i64 row = (i64)GROUP_ID * (GROUP_SIZE / NAMING) + LOCAL_ID / NAMING; row < rows; row += step) {
        const i64 from = place[row], end = place[row + 1], to = end < capacity ? end : capacity;
        const i64 first = (from + 3) & ~(i64)3, last = to & ~(i64)3; // of whole fours
        const int i = ROWS_BY_INDEX ? (int)row : BY_INDEX ? (int)INDEX_OF_REAL(records[4 * row + 3]) : (int)row;
        const u64 two = (u64)i << 32 | (u32)i;
        if (from + lane < first && from + lane < to) out_i[from + lane] = i;
        for (i64 at = first + 4 * lane; at < last; at += 4 * NAMING) STORE_2_U64((GLOBAL u64*)(out_i + at), two, two);
        if (last >= first && last + lane < to) out_i[last + lane] = i;
    }
}

KERNEL list_pairs(SYSTEM_ARRAYS GLOBAL const real* RESTRICT records, GLOBAL const u32* RESTRICT start,
                  GLOBAL const u64* RESTRICT turns, GLOBAL const u64* RESTRICT status, GLOBAL const i64* RESTRICT place,
                  GLOBAL int* RESTRICT out_i, GLOBAL int* RESTRICT out_j, GLOBAL int* RESTRICT out_shift,
                  GLOBAL real* RESTRICT out_distance, GLOBAL real* RESTRICT out_vector, GLOBAL u64* found,
                  const i64 rows, const i64 bins, const i64 capacity, BOX_RECORDS, const Ask ask)
{
    WARP(warp);
    LOCAL_ARRAY(i64, all_nexts, WARPS * MEMBERS); // the place of the next pair of each member
    LOCAL i64* nexts = all_nexts + LOCAL_ID / WARP_SIZE * MEMBERS;
    Output out;
    out.i = out_i, out.j = out_j, out.shift = out_shift, out.distance = out_distance, out.vector = out_vector;
    out.turns = turns, out.folded = status[STATUS_FOLDED] != 0, out.missing = MISSING_AXES;
    if (GROUP_ID == 0 && LOCAL_ID == 0) found[FOUND_TOTAL] = place[rows];
#define CLUSTER_BEGINS                                                                       \
    int written[MEMBERS];                                                                    \
    UNROLL for (int m = 0; m < MEMBERS; m++) written[m] = 0;                                 \
    if (LANE < MEMBERS && LANE < present) nexts[LANE] = place[ROW_OF_MEMBER(LANE)];
#define WITH_PAIR                                                                                \
    const u32 hits = WARP_BALLOT(warp, hit);                                                     \
    const int rank = POPCOUNT_U32(hits & earlier), number = POPCOUNT_U32(hits);                  \
    const i64 row = nexts[m] + written[m];                                                       \
    const int i = BY_INDEX ? (int)INDEX_OF_REAL(x[3]) : (int)first + m;                          \
    const int no_image[3] = {0, 0, 0};                                                           \
    if (hit && row + rank < capacity) {                                                          \
        write_pair(&out, row + rank, i, BY_INDEX ? (int)j : q, no_image, d);                     \
        if (WANT_SHIFT && (beyond || out.folded)) {                                              \
            int image[3] = {turn[0], turn[1], turn[2]};                                          \
            if (out.folded) unfold(image, turns[INDEX_OF_REAL(x[3])], (int)j, &out);             \
            if (image[0] | image[1] | image[2]) write_shift(&out, row + rank, i, (int)j, image); \
        }                                                                                        \
    }                                                                                            \
    written[m] += number;
#define CLUSTER_ENDS
#include "grid/queries/each_cluster.h"
}
#endif
