// SPDX-License-Identifier: BSD-3-Clause
// Sums over all tiles before a tile, in the kernel that computes the tiles (decoupled look-back): a tile publishes its
// total, adds up what its predecessors have published, and publishes the sum.
//
// Tiles belong to tickets, which are taken in order: all predecessors have started, on running groups. The first
// unfinished tile waits for none, so there is always progress. A group with several tiles finishes one before it takes
// the next ticket.
//
// A tile publishes one word, written and read at once, so no fence is needed. Words and ticket are zero before the
// kernel.

#define TILE_TOTAL ((u64)1 << 62) // the value is the total of the tile
#define TILE_SUM ((u64)1 << 63)   // the value is the sum of all tiles up to this one
#define TILE_VALUE (TILE_TOTAL - 1)

// Whether a work-item is in the group's first warp. If that is the whole group, the compiler must see it: a barrier in
// a branch is a deadlock.
#define FIRST_WARP (GROUP_SIZE == WARP_SIZE || LOCAL_ID < WARP_SIZE)

// Windows of 32 predecessors that are read at once: their latencies overlap.
#if HAS_WARP
#define LOOK_BACK_WINDOWS 4
#else
#define LOOK_BACK_WINDOWS 1
#endif

// The next tile, for the whole group. There must be another barrier between two calls.
DEVICE i64 take_ticket(GLOBAL u64* ticket, LOCAL u64* share)
{
    if (LOCAL_ID == 0) *share = ATOMIC_ADD_U64(ticket, 1);
    BARRIER();
    return (i64)*share;
}

DEVICE u64 warp_sum_u64(WARP_PARAMETER warp, u64 value)
{
    for (int step = WARP_SIZE / 2; step > 0; step /= 2) value += WARP_SHUFFLE_U64(warp, value, LANE ^ step);
    return value;
}

// Publish the total of a tile and return the sum of all tiles before it. All lanes of one warp of the group call it.
DEVICE u64 look_back(WARP_PARAMETER warp, GLOBAL u64* words, const i64 tile, const u64 total)
{
    if (LANE == 0) POST_U64(words + tile, (tile ? TILE_TOTAL : TILE_SUM) | total);
    if (tile == 0) return 0;
    const u32 nearer = ((u32)1 << LANE) - 1; // lanes of nearer tiles
    u64 mine = 0;
    i64 next = tile - 1; // `mine` has everything after it
    int going = 1;
    while (going) {
        u64 word[LOOK_BACK_WINDOWS];
        UNROLL for (int w = 0; w < LOOK_BACK_WINDOWS; w++) {
            const i64 t = next - WARP_SIZE * w - LANE;
            word[w] = TILE_SUM; // zero, before the first tile
            if (t >= 0) word[w] = PEEK_U64(words + t);
        }
        int usable = 1;
        UNROLL for (int w = 0; w < LOOK_BACK_WINDOWS; w++) {
            const u32 missing = WARP_BALLOT(warp, !(word[w] & (TILE_TOTAL | TILE_SUM)));
            const u32 sums = WARP_BALLOT(warp, (word[w] & TILE_SUM) != 0);
            const u32 nearest = sums & (0u - sums);
            // Wait for all up to the nearest sum, or for all 32.
            usable = usable && !(missing & (nearest | (nearest - 1)));
            if (usable) {
                if (!(sums & nearer)) mine += word[w] & TILE_VALUE;
                next -= WARP_SIZE;
                going = usable = !sums;
            }
        }
    }
    const u64 before = warp_sum_u64(warp, mine);
    if (LANE == 0) POST_U64(words + tile, TILE_SUM | (before + total));
    return before;
}
