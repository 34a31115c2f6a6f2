// SPDX-License-Identifier: BSD-3-Clause
// The loops of a walk (grid/walk.h): STRIP for every strip of cells along the last axis within reach of a point.
//
// Reads x and s (the point, its fractions), FIRST_LEVEL, REACH_OF(level), cells, geometry, frame, reach, start and,
// where cells are in no order (CELLS_ARE_SCATTERED), ends. STRIP sees from, to, turn[3] and shift[3].
for (int level = FIRST_LEVEL; level < cells.levels; level++) {
    const coordinate distance = REACH_OF(level);
    const i64 first_cell = level ? first_of_level(&cells, level) : 0;
    int size[3], low[3], high[3];
    for (int a = 0; a < 3; a++) {
        size[a] = cells_of_level(&cells, level, a);
        cells_in_reach(low + a, high + a, s[a], distance, size[a], a, &reach, &frame);
    }
    int turn[3];
    turn[0] = floor_div(low[0], size[0]);
    int cell_0 = low[0] - turn[0] * size[0];
    for (int c0 = low[0]; c0 <= high[0]; c0++) {
        turn[1] = floor_div(low[1], size[1]);
        int cell_1 = low[1] - turn[1] * size[1];
        for (int c1 = low[1]; c1 <= high[1]; c1++) {
            const i64 row = first_cell + ((i64)cell_0 * size[1] + cell_1) * size[2];
            turn[2] = floor_div(low[2], size[2]);
            for (int c2 = low[2]; c2 <= high[2];) {
                const int begin_of_turn = turn[2] * size[2];
#if CELLS_ARE_SCATTERED
                const int last = c2;
                const i64 from = start[row + c2 - begin_of_turn], to = ends[row + c2 - begin_of_turn];
#else
                const int end_of_turn = begin_of_turn + size[2] - 1;
                const int last = high[2] < end_of_turn ? high[2] : end_of_turn;
                const i64 from = start[row + c2 - begin_of_turn], to = start[row + last - begin_of_turn + 1];
#endif
                if (from < to) {
                    coordinate shift[3] = {0, 0, 0};
                    if (turn[0] | turn[1] | turn[2])
                        for (int b = 0; b < 3; b++)
                            for (int a = 0; a < 3; a++)
                                shift[b] += (coordinate)turn[a] * geometry.rows[3 * a + b];
                    STRIP
                }
                c2 = last + 1;
                turn[2] += c2 == begin_of_turn + size[2];
            }
            if (++cell_1 == size[1]) cell_1 = 0, turn[1]++;
        }
        if (++cell_0 == size[0]) cell_0 = 0, turn[0]++;
    }
}
