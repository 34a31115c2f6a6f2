// SPDX-License-Identifier: BSD-3-Clause
// Shared by the tight lists' builder and search [barbieri2013, section 1].
//
// A particle is listed in every cell that its bounding box touches, one or two per axis: `first` and, with its bit set,
// the next. So entries of two particles without a common bit meet in one place only: where the later of the two begins.
// Cells of periodic axes are counted past the ends, from -1 to `size`, and wrap.
//
// Rounding. A particle as wide as a cell may seem to touch three. The third is not listed; the search adds to each
// particle's reach what this and all other rounding may take. Which of a particle's cells comes first is never
// recomputed. Where it matters, at the ends of a periodic axis, it follows from the half of the box that the particle
// is in, with a quarter of a box to spare. One cell along a periodic axis has nothing to spare: there every particle
// has both entries.

#include "grid/queries/search.h"

#define WIDER_THAN_A_CELL (1 + 32 * ((coordinate)1 - (coordinate)BELOW_ONE)) // by 16 units of rounding
#define SEARCH_MARGINS 4

// The extent of an item along an axis, in fractions of the box. BOXES: extents are half edges.
DEVICE coordinate reach_along(PRIVATE const coordinate* extents, int axis, PRIVATE const Geometry* geometry,
                              PRIVATE const Reach* reach)
{
#if BOXES
    coordinate wide = 0;
    for (int b = 0; b < 3; b++) wide += fabs(geometry->inverse[3 * axis + b]) * extents[b];
    return wide;
#else
    return extents[0] * reach->per[axis];
#endif
}

// Whether a particle's first cell along a periodic axis is the one before the box, not the last one in it.
DEVICE int begins_before(coordinate s, int size)
{
    return s < (size == 1 ? (coordinate)0.5 : (coordinate)0.375);
}
