// SPDX-License-Identifier: BSD-3-Clause
// The search of pair lists without the lists: one bit per candidate, set where it is within reach. No work-item waits
// for another, and list_marks.c reads no position.
//
// A mark has the bits of up to 32 neighbouring candidates, the first of them in the highest bit, and the slot of the
// first above them. A row has up to WORDS marks, `stride` apart. Its info: 16 bits of pairs and above them the number
// of marks, or INFO_AGAIN and the pairs of a row with more marks. COUNTED: the pairs also go to `counts`, by index if
// ROWS_BY_INDEX. RECORD: points that are wrong are recorded. PAIRED: a work-item has two neighbouring rows of
// particles, and each record read serves both.

#define PLACE_OF_LANE (31 - LANE) // as in a mark
#include "grid/queries/within.h"

// Squares are not negative, so that their bits compare as they do; the sign of a difference is a bit without a branch.
#if COORDINATE_IS_DOUBLE
#define IS_FAR(d) (u32)!(SQUARED(d) <= limit)
#else
#define IS_FAR(d) (u32)((int)BITS_OF_FLOAT(limit) - (int)BITS_OF_FLOAT(SQUARED(d))) >> 31
#endif
#if HALF == 2
#define IS_MISS(d, other, lowest) (IS_FAR(d) | (u32)((int)INDEX_OF_REAL((other).w) < lowest))
#else
#define IS_MISS(d, other, lowest) (IS_FAR(d))
#endif

#define FORGET(hits, slot) \
    if ((u32)((slot) - at) < (u32)count) hits &= ~(FIRST_CANDIDATE >> ((slot) - at));
#if HALF || ROWS_ARE_POINTS
#define FORGET_ITSELF
#else
#define FORGET_ITSELF FORGET(hits, itself)
#endif

#if PAIRED
#define ROWS_OF_ITEM 2
#define SECOND(statements) statements
#else
#define ROWS_OF_ITEM 1
#define SECOND(statements)
#endif
// The second row is the slot after the first one's, and so is the first candidate of its half list.
#if HALF == 1
#define FORGET_SECOND FORGET(hits_y, BEHIND(turn))
#elif HALF == 2
#define FORGET_SECOND
#else
#define FORGET_SECOND FORGET(hits_y, turned ? -1 : row.slot + 1)
#endif

#define HITS(misses) (~(misses) << (32 - (count + 3 & ~3)) & (u32)0xffffffff << (32 - count))

// Images without a hit leave no mark: most rows would have room for no more.
#define MARK_STRIP                                                                                           \
    BEGIN_STRIP                                                                                              \
    ROLL for (int at = begin; at < to; at += 32) {                                                           \
        const int count = to - at < 32 ? to - at : 32;                                                       \
        u32 misses = 0;                                                                                      \
        SECOND(u32 misses_y = 0;)                                                                            \
        GLOBAL const real* from_here = records + 4 * (i64)at;                                                \
        int left = count;                                                                                    \
        ROLL do {                                                                                            \
            real4 read[4];                                                                                   \
            UNROLL for (int n = 0; n < 4; n++)                                                               \
                if (!n || n < left) read[n] = READ_4(from_here + 4 * n);                                     \
            from_here += 16;                                                                                 \
            UNROLL for (int n = 0; n < 4; n++) {                                                             \
                coordinate d[3];                                                                             \
                VECTOR_OF_STRIP(d, read[n], x);                                                              \
                misses = misses << 1 | IS_MISS(d, read[n], lowest);                                          \
                SECOND(VECTOR_OF_STRIP(d, read[n], y);)                                                      \
                SECOND(misses_y = misses_y << 1 | IS_MISS(d, read[n], second.index + !turns_forward(turn));) \
            }                                                                                                \
            left -= 4;                                                                                       \
        } while (left > 0);                                                                                  \
        u32 hits = HITS(misses), hits_y = 0;                                                                 \
        FORGET_ITSELF                                                                                        \
        SECOND(hits_y = HITS(misses_y); FORGET_SECOND)                                                       \
        if (hits | hits_y || !turned) {                                                                      \
            length += POPCOUNT_U32(hits);                                                                    \
            SECOND(length_y += POPCOUNT_U32(hits_y);)                                                        \
            if (words < WORDS) LEAVE_MARKS                                                                   \
            next += stride;                                                                                  \
            words++;                                                                                         \
        }                                                                                                    \
    }
#if PAIRED
#define LEAVE_MARKS STORE_2_U64(next, (u64)at << 32 | hits, (u64)at << 32 | hits_y);
#else
#define LEAVE_MARKS *next = (u64)at << 32 | hits;
#endif

