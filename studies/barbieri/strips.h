// SPDX-License-Identifier: BSD-3-Clause
// The 27 cells around own.x as nine strips along the last axis: STRIP is a statement over the places `from` to `to`
// (excluded) of one of them. Reads own, start and cells. The ends of the next strip are loaded during the current one.
{
    const int n = (int)cells;
    const int c0 = cell_along(own.x[0], n), c1 = cell_along(own.x[1], n), c2 = cell_along(own.x[2], n);
    const int first = c2 > 0 ? c2 - 1 : 0, beyond = c2 < n - 1 ? c2 + 2 : n;
    int next_from = 0, next_to = 0;
    if (c0 > 0 && c1 > 0) {
        const int row = ((c0 - 1) * n + c1 - 1) * n;
        next_from = (int)start[row + first], next_to = (int)start[row + beyond];
    }
    ROLL for (int strip = 0; strip < 9; strip++) {
        const int from = next_from, to = next_to;
        const int a = c0 + (strip + 1) / 3 - 1, b = c1 + (strip + 1) % 3 - 1;
        next_from = next_to = 0;
        if (strip < 8 && a >= 0 && a < n && b >= 0 && b < n) {
            const int row = (a * n + b) * n;
            next_from = (int)start[row + first], next_to = (int)start[row + beyond];
        }
        STRIP
    }
}
#undef STRIP
