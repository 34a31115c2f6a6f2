// SPDX-License-Identifier: BSD-3-Clause
// The loops of a search (grid/queries/search.h): STRIP for every strip of cells along the last axis within reach of a point.
//
// Reads x and s (the point, its fractions), FIRST_LEVEL, REACH_OF(level), cells, geometry, frame, reach, start and, for
// cells in no order (CELLS_ARE_SCATTERED), ends. STRIP sees from, to, turn[3], shift[3], and `turned`, whether any turn
// is not zero. WIDTH_OF(level, axis), instead of REACH_OF, is the reach as a fraction of the box. RANGES, if defined,
// is a statement that may move low and high of a level's cells. Compile-time knowledge saves registers: ONE_LEVEL, and
// NO_IMAGES for a box without periodic axes. IMAGES_APART compiles STRIP a second time, for points that see no images.
// IMAGES: 2 images are searched first, then the box; 0 and 1 a row of cells and its images are one strip, whose
// second vector is kept, or made when it begins.
#if ONE_LEVEL
{
    const int level = 0;
    const cell_t first_cell = CELLS_BEFORE;
#else
for (int level = FIRST_LEVEL; level < cells.levels; level++) {
    const cell_t first_cell = CELLS_BEFORE + (level ? (cell_t)first_of_level(&cells, level) : 0);
#endif
    int size[3], low[3], high[3];
#ifdef WIDTH_OF
    for (int a = 0; a < 3; a++) {
        size[a] = cells_of_level(&cells, level, a);
        cells_within(low + a, high + a, s[a], WIDTH_OF(level, a), size[a], frame.periodic[a]);
    }
#else
    const coordinate distance = REACH_OF(level);
    for (int a = 0; a < 3; a++) {
        size[a] = cells_of_level(&cells, level, a);
        cells_in_reach(low + a, high + a, s[a], distance, size[a], a, &reach, &frame);
    }
#endif
#ifdef RANGES
    RANGES
#endif
#if NO_IMAGES
#include "grid/queries/strips_inside.h"
#elif IMAGES_APART && (IMAGES == 2 || HAS_WARP)
    int beyond = 0;
    for (int a = 0; a < 3; a++) beyond |= low[a] < 0 || high[a] >= size[a];
#if IMAGES == 2
    if (beyond) {
#include "grid/queries/strips_of_images.h"
    }
#include "grid/queries/strips_inside.h"
#else
    // A warp whose points see no image skips the search for images.
    if (!ANY_AROUND(beyond)) {
#include "grid/queries/strips_inside.h"
    } else {
#include "grid/queries/strips_of_images.h"
    }
#endif
#else
#include "grid/queries/strips_of_images.h"
#endif
}
