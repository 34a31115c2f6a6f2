// SPDX-License-Identifier: BSD-3-Clause
// Rows of pairs, and which pairs count. A row has the particles within reach of one particle, or of one point.
//
// ROWS_ARE_POINTS: rows belong to points x0, x1, x2 instead of particles.
// SOME_ROWS: of particles, only rows with indices from ask.least to ask.most; others are empty.
// REACH_IS: 0 one radius for all; 1 a radius each, added for a pair; 3 half an edge per axis, added likewise.
// HALF: 0 all; 1 only particles after this slot; 2 only particles with a larger index. A particle's own images count as
// after it, or larger, in the forward half of directions.

#include "grid/queries/search.h"

#if ROWS_ARE_POINTS
#define ROW_POINTS GLOBAL const coordinate *x0, GLOBAL const coordinate *x1, GLOBAL const coordinate *x2,
#define ROW_STRIDES const Strides strides,
#define IN_SYSTEM_OF_ROW(r) IN_SYSTEM_OF_POINT(r)
#define ROW_OF(row, r) POINT_FAULT(row_of_point(row, x0, x1, x2, r, &strides, &geometry, &frame))
#else
#define ROW_POINTS
#define ROW_STRIDES
#define IN_SYSTEM_OF_ROW(r) IN_SYSTEM_OF_PARTICLE(r)
#if SOME_ROWS
#define ROW_OF(row, r)                                           \
    (row_of_particle(row, records, reaches, r, &geometry) != GOOD_ITEM || (row)->index < ask.least || \
     (row)->index > ask.most)
#else
#define ROW_OF(row, r) row_of_particle(row, records, reaches, r, &geometry)
#endif
#endif

typedef struct {
    coordinate radius, limit; // the largest square of a distance within it
#if SOME_ROWS
    int least, most;
#endif
} Ask;

typedef struct {
    coordinate x[3], s[3];
    coordinate mine[3]; // the extents of the particle
    int slot;           // of a particle
    int index;          // of the particle or point, in the caller's order
} Row;

// Words written by queries: after NOT_FINITE, OUTSIDE, FIRST and BAD_RADIUS, as in a build,
#define FOUND_TOTAL 4   // pairs
#define FOUND_LONGEST 5 // pairs of the longest row, if it exceeds the room
#define FOUND_TICKET 6
#define FOUND_WORDS 8 // words of tiles follow

#if ROWS_ARE_POINTS
DEVICE int row_of_point(PRIVATE Row* row, GLOBAL const coordinate* x0, GLOBAL const coordinate* x1,
                        GLOBAL const coordinate* x2, i64 i, PRIVATE const Strides* strides,
                        PRIVATE const Geometry* geometry, PRIVATE const Frame* frame)
{
    row->slot = -1;
    row->index = (int)i;
    return point_of(row->x, row->s, x0, x1, x2, i, strides, geometry, frame);
}
#else
DEVICE int row_of_particle(PRIVATE Row* row, GLOBAL const real* records, GLOBAL const coordinate* reaches, i64 slot,
                           PRIVATE const Geometry* geometry)
{
    const real4 own = READ_4(records + 4 * slot);
    row->x[0] = own.x, row->x[1] = own.y, row->x[2] = own.z;
    row->slot = (int)slot;
    row->index = (int)INDEX_OF_REAL(own.w);
    fractions(row->s, row->x, geometry);
#if REACH_IS == 1
    row->mine[0] = reaches[slot];
    if (!(row->mine[0] == row->mine[0])) return BAD_RADIUS;
#elif REACH_IS == 3
    for (int a = 0; a < 3; a++) row->mine[a] = reaches[4 * slot + a];
    if (!(row->mine[0] == row->mine[0])) return BAD_RADIUS;
#endif
    return GOOD_ITEM;
}
#endif

// The level of a slot; `before` is the first cell of its box.
DEVICE int level_of_slot(int slot, GLOBAL const u32* start, GLOBAL const end_t* ends, i64 bins, cell_t before,
                         PRIVATE const Cells* cells)
{
    int level = 0;
    while (level + 1 < cells->levels && slot >= BEGIN_OF(before + first_of_level(cells, level + 1))) level++;
    return level;
}

#if HALF == 1 && !CELLS_ARE_SCATTERED
#define FIRST_LEVEL level_of_slot(row.slot, start, ends, bins, CELLS_BEFORE, &cells) // finer ones lie before it
#else
#define FIRST_LEVEL 0
#endif

#if REACH_IS == 3

DEVICE coordinate box_width(PRIVATE const Row* row, GLOBAL const u64* largest, int axis,
                            PRIVATE const Geometry* geometry, PRIVATE const Reach* reach)
{
    coordinate wide = 0;
    for (int b = 0; b < 3; b++) {
        const coordinate both = row->mine[b] + REAL_FROM_INDEX((i64)largest[b]);
        wide = fma(fabs(geometry->inverse[3 * axis + b]), both, wide);
    }
    const coordinate rounding = 16 * ((coordinate)1 - (coordinate)BELOW_ONE);
    return fma(wide, 1 + rounding, reach->margin[axis]);
}

