// SPDX-License-Identifier: BSD-3-Clause
// The pairs of two neighbouring rows per work-item, which share each record read, into local memory (pairs.c).
const int member_x = 2 * LOCAL_ID, member_y = member_x + 1;
const i64 r = tile * TILE_ROWS + member_x;
int length_x = 0, length_y = 0, alone = 0; // the second row goes alone
if (r < taken) {
    Row row, second;
    const int two = r + 1 < taken;
    ROW_OF(&row, r);
    ROW_OF(&second, r + two);
#if WANT_INDEX
    indices[member_x] = row.index;
    indices[member_y] = second.index;
#endif
    PRIVATE const coordinate* x = row.x;
    PRIVATE const coordinate* s = row.s;
    PRIVATE const coordinate* y = second.x;
    coordinate limit_y = two ? limit : (coordinate)-1; // no square is below it
    const int first_x = address_of(staged) + 4 * member_x, first_y = first_x + 4;
    int next_x = first_x, next_y = first_y;
#define RANGES                                                                        \
    alone = two && !share_cells(low, high, second.s, distance, size, &reach, &frame); \
    if (alone) limit_y = -1;
#define COLLECT_BOTH(count, end, VECTOR_OF, ALLOWS_X, ALLOWS_Y)                           \
    {                                                                              \
        real4 read[count];                                                       \
        UNROLL for (int n = 0; n < count; n++)                                   \
            if (at + n < end) read[n] = READ_4(records + 4 * (i64)(at + n));       \
        MAKE_ROOM(next_x, first_x, length_x)                                       \
        MAKE_ROOM(next_y, first_y, length_y)                                   \
        UNROLL for (int n = 0; n < count; n++) {                                 \
            const int k = at + n;                                                  \
            const real4 other = read[n];                                           \
            coordinate d[3], e[3];                                                 \
            VECTOR_OF(d, other, x, shift);                                         \
            VECTOR_OF(e, other, y, shift);                                         \
            COLLECT(next_x, COLLECTED, (SQUARED(d) <= limit) & (k < end) & (ALLOWS_X))        \
            COLLECT(next_y, COLLECTED, (SQUARED(e) <= limit_y) & (k < end) & (ALLOWS_Y))      \
        }                                                                          \
    }
#define VECTOR_UNMOVED(d, record, point, shift) VECTOR_INSIDE(d, record, point)
// Both rows belong to particles of one strip, or the second goes alone.
#define STRIP                                                                                              \
    if (row.slot >= from && row.slot < to)                                                                 \
        ROLL for (int at = from; at < to; at += AT_ONCE)                                                   \
            COLLECT_BOTH(AT_ONCE, to, VECTOR_UNMOVED, k != row.slot, k != row.slot + 1)                             \
    else                                                                                                   \
        ROLL for (int at = from; at < to; at += AT_ONCE) COLLECT_BOTH(AT_ONCE, to, VECTOR_UNMOVED, 1, 1)
#define PAIR_OF_STRIPS                                                                            \
    int at = from, end = to, other_part = from_2 < to_2, itself = turned ? -2 : row.slot;         \
    ROLL while (at < end || other_part) {                                                         \
        if (at >= end) {                                                                          \
            at = from_2, end = to_2, other_part = 0, itself = turned_2 ? -2 : row.slot;           \
            GO_TO_SECOND_PART \
        }                                                                                         \
        COLLECT_BOTH(AT_ONCE_IMAGES, end, VECTOR, k != itself, k != itself + 1)                                   \
        at += AT_ONCE_IMAGES;                                                                            \
    }
#include "grid/queries/strips.h"
#undef STRIP
#undef PAIR_OF_STRIPS
#undef RANGES
    const int kept_x = (next_x - first_x) / BYTES_APART;
    const int kept_y = (next_y - first_y) / BYTES_APART;
    length_x = length_x ? -(length_x + kept_x) : kept_x; // negative: not collected
    length_y = length_y ? -(length_y + kept_y) : kept_y;
}
lengths[member_x] = length_x;
lengths[member_y] = length_y;
WARP_SYNC(warp);

// Warps search together for second rows that go alone: those in the next row of cells, few of a warp.
for (u32 left = WARP_BALLOT(warp, alone); left; left &= left - 1) {
    const int member = 2 * (LOCAL_ID - LANE + 31 - LEADING_ZEROS_U32(left & (0u - left))) + 1;
    Row row;
    ROW_OF(&row, tile * TILE_ROWS + member);
    PRIVATE const coordinate* x = row.x;
    PRIVATE const coordinate* s = row.s;
    int length = 0;
#define COLLECT_HITS                                                                    \
    const int mine = length + POPCOUNT_U32(hits & (((u32)1 << LANE) - 1));              \
    if (hit && mine < CAP) staged[mine * ROWS_APART + member] = STAGED_INDICES ? index : k; \
    length += POPCOUNT_U32(hits);
#undef IMAGES_APART // this is for few rows: no second copy of STRIP
#define STRIP TOGETHER(COLLECT_HITS)
#include "grid/queries/strips.h"
#undef STRIP
    if (LANE == 0) lengths[member] = length > CAP ? -length : length;
}