// Of a second row, which a warp searches for its `member`.
#define MARK_TOGETHER                                                                  \
    if (hits || !turned) {                                                             \
        length_together += POPCOUNT_U32(hits);                                         \
        if (LANE == member && words_together < WORDS) *next = (u64)first << 32 | hits; \
        next += stride;                                                                \
        words_together++;                                                              \
    }

DEVICE void leave_row(GLOBAL u32* info, GLOBAL u64* count, int words, int length)
{
    *info = words > WORDS ? INFO_AGAIN | (u32)length : (u32)words << 16 | (u32)length;
#if COUNTED
    if (length) *count = length; // it was cleared before
#endif
}
#if ROWS_BY_INDEX
#define COUNT_OF(row, r) (counts + (row).index)
#else
#define COUNT_OF(row, r) (counts + (r))
#endif

KERNEL mark_pairs(ROW_POINTS SYSTEM_ARRAYS GLOBAL const real* RESTRICT records, GLOBAL const u32* RESTRICT start,
                  GLOBAL const end_t* RESTRICT ends, GLOBAL const coordinate* RESTRICT reaches,
                  GLOBAL const u64* RESTRICT largest, GLOBAL u64* RESTRICT marks, GLOBAL u32* RESTRICT infos,
                  GLOBAL u64* RESTRICT counts, GLOBAL u64* found, const i64 first, const i64 rows, const i64 bins,
                  const i64 stride, ROW_STRIDES BOX_RECORDS, const Ask ask)
{
#if PAIRED
    WARP(warp);
#endif
    const coordinate limit = IN_REGISTER(ask.limit);
    const int stop = (int)(rows - first < stride ? rows - first : stride); // few: 64 bits would cost registers
#if ROWS_ARE_POINTS
    const i64 taken = rows;
#else
    const i64 taken = start[bins];
#endif
    const int rows_of_tile = ROWS_OF_ITEM * GROUP_SIZE, tiles = (stop + rows_of_tile - 1) / rows_of_tile;
    // From the last row down: list_marks.c begins with the first ones, whose marks are then still in a cache.
    for (int tile = tiles - 1 - (int)GROUP_ID; tile >= 0; tile -= (int)GROUP_COUNT) {
        const int place = tile * rows_of_tile + ROWS_OF_ITEM * LOCAL_ID;
        const i64 r = first + place;
        int words = 0, length = 0;
        Row row;
        row.index = (int)r;
#if PAIRED
        int length_y = 0, alone = 0; // of the second row
        Row second;
        second.index = 0;
#endif
        if (place < stop && r < taken) {
            IN_SYSTEM_OF_ROW(r)
            const int bad = ROW_OF(&row, r);
#if ROWS_ARE_POINTS && RECORD
            record_item(found, bad, r);
#endif
#if PAIRED
            const int two = r + 1 < taken;
            ROW_OF(&second, r + two);
            PRIVATE const coordinate* y = second.x;
#define RANGES alone = two && !share_cells(low, high, second.s, distance, size, &reach, &frame);
#endif
            if (!bad) {
                PRIVATE const coordinate* x = row.x;
                PRIVATE const coordinate* s = row.s;
                GLOBAL u64* next = marks + place;
#define STRIP MARK_STRIP
#include "grid/queries/strips.h"
#undef STRIP
#undef RANGES
            }
        }
        if (place < stop) leave_row(infos + place, COUNT_OF(row, r), words, length);
#if PAIRED
        int words_y = words;
        // Warps search together for second rows that go alone: those in the next row of cells, few of a warp.
        for (u32 left = WARP_BALLOT(warp, alone); left; left &= left - 1) {
            const int member = 31 - LEADING_ZEROS_U32(left & (0u - left));
            Row row;
            ROW_OF(&row, r + 2 * (member - LANE) + 1);
            PRIVATE const coordinate* x = row.x;
            PRIVATE const coordinate* s = row.s;
            GLOBAL u64* next = marks + place + 1; // the member's own
            int words_together = 0, length_together = 0;
#undef IMAGES_APART // this is for few rows: no second copy of STRIP
#define STRIP TOGETHER(MARK_TOGETHER)
#include "grid/queries/strips.h"
#undef STRIP
            if (LANE == member) words_y = words_together, length_y = length_together;
        }
        if (r + 1 >= taken) words_y = length_y = 0;
        if (place + 1 < stop) leave_row(infos + place + 1, COUNT_OF(second, r + 1), words_y, length_y);
#endif
    }
}
