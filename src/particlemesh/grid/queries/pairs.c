// SPDX-License-Identifier: BSD-3-Clause
// Lists of pairs, one row per work-item. A row's pairs are collected in local memory, and whole warps write them. Rows
// that do not fit there are searched again by a warp each, which writes its results directly.
//
// PLACE: 0 rows follow each other, in the kernel's order; 1 rows begin at `place`; 2 every row has `width`. CAP: pairs
// collected per row. SPAN: lanes that write a row together. BY_INDEX: particles are named by index, not by slot;
// ROWS_BY_INDEX: so are rows. SWAP: the smaller index comes first. WANT_I, WANT_J, WANT_SHIFT, WANT_DISTANCE,
// WANT_VECTOR: the outputs.

#include "sorting/look_back.h"
#include "grid/queries/within.h"
#include "grid/queries/pair_output.h"

#define ROWS_APART (GROUP_SIZE + 1) // so that a row and its neighbours are in different banks
#define PER_LANE (GROUP_SIZE / WARP_SIZE)
#define WANT_D (WANT_DISTANCE || WANT_VECTOR)
#define STAGED_INDICES (BY_INDEX && !WANT_D) // collect indices, not slots
#define WITH_TURNS (!NO_IMAGES && (WANT_D || WANT_SHIFT))
#define WANT_INDEX (WANT_I || SWAP)

// Turns of an image in 15 bits.
#define MOST_CODED 15
#define CODE_OF(turn) (short)((turn[0] + 16) << 10 | (turn[1] + 16) << 5 | (turn[2] + 16))

