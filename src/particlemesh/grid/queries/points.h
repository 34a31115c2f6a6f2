// SPDX-License-Identifier: BSD-3-Clause
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
