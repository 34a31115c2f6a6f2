// SPDX-License-Identifier: BSD-3-Clause
// The search of pair lists without the lists: one bit per candidate, set where it is within reach. No work-item waits
// for another, and list_marks.c reads no position.
//
// A mark has the bits of up to 32 neighbouring candidates, the first of them in the highest bit, and the slot of the
// first above them. A row has up to WORDS marks, `stride` apart. Its info: 16 bits of pairs and above them the number
// of marks, or INFO_AGAIN and the pairs of a row with more marks. COUNTED: the pairs also go to `counts`, by index if
// ROWS_BY_INDEX. RECORD: points that are wrong are recorded.

#include "grid/queries/within.h"
#include "grid/queries/marks.h"

// Squares are not negative, so that their bits compare as they do; the sign of a difference is a bit without a branch.
#if COORDINATE_IS_DOUBLE
#define IS_FAR(d) (u32)!(SQUARED(d) <= limit)
#else
#define IS_FAR(d) (u32)((int)BITS_OF_FLOAT(limit) - (int)BITS_OF_FLOAT(SQUARED(d))) >> 31
#endif
#if HALF == 2
#define IS_MISS(d, other) (IS_FAR(d) | (u32)!ALLOWED(, other))
#else
#define IS_MISS(d, other) (IS_FAR(d))
#endif

#if HALF || ROWS_ARE_POINTS
#define FORGET_ITSELF
#else
#define FORGET_ITSELF \
    if ((u32)(itself - at) < (u32)count) hits &= ~(FIRST_CANDIDATE >> (itself - at));
#endif

// Images without a hit leave no mark: most rows would have room for no more.
#define MARK_STRIP                                                                     \
    BEGIN_STRIP                                                                        \
    ROLL for (int at = begin; at < to; at += 32) {                                     \
        const int count = to - at < 32 ? to - at : 32;                                 \
        u32 misses = 0;                                                                \
        GLOBAL const real* from_here = records + 4 * (i64)at;                          \
        int left = count;                                                              \
        ROLL do {                                                                      \
            real4 read[4];                                                             \
            UNROLL for (int n = 0; n < 4; n++)                                         \
                if (!n || n < left) read[n] = READ_4(from_here + 4 * n);               \
            from_here += 16;                                                           \
            UNROLL for (int n = 0; n < 4; n++) {                                       \
                coordinate d[3];                                                       \
                VECTOR_OF_STRIP(d, read[n], x);                                        \
                misses = misses << 1 | IS_MISS(d, read[n]);                            \
            }                                                                          \
            left -= 4;                                                                 \
        } while (left > 0);                                                            \
        u32 hits = ~misses << (32 - (count + 3 & ~3)) & (u32)0xffffffff << (32 - count); \
        FORGET_ITSELF                                                                  \
        if (hits || !turned) {                                                         \
            length += POPCOUNT_U32(hits);                                              \
            if (words < WORDS) *next = (u64)at << 32 | hits;                           \
            next += stride;                                                            \
            words++;                                                                   \
        }                                                                              \
    }

KERNEL mark_pairs(ROW_POINTS SYSTEM_ARRAYS GLOBAL const real* RESTRICT records, GLOBAL const u32* RESTRICT start,
                  GLOBAL const end_t* RESTRICT ends, GLOBAL const coordinate* RESTRICT reaches,
                  GLOBAL const u64* RESTRICT largest, GLOBAL u64* RESTRICT marks, GLOBAL u32* RESTRICT infos,
                  GLOBAL u64* RESTRICT counts, GLOBAL u64* found, const i64 first, const i64 rows, const i64 bins,
                  const i64 stride, ROW_STRIDES BOX_RECORDS, const Ask ask)
{
    const coordinate limit = ask.radius * ask.radius;
    const i64 stop = rows - first < stride ? rows - first : stride;
#if ROWS_ARE_POINTS
    const i64 taken = rows;
#else
    const i64 taken = start[bins];
#endif
    // The last rows first: list_marks.c begins with the first ones, whose marks are then still in a cache.
    const i64 tiles = (stop + GROUP_SIZE - 1) / GROUP_SIZE;
    for (i64 tile = tiles - 1 - GROUP_ID; tile >= 0; tile -= GROUP_COUNT) {
        const i64 place = tile * GROUP_SIZE + LOCAL_ID;
        if (place < stop) {
            int words = 0, length = 0;
            const i64 r = first + place;
            Row row;
            row.index = (int)r;
            if (r < taken) {
                IN_SYSTEM_OF_ROW(r)
                const int bad = ROW_OF(&row, r);
#if ROWS_ARE_POINTS && RECORD
                record_item(found, bad, r);
#endif
                if (!bad) {
                    PRIVATE const coordinate* x = row.x;
                    PRIVATE const coordinate* s = row.s;
                    GLOBAL u64* next = marks + place;
#define STRIP MARK_STRIP
#include "grid/queries/strips.h"
#undef STRIP
                }
            }
            infos[place] = words > WORDS ? INFO_AGAIN | (u32)length : (u32)words << 16 | (u32)length;
#if COUNTED && ROWS_BY_INDEX
            if (r < taken) counts[row.index] = length; // the others' are cleared before
#elif COUNTED
            counts[r] = length;
#endif
        }
    }
}
