// SPDX-License-Identifier: BSD-3-Clause
// The loops of a walk (grid/walk.h): STRIP for every strip of cells along the last axis within reach of a point.
//
// Reads x and s (the point, its fractions), FIRST_LEVEL, REACH_OF(level), cells, geometry, frame, reach, start and,
// where cells are in no order (CELLS_ARE_SCATTERED), ends. STRIP sees from, to, turn[3] and shift[3], and `turned`,
// whether any turn is other than zero. Instead of REACH_OF, WIDTH_OF(level, axis) tells what is in reach as a
// fraction of the box. RANGES, if there is one, is a statement that may move low and high of a level's cells. What is
// known beforehand takes fewer registers: ONE_LEVEL, and NO_IMAGES for a box without periodic axes.
#if ONE_LEVEL
{
    const int level = 0, first_cell = 0;
#else
for (int level = FIRST_LEVEL; level < cells.levels; level++) {
    const int first_cell = level ? (int)first_of_level(&cells, level) : 0;
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
    const int turn[3] = {0, 0, 0}, turned = 0;
    const coordinate shift[3] = {0, 0, 0};
    for (int c0 = low[0]; c0 <= high[0]; c0++)
        for (int c1 = low[1]; c1 <= high[1]; c1++) {
            const int first_of_row = first_cell + (c0 * size[1] + c1) * size[2];
#if CELLS_ARE_SCATTERED
            for (int c2 = low[2]; c2 <= high[2]; c2++) {
                const int from = (int)start[first_of_row + c2], to = (int)ends[first_of_row + c2];
#else
            {
                const int from = (int)start[first_of_row + low[2]], to = (int)start[first_of_row + high[2] + 1];
#endif
                if (from < to) {
                    STRIP
                }
            }
        }
#else
    int turn[3];
    turn[0] = floor_div(low[0], size[0]);
    int cell_0 = low[0] - turn[0] * size[0];
    const int turn_1 = floor_div(low[1], size[1]), turn_2 = floor_div(low[2], size[2]);
    for (int c0 = low[0]; c0 <= high[0]; c0++) {
        turn[1] = turn_1;
        int cell_1 = low[1] - turn_1 * size[1];
        for (int c1 = low[1]; c1 <= high[1]; c1++) {
            const int first_of_row = first_cell + (cell_0 * size[1] + cell_1) * size[2];
            turn[2] = turn_2;
            for (int c2 = low[2]; c2 <= high[2];) {
                const int begin_of_turn = turn[2] * size[2];
#if CELLS_ARE_SCATTERED
                const int last = c2;
                const int cell = first_of_row + c2 - begin_of_turn;
                const int from = (int)start[cell], to = (int)ends[cell];
#else
                const int end_of_turn = begin_of_turn + size[2] - 1;
                const int last = high[2] < end_of_turn ? high[2] : end_of_turn;
                const int from = (int)start[first_of_row + c2 - begin_of_turn];
                const int to = (int)start[first_of_row + last - begin_of_turn + 1];
#endif
                if (from < to) {
                    const int turned = (turn[0] | turn[1] | turn[2]) != 0;
                    coordinate shift[3] = {0, 0, 0};
                    if (turned) image_shift(shift, turn, &geometry);
                    STRIP
                }
                c2 = last + 1;
                turn[2] += c2 == begin_of_turn + size[2];
            }
            if (++cell_1 == size[1]) cell_1 = 0, turn[1]++;
        }
        if (++cell_0 == size[0]) cell_0 = 0, turn[0]++;
    }
#endif
}
