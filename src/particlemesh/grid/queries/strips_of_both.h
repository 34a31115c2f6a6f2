// SPDX-License-Identifier: BSD-3-Clause
// The strips of a level's cells from low to high, also past the ends of periodic axes (grid/queries/strips.h).
//
// A row of cells that continues at the other end of the box is one strip in two parts, of a turn and the next. STRIP
// sees them after each other; PAIR_OF_STRIPS, if defined, sees both, and GO_TO_SECOND_PART makes the shift that of the
// second. A reach of more turns takes two at a time.
#define VECTOR_OF_STRIP(d, record, point) VECTOR(d, record, point, shift)
#define EACH_OF_STRIP EACH_OF_IMAGES
#define GO_TO_SECOND_PART image_shift(shift, turn_2, &geometry);
int turn[3];
const int first_turn_0 = floor_div(low[0], size[0]), first_turn_1 = floor_div(low[1], size[1]);
const int first_turn_2 = floor_div(low[2], size[2]), last_turn_2 = floor_div(high[2], size[2]);
for (turn[2] = first_turn_2; turn[2] <= last_turn_2; turn[2] += 2) {
    const int begin_of_turn = turn[2] * size[2];
    const int begin_1 = low[2] > begin_of_turn ? low[2] - begin_of_turn : 0;
    const int past = high[2] + 1 - begin_of_turn, past_2 = past - size[2];
    const int end_1 = past < size[2] ? past : size[2];
    const int end_2 = past_2 < 0 ? 0 : past_2 < size[2] ? past_2 : size[2]; // no second part: 0
    turn[0] = first_turn_0;
    int cell_0 = low[0] - first_turn_0 * size[0];
    for (int c0 = low[0]; c0 <= high[0]; c0++) {
        turn[1] = first_turn_1;
        int cell_1 = low[1] - first_turn_1 * size[1];
        for (int c1 = low[1]; c1 <= high[1]; c1++) {
            const cell_t first_of_row = first_cell + ((cell_t)cell_0 * size[1] + cell_1) * size[2];
            coordinate shift[3];
#if CELLS_ARE_SCATTERED || !defined(PAIR_OF_STRIPS)
            for (int part = 0; part < 2; part++, turn[2]++) {
                const int turned = (turn[0] | turn[1] | turn[2]) != 0;
                image_shift(shift, turn, &geometry);
#if CELLS_ARE_SCATTERED
                for (int c2 = part ? 0 : begin_1; c2 < (part ? end_2 : end_1); c2++) {
                    const int from = (int)start[first_of_row + c2], to = (int)ends[first_of_row + c2];
#else
                {
                    if (part && !end_2) continue;
                    const int from = BEGIN_OF(first_of_row + (part ? 0 : begin_1));
                    const int to = BEGIN_OF(first_of_row + (part ? end_2 : end_1));
#endif
                    if (from < to) {
                        STRIP
                    }
                }
            }
            turn[2] -= 2;
#else
            const int turn_2[3] = {turn[0], turn[1], turn[2] + 1};
            const int turned = (turn[0] | turn[1] | turn[2]) != 0;
            const int turned_2 = (turn_2[0] | turn_2[1] | turn_2[2]) != 0;
            image_shift(shift, turn, &geometry);
            const int from = BEGIN_OF(first_of_row + begin_1), to = BEGIN_OF(first_of_row + end_1);
            int from_2 = 0, to_2 = 0;
            if (end_2) {
                from_2 = BEGIN_OF(first_of_row);
                to_2 = BEGIN_OF(first_of_row + end_2);
            }
            if (from < to || from_2 < to_2) {
                PAIR_OF_STRIPS
            }
#endif
            if (++cell_1 == size[1]) cell_1 = 0, turn[1]++;
        }
        if (++cell_0 == size[0]) cell_0 = 0, turn[0]++;
    }
}
#undef VECTOR_OF_STRIP
#undef EACH_OF_STRIP
#undef GO_TO_SECOND_PART
