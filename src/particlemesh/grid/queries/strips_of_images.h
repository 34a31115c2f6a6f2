// SPDX-License-Identifier: BSD-3-Clause
// The strips of a level's cells from low to high, also past the ends of periodic axes (grid/queries/strips.h).
#define VECTOR_OF_STRIP(d, record, point) VECTOR(d, record, point, shift)
#define EACH_OF_STRIP EACH_OF_IMAGES
#define GO_TO_SECOND_PART for (int b = 0; b < 3; b++) shift[b] = shift_2[b];
int turn[3];
turn[0] = floor_div(low[0], size[0]);
int cell_0 = low[0] - turn[0] * size[0];
const int first_turn_1 = floor_div(low[1], size[1]), first_turn_2 = floor_div(low[2], size[2]);
for (int c0 = low[0]; c0 <= high[0]; c0++) {
    turn[1] = first_turn_1;
    int cell_1 = low[1] - first_turn_1 * size[1];
    for (int c1 = low[1]; c1 <= high[1]; c1++) {
        const cell_t first_of_row = first_cell + ((cell_t)cell_0 * size[1] + cell_1) * size[2];
        turn[2] = first_turn_2;
        for (int c2 = low[2]; c2 <= high[2];) {
            const int begin_of_turn = turn[2] * size[2];
#if CELLS_ARE_SCATTERED
            const int last = c2;
            const int cell = first_of_row + c2 - begin_of_turn;
            const int from = (int)start[cell], to = (int)ends[cell];
#else
            const int end_of_turn = begin_of_turn + size[2] - 1;
            const int last = high[2] < end_of_turn ? high[2] : end_of_turn;
            const int from = BEGIN_OF(first_of_row + c2 - begin_of_turn);
            const int to = BEGIN_OF(first_of_row + last - begin_of_turn + 1);
#endif
            const int turned = (turn[0] | turn[1] | turn[2]) != 0;
            coordinate shift[3] = {0, 0, 0};
            if (turned) image_shift(shift, turn, &geometry);
            c2 = last + 1;
#if defined(PAIR_OF_STRIPS) && !CELLS_ARE_SCATTERED
            // A row of cells that continues at the other end of the box is one strip in two parts.
            const int turn_2[3] = {turn[0], turn[1], turn[2] + 1};
            const int turned_2 = (turn_2[0] | turn_2[1] | turn_2[2]) != 0;
            coordinate shift_2[3] = {0, 0, 0};
            int from_2 = 0, to_2 = 0;
            if (c2 <= high[2]) {
                const int last_2 = high[2] < c2 + size[2] - 1 ? high[2] : c2 + size[2] - 1;
                from_2 = BEGIN_OF(first_of_row);
                to_2 = BEGIN_OF(first_of_row + last_2 - c2 + 1);
                image_shift(shift_2, turn_2, &geometry);
                c2 = last_2 + 1;
            }
            if (from < to || from_2 < to_2) {
                PAIR_OF_STRIPS
            }
#else
            if (from < to) {
                STRIP
            }
#endif
            while (c2 >= (turn[2] + 1) * size[2]) turn[2]++;
        }
        if (++cell_1 == size[1]) cell_1 = 0, turn[1]++;
    }
    if (++cell_0 == size[0]) cell_0 = 0, turn[0]++;
}
#undef VECTOR_OF_STRIP
#undef EACH_OF_STRIP
#undef GO_TO_SECOND_PART
