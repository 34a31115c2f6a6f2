// SPDX-License-Identifier: BSD-3-Clause
// Lists of pairs from marks (grid/queries/mark_pairs.c): rows that follow each other, in the kernel's order, or that
// begin at `place` (PLACE 1). A group stages the pairs of its rows one behind the other in local memory and writes them
// whole. Rows that do not fit there, or have too many marks, are searched again. SPAN, BY_INDEX, ROWS_BY_INDEX, SWAP,
// WANT_I and WANT_J: as in pairs.c.

#include "sorting/look_back.h"
#include "grid/queries/within.h"
#include "grid/queries/pair_output.h"

#define WANT_NAMES (WANT_I || SWAP)
#define NAMED_BY_INDEX (WANT_NAMES && BY_INDEX)
#define PER_LANE (GROUP_SIZE / WARP_SIZE)
#if BY_INDEX
#define NAME_OF(k) (int)INDEX_OF_REAL(records[4 * (i64)(k) + 3])
#else
#define NAME_OF(k) (k)
#endif

KERNEL list_marks(ROW_POINTS SYSTEM_ARRAYS GLOBAL const real* RESTRICT records, GLOBAL const u32* RESTRICT start,
                  GLOBAL const end_t* RESTRICT ends, GLOBAL const coordinate* RESTRICT reaches,
                  GLOBAL const u64* RESTRICT largest, GLOBAL const u64* RESTRICT turns,
                  GLOBAL const u64* RESTRICT status, GLOBAL const u64* RESTRICT marks,
                  GLOBAL const u32* RESTRICT infos, GLOBAL i64* RESTRICT place, GLOBAL int* RESTRICT out_i,
                  GLOBAL int* RESTRICT out_j, GLOBAL u64* found, const i64 first, const i64 rows, const i64 bins,
                  const i64 stride, const i64 capacity, ROW_STRIDES BOX_RECORDS, const Ask ask)
{
    WARP(warp);
    LOCAL_ARRAY(u64, share, 1);
    LOCAL_ARRAY(u32, known, GROUP_SIZE); // infos
    LOCAL_ARRAY(i64, places, GROUP_SIZE);
    LOCAL_ARRAY(int, offsets, GROUP_SIZE + 1); // among the pairs in marks
    LOCAL_ARRAY(int, staged, ROOM);
    LOCAL_ARRAY(int, some_again, 1);
#if WANT_NAMES
    LOCAL_ARRAY(int, names, GROUP_SIZE);
#endif
    const coordinate limit = IN_REGISTER(ask.limit);
    const i64 width = 0;
    Output out;
    out.i = out_i, out.j = out_j, out.missing = MISSING_AXES;
#if PLACE == 1
    if (first == 0 && GROUP_ID == 0 && LOCAL_ID == 0) found[FOUND_TOTAL] = place[rows];
#endif
    const i64 all_tiles = (rows + GROUP_SIZE - 1) / GROUP_SIZE;
    const i64 tiles = ((stride < rows - first ? stride : rows - first) + GROUP_SIZE - 1) / GROUP_SIZE;
    for (i64 tile_of_group = GROUP_ID; tile_of_group < tiles; tile_of_group += GROUP_COUNT) {
#if PLACE == 0
        const i64 tile = take_ticket(found + FOUND_TICKET, share);
#else
        const i64 tile = first / GROUP_SIZE + tile_of_group;
#endif
        const i64 r = tile * GROUP_SIZE + LOCAL_ID;
        const u32 info = r < rows ? infos[r - first] : 0;
#if ROWS_ARE_POINTS || !(NAMED_BY_INDEX || ROWS_BY_INDEX)
        const int index = (int)r;
#else
        const int index = info ? (int)INDEX_OF_REAL(records[4 * r + 3]) : 0;
#endif
        known[LOCAL_ID] = info;
#if WANT_NAMES
        names[LOCAL_ID] = NAMED_BY_INDEX ? index : (int)r;
#endif
#if PLACE == 1
        places[LOCAL_ID] = !info ? 0 : place[ROWS_BY_INDEX ? index : r];
#endif
        BARRIER();
        u32 upto = 0, mine = 0;
        if (FIRST_WARP) {
            u32 mine_in_marks = 0;
            int any = 0;
            for (int n = 0; n < PER_LANE; n++) {
                const u32 own = known[LANE * PER_LANE + n];
                mine += LENGTH_OF(own);
                mine_in_marks += IN_MARKS_OF(own);
                any |= (own & INFO_AGAIN) != 0;
            }
            u32 upto_in_marks = mine_in_marks;
            upto = mine;
            for (int step = 1; step < WARP_SIZE; step *= 2) {
                const u32 ahead = WARP_SHUFFLE_U32(warp, upto, (LANE - step) & (WARP_SIZE - 1));
                const u32 ahead_in_marks = WARP_SHUFFLE_U32(warp, upto_in_marks, (LANE - step) & (WARP_SIZE - 1));
                if (LANE >= step) upto += ahead, upto_in_marks += ahead_in_marks;
            }
            int offset = (int)(upto_in_marks - mine_in_marks);
            for (int n = 0; n < PER_LANE; n++) {
                offsets[LANE * PER_LANE + n] = offset;
                offset += (int)IN_MARKS_OF(known[LANE * PER_LANE + n]);
            }
            if (LANE == WARP_SIZE - 1) offsets[GROUP_SIZE] = offset;
            any = WARP_BALLOT(warp, any) != 0;
            if (LANE == 0) *some_again = any;
        }
        BARRIER();
#if PLACE == 0
        if (FIRST_WARP) { // the others stage their pairs meanwhile
            const u32 total = WARP_SHUFFLE_U32(warp, upto, WARP_SIZE - 1);
            const u64 before = look_back(warp, found + FOUND_WORDS, tile, total);
            i64 next_place = (i64)before + upto - mine;
            for (int n = 0; n < PER_LANE; n++) {
                places[LANE * PER_LANE + n] = next_place;
                next_place += LENGTH_OF(known[LANE * PER_LANE + n]);
            }
            if (tile == all_tiles - 1 && LANE == 0)
                found[FOUND_TOTAL] = place[all_tiles * GROUP_SIZE] = before + total;
        }
#endif
        const int all = offsets[GROUP_SIZE], collected = IN_MARKS_OF(info);
        const int at = offsets[LOCAL_ID];
        const int again = collected ? at + collected > ROOM : (info & INFO_AGAIN) != 0;
        if (collected && !again) {
            LOCAL int* to = staged + at; // a variable: an address costs more than a step
            GLOBAL const u64* next = marks + (r - first);
            u64 mark = *next;
            int left = (int)(info >> 16);
            ROLL do {
                const int last = (int)(mark >> 32) + 31;
                u32 hits = (u32)mark;
                next += stride;
                if (left > 1) mark = *next; // arrives during this one
                ROLL while (hits) {
                    const int bit = 31 - LEADING_ZEROS_U32(hits);
                    hits ^= (u32)1 << bit;
                    *to++ = last - bit;
                }
            } while (--left > 0);
        }
        BARRIER();
#if PLACE == 0
        place[r] = places[LOCAL_ID]; // there is room for whole groups: after the last row all places are the total
#endif
#if PLACE == 0 && !WANT_NAMES
        const int whole = all <= ROOM && !*some_again;
        const i64 to_whole = places[0]; // one run of memory, written in whole sectors
        const i64 most_whole = whole && capacity > to_whole ? capacity - to_whole : 0;
        const int stop_whole = most_whole < all ? (int)most_whole : all;
        int first_of_item = LOCAL_ID - (int)(to_whole & 31);
        if (first_of_item < 0) first_of_item += GROUP_SIZE;
        for (int e = first_of_item; e < stop_whole; e += GROUP_SIZE) out_j[to_whole + e] = NAME_OF(staged[e]);
#else
        const int whole = 0;
#endif
        // The lanes of a row begin where its memory is aligned.
        for (int p = whole ? SPAN : 0; p < SPAN; p++) {
            const int member = LOCAL_ID - LANE % SPAN + p;
            const i64 to = places[member];
            const int offset = offsets[member], length = (int)IN_MARKS_OF(known[member]);
            const i64 room = capacity > to && offset + length <= ROOM ? capacity - to : 0;
            const int stop = length < room ? length : (int)room;
            for (int e = LANE % SPAN - (int)(to & (SPAN - 1)); e < stop; e += SPAN) {
                if (e < 0) continue;
                const int turn[3] = {0, 0, 0};
                const coordinate d[3] = {0, 0, 0};
#if WANT_NAMES
                const int i = names[member];
#else
                const int i = 0;
#endif
                write_pair(&out, to + e, i, NAME_OF(staged[offset + e]), turn, d);
            }
        }
#include "grid/queries/rescan.h"
        BARRIER();
    }
}
