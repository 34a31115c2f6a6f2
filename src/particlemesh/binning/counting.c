// SPDX-License-Identifier: BSD-3-Clause
// Counting sort in three steps: one atomic a key whose return value is the key's rank in its bin, an
// exclusive scan of the counts, and every key to its place. COUNT_IS_64 for 2^31 keys and more, KEY_IS_64
// for as many bins. A negative key takes no part: its rank is -1 and it has no place.

#if COUNT_IS_64
typedef u64 count_t;
typedef i64 index_t;
#define ATOMIC_ADD_COUNT(pointer, value) ATOMIC_ADD_U64(pointer, value)
#else
typedef u32 count_t;
typedef int index_t;
#define ATOMIC_ADD_COUNT(pointer, value) ATOMIC_ADD_U32(pointer, value)
#endif
#if KEY_IS_64
typedef i64 key_t_;
#else
typedef int key_t_;
#endif

#define PER_ITEM 16 // counts of one work-item in the scan
#define TILE (GROUP_SIZE * PER_ITEM)

KERNEL count_keys(GLOBAL const key_t_* RESTRICT keys, GLOBAL count_t* RESTRICT counts,
                  GLOBAL index_t* RESTRICT rank, const i64 count)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        const key_t_ key = keys[i];
        rank[i] = key < 0 ? (index_t)-1 : (index_t)ATOMIC_ADD_COUNT(counts + key, 1);
    }
}

// Sum of `mine` over the group; every work-item gets it, and in `before` the sum of those ahead of it.
DEVICE count_t group_scan(LOCAL count_t* sums, count_t mine, PRIVATE count_t* before)
{
    sums[LOCAL_ID] = mine;
    BARRIER();
    for (int step = 1; step < GROUP_SIZE; step *= 2) {
        const count_t ahead = LOCAL_ID >= step ? sums[LOCAL_ID - step] : 0;
        BARRIER();
        sums[LOCAL_ID] += ahead;
        BARRIER();
    }
    *before = sums[LOCAL_ID] - mine;
    const count_t total = sums[GROUP_SIZE - 1];
    BARRIER();
    return total;
}

KERNEL tile_totals(GLOBAL const count_t* RESTRICT counts, GLOBAL count_t* RESTRICT totals, const i64 bins,
                   const i64 tiles)
{
    LOCAL_ARRAY(count_t, sums, GROUP_SIZE);
    for (i64 tile = GROUP_ID; tile < tiles; tile += GROUP_COUNT) {
        count_t mine = 0, before;
        for (int k = 0; k < PER_ITEM; k++) {
            const i64 b = tile * TILE + k * GROUP_SIZE + LOCAL_ID;
            mine += b < bins ? counts[b] : 0;
        }
        const count_t total = group_scan(sums, mine, &before);
        if (LOCAL_ID == 0) totals[tile] = total;
    }
}

// start[b] = counts before b, start[bins] = all. `bases` holds the tiles' totals, or their scan if `scanned`.
KERNEL scan_tiles(GLOBAL const count_t* RESTRICT counts, GLOBAL const count_t* RESTRICT bases,
                  GLOBAL count_t* RESTRICT start, const i64 bins, const i64 tiles, const i64 scanned)
{
    LOCAL_ARRAY(count_t, sums, GROUP_SIZE);
    for (i64 tile = GROUP_ID; tile < tiles; tile += GROUP_COUNT) {
        count_t mine = 0, before;
        if (!scanned)
            for (i64 t = LOCAL_ID; t < tile; t += GROUP_SIZE) mine += bases[t];
        const count_t ahead = scanned ? bases[tile] : 0;
        const count_t base = group_scan(sums, mine, &before) + ahead;

        count_t own[PER_ITEM];
        mine = 0;
        for (int k = 0; k < PER_ITEM; k++) {
            const i64 b = tile * TILE + LOCAL_ID * PER_ITEM + k;
            own[k] = b < bins ? counts[b] : 0;
            mine += own[k];
        }
        const count_t total = group_scan(sums, mine, &before);
        before += base;
        for (int k = 0; k < PER_ITEM; k++) {
            const i64 b = tile * TILE + LOCAL_ID * PER_ITEM + k;
            if (b < bins) start[b] = before;
            before += own[k];
        }
        if (tile == tiles - 1 && LOCAL_ID == 0) start[bins] = base + total;
    }
}

// rank becomes the place in the order
KERNEL place_keys(GLOBAL const key_t_* RESTRICT keys, GLOBAL const count_t* RESTRICT start,
                  GLOBAL index_t* RESTRICT rank, GLOBAL index_t* RESTRICT order, const i64 count)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        const key_t_ key = keys[i];
        if (key < 0) continue;
        const index_t place = rank[i] + (index_t)start[key];
        rank[i] = place;
        order[place] = (index_t)i;
    }
}

// The stable order comes from a library's sort; its inverse and the bins' counts from here.
KERNEL invert_order(GLOBAL const u32* RESTRICT sorted, GLOBAL const key_t_* RESTRICT keys,
                    GLOBAL count_t* RESTRICT counts, GLOBAL index_t* RESTRICT rank,
                    GLOBAL index_t* RESTRICT order, const i64 count)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = sorted[k];
        const int taken = keys[i] >= 0;
        rank[i] = taken ? (index_t)k : (index_t)-1;
        if (taken) {
            order[k] = (index_t)i;
            ATOMIC_ADD_COUNT(counts + keys[i], 1);
        }
    }
}

// A library's sort has no place for negative keys: they go behind all bins.
KERNEL sortable_keys(GLOBAL const key_t_* RESTRICT keys, GLOBAL u32* RESTRICT sortable, const i64 count,
                     const i64 bins)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE)
        sortable[i] = keys[i] < 0 ? (u32)bins : (u32)keys[i];
}
