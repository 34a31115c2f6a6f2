// SPDX-License-Identifier: BSD-3-Clause
// The search of pair lists without the lists: one bit per candidate, set where it is within reach. No work-item waits
// for another, and list_marks.c reads no position.
//
// A mark has the bits of up to 32 neighbouring candidates, the first of them in the highest bit, and the slot of the
// first above them. A row has up to WORDS marks, `stride` apart. Its info: 16 bits of pairs and above them the number
// of marks, or INFO_AGAIN and the pairs of a row with more marks. COUNTED: the pairs also go to `counts`, by index if
// ROWS_BY_INDEX.

#include "grid/queries/within.h"
#include "grid/queries/marks.h"

#if COORDINATE_IS_DOUBLE
#define SIGN_OF(value) (HIGH_BITS_OF_DOUBLE(value) >> 31)
#else
#define SIGN_OF(value) (BITS_OF_FLOAT(value) >> 31)
#endif

// Finite numbers compare as their difference does, whose sign is a bit without a branch.
#if HALF == 2
#define IS_MISS(d, other) (SIGN_OF(limit - SQUARED(d)) | (u32)((int)INDEX_OF_REAL((other).w) - lowest) >> 31)
#else
#define IS_MISS(d, other) SIGN_OF(limit - SQUARED(d))
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
        int done = 0;                                                                  \
        ROLL for (; done < count; done += 4) {                                         \
            real4 read[4];                                                             \
            UNROLL for (int n = 0; n < 4; n++)                                         \
                if (done + n < count) read[n] = READ_4(records + 4 * (i64)(at + done + n)); \
            UNROLL for (int n = 0; n < 4; n++) {                                       \
                coordinate d[3];                                                       \
                VECTOR_OF_STRIP(d, read[n], x);                                        \
                misses = misses << 1 | IS_MISS(d, read[n]);                            \
            }                                                                          \
        }                                                                              \
        u32 hits = ~misses << (32 - done) & (u32)0xffffffff << (32 - count);           \
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
#if ROWS_ARE_POINTS
    const i64 taken = rows;
#else
    const i64 taken = start[bins];
#endif
    const i64 stop = rows - first < stride ? rows : first + stride;
    for (i64 r = first + GROUP_ID * GROUP_SIZE + LOCAL_ID; r < stop; r += GROUP_COUNT * GROUP_SIZE) {
        int words = 0, length = 0;
        Row row;
        row.index = (int)r;
        if (r < taken) {
            GLOBAL u64* next = marks + (r - first);
            IN_SYSTEM_OF_ROW(r)
            const int bad = ROW_OF(&row, r);
#if ROWS_ARE_POINTS
            record_item(found, bad, r);
#endif
            if (!bad) {
                PRIVATE const coordinate* x = row.x;
                PRIVATE const coordinate* s = row.s;
#define STRIP MARK_STRIP
#include "grid/queries/strips.h"
#undef STRIP
            }
        }
        infos[r - first] = words > WORDS ? INFO_AGAIN | (u32)length : (u32)words << 16 | (u32)length;
#if COUNTED && ROWS_BY_INDEX
        if (r < taken) counts[row.index] = length; // the others' are cleared before
#elif COUNTED
        counts[r] = length;
#endif
    }
}
