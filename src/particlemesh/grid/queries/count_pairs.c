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
// Two rows share their cells if these are the same but for the last axis.
DEVICE int share_cells(PRIVATE int* low, PRIVATE int* high, PRIVATE const coordinate* s, coordinate distance,
                       PRIVATE const int* size, PRIVATE const Reach* reach, PRIVATE const Frame* frame)
{
    int other_low[3], other_high[3];
    for (int a = 0; a < 3; a++)
        cells_in_reach(other_low + a, other_high + a, s[a], distance, size[a], a, reach, frame);
    if (low[0] != other_low[0] || high[0] != other_high[0] || low[1] != other_low[1] || high[1] != other_high[1])
        return 0;
    low[2] = low[2] < other_low[2] ? low[2] : other_low[2];
    high[2] = high[2] > other_high[2] ? high[2] : other_high[2];
    return 1;
}

// AT_ONCE records are read before the first is used. What lies past the end is not read and not counted, so that the
// ends of strips take no turns of their own.
#define AT_ONCE 4
#define VECTOR_UNMOVED(d, record, point, shift) VECTOR_INSIDE(d, record, point)
#define TEST_RECORDS(k, end, VECTOR_OF)                                \
    {                                                                  \
        real4 read[AT_ONCE];                                           \
        UNROLL for (int n = 0; n < AT_ONCE; n++)                       \
            if (k + n < end) read[n] = READ_4(records + 4 * (i64)(k + n)); \
        UNROLL for (int n = 0; n < AT_ONCE; n++) {                     \
            coordinate d[3], e[3];                                     \
            VECTOR_OF(d, read[n], x, shift);                           \
            VECTOR_OF(e, read[n], y, shift);                           \
            COUNT_IF(found_x, SQUARED(d) <= limit && k + n < end)      \
            COUNT_IF(found_y, SQUARED(e) <= limit && k + n < end)      \
        }                                                              \
        k += AT_ONCE;                                                  \
    }

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
    const coordinate limit = ask.radius * ask.radius;
#if PAIRED
    for (i64 r = 2 * (GROUP_ID * GROUP_SIZE + LOCAL_ID); r < rows; r += 2 * GROUP_COUNT * GROUP_SIZE) {
        Row row, second;
        int length = -1, second_length = -1; // each finds itself as well
        int index = 0;
        if (r < taken) {
            const int two = r + 1 < taken;
            ROW_OF(&row, r);
            second = row;
            index = row.index;
            if (two) ROW_OF(&second, r + 1);
            for (int first = 0; first <= two; first++) {
                PRIVATE const coordinate* x = row.x;
                PRIVATE const coordinate* s = row.s;
                PRIVATE const coordinate* y = second.x;
                int found_x = 0, found_y = 0, together = 0; // found_y counts if the rows go together
#define RANGES together = two && !first && share_cells(low, high, second.s, distance, size, &reach, &frame);
#define STRIP                                   \
    if (turned)                                 \
        ROLL for (int k = from; k < to;) {      \
            TEST_RECORDS(k, to, VECTOR)         \
        }                                       \
    else                                        \
        ROLL for (int k = from; k < to;) {      \
            TEST_RECORDS(k, to, VECTOR_UNMOVED) \
        }
#define PAIR_OF_STRIPS                                   \
    int at = from, end = to, other_part = from_2 < to_2; \
    ROLL while (at < end || other_part) {                \
        if (at >= end) {                                 \
            at = from_2, end = to_2, other_part = 0;     \
            for (int b = 0; b < 3; b++) shift[b] = shift_2[b]; \
        }                                                \
        TEST_RECORDS(at, end, VECTOR)                    \
    }
#include "grid/queries/strips.h"
#undef STRIP
#undef PAIR_OF_STRIPS
#undef RANGES
                if (first) second_length += found_x;
                else length += found_x;
                if (together) {
                    second_length += found_y;
                    break;
                }
                row = second;
            }
        }
        for (int n = 0; n < 2; n++) {
            const i64 place = r + n;
            if (place < taken) {
#if WANT_LONGEST
                record_longest(found, (n ? second_length : length));
#endif
#if ROWS_BY_INDEX
                counts[n ? second.index : index] = (count_t)(n ? second_length : length);
            }
#else
                counts[place] = (count_t)(n ? second_length : length);
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
