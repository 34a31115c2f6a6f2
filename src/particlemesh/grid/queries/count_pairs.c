// SPDX-License-Identifier: BSD-3-Clause
// The number of pairs per row, by the slot or the index of its particle (ROWS_BY_INDEX). COUNT_IS_64 for counts that
// are scanned. WANT_LONGEST for the longest row. PAIRED: a work-item has two neighbouring rows, whose reaches overlap
// so much that each record read serves both; for full rows of particles within one radius, on one level.

#include "grid/queries/within.h"

// WIDE_ROWS: a row may have 2^31 pairs or more.
#if WIDE_ROWS
typedef i64 length_t;
#else
typedef int length_t;
#endif

#if COUNT_IS_64
typedef u64 count_t;
#else
typedef int count_t;
#endif

DEVICE void record_longest(GLOBAL u64* found, length_t length)
{
    if ((u64)length > PEEK_U64(found + FOUND_LONGEST)) ATOMIC_MAX_U64(found + FOUND_LONGEST, length);
}

#if PAIRED
// No square is below limit_y if the second row goes alone.
#define TEST_BOTH(count, k, end)                                           \
    {                                                                      \
        real4 read[count];                                                 \
        UNROLL for (int n = 0; n < count; n++)                             \
            if (k + n < end) read[n] = READ_4(records + 4 * (i64)(k + n)); \
        UNROLL for (int n = 0; n < count; n++) {                           \
            coordinate d[3], e[3];                                         \
            VECTOR_OF_STRIP(d, read[n], x);                                \
            VECTOR_OF_STRIP(e, read[n], y);                                \
            COUNT_IF(found_x, SQUARED(d) <= limit && k + n < end)          \
            COUNT_IF(found_y, SQUARED(e) <= limit_y && k + n < end)        \
        }                                                                  \
        k += count;                                                        \
    }
#undef EACH_INSIDE
#undef EACH_OF_IMAGES
#define EACH_INSIDE TEST_BOTH(4, k, to)
#define EACH_OF_IMAGES TEST_BOTH(2, k, to)

// One instruction after the comparison, where compilers make two.
#if defined(__CUDA_ARCH__) || HAS_PTX
#define COUNT_IF(count, condition)                                                                                \
    {                                                                                                             \
        const int counts_ = condition;                                                                            \
        asm("{ .reg .pred p; setp.ne.s32 p, %1, 0; @p add.s32 %0, %0, 1; }" : "+r"(count) : "r"(counts_)); \
    }
#else
#define COUNT_IF(count, condition) count += condition;
#endif
#endif

KERNEL count_pairs(ROW_POINTS SYSTEM_ARRAYS GLOBAL const real* RESTRICT records, GLOBAL const u32* RESTRICT start,
                   GLOBAL const end_t* RESTRICT ends, GLOBAL const coordinate* RESTRICT reaches,
                   GLOBAL const u64* RESTRICT largest, GLOBAL count_t* RESTRICT counts, GLOBAL u64* found,
                   const i64 rows, const i64 bins, ROW_STRIDES BOX_RECORDS, const Ask ask)
{
#if ROWS_ARE_POINTS
    const i64 taken = rows;
#else
    const i64 taken = start[bins];
#endif
    const coordinate limit = IN_REGISTER(ask.limit);
#if PAIRED
    WARP(warp);
    for (i64 first_row = 2 * GROUP_ID * GROUP_SIZE; first_row < rows; first_row += 2 * GROUP_COUNT * GROUP_SIZE) {
        const i64 r = first_row + 2 * LOCAL_ID;
        int index = 0, second_index = 0;
        int found_x = -1, found_y = -1; // each finds itself as well
        int alone = 0;                  // the second row
        if (r < taken) {
            Row row, second;
            const int two = r + 1 < taken;
            ROW_OF(&row, r);
            ROW_OF(&second, r + two);
            index = row.index;
            second_index = second.index;
            PRIVATE const coordinate* x = row.x;
            PRIVATE const coordinate* s = row.s;
            PRIVATE const coordinate* y = second.x;
            coordinate limit_y = limit;
#define RANGES                                                                        \
    alone = two && !share_cells(low, high, second.s, distance, size, &reach, &frame); \
    if (alone) limit_y = -1;
#define STRIP ROLL for (int k = from; k < to;) EACH_OF_STRIP
#define PAIR_OF_STRIPS                                   \
    int at = from, end = to, other_part = from_2 < to_2; \
    ROLL while (at < end || other_part) {                \
        if (at >= end) {                                 \
            at = from_2, end = to_2, other_part = 0;     \
            GO_TO_SECOND_PART                            \
        }                                                \
        TEST_BOTH(2, at, end)                            \
    }
#include "grid/queries/strips.h"
#undef STRIP
#undef PAIR_OF_STRIPS
#undef RANGES
        }
        // Warps search together for second rows that go alone: those in the next row of cells, few of a warp.
        for (u32 left = WARP_BALLOT(warp, alone); left; left &= left - 1) {
            const int member = 31 - LEADING_ZEROS_U32(left & (0u - left));
            Row row;
            ROW_OF(&row, first_row + 2 * (LOCAL_ID - LANE + member) + 1);
            PRIVATE const coordinate* x = row.x;
            PRIVATE const coordinate* s = row.s;
            int found_together = 0;
#undef IMAGES_APART // this is for few rows: no second copy of STRIP
#define STRIP TOGETHER(found_together += POPCOUNT_U32(hits);)
#include "grid/queries/strips.h"
#undef STRIP
            if (LANE == member) found_y = found_together;
        }
        for (int n = 0; n < 2; n++) {
            const i64 place = r + n;
            if (place < taken) {
#if WANT_LONGEST
                record_longest(found, n ? found_y : found_x);
#endif
#if ROWS_BY_INDEX
                counts[n ? second_index : index] = (count_t)(n ? found_y : found_x);
            }
#else
                counts[place] = (count_t)(n ? found_y : found_x);
            } else if (place < rows) {
                counts[place] = 0;
            }
#endif
        }
    }
#else
    for (i64 r = GROUP_ID * GROUP_SIZE + LOCAL_ID; r < rows; r += GROUP_COUNT * GROUP_SIZE) {
        Row row;
        row.index = (int)r;
        length_t length = 0;
        if (r < taken) {
            IN_SYSTEM_OF_ROW(r)
            const int bad = ROW_OF(&row, r);
#if ROWS_ARE_POINTS
            record_item(found, bad, r);
#endif
            if (!bad) {
                PRIVATE const coordinate* x = row.x;
                PRIVATE const coordinate* s = row.s;
#define FOUND length += hit;
#define STRIP EACH_PAIR
#define PAIR_OF_STRIPS EACH_PAIR_OF_BOTH
#include "grid/queries/strips.h"
#undef STRIP
#undef PAIR_OF_STRIPS
            }
#if WANT_LONGEST
            record_longest(found, length);
#endif
        }
#if ROWS_BY_INDEX
        if (r < taken) counts[row.index] = (count_t)length; // the others' are cleared before
#else
        counts[r] = (count_t)length;
#endif
    }
#endif
}