DEVICE int boxes_touch(PRIVATE const coordinate* d, PRIVATE const coordinate* mine, const real4 other)
{
    return fabs(d[0]) <= mine[0] + other.x && fabs(d[1]) <= mine[1] + other.y && fabs(d[2]) <= mine[2] + other.z;
}

#define WIDTH_OF(level, axis) box_width(&row, largest + 3 * level, axis, &geometry, &reach)
#define WITHIN(d, k) boxes_touch(d, row.mine, READ_4(reaches + 4 * (i64)(k)))

#elif REACH_IS == 1

// Most particles are beyond the largest reach: only the others' radii are read.
DEVICE int spheres_touch(coordinate d2, coordinate most, coordinate mine, GLOBAL const coordinate* other)
{
    const coordinate rounding = 16 * ((coordinate)1 - (coordinate)BELOW_ONE);
    if (!(d2 <= most * most * (1 + rounding))) return 0;
    return is_within(d2, mine + *other);
}

#define REACH_OF(level) (row.mine[0] + REAL_FROM_INDEX((i64)largest[3 * level]))
#define WITHIN(d, k) spheres_touch(SQUARED(d), distance, row.mine[0], reaches + (k))

#else

#define REACH_OF(level) ask.radius
#define WITHIN(d, k) (SQUARED(d) <= limit)

#endif

// The start of a strip, and which of its particles count at all. The second part of a strip has the same with _2.
#if ROWS_ARE_POINTS
#define BEGIN_STRIP int begin = from;
#define BEGIN_SECOND const int begin_2 = from_2;
#define GO_TO_SECOND
#define ALLOWED(k, other) 1
#elif HALF == 1
#define BEHIND(turn) (row.slot + !turns_forward(turn))
#define BEGIN_STRIP int begin = from > BEHIND(turn) ? from : BEHIND(turn);
#define BEGIN_SECOND const int begin_2 = from_2 > BEHIND(turn_2) ? from_2 : BEHIND(turn_2);
#define GO_TO_SECOND
#define ALLOWED(k, other) 1
#elif HALF == 2
#define LOWEST(turn) (row.index + !turns_forward(turn))
#define BEGIN_STRIP int begin = from, lowest = LOWEST(turn);
#define BEGIN_SECOND const int begin_2 = from_2, lowest_2 = LOWEST(turn_2);
#define GO_TO_SECOND lowest = lowest_2;
#define ALLOWED(k, other) ((int)INDEX_OF_REAL((other).w) >= lowest)
#else
#define BEGIN_STRIP int begin = from, itself = turned ? -1 : row.slot;
#define BEGIN_SECOND const int begin_2 = from_2, itself_2 = turned_2 ? -1 : row.slot;
#define GO_TO_SECOND itself = itself_2;
#define ALLOWED(k, other) ((k) != itself)
#endif

// A STRIP: the statement FOUND for every particle k; it sees whether k is a `hit`, `other`, its record, and the vector
// d. A kernel's loops are its EACH_INSIDE and EACH_OF_IMAGES, which the strips choose from (EACH_OF_STRIP).
#define EACH_PAIR BEGIN_STRIP EACH_OF_STRIP

// One record at a time: compilers read several ahead by themselves.
#define EACH_BY_ONE                                       \
    for (int k = begin; k < to; k++) {                    \
        const real4 other = READ_4(records + 4 * (i64)k); \
        TEST_PAIR(1)                                      \
        FOUND                                             \
    }

// Two at a time. If the second is past the end, it is the first again and no hit.
#define EACH_BY_TWO                               \
    ROLL for (int at = begin; at < to; at += 2) { \
        const int two = at + 1 < to;              \
        TEST_TWO                                  \
    }
#define TEST_TWO                                                \
    const real4 read_0 = READ_4(records + 4 * (i64)at);         \
    const real4 read_1 = READ_4(records + 4 * (i64)(at + two)); \
    {                                                           \
        const int k = at;                                       \
        const real4 other = read_0;                             \
        TEST_PAIR(1)                                            \
        FOUND                                                   \
    }                                                           \
    {                                                           \
        const int k = at + 1;                                   \
        const real4 other = read_1;                             \
        TEST_PAIR(two)                                          \
        FOUND                                                   \
    }
#define TEST_PAIR(condition)      \
    coordinate d[3];              \
    VECTOR_OF_STRIP(d, other, x); \
    const int hit = (condition) && WITHIN(d, k) && ALLOWED(k, other);

