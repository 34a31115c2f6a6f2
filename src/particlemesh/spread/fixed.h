// SPDX-License-Identifier: BSD-3-Clause
// Adding reals as 64-bit integers: sums of integers do not depend on their order.
//
// A contribution is scaled by a power of two so that no sum can overflow: |sum| <= crowd * steepest * largest. Here
// crowd bounds how many stencils meet at a node (positions), steepest a stencil's weight (window), and largest the
// values. Integer operations compute all three, so they are reproducible as well.

#ifndef FIXED_H
#define FIXED_H

#include "particles/magnitude.h"
#include "spread/values.h"

#define COMPONENTS (CHANNELS * PARTS) // each with its own scale: a small one loses no digits to a large one

// The power of two that scales values; `headroom` holds the window's share and how crowds bound a node's.
DEVICE int scale_of(GLOBAL const u32* most, GLOBAL const u32* largest, const i64 headroom)
{
    const int crowd = 32 - LEADING_ZEROS_U32(most[0]);
    return 62 - (int)headroom - crowd - ((int)(largest[0] >> EXPONENT_BITS) - EXPONENT_BIAS);
}

// A particle's contribution, in the units of the integers.
DEVICE void scale_values(PRIVATE real* q, GLOBAL const u32* most, GLOBAL const u32* largest, const i64 headroom)
{
    for (int n = 0; n < QUANTITIES; n++)
        q[n] = ldexp(q[n], scale_of(most, largest + n / (QUANTITIES / COMPONENTS), headroom));
}

#define NO_BOUND 1048576 // the exponent of values that are not finite

// The power of two that scales component c.
DEVICE int power_of(GLOBAL const int* bounds, const i64 c)
{
    return 62 - bounds[0] - bounds[c];
}

// A particle's contribution in units that bounds fix, from those of component `first` on.
DEVICE void scale_bounded(PRIVATE real* q, GLOBAL const int* bounds, const i64 first)
{
    for (int n = 0; n < QUANTITIES; n++) {
        const i64 c = first + n / (QUANTITIES / COMPONENTS);
        q[n] = bounds[c] == NO_BOUND ? (real)0 : ldexp(q[n], power_of(bounds, c));
    }
}

DEVICE void add_whole(GLOBAL u64* sum, const real scaled)
{
    if (scaled != 0) ATOMIC_ADD_U64(sum, (u64)NEAREST_I64(scaled));
}

#endif