KERNEL list_pairs(ROW_POINTS SYSTEM_ARRAYS GLOBAL const real* RESTRICT records, GLOBAL const u32* RESTRICT start,
                  GLOBAL const end_t* RESTRICT ends, GLOBAL const coordinate* RESTRICT reaches,
                  GLOBAL const u64* RESTRICT largest, GLOBAL const u64* RESTRICT turns,
                  GLOBAL const u64* RESTRICT status, GLOBAL i64* RESTRICT place, GLOBAL int* RESTRICT counts,
                  GLOBAL int* RESTRICT out_i, GLOBAL int* RESTRICT out_j, GLOBAL int* RESTRICT out_shift,
                  GLOBAL real* RESTRICT out_distance, GLOBAL real* RESTRICT out_vector, GLOBAL u64* found,
                  const i64 rows, const i64 bins, const i64 capacity, const i64 width, ROW_STRIDES
                  BOX_RECORDS, const Ask ask)
{
    WARP(warp);
    LOCAL_ARRAY(u64, share, 1);
    LOCAL_ARRAY(int, lengths, GROUP_SIZE); // negative for a row that was not collected
    LOCAL_ARRAY(i64, places, GROUP_SIZE);
    LOCAL_ARRAY(int, staged, (CAP + !CAP) * ROWS_APART);
#if WITH_TURNS
    LOCAL_ARRAY(short, codes, (CAP + !CAP) * ROWS_APART);
#endif
#if WANT_INDEX
    LOCAL_ARRAY(int, indices, GROUP_SIZE);
#endif
#if WANT_SHIFT
    LOCAL_ARRAY(u64, unfolding, GROUP_SIZE);
#endif
#if WANT_D && ROWS_ARE_POINTS
    LOCAL_ARRAY(coordinate, points, 3 * GROUP_SIZE);
#endif
    const u64 no_turns = (u64)MOST_TURNS << 42 | (u64)MOST_TURNS << 21 | (u64)MOST_TURNS;
    const coordinate limit = IN_REGISTER(ask.limit);
#if ROWS_ARE_POINTS
    const i64 taken = rows;
#else
    const i64 taken = start[bins];
#endif
    Output out;
    out.i = out_i, out.j = out_j, out.shift = out_shift, out.distance = out_distance, out.vector = out_vector;
    out.turns = turns, out.folded = status[STATUS_FOLDED] != 0, out.missing = MISSING_AXES;
#if PLACE == 1
    if (GROUP_ID == 0 && LOCAL_ID == 0) found[FOUND_TOTAL] = place[rows];
#endif
    const i64 tiles = (rows + GROUP_SIZE - 1) / GROUP_SIZE;
    for (i64 tile_of_group = GROUP_ID; tile_of_group < tiles; tile_of_group += GROUP_COUNT) {
#if PLACE == 0
        const i64 tile = take_ticket(found + FOUND_TICKET, share);
#else
        const i64 tile = tile_of_group;
#endif
        const i64 r = tile * GROUP_SIZE + LOCAL_ID;
        i64 number = r; // number of the row in the output
        int length = 0, again = 0;
        if (r < taken) {
            Row row;
            IN_SYSTEM_OF_ROW(r)
            const int bad = ROW_OF(&row, r);
#if ROWS_BY_INDEX
            number = row.index;
#endif
#if WANT_INDEX
            indices[LOCAL_ID] = row.index;
#endif
#if WANT_SHIFT
            unfolding[LOCAL_ID] = bad ? no_turns : UNFOLDING_OF(row);
#endif
#if WANT_D && ROWS_ARE_POINTS
            for (int a = 0; a < 3; a++) points[3 * LOCAL_ID + a] = row.x[a];
#endif
#if ROWS_ARE_POINTS && PLACE != 1
            record_item(found, bad, r);
#endif
#if PLACE == 1 && CAP == 0
            length = (int)(place[number + 1] - place[number]);
            again = length > 0;
#else
            if (!bad) {
                PRIVATE const coordinate* x = row.x;
                PRIVATE const coordinate* s = row.s;
#if STAGED_INDICES
#define COLLECTED (int)INDEX_OF_REAL(other.w)
#else
#define COLLECTED k
#endif
#if WITH_TURNS
                LOCAL short* next_code = codes + LOCAL_ID;
#define CODE_STRIP              \
    short code = CODE_OF(turn); \
    for (int a = 0; a < 3; a++) again |= turn[a] > MOST_CODED || turn[a] < -MOST_CODED;
#undef GO_TO_SECOND_CODE
#define GO_TO_SECOND_CODE   \
    code = CODE_OF(turn_2); \
    again |= turn_2[2] > MOST_CODED;
#define COLLECT_CODE   \
    *next_code = code; \
    next_code += ROWS_APART;
#else
#define CODE_STRIP
#define COLLECT_CODE
#endif
                LOCAL int* next = staged + LOCAL_ID; // beside `length`: an address costs less than a product
// The same in two words: which is faster depends on the surrounding loop, measured.
#if NO_IMAGES
#define FOUND                  \
    if (hit && length < CAP) { \
        *next = COLLECTED;     \
        next += ROWS_APART;    \
        COLLECT_CODE           \
    }                          \
    length += hit;
#else
#define FOUND                   \
    if (hit) {                  \
        if (length < CAP) {     \
            *next = COLLECTED;  \
            next += ROWS_APART; \
            COLLECT_CODE        \
        }                       \
        length++;               \
    }
#endif
#define STRIP CODE_STRIP EACH_PAIR
#define PAIR_OF_STRIPS CODE_STRIP EACH_PAIR_OF_BOTH
#include "grid/queries/strips.h"
#undef STRIP
#undef PAIR_OF_STRIPS
                again = length > 0 && (again || length > CAP);
            }
#endif
        }

        lengths[LOCAL_ID] = again ? -length : length;

#if PLACE == 0
        BARRIER();
        if (FIRST_WARP) {
            int own[PER_LANE];
            u32 mine = 0;
            for (int n = 0; n < PER_LANE; n++) {
                own[n] = lengths[LANE * PER_LANE + n];
                own[n] = own[n] < 0 ? -own[n] : own[n];
                mine += own[n];
            }
            u32 upto = mine;
            for (int step = 1; step < WARP_SIZE; step *= 2) {
                const u32 ahead = WARP_SHUFFLE_U32(warp, upto, (LANE - step) & (WARP_SIZE - 1));
                if (LANE >= step) upto += ahead;
            }
            const u32 total = WARP_SHUFFLE_U32(warp, upto, WARP_SIZE - 1);
            const u64 before = look_back(warp, found + FOUND_WORDS, tile, total);
            i64 at = (i64)before + upto - mine;
            for (int n = 0; n < PER_LANE; n++) {
                places[LANE * PER_LANE + n] = at;
                at += own[n];
            }
            if (tile == tiles - 1 && LANE == 0) found[FOUND_TOTAL] = place[tiles * GROUP_SIZE] = before + total;
        }
        BARRIER();
        place[r] = places[LOCAL_ID]; // there is room for whole groups: after the last row all places are the total
#elif PLACE == 1
        places[LOCAL_ID] = r < taken ? place[number] : 0;
        BARRIER();
#else
        const int written = ROWS_BY_INDEX ? r < taken : r < taken || r < rows;
        places[LOCAL_ID] = written ? number * width : -1;
        if (written) counts[number] = length;
        if (length > width) ATOMIC_MAX_U64(found + FOUND_LONGEST, length);
        BARRIER();
#endif

        // The lanes of a row begin where its memory is aligned, and fill whole sectors.
        for (int p = 0; p < SPAN; p++) {
            const int member = LOCAL_ID - LANE % SPAN + p;
            const i64 at = places[member];
#if PLACE == 2
            const i64 room = at < 0 ? 0 : width;
#else
            const i64 room = capacity > at ? capacity - at : 0;
#endif
            const int all = lengths[member], stop = all < room ? all : (int)room;
            for (int e = LANE % SPAN - (int)(at & (SPAN - 1)); e < stop; e += SPAN) {
                if (e < 0) continue;
                const int k = staged[e * ROWS_APART + member];
                int turn[3] = {0, 0, 0}, index = k;
                coordinate d[3] = {0, 0, 0};
#if WITH_TURNS
                const int code = codes[e * ROWS_APART + member];
                turn[0] = (code >> 10) - 16, turn[1] = (code >> 5 & 31) - 16, turn[2] = (code & 31) - 16;
#endif
#if WANT_D
                const real4 other = READ_4(records + 4 * (i64)k);
                index = (int)INDEX_OF_REAL(other.w);
#if ROWS_ARE_POINTS
                LOCAL const coordinate* x = points + 3 * member;
#else
                const real4 own = READ_4(records + 4 * (tile * GROUP_SIZE + member));
                const coordinate x[3] = {own.x, own.y, own.z};
#endif
                coordinate shift[3];
                IN_SYSTEM_OF_ROW(tile * GROUP_SIZE + member)
                image_shift(shift, turn, &geometry);
                VECTOR(d, other, x, shift);
#elif WANT_SHIFT && !STAGED_INDICES
                if (out.folded) index = (int)INDEX_OF_REAL(records[4 * (i64)k + 3]);
#endif
#if WANT_SHIFT
                unfold(turn, unfolding[member], index, &out);
#endif
#if WANT_INDEX && BY_INDEX
                const int i = indices[member];
#else
                const int i = (int)(tile * GROUP_SIZE) + member;
#endif
                write_pair(&out, at + e, i, BY_INDEX ? index : k, turn, d);
            }
#if PLACE == 2
            const int used = all < 0 ? -all : all;
            for (int e = used / SPAN * SPAN + LANE % SPAN; e < room; e += SPAN)
                if (e >= used) {
                    const int turn[3] = {0, 0, 0};
                    const coordinate d[3] = {0, 0, 0};
                    write_pair(&out, at + e, -1, -1, turn, d);
                }
#endif
        }

        // Rows that were not collected.
#include "grid/queries/rescan.h"
        BARRIER();
    }
}

// Rows of particles that were left out: -1 everywhere. list_pairs writes the others.
KERNEL blank_rows(GLOBAL const u32* RESTRICT start, GLOBAL int* RESTRICT out_i, GLOBAL int* RESTRICT out_j,
                  const i64 rows, const i64 bins, const i64 width)
{
    const int all = start[bins] == rows;
    for (i64 at = GROUP_ID * GROUP_SIZE + LOCAL_ID; at < rows * width; at += GROUP_COUNT * GROUP_SIZE) {
        if (all) continue;
#if WANT_I
        out_i[at] = -1;
#endif
#if WANT_J
        out_j[at] = -1;
#endif
    }
}
