// SPDX-License-Identifier: BSD-3-Clause
// A stable sort of keys with values, from the last digit to the first. One kernel counts the digits of all passes. Then
// each pass reads and writes every pair once: it ranks a tile of pairs in local memory, gets the start of its share of
// each digit by look-back (look_back.h), and writes digit by digit.
//
// PASSES digits of DIGIT_BITS; a tile has KEYS_AN_ITEM keys per work-item. `books`: the passes' tickets, then in 32
// bits the count of each digit in each pass, then a word per pass, tile and digit.

#include "sorting/local_scan.h"
#include "sorting/look_back.h"

#define DIGITS (1 << DIGIT_BITS)
#define TILE (GROUP_SIZE * KEYS_AN_ITEM)
#define WARPS (GROUP_SIZE / WARP_SIZE)
#define AN_ITEM ((DIGITS + GROUP_SIZE - 1) / GROUP_SIZE) // digits per work-item
#define DIGIT(key, shift) ((u32)(key) >> (shift) & (DIGITS - 1))
#define TOTALS(books) ((GLOBAL u32*)((books) + PASSES))

// A 32-bit word about a digit of a tile: 0 is nothing yet; up to TILE + 1 its total; above it the sum of all tiles up
// to this one. So sums have nearly 32 bits.
#define DIGIT_TOTAL 1
#define DIGIT_SUM (TILE + 2)

#define QUADS 4 // of four keys that a work-item reads at once

KERNEL radix_count(GLOBAL const u32* RESTRICT keys, GLOBAL u64* books, const i64 count)
{
    LOCAL_ARRAY(u32, found, PASSES * DIGITS);
    for (int d = LOCAL_ID; d < PASSES * DIGITS; d += GROUP_SIZE) found[d] = 0;
    BARRIER();
    const i64 step = 4 * QUADS * GROUP_SIZE;
    for (i64 base = GROUP_ID * step; base < count; base += GROUP_COUNT * step) {
        u32 key[4 * QUADS];
        UNROLL for (int q = 0; q < QUADS; q++) {
            const i64 i = base + 4 * (q * GROUP_SIZE + LOCAL_ID);
            if (i + 3 < count) {
                const uint4 read = *(GLOBAL const uint4*)(keys + i);
                key[4 * q] = read.x, key[4 * q + 1] = read.y, key[4 * q + 2] = read.z, key[4 * q + 3] = read.w;
            } else {
                UNROLL for (int k = 0; k < 4; k++)
                    if (i + k < count) key[4 * q + k] = keys[i + k];
            }
        }
        UNROLL for (int q = 0; q < QUADS; q++) {
            const i64 left = count - (base + 4 * (q * GROUP_SIZE + LOCAL_ID));
            UNROLL for (int p = 0; p < PASSES; p++) {
                // Equal neighbours are added together: in sorted keys a warp may have a single digit.
                u32 run = 1;
                UNROLL for (int k = 0; k < 4; k++) {
                    const u32 digit = DIGIT(key[4 * q + k], p * DIGIT_BITS);
                    const int goes_on = k < 3 && k + 1 < left && DIGIT(key[4 * q + k + 1], p * DIGIT_BITS) == digit;
                    if (k < left && !goes_on) ATOMIC_ADD_U32(found + p * DIGITS + digit, run);
                    run = goes_on ? run + 1 : 1;
                }
            }
        }
    }
    BARRIER();
    for (int d = LOCAL_ID; d < PASSES * DIGITS; d += GROUP_SIZE)
        if (found[d]) ATOMIC_ADD_U32(TOTALS(books) + d, found[d]);
}

// For each digit of the work-item, the sum of the tiles before this one; `before` is zero at first. The warp loops
// together: PoCL assumes that all work-items leave the loop at once.
#define LOOKS 4 // tiles read at once: their latencies overlap
DEVICE void look_back_digits(WARP_PARAMETER warp, GLOBAL u32* words, const i64 tile, PRIVATE u32* before)
{
    int next[AN_ITEM]; // the next tile to read, -1 when the sum is complete
    UNROLL for (int k = 0; k < AN_ITEM; k++) next[k] = LOCAL_ID + k * GROUP_SIZE < DIGITS ? (int)tile - 1 : -1;
    u32 going = 1;
    while (going) {
        u32 word[AN_ITEM * LOOKS];
        UNROLL for (int k = 0; k < AN_ITEM; k++)
            UNROLL for (int t = 0; t < LOOKS; t++) {
                word[k * LOOKS + t] = 0;
                if (next[k] >= t)
                    word[k * LOOKS + t] = PEEK_U32(words + (i64)(next[k] - t) * DIGITS + LOCAL_ID + k * GROUP_SIZE);
            }
        int missing = 0;
        UNROLL for (int k = 0; k < AN_ITEM; k++) {
            int looking = next[k] >= 0;
            UNROLL for (int t = 0; t < LOOKS; t++) {
                const u32 told = word[k * LOOKS + t];
                looking = looking && told;
                if (looking) {
                    const int is_sum = told >= DIGIT_SUM;
                    before[k] += told - (is_sum ? DIGIT_SUM : DIGIT_TOTAL);
                    next[k] = is_sum ? -1 : next[k] - 1;
                    looking = !is_sum;
                }
            }
            missing |= next[k] >= 0;
        }
        going = WARP_BALLOT(warp, missing);
    }
}

