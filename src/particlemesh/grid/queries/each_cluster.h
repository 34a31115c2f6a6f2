// SPDX-License-Identifier: BSD-3-Clause
// The loop of a warp over clusters and over the particles near them (grid/queries/clusters.h).
//
// Reads records, start, bins and ask, and what rows of particles read (grid/queries/search.h). `members` are records of
// the particles from slot `first` on. Those that take no part are NOWHERE. Three statements:
// CLUSTER_BEGINS, before the search;
// NEAR_PARTICLE, for all lanes together: whether the lane has a particle (`there`), its slot q, its record `other`, its
// turns, the shift of its vectors, and which member it is (`itself`, -1 if none);
// CLUSTER_ENDS, which may read whether a member takes part from its record.
LOCAL_ARRAY(Cluster, all_clusters, WARPS);
LOCAL_ARRAY(real, all_reals, WARPS * (2 * MEMBERS + WARP_SIZE) * 4);
LOCAL_ARRAY(u32, all_words, WARPS * (2 * WARP_SIZE + 2 * QUEUE));
LOCAL Cluster* cluster = all_clusters + LOCAL_ID / WARP_SIZE;
LOCAL real* members = all_reals + LOCAL_ID / WARP_SIZE * ((2 * MEMBERS + WARP_SIZE) * 4);
LOCAL real* fractions_of = members + MEMBERS * 4;
// Of each column with candidates: the shift relative to the cluster's centre, and the slot of candidate 0.
LOCAL real* places = fractions_of + MEMBERS * 4;
LOCAL u32* turns_of = all_words + LOCAL_ID / WARP_SIZE * (2 * WARP_SIZE + 2 * QUEUE); // of these columns
LOCAL u32* heads = turns_of + WARP_SIZE;                                              // bits of columns
LOCAL u32* queue = heads + WARP_SIZE;                                                 // slots
LOCAL u32* queue_turns = queue + QUEUE;
const u32 valid = start[bins];
const u32 earlier = ((u32)1 << LANE) - 1; // lanes
const coordinate cull = ask.limit * (1 + ROUNDING);
for (u32 first = ((u32)GROUP_ID * WARPS + LOCAL_ID / WARP_SIZE) * MEMBERS; first < valid;
     first += (u32)GROUP_COUNT * WARPS * MEMBERS) {
    const int present = valid - first < MEMBERS ? (int)(valid - first) : MEMBERS;
    GLOBAL const real* own_record = records + 4 * ((i64)first + (LANE < present ? LANE : present - 1));
    u32 parts; // bits of members that are far from the one before, or in another system
    {
        const real4 own = READ_4(own_record);
        const coordinate x = WARP_SHUFFLE(warp, own.x, LANE - 1), y = WARP_SHUFFLE(warp, own.y, LANE - 1);
        const coordinate z = WARP_SHUFFLE(warp, own.z, LANE - 1);
        const coordinate jump = fmax(fmax(fabs(own.x - x), fabs(own.y - y)), fabs(own.z - z));
        int begins = jump > 2 * ask.radius;
#if SYSTEMS
        const u32 system = (u32)system_of[INDEX_OF_REAL(own.w)];
        begins |= system != WARP_SHUFFLE_U32(warp, system, LANE - 1);
#endif
        parts = WARP_BALLOT(warp, LANE == 0 || (LANE < present && begins));
    }
    while (parts) {
        const int begin = FIRST_BIT_U32(parts);
        parts &= parts - 1;
        IN_SYSTEM_OF_PARTICLE(first + begin)
        WARP_SYNC(warp); // all have read what is in local memory
        if (LANE < MEMBERS) {
            const int end = parts ? FIRST_BIT_U32(parts) : present, taken = LANE >= begin && LANE < end;
            const real4 own = READ_4(own_record);
            const coordinate x[3] = {taken ? own.x : NOWHERE, taken ? own.y : NOWHERE, taken ? own.z : NOWHERE};
            coordinate s[3];
            fractions(s, x, &geometry);
            STORE_LOCAL_4(members + 4 * LANE, x[0], x[1], x[2], own.w);
            STORE_LOCAL_4(fractions_of + 4 * LANE, s[0], s[1], s[2], 0);
        }
        CLUSTER_BEGINS
        WARP_SYNC(warp);
        if (LANE < 3)
            bound_axis(cluster, LANE, members, fractions_of, ask.radius, &geometry, &frame, &cells, &reach);
        WARP_SYNC(warp);
        const coordinate extent[3] = {cluster->extent[0], cluster->extent[1], cluster->extent[2]};
        int beyond = 0; // whether images are within reach
        for (int a = 0; a < 3; a++) beyond |= cluster->low[a] < 0 || cluster->high[a] >= cluster->size[a];
        int columns = 0;                             // opened, 32 at a time
        u32 candidates = 0, next = 0;                // in these columns, and how many of them were tested
        int begun = 0;                               // their columns that were begun
        u32 before = 0, length = 0;                  // candidates of the columns of earlier lanes, and of this lane
        u32 at = 0;                                  // where the queue begins
        int waiting = 0;                             // in it
        for (;;) {
            while (waiting < WARP_SIZE) {
                if (next >= candidates) {
                    const int wide = cluster->high[1] - cluster->low[1] + 1, first_turn = -(cluster->low[2] < 0);
                    const int turns = (cluster->high[2] >= cluster->size[2]) - first_turn + 1;
                    const int all_columns = (cluster->high[0] - cluster->low[0] + 1) * wide * turns;
                    if (columns >= all_columns) break;
                    int low = 0, high = -1, from = 0, turn[3] = {0, 0, 0};
                    cell_t column = CELLS_BEFORE;
                    if (columns + LANE < all_columns) {
                        int across = columns + LANE;
                        if (turns > 1) {
                            across /= turns;
                            turn[2] = first_turn + columns + LANE - across * turns;
                        }
                        const int row = across / wide;
                        int cell[2] = {cluster->low[0] + row, cluster->low[1] + across - row * wide};
                        column += reach_column(&low, &high, turn, cell, cluster, cull, &frame, &reach);
                    }
                    length = 0;
                    if (low <= high) {
                        from = (int)start[column + low];
                        const int end = (int)start[column + high + 1];
#if HALF == 1
                        if (from < (int)first) from = (int)first; // earlier particles have the pair in their rows
#endif
                        length = end > from ? end - from : 0;
                    }
                    u32 upto = length;
                    for (int step = 1; step < WARP_SIZE; step *= 2) {
                        const u32 ahead = WARP_SHUFFLE_U32(warp, upto, (LANE - step) & (WARP_SIZE - 1));
                        if (LANE >= step) upto += ahead;
                    }
                    before = upto - length;
                    const u32 filled = WARP_BALLOT(warp, length > 0);
                    WARP_SYNC(warp); // all have read the columns of before
                    candidates = WARP_SHUFFLE_U32(warp, upto, WARP_SIZE - 1);
                    if (length > 0) {
                        const int place = POPCOUNT_U32(filled & earlier);
                        coordinate shift[3];
                        image_shift(shift, turn, &geometry);
                        STORE_LOCAL_4(places + 4 * place, shift[0] - cluster->centre[0], shift[1] - cluster->centre[1],
                                      shift[2] - cluster->centre[2], REAL_FROM_INDEX(from - (int)before));
                        turns_of[place] = word_of_turns(turn);
                    }
                    columns += WARP_SIZE;
                    next = 0;
                    begun = -1;
                    continue;
                }
                if (next % PART == 0) {
                    WARP_SYNC(warp);
                    heads[LANE] = 0;
                    WARP_SYNC(warp);
                    if (length > 0 && before / PART == next / PART)
                        ATOMIC_ADD_U32(heads + before % PART / WARP_SIZE, (u32)1 << before % WARP_SIZE);
                    WARP_SYNC(warp);
                }
                int place[STEPS], q[STEPS];
                real from[4 * STEPS];
                real4 other[STEPS];
                UNROLL for (int n = 0; n < STEPS; n++) { // all loads, then all tests
                    const u32 word = heads[next % PART / WARP_SIZE + n];
                    place[n] = begun + POPCOUNT_U32(word & (earlier << 1 | 1));
                    begun += POPCOUNT_U32(word);
                    LOAD_LOCAL_4(places + 4 * place[n], from + 4 * n);
                    q[n] = (int)next + WARP_SIZE * n + LANE + (int)INDEX_OF_REAL(from[4 * n + 3]);
                    if (next + WARP_SIZE * n + LANE >= candidates) q[n] = -1;
                    other[n] = READ_4(records + 4 * (i64)(q[n] < 0 ? 0 : q[n]));
                }
                UNROLL for (int n = 0; n < STEPS; n++) {
                    const coordinate d[3] = {fmax(fabs(other[n].x + from[4 * n]) - extent[0], (coordinate)0),
                                             fmax(fabs(other[n].y + from[4 * n + 1]) - extent[1], (coordinate)0),
                                             fmax(fabs(other[n].z + from[4 * n + 2]) - extent[2], (coordinate)0)};
                    const int is_near = q[n] >= 0 && SQUARED(d) <= cull;
                    const u32 votes = WARP_BALLOT(warp, is_near);
                    const u32 to = (at + waiting + POPCOUNT_U32(votes & earlier)) % QUEUE;
                    if (is_near) queue[to] = (u32)q[n];
                    if (beyond && is_near) queue_turns[to] = turns_of[place[n]];
                    waiting += POPCOUNT_U32(votes);
                }
                next += STEPS * WARP_SIZE;
            }
            if (waiting == 0) break;
            WARP_SYNC(warp);
            {
                const int there = LANE < waiting;
                const u32 mine = (at + (there ? LANE : 0)) % QUEUE;
                const int q = (int)queue[mine];
                int itself = q - (int)first, turn[3] = {0, 0, 0};
                coordinate shift[3] = {0, 0, 0};
                if (beyond) {
                    turns_of_word(turn, queue_turns[mine]);
                    image_shift(shift, turn, &geometry);
                    if (turn[0] | turn[1] | turn[2]) itself = -1;
                }
                const real4 other = READ_4(records + 4 * (i64)q);
                NEAR_PARTICLE
            }
            WARP_SYNC(warp); // the queue was read
            at += WARP_SIZE;
            waiting = waiting > WARP_SIZE ? waiting - WARP_SIZE : 0;
        }
        CLUSTER_ENDS
    }
}
