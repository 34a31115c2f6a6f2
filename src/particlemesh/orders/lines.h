// SPDX-License-Identifier: BSD-3-Clause
// The line of a place in block order (orders/block_order.py).
//
// A line is the nx blocks of one (by, bz) along x (or another axis: blocks.h). Its particles are start[line * nx] up to
// start[(line + 1) * nx].

// The line of place i, the same for all lanes.
DEVICE int line_of(WARP_PARAMETER warp, GLOBAL const u32* start, const i64 i, const int lines, const int nx)
{
    int low = 0, high = lines;
    while (high - low > 1) {
        const int step = (high - low + WARP_SIZE - 1) / WARP_SIZE, probe = low + LANE * step;
        const u32 before = WARP_BALLOT(warp, probe < high && start[(i64)probe * nx] <= i);
        low += (POPCOUNT_U32(before) - 1) * step;
        high = low + step < high ? low + step : high;
    }
    return low;
}

// The line of each lane's place, none before `line`. For lanes that are not `open` it is `line`.
DEVICE int lines_from(WARP_PARAMETER warp, GLOBAL const u32* start, const i64 i, int line, const int lines, const int nx,
                      int open)
{
    int mine = line;
    while (WARP_BALLOT(warp, open)) { // once: where warps share no registers, compilers duplicate code after an `if`
        const int ask = line + 1 + LANE < lines ? line + 1 + LANE : lines;
        const u32 end = start[(i64)ask * nx];
        int over = 0; // how many of 32 lines end before i
        UNROLL for (int step = 16; step > 0; step /= 2)
            if (WARP_SHUFFLE_U32(warp, end, over + step - 1) <= i) over += step;
        if (WARP_SHUFFLE_U32(warp, end, 31) <= i) over = 32;
        if (open) mine = line + over;
        if (open && over == 32) { // far: each lane searches alone
            int high = lines;
            while (high - mine > 1) {
                const int middle = mine + (high - mine) / 2;
                if (start[(i64)middle * nx] <= i)
                    mine = middle;
                else
                    high = middle;
            }
        }
        open = 0;
    }
    return mine;
}

DEVICE int lines_of(WARP_PARAMETER warp, GLOBAL const u32* start, const i64 i, const int line, const int lines, const int nx)
{
    return lines_from(warp, start, i, line, lines, nx, 1);
}

// The end of a line, counted from `begin`, at most the size of the chunk.
DEVICE int end_of(GLOBAL const u32* start, const i64 begin, const int size, const int line, const int nx)
{
    const i64 end = (i64)start[(i64)(line + 1) * nx] - begin;
    return end < size ? (int)end : size;
}
