// SPDX-License-Identifier: BSD-3-Clause
// The strips of a level's cells from low to high, also past the ends of periodic axes (grid/queries/strips.h). With
// IMAGES_APART only those past the ends, and low and high are moved into the box for strips_inside.h.
#define VECTOR_OF_STRIP(d, record, point) VECTOR(d, record, point, shift)
#define EACH_OF_STRIP EACH_OF_IMAGES
OWN_CELL
int turn[3];
turn[0] = floor_div(low[0], size[0]);
int cell_0 = low[0] - turn[0] * size[0];
const int first_turn_1 = floor_div(low[1], size[1]), first_turn_2 = floor_div(low[2], size[2]);
const int last_turn_2 = floor_div(high[2], size[2]);
for (int c0 = low[0]; c0 <= high[0]; c0++) {
    turn[1] = first_turn_1;
    int cell_1 = low[1] - first_turn_1 * size[1];
    for (int c1 = low[1]; c1 <= high[1]; c1++) {
        const cell_t first_of_row = first_cell + ((cell_t)cell_0 * size[1] + cell_1) * size[2];
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
        if (++cell_1 == size[1]) cell_1 = 0, turn[1]++;
    }
    if (++cell_0 == size[0]) cell_0 = 0, turn[0]++;
}
#if IMAGES_APART
for (int a = 0; a < 3; a++) {
    low[a] = low[a] < 0 ? 0 : low[a];
    high[a] = high[a] < size[a] ? high[a] : size[a] - 1;
}
#endif
#undef VECTOR_OF_STRIP
#undef EACH_OF_STRIP
