// SPDX-License-Identifier: BSD-3-Clause
// Positions with any strides to fractions of the box, in the precision of the positions.

#if COORDINATE_IS_DOUBLE
typedef double coordinate;
#define BELOW_ONE 0.99999999999999988897769753748
#else
typedef float coordinate;
#define BELOW_ONE 0.999999940395355224609375f
#endif

typedef struct {
    coordinate origin[3], inverse[9]; // fractional = inverse (x - origin)
    coordinate rows[9], tails[9];     // the lattice vectors, and their rounding errors
    // The first and last numbers inside: of x where orthorhombic, else of the fraction. Open axes allow for its rounding.
    coordinate lower[3], upper[3];
    coordinate one;                   // it is, but compilers do not know: fma(one, a, b * c) rounds the product
} Geometry;

typedef struct {
    int periodic[3];
    int orthorhombic, missing; // missing axes, the first ones
} Frame;

typedef struct {
    i64 offset[3], stride[3];
} Strides;

#define GOOD 0
#define NOT_FINITE 1
#define OUTSIDE 2
#define TO_FOLD (-1)

// The place of coordinate i of an axis. NARROW_ITEMS: indices and strides have 31 bits.
#if NARROW_ITEMS
#define PLACE_OF(axis) (strides->offset[axis] + (i64)(int)i * (int)strides->stride[axis])
#else
#define PLACE_OF(axis) (strides->offset[axis] + i * strides->stride[axis])
#endif

// Reads x, zero along missing axes.
DEVICE int read_position(PRIVATE coordinate* x, GLOBAL const coordinate* x0, GLOBAL const coordinate* x1,
                         GLOBAL const coordinate* x2, i64 i, PRIVATE const Strides* strides,
                         PRIVATE const Frame* frame)
{
    x[0] = frame->missing > 0 ? (coordinate)0 : x0[PLACE_OF(0)];
    x[1] = frame->missing > 1 ? (coordinate)0 : x1[PLACE_OF(1)];
    x[2] = x2[PLACE_OF(2)];
    // x - x is zero for finite numbers only
    return (x[0] - x[0]) + (x[1] - x[1]) + (x[2] - x[2]) == 0 ? GOOD : NOT_FINITE;
}

// Reads x, and writes the folded fraction to s and the turns that folding removes to `turns`. TO_FOLD: some periodic axis
// needs fold and confine; turns are 0 where only rounding separates x from the box.
DEVICE int fractional(PRIVATE coordinate* x, PRIVATE coordinate* s, PRIVATE coordinate* turns,
                      GLOBAL const coordinate* x0, GLOBAL const coordinate* x1, GLOBAL const coordinate* x2,
                      i64 i, PRIVATE const Strides* strides, PRIVATE const Geometry* geometry,
                      PRIVATE const Frame* frame)
{
    if (read_position(x, x0, x1, x2, i, strides, frame)) return NOT_FINITE;
    int place = GOOD;
    for (int a = 0; a < 3; a++) {
        turns[a] = 0;
        s[a] = geometry->inverse[4 * a] * (x[a] - geometry->origin[a]);
        if (!frame->orthorhombic) {
            s[a] = 0;
            for (int b = 0; b < 3; b++) s[a] += geometry->inverse[3 * a + b] * (x[b] - geometry->origin[b]);
        }
        const coordinate tested = frame->orthorhombic ? x[a] : s[a];
        if (!(tested >= geometry->lower[a] && tested <= geometry->upper[a])) {
            if (frame->periodic[a]) {
                turns[a] = floor(s[a]);
                s[a] -= turns[a];
                if (place == GOOD) place = TO_FOLD;
            } else place = OUTSIDE;
        }
        // NaN becomes 0: inverse * x overflowed, and any place in the box will do
        s[a] = fmin(fmax(s[a], (coordinate)0), (coordinate)1); // 1: the last cell takes it
    }
    return place;
}

// x without its turns, rounded once at the end; positions inside the box stay bit-identical.
DEVICE void fold(PRIVATE coordinate* x, PRIVATE const coordinate* turns, PRIVATE const Geometry* geometry)
{
    for (int b = 0; b < 3; b++) {
        coordinate high = x[b], low = 0;
        for (int a = 0; a < 3; a++) {
            const coordinate row = geometry->rows[3 * a + b], off = turns[a] * row;
            const coordinate sum = fma(geometry->one, high, -off), step = sum - high;
            low += (high - (sum - step)) - fma(geometry->one, off, step); // the rounding error of the sum
            low -= fma(turns[a], row, -off);                              // and of the product
            low = fma(-turns[a], geometry->tails[3 * a + b], low);
            high = sum;
        }
        x[b] = low != 0 ? high + low : high;
    }
}

// Moves folded coordinates that rounding left on the upper face or beyond to the lower one. Call it for orthorhombic boxes.
DEVICE void confine(PRIVATE coordinate* x, PRIVATE coordinate* s, PRIVATE coordinate* turns,
                   PRIVATE const Geometry* geometry, PRIVATE const Frame* frame)
{
    for (int a = 0; a < 3; a++) {
        if (!frame->periodic[a] || (x[a] >= geometry->lower[a] && x[a] <= geometry->upper[a])) continue;
        if (x[a] > geometry->upper[a]) {
            x[a] -= geometry->rows[4 * a];
            turns[a] += 1;
            s[a] = 0;
        }
        x[a] = fmin(fmax(x[a], geometry->lower[a]), geometry->upper[a]);
    }
}

// status: not finite, outside, ~(first bad)
DEVICE void record_bad(GLOBAL u64* status, int what, i64 i)
{
    ATOMIC_ADD_U64(status + what - 1, 1);
    ATOMIC_MAX_U64(status + 2, ~(u64)i);
}
