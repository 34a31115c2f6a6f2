// SPDX-License-Identifier: BSD-3-Clause
// Shared by all queries: particles by cell, the cells within reach of a point, and vectors between images.
//
// A kernel defines STRIP, a statement for particles `from` to `to` (excluded) of one strip of cells along the last axis
// whose vectors get `shift` added. It includes grid/queries/strips.h at the place of the loops.

#include "sorting/cells.h"

// CELLS_ARE_SPARSE: `start` has only cells with particles, and `ends` their numbers, ascending, of 64 bits.
// BEGIN_OF(cell): the beginning of a cell, or of the next one with particles.
#if CELLS_ARE_SPARSE
typedef u64 end_t;
typedef i64 cell_t;

DEVICE int place_of_cell(GLOBAL const u32* start, GLOBAL const u64* occupied, i64 bins, i64 cell)
{
    i64 low = 0, high = bins;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (occupied[middle] < (u64)cell) low = middle + 1;
        else high = middle;
    }
    return (int)start[low];
}

#define BEGIN_OF(cell) place_of_cell(start, ends, bins, cell)
#else
typedef u32 end_t;
typedef int cell_t;
#define BEGIN_OF(cell) (int)start[cell]
#endif

typedef struct {
    coordinate per[3];    // fractions of the box per unit of distance, across the faces of each axis
    coordinate margin[3]; // error bound of the difference of two fractions
} Reach;

// A kernel over rows has these parameters. Where it reads a row it says IN_SYSTEM_OF(row): then geometry, frame, reach
// and CELLS_BEFORE are those of the row's system. SYSTEMS: system_of has the system of each particle, or point, by index.
#if SYSTEMS
#define SYSTEM_ARRAYS GLOBAL const int *RESTRICT system_of, GLOBAL const coordinate *RESTRICT boxes,
#define BOX_RECORDS const Geometry common, const Frame common_frame, const Cells cells, const Reach common_reach
#define MISSING_AXES common_frame.missing
#define CELLS_BEFORE ((cell_t)own_system * cells.each)
#define SCALE_OF_BOX own_box[SCALE_OF_SYSTEM]
#define IN_SYSTEM(number)                                                                    \
    const int given_system = number;                                                         \
    const int own_system = is_system(given_system, &cells) ? given_system : 0;               \
    Geometry geometry;                                                                       \
    Frame frame = common_frame;                                                              \
    Reach reach;                                                                             \
    GLOBAL const coordinate* own_box = read_box(&geometry, &frame, own_system, boxes, &cells); \
    for (int n = 0; n < 3; n++) {                                                            \
        reach.per[n] = own_box[REACH_OF_SYSTEM + n];                                         \
        reach.margin[n] = own_box[REACH_OF_SYSTEM + 3 + n];                                  \
    }
#define IN_SYSTEM_OF_PARTICLE(slot) IN_SYSTEM(system_of[INDEX_OF_REAL(records[4 * (i64)(slot) + 3])])
#define IN_SYSTEM_OF_POINT(point) IN_SYSTEM(system_of[point])
#define POINT_FAULT(bad) (is_system(given_system, &cells) ? (bad) : OUTSIDE)
#else
#define SYSTEM_ARRAYS
#define BOX_RECORDS const Geometry geometry, const Frame frame, const Cells cells, const Reach reach
#define MISSING_AXES frame.missing
#define CELLS_BEFORE 0
#define SCALE_OF_BOX 1
#define IN_SYSTEM_OF_PARTICLE(slot)
#define IN_SYSTEM_OF_POINT(point)
#define POINT_FAULT(bad) bad
#endif

DEVICE int floor_div(int a, int b)
{
    const int quotient = a / b;
    return quotient * b > a ? quotient - 1 : quotient;
}

// The cells of one axis within `wide`, a fraction of the box, of fraction s. Those of a periodic axis are counted past
// its ends.
DEVICE void cells_within(PRIVATE int* low, PRIVATE int* high, coordinate s, coordinate wide, int size, int periodic)
{
    const coordinate first = floor((s - wide) * (coordinate)size), last = floor((s + wide) * (coordinate)size);
    const coordinate most = (coordinate)(size - 1);
    if (periodic) {
        *low = (int)first;
        *high = (int)last;
    } else {
        *low = (int)(first < 0 ? (coordinate)0 : first > most ? most : first);
        *high = (int)(last < 0 ? (coordinate)0 : last > most ? most : last);
    }
}

// The same within a distance.
DEVICE void cells_in_reach(PRIVATE int* low, PRIVATE int* high, coordinate s, coordinate distance, int size, int axis,
                           PRIVATE const Reach* reach, PRIVATE const Frame* frame)
{
    cells_within(low, high, s, distance * reach->per[axis] + reach->margin[axis], size, frame->periodic[axis]);
}