// Pass p. Without `has_values` a key's value is its index.
KERNEL radix_pass(GLOBAL const u32* RESTRICT keys, GLOBAL const u32* RESTRICT values,
                  GLOBAL u32* RESTRICT sorted_keys, GLOBAL u32* RESTRICT sorted_values, GLOBAL u64* books,
                  const i64 count, const i64 tiles, const i64 p, const i64 has_values)
{
    WARP(warp);
    LOCAL_ARRAY(u64, share, 1);
    LOCAL_ARRAY(u32, of_warps, WARPS);
    LOCAL_ARRAY(u32, starts, DIGITS); // of the digits in the tile
    LOCAL_ARRAY(u32, moves, DIGITS);  // from a place in the tile to one in the output
    LOCAL_ARRAY(u32, pool, WARPS * DIGITS > 2 * TILE ? WARPS * DIGITS : 2 * TILE);
    GLOBAL u32* all = TOTALS(books) + p * DIGITS;
    GLOBAL u32* words = TOTALS(books) + PASSES * DIGITS + p * tiles * DIGITS;
    LOCAL u32* own = pool + LOCAL_ID / WARP_SIZE * DIGITS; // counts of the warp, later the pairs
    const u32 nearer = ((u32)1 << LANE) - 1;
    const int shift = (int)p * DIGIT_BITS;
    for (i64 turn = GROUP_ID; turn < tiles; turn += GROUP_COUNT) {
        const i64 tile = take_ticket(books + p, share);
        const i64 first = tile * TILE;
        const int size = count - first < TILE ? (int)(count - first) : TILE;
        // A warp has consecutive keys, in rows of 32.
        const int mine = LOCAL_ID / WARP_SIZE * (WARP_SIZE * KEYS_AN_ITEM) + LANE;
        u32 key[KEYS_AN_ITEM], place[KEYS_AN_ITEM];
        UNROLL for (int k = 0; k < KEYS_AN_ITEM; k++) {
            const int n = mine + k * WARP_SIZE;
            key[k] = 0xffffffffu; // after all others, and not written
            if (n < size) key[k] = keys[first + n];
        }
        for (int d = LOCAL_ID; d < WARPS * DIGITS; d += GROUP_SIZE) pool[d] = 0;
        BARRIER();

        // place: the digit, and the rank among the warp's keys of that digit
        UNROLL for (int k = 0; k < KEYS_AN_ITEM; k++) {
            const u32 digit = DIGIT(key[k], shift);
            const u32 same = WARP_MATCH(warp, digit, DIGIT_BITS);
            const u32 before = own[digit];
            const u32 ahead = POPCOUNT_U32(same & nearer);
            WARP_SYNC(warp);
            if (ahead == 0) own[digit] = before + POPCOUNT_U32(same);
            WARP_SYNC(warp);
            place[k] = digit << 16 | (before + ahead);
        }
        BARRIER();

        u32 total[AN_ITEM], before[AN_ITEM];
        UNROLL for (int k = 0; k < AN_ITEM; k++) {
            const int d = LOCAL_ID + k * GROUP_SIZE;
            total[k] = before[k] = 0;
            if (d < DIGITS) {
                UNROLL for (int w = 0; w < WARPS; w++) {
                    const u32 found = pool[w * DIGITS + d];
                    pool[w * DIGITS + d] = total[k];
                    total[k] += found;
                }
                if (tile) POST_U32(words + tile * DIGITS + d, total[k] + DIGIT_TOTAL);
                starts[d] = total[k];
                if (tile == 0) moves[d] = all[d];
            }
        }
        // The first tile begins at the digits' starts in the whole array; the others get theirs from its sums.
        if (tile == 0) scan_local(warp, moves, DIGITS, 0, of_warps);
        scan_local(warp, starts, DIGITS, 0, of_warps);

        UNROLL for (int k = 0; k < KEYS_AN_ITEM; k++) {
            const u32 digit = place[k] >> 16;
            place[k] = (place[k] & 0xffff) + starts[digit] + own[digit];
        }
        BARRIER();
        // Registers of keys are reused for values, which arrive during the look-back.
        UNROLL for (int k = 0; k < KEYS_AN_ITEM; k++) pool[place[k]] = key[k];
        UNROLL for (int k = 0; k < KEYS_AN_ITEM; k++) {
            const int n = mine + k * WARP_SIZE;
            key[k] = (u32)first + n;
            if (has_values && n < size) key[k] = values[first + n];
        }

        if (tile) look_back_digits(warp, words, tile, before);
        UNROLL for (int k = 0; k < AN_ITEM; k++) {
            const int d = LOCAL_ID + k * GROUP_SIZE;
            if (d < DIGITS) {
                if (tile == 0) before[k] = moves[d];
                POST_U32(words + tile * DIGITS + d, before[k] + total[k] + DIGIT_SUM);
                moves[d] = before[k] - starts[d];
            }
        }
        UNROLL for (int k = 0; k < KEYS_AN_ITEM; k++) pool[TILE + place[k]] = key[k];
        BARRIER();
        UNROLL for (int k = 0; k < KEYS_AN_ITEM; k++) {
            const int n = LOCAL_ID + k * GROUP_SIZE;
            if (n < size) {
                const u32 moved = pool[n];
                const u32 to = moves[DIGIT(moved, shift)] + n;
                sorted_keys[to] = moved;
                sorted_values[to] = pool[TILE + n];
            }
        }
        BARRIER();
    }
}
