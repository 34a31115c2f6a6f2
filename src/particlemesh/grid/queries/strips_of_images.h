// SPDX-License-Identifier: BSD-3-Clause
// The strips of a level's cells from low to high, also past the ends of periodic axes (grid/queries/strips.h).
//
// IMAGES 2: a strip for each turn. With IMAGES_APART only those past the ends, and low and high are moved into the box
// for strips_inside.h. IMAGES 0 and 1: a row of cells that continues at the other end of the box is one strip in two
// parts, of a turn and the next. PAIR_OF_STRIPS, if defined, sees both, and GO_TO_SECOND_PART makes the shift that of
// the second; STRIP sees them after each other. With 1 a reach of more turns takes two at a time.
#define VECTOR_OF_STRIP(d, record, point) VECTOR(d, record, point, shift)
#define EACH_OF_STRIP EACH_OF_IMAGES
#if IMAGES == 2
OWN_CELL
#endif
int turn[3];
#if IMAGES == 1
#define GO_TO_SECOND_PART image_shift(shift, turn_2, &geometry);
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
#else
#define GO_TO_SECOND_PART for (int b = 0; b < 3; b++) shift[b] = shift_2[b];
turn[0] = floor_div(low[0], size[0]);
int cell_0 = low[0] - turn[0] * size[0];
const int first_turn_1 = floor_div(low[1], size[1]), first_turn_2 = floor_div(low[2], size[2]);
#if IMAGES == 2
const int last_turn_2 = floor_div(high[2], size[2]);
#endif
for (int c0 = low[0]; c0 <= high[0]; c0++) {
    turn[1] = first_turn_1;
    int cell_1 = low[1] - first_turn_1 * size[1];
    for (int c1 = low[1]; c1 <= high[1]; c1++) {
        const cell_t first_of_row = first_cell + ((cell_t)cell_0 * size[1] + cell_1) * size[2];
#if IMAGES == 2
        for (turn[2] = first_turn_2;; turn[2]++) {
#if IMAGES_APART
            turn[2] += !(turn[0] | turn[1] | turn[2]); // lanes at opposite faces search at the same time
#endif
            if (turn[2] > last_turn_2) break;
            const int begin_of_turn = turn[2] * size[2], past = high[2] + 1 - begin_of_turn;
            const int first_of_turn = low[2] > begin_of_turn ? low[2] - begin_of_turn : 0;
            const int end_of_turn = past < size[2] ? past : size[2];
            if (PASSED(first_of_row + end_of_turn)) continue;
            const int turned = (turn[0] | turn[1] | turn[2]) != 0;
            coordinate shift[3];
            image_shift(shift, turn, &geometry);
#if CELLS_ARE_SCATTERED
            for (int c2 = first_of_turn; c2 < end_of_turn; c2++) {
                const int from = (int)start[first_of_row + c2], to = (int)ends[first_of_row + c2];
#else
            {
                const int from = BEGIN_OF(first_of_row + first_of_turn), to = BEGIN_OF(first_of_row + end_of_turn);
#endif
                if (from < to) {
                    STRIP
                }
            }
        }
#else
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
#endif
        if (++cell_1 == size[1]) cell_1 = 0, turn[1]++;
    }
    if (++cell_0 == size[0]) cell_0 = 0, turn[0]++;
}
#if IMAGES == 2 && IMAGES_APART
for (int a = 0; a < 3; a++) {
    low[a] = low[a] < 0 ? 0 : low[a];
    high[a] = high[a] < size[a] ? high[a] : size[a] - 1;
}
#endif
#endif
#undef VECTOR_OF_STRIP
#undef EACH_OF_STRIP
#undef GO_TO_SECOND_PART