// The vector from a particle in the box to its image. Opposite turns give the exactly opposite vector.
DEVICE void image_shift(PRIVATE coordinate* shift, PRIVATE const int* turn, PRIVATE const Geometry* geometry)
{
    for (int b = 0; b < 3; b++) {
        shift[b] = 0;
        for (int a = 0; a < 3; a++) shift[b] = fma((coordinate)turn[a], geometry->rows[3 * a + b], shift[b]);
    }
}

// Whether an image counts, if only one of it and its mirror image should.
DEVICE int turns_forward(PRIVATE const int* turn)
{
    return (turn[0] ? turn[0] : turn[1] ? turn[1] : turn[2]) > 0;
}

// The vector from x to a particle's image. The way back gives the exactly opposite vector: both ends of a pair must
// agree on whether it is one.
#define VECTOR(d, record, point, shift)            \
    do {                                           \
        d[0] = ((record).x - point[0]) + shift[0]; \
        d[1] = ((record).y - point[1]) + shift[1]; \
        d[2] = ((record).z - point[2]) + shift[2]; \
    } while (0)

// The same where the shift is zero.
#define VECTOR_INSIDE(d, record, point) \
    do {                                \
        d[0] = (record).x - point[0];   \
        d[1] = (record).y - point[1];   \
        d[2] = (record).z - point[2];   \
    } while (0)

// A number that is not negative, which a compiler does not read from constant memory for each comparison: counts of
// pairs take 1.03 times as long then (H200).
#define IN_REGISTER(number) fmax(number, (coordinate)0)

// Its square: rounded the same way in all kernels, so that they agree on which pairs count.
#define SQUARED(d) fma((d)[0], (d)[0], fma((d)[1], (d)[1], (d)[2] * (d)[2]))

// Of sums of two radii the type holds the squares: `check_squares` in grid/checks.py.
#if COORDINATE_IS_DOUBLE
#define MOST_REACH 3.3e153
#define LEAST_REACH 1.5e-154
#else
#define MOST_REACH 4.6e18f
#define LEAST_REACH 1.1e-19f
#endif

// Whether an extent can be searched with. Half edges, which are no radii, may be as small as they like.
DEVICE int holds_squares(coordinate extent, int is_radius)
{
    return extent >= 0 && extent <= MOST_REACH && !(is_radius && extent > 0 && extent < LEAST_REACH);
}

// Whether the root of a square, rounded, is at most a distance: the square is at most the distance times the next number.
DEVICE int is_within(coordinate square, coordinate distance)
{
    const coordinate step = (coordinate)1 - (coordinate)BELOW_ONE; // of numbers near 1/2
    return fma(distance, fma(distance, step * (1 + 4 * step), distance), -square) >= 0;
}

// Points of queries. They may lie outside the box: periodic axes fold them, open ones do not.

// Reads x, and writes the point's image in the box to x and its fractions to s. Beyond the ends of an open axis these
// are below 0 or above 1.
DEVICE int point_of(PRIVATE coordinate* x, PRIVATE coordinate* s, GLOBAL const coordinate* x0,
                    GLOBAL const coordinate* x1, GLOBAL const coordinate* x2, i64 i, PRIVATE const Strides* strides,
                    PRIVATE const Geometry* geometry, PRIVATE const Frame* frame)
{
    coordinate turns[3];
    const int place = fractional(x, s, turns, x0, x1, x2, i, strides, geometry, frame);
    if (place == NOT_FINITE) return NOT_FINITE;
    for (int a = 0; a < 3; a++)
        if (!(turns[a] < MOST_TURNS - 1 && turns[a] > 1 - MOST_TURNS)) return OUTSIDE;
    if (place != GOOD) { // bit-identical to particles
        fold(x, turns, geometry);
        fractions(s, x, geometry);
        for (int a = 0; a < 3; a++) turns[a] = frame->periodic[a] ? floor(s[a]) : (coordinate)0;
        fold(x, turns, geometry);
        if (frame->orthorhombic) confine(x, s, turns, geometry, frame);
    }
    fractions(s, x, geometry);
    for (int a = 0; a < 3; a++)
        if (!(s[a] == s[a])) return OUTSIDE; // beyond the range of numbers
    return GOOD_ITEM;
}

// What half a list passes over. PASS_OVER: a statement that may move the first cells (grid/queries/strips_inside.h).
// OWN_CELL, a statement, and PASSED(end): whether all cells before `end` have no pairs (grid/queries/strips_of_images.h).
#ifndef PASS_OVER
#define PASS_OVER
#define OWN_CELL
#define PASSED(end) 0
#endif
