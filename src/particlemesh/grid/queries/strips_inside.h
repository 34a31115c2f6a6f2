// SPDX-License-Identifier: BSD-3-Clause
// The strips of a level's cells from low to high, all of them in the box (grid/queries/strips.h).
#define VECTOR_OF_STRIP(d, record, point) VECTOR_INSIDE(d, record, point)
#define EACH_OF_STRIP EACH_INSIDE
const int turn[3] = {0, 0, 0}, turned = 0;
const coordinate shift[3] = {0, 0, 0};
#if CELLS_ARE_SCATTERED
for (int c0 = low[0]; c0 <= high[0]; c0++)
    for (int c1 = low[1]; c1 <= high[1]; c1++)
        for (int c2 = low[2]; c2 <= high[2]; c2++) {
            const int cell = first_cell + (c0 * size[1] + c1) * size[2] + c2;
            const int from = (int)start[cell], to = (int)ends[cell];
            if (from < to) {
                STRIP
            }
        }
#else
// The ends of the next strip are loaded during the current one.
int passed = 0; // strips at the beginning
PASS_OVER
const int strips_across = high[1] - low[1] + 1;
cell_t cell_of_strip = first_cell + ((cell_t)low[0] * size[1] + low[1] + passed) * size[2] + low[2];
const int length_of_strip = high[2] - low[2] + 1;
int next_from = BEGIN_OF(cell_of_strip), next_to = BEGIN_OF(cell_of_strip + length_of_strip);
int across = strips_across - passed;
for (int left = (high[0] - low[0] + 1) * strips_across - passed; left > 0; left--) {
    const int from = next_from, to = next_to;
    cell_of_strip += size[2];
    if (--across == 0) {
        across = strips_across;
        cell_of_strip += (cell_t)(size[1] - strips_across) * size[2];
    }
    if (left > 1) {
        next_from = BEGIN_OF(cell_of_strip);
        next_to = BEGIN_OF(cell_of_strip + length_of_strip);
    }
    if (from < to) {
        STRIP
    }
}
#endif
#undef VECTOR_OF_STRIP
#undef EACH_OF_STRIP