// By two where images are searched as well, unless BY_ONE: there is much more code, and short loops are faster.
#if NO_IMAGES || BY_ONE
#define EACH_INSIDE EACH_BY_ONE
#else
#define EACH_INSIDE EACH_BY_TWO
#endif
#define EACH_OF_IMAGES EACH_BY_TWO

// The same through a strip in two parts: every lane continues to the second part when it has to.
#define EACH_PAIR_OF_BOTH                                  \
    BEGIN_STRIP                                            \
    BEGIN_SECOND                                           \
    int at = begin, end = to, other_part = begin_2 < to_2; \
    ROLL while (at < end || other_part) {                  \
        if (at >= end) {                                   \
            at = begin_2, end = to_2, other_part = 0;      \
            GO_TO_SECOND                                   \
            GO_TO_SECOND_CODE                              \
            GO_TO_SECOND_PART                              \
        }                                                  \
        const int two = at + 1 < end;                      \
        TEST_TWO                                           \
        at += 2;                                           \
    }
#ifndef GO_TO_SECOND_CODE
#define GO_TO_SECOND_CODE
#endif

// The strip for a whole warp, one candidate per lane: DONE sees its `hit`, all `hits`, k, its index, and d.
// PLACE_OF_LANE: the place of its candidate among those of the warp.
#ifndef PLACE_OF_LANE
#define PLACE_OF_LANE LANE
#endif
#define TOGETHER(DONE)                                             \
    BEGIN_STRIP                                                    \
    ROLL for (int first = begin; first < to; first += WARP_SIZE) { \
        const int k = first + PLACE_OF_LANE;                       \
        int hit = 0, index = 0;                                    \
        coordinate d[3];                                           \
        if (k < to) {                                              \
            const real4 other = READ_4(records + 4 * (i64)k);      \
            VECTOR(d, other, x, shift);                            \
            hit = WITHIN(d, k) && ALLOWED(k, other);               \
            index = (int)INDEX_OF_REAL(other.w);                   \
        }                                                          \
        const u32 hits = WARP_BALLOT(warp, hit);                   \
        DONE                                                       \
    }

// Half a list begins at the particle's own cell: those before it have earlier particles.
#if HALF == 1 && ONE_LEVEL && !CELLS_ARE_SCATTERED
DEVICE int cell_of(coordinate s, int size, int axis, PRIVATE const Reach* reach)
{
    return (int)floor((s - reach->margin[axis]) * (coordinate)size); // or the one before
}
#undef PASS_OVER
#undef OWN_CELL
#undef PASSED
#define PASS_OVER                                                                  \
    {                                                                              \
        const int own_0 = cell_of(s[0], size[0], 0, &reach);                       \
        const int own_1 = cell_of(s[1], size[1], 1, &reach);                       \
        if (own_0 > low[0]) low[0] = own_0 < high[0] ? own_0 : high[0];            \
        if (own_1 > low[1]) passed = (own_1 < high[1] ? own_1 : high[1]) - low[1]; \
    }
#define OWN_CELL                                                                                   \
    cell_t own_cell = 0;                                                                           \
    for (int a = 0; a < 3; a++) own_cell = own_cell * size[a] + cell_of(s[a], size[a], a, &reach); \
    own_cell += first_cell;
#define PASSED(end) ((end) <= own_cell)
#endif

// Two neighbouring rows, whose reaches overlap so much that each record read serves both: for full rows of particles
// within one radius, on one level.
#if PAIRED
// Whether it pays that both rows search the cells of either, which low and high are then.
DEVICE int share_cells(PRIVATE int* low, PRIVATE int* high, PRIVATE const coordinate* s, coordinate distance,
                       PRIVATE const int* size, PRIVATE const Reach* reach, PRIVATE const Frame* frame)
{
    int least[3], most[3];
    float alone = 1, both = 1;
    for (int a = 0; a < 3; a++) {
        cells_in_reach(least + a, most + a, s[a], distance, size[a], a, reach, frame);
        least[a] = low[a] < least[a] ? low[a] : least[a];
        most[a] = high[a] > most[a] ? high[a] : most[a];
        alone *= (float)(high[a] - low[a] + 1);
        both *= (float)(most[a] - least[a] + 1);
    }
    if (both > 2 * alone) return 0;
    for (int a = 0; a < 3; a++) low[a] = least[a], high[a] = most[a];
    return 1;
}
#endif

// What mark_pairs.c leaves for list_marks.c.

#define INFO_AGAIN 0x80000000u      // the row has more marks than there is room for, or too many pairs
#define FIRST_CANDIDATE 0x80000000u // its bit in a mark
#define LENGTH_OF(info) ((info) & INFO_AGAIN ? (info) & ~INFO_AGAIN : (info) & 0xffffu)
#define IN_MARKS_OF(info) ((info) & INFO_AGAIN ? 0 : (info) & 0xffffu)
