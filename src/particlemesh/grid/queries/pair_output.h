// SPDX-License-Identifier: BSD-3-Clause
// The outputs of pair lists: WANT_I, WANT_J, WANT_SHIFT, WANT_DISTANCE, WANT_VECTOR. SWAP: the smaller index comes
// first. ROWS_FILLED: i, unless SWAP, and shifts of 0 are there before.

typedef struct {
    GLOBAL int *i, *j, *shift;
    GLOBAL real *distance, *vector;
    GLOBAL const u64* turns;
    int folded, missing;
} Output;

// Turns that folding removed from the ends of a pair join the image's, which then refer to the given positions.
DEVICE void unfold(PRIVATE int* turn, u64 own_turns, int index, PRIVATE const Output* out)
{
    for (int a = 0; a < 3; a++) {
        turn[a] += turn_of(own_turns, a);
        if (out->folded) turn[a] -= turn_of(out->turns[index], a);
    }
}

DEVICE void write_shift(PRIVATE const Output* out, i64 at, int i, int j, PRIVATE const int* turn)
{
    const int axes = 3 - out->missing;
    for (int a = 0; a < 3; a++) // a loop of 3 unrolls, so that its arrays are registers
        if (a >= out->missing) out->shift[at * axes + a - out->missing] = SWAP && i > j ? -turn[a] : turn[a];
}

DEVICE void write_pair(PRIVATE const Output* out, i64 at, int i, int j, PRIVATE const int* turn,
                       PRIVATE const coordinate* d)
{
    const int backwards = SWAP && i > j;
#if WANT_I && (SWAP || !ROWS_FILLED)
    out->i[at] = backwards ? j : i;
#endif
#if WANT_J
    out->j[at] = backwards ? i : j;
#endif
#if WANT_SHIFT && !ROWS_FILLED
    write_shift(out, at, i, j, turn);
#endif
#if WANT_DISTANCE
    out->distance[at] = sqrt(SQUARED(d));
#endif
#if WANT_VECTOR
    const int axes = 3 - out->missing;
    for (int a = 0; a < 3; a++)
        if (a >= out->missing) out->vector[at * axes + a - out->missing] = backwards ? -d[a] : d[a];
#endif
}

#if ROWS_ARE_POINTS && WANT_SHIFT
// The turns that folding removed from a point, packed as for particles.
DEVICE u64 turns_of_point(PRIVATE const Row* row, GLOBAL const coordinate* x0, GLOBAL const coordinate* x1,
                          GLOBAL const coordinate* x2, PRIVATE const Strides* strides,
                          PRIVATE const Geometry* geometry, PRIVATE const Frame* frame)
{
    coordinate x[3], s[3], turns[3];
    fractional(x, s, turns, x0, x1, x2, row->index, strides, geometry, frame);
    fractions(s, x, geometry);
    for (int a = 0; a < 3; a++) turns[a] = frame->periodic[a] ? rint(s[a] - row->s[a]) : (coordinate)0;
    return packed_turns(turns);
}
#define UNFOLDING_OF(row) turns_of_point(&row, x0, x1, x2, &strides, &geometry, &frame)
#else
#define UNFOLDING_OF(row) (out.folded ? turns[row.index] : no_turns)
#endif
