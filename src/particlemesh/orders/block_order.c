// SPDX-License-Identifier: BSD-3-Clause
// Particles by blocks of cells, as records (blocks.h). The particles are PACKED (packed.h), or node and fraction.
//
// All particles are counted, by particles/locate.c or here. A few are then written directly to their places. For many,
// places are too far apart for the cache: particles are dealt to buckets of neighbouring blocks, and from there to
// blocks. Both times a group collects a tile in local memory and writes it in order, so that memory neighbours are
// written together.
//
// SORTING: places become the particles' indices, so records get places, and `order` gets the particles. A tile has EACH
// particles per work-item; BINS is at least the number of buckets, and of blocks in a bucket.

#include "orders/block_count.h"
#include "sorting/local_scan.h"

#define TILE (GROUP_SIZE * EACH)
#define BATCH (EACH / 3) // particles whose loads are in flight at once
#define QUADS (RECORD_WORDS / 4)
#define WARPS (GROUP_SIZE / WARP_SIZE)
#define BINS_EACH (BINS / GROUP_SIZE)
#define NOWHERE 0xffffffffu
#define BIN_SHIFT 16 // a place in a tile: the bin, and the rank in it

// Write a record to its place.
DEVICE void put_record(GLOBAL u32* records, GLOBAL u32* order, i64 at, PRIVATE u32* words)
{
#if SORTING
    order[at] = words[RECORD_WORDS - 1];
    words[RECORD_WORDS - 1] = (u32)at;
#endif
    write_quads(records + RECORD_WORDS * at, words, QUADS);
}

KERNEL count_blocks(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT fraction, GLOBAL u32* RESTRICT work,
                    const i64 count, const i64 rows, const Blocks blocks)
{
    WARP(warp);
    for (i64 base = GROUP_ID * GROUP_SIZE; base < count; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = base + LOCAL_ID;
        Located located;
        located.taken = 0;
        if (i < count) read_located(&located, node, fraction, rows, i, blocks.base);
        count_located(warp, work, &located, &blocks, base / GROUP_SIZE);
    }
}

// Counts continue from the particles that a block has: the beginning of those of this addition.
DEVICE u32 place_of(GLOBAL const u32* start, u32 block, u32 counted)
{
    const u32 begin = start[block];
    return begin + (counted - (start[block + 1] - begin));
}

// Directly to places. With `ask`, only if the particles are nearly sorted: then places are near one another.
KERNEL place_in_blocks(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT fraction,
                       GLOBAL const u32* RESTRICT start, GLOBAL u32* work, GLOBAL u32* records, GLOBAL u32* order,
                       const i64 count, const i64 rows, const i64 ask, const Blocks blocks)
{
    WARP(warp);
    const i64 stop = !ask || work[WORK_NEARLY_SORTED] ? count : 0;
    for (i64 base = GROUP_ID * GROUP_SIZE; base < stop; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = base + LOCAL_ID;
        Located located;
        int offset[3], bx = 0;
        u32 block = 0;
        located.taken = 0;
        if (i < count) read_located(&located, node, fraction, rows, i, blocks.base);
        if (located.taken) block = block_of(&located, &blocks, offset, &bx);
        const index_t counted = rank_in_bin(warp, work + WORK_COUNTS, located.taken ? (i64)block : (i64)-1);
        if (located.taken) {
            u32 words[RECORD_WORDS];
            record_of(words, located.fraction, offset, bx, (u32)i);
            put_record(records, order, (i64)place_of(start, block, (u32)counted), words);
        }
    }
}

// Buckets of 2^shift blocks, still empty. Particles are nearly sorted if, thanks to runs of one block, counting 256 of
// them took at most so many additions.
KERNEL open_buckets(GLOBAL const u32* RESTRICT start, GLOBAL u32* work, const i64 buckets, const i64 shift,
                    const i64 total, const i64 most, const Blocks blocks)
{
    for (i64 b = GROUP_ID * GROUP_SIZE + LOCAL_ID; b <= buckets; b += GROUP_COUNT * GROUP_SIZE) {
        const u32 begin = start[b < buckets ? b << shift : total];
        work[WORK_BEGINS + b] = begin;
        if (b < buckets) work[WORK_ENDS + b] = begin;
        if (b == 0) work[WORK_NEARLY_SORTED] = 256 * (i64)work[WORK_ADDED] <= most * (i64)work[WORK_TAKEN];
    }
}

// `place` has bin and rank of each particle of the tile. It gets, for each place of the tile in bin order, the bin and
// the particle. `first`: the beginnings of bins in the tile.
DEVICE void turn_places(LOCAL u32* place, LOCAL const u32* first)
{
    u32 own[EACH];
    UNROLL for (int k = 0; k < EACH; k++) own[k] = place[k * GROUP_SIZE + LOCAL_ID];
    BARRIER();
    UNROLL for (int k = 0; k < EACH; k++) {
        const u32 bin = own[k] >> BIN_SHIFT, rank = own[k] & ((1 << BIN_SHIFT) - 1);
        if (own[k] != NOWHERE) place[first[PADDED(bin)] + rank] = bin << BIN_SHIFT | (u32)(k * GROUP_SIZE + LOCAL_ID);
    }
    BARRIER();
}

DEVICE void stage(LOCAL uint4* staged, int n, PRIVATE const u32* words)
{
    UNROLL for (int q = 0; q < QUADS; q++) {
        uint4 quad;
        quad.x = words[4 * q], quad.y = words[4 * q + 1], quad.z = words[4 * q + 2], quad.w = words[4 * q + 3];
        staged[QUADS * n + q] = quad;
    }
}

DEVICE void unstage(PRIVATE u32* words, LOCAL const uint4* staged, int n)
{
    UNROLL for (int q = 0; q < QUADS; q++) {
        const uint4 quad = staged[QUADS * n + q];
        words[4 * q] = quad.x, words[4 * q + 1] = quad.y, words[4 * q + 2] = quad.z, words[4 * q + 3] = quad.w;
    }
}

// Records by bucket, in any order within one; they have the block's number within the bucket instead of bx.
KERNEL into_buckets(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT fraction, GLOBAL u32* work,
                    GLOBAL u32* RESTRICT halfway, const i64 count, const i64 rows, const i64 shift,
                    const Blocks blocks)
{
    WARP(warp);
    LOCAL_ARRAY(uint4, staged, TILE * QUADS);
    LOCAL_ARRAY(u32, place, TILE);
    LOCAL_ARRAY(u32, first, PADDED(BINS));
    LOCAL_ARRAY(u32, moves, BINS);
    LOCAL_ARRAY(u32, of_warps, WARPS);
    const i64 stop = work[WORK_NEARLY_SORTED] ? 0 : count;
    for (i64 base = GROUP_ID * TILE; base < stop; base += GROUP_COUNT * TILE) {
        for (int b = LOCAL_ID; b < PADDED(BINS); b += GROUP_SIZE) first[b] = 0;
        BARRIER();
        ROLL for (int q = 0; q < EACH; q += BATCH) {
            Located located[BATCH];
            UNROLL for (int k = 0; k < BATCH; k++) {
                const i64 i = base + (q + k) * GROUP_SIZE + LOCAL_ID;
                located[k].taken = 0;
                if (i < count) read_located(&located[k], node, fraction, rows, i, blocks.base);
            }
            UNROLL for (int k = 0; k < BATCH; k++) {
                const int n = (q + k) * GROUP_SIZE + LOCAL_ID;
                u32 where = NOWHERE;
                if (located[k].taken) {
                    u32 words[RECORD_WORDS];
                    int offset[3], bx;
                    const u32 block = block_of(&located[k], &blocks, offset, &bx), bucket = block >> shift;
                    record_of(words, located[k].fraction, offset, (int)(block - (bucket << shift)), (u32)(base + n));
                    stage(staged, n, words);
                    where = bucket << BIN_SHIFT | ATOMIC_ADD_U32(first + PADDED(bucket), 1);
                }
                place[n] = where;
            }
        }
        BARRIER();
        u32 size[BINS_EACH];
        UNROLL for (int k = 0; k < BINS_EACH; k++) size[k] = first[PADDED(k * GROUP_SIZE + LOCAL_ID)];
        const int kept = (int)scan_local(warp, first, BINS, 1, of_warps);
        UNROLL for (int k = 0; k < BINS_EACH; k++) {
            const int b = k * GROUP_SIZE + LOCAL_ID;
            if (size[k]) moves[b] = ATOMIC_ADD_U32(work + WORK_ENDS + b, size[k]) - first[PADDED(b)];
        }
        turn_places(place, first);
        for (int n = LOCAL_ID; n < kept; n += GROUP_SIZE) {
            const u32 from = place[n];
            u32 words[RECORD_WORDS];
            unstage(words, staged, (int)(from & ((1 << BIN_SHIFT) - 1)));
            write_quads(halfway + RECORD_WORDS * (i64)(moves[from >> BIN_SHIFT] + (u32)n), words, QUADS);
        }
        BARRIER();
    }
}

// A tile is within one bucket. Those of bucket b go from begin / TILE + b to the next bucket's; the last one may be
// empty.
KERNEL into_blocks(GLOBAL const u32* RESTRICT halfway, GLOBAL const u32* RESTRICT start, GLOBAL u32* work,
                   GLOBAL u32* records, GLOBAL u32* order, const i64 buckets, const i64 shift, const Blocks blocks)
{
    WARP(warp);
    LOCAL_ARRAY(uint4, staged, TILE * QUADS);
    LOCAL_ARRAY(u32, place, TILE);
    LOCAL_ARRAY(u32, first, PADDED(BINS));
    LOCAL_ARRAY(u32, moves, BINS);
    LOCAL_ARRAY(u32, of_warps, WARPS);
    LOCAL_ARRAY(u32, share, 1);
    LOCAL_ARRAY(i64, begin, 1); // beyond all particles, and so beyond 32 bits, where the bucket's last tile is empty
    GLOBAL const u32* begins = work + WORK_BEGINS;
    const i64 tiles = work[WORK_NEARLY_SORTED] ? 0 : begins[buckets] / TILE + buckets;
    for (i64 tile = GROUP_ID; tile < tiles; tile += GROUP_COUNT) {
        for (int b = LOCAL_ID; b < PADDED(BINS); b += GROUP_SIZE) first[b] = 0;
        for (u32 b = LOCAL_ID; b < buckets; b += GROUP_SIZE) {
            const i64 ahead = begins[b] / TILE + b;
            if (tile >= ahead && tile <= begins[b + 1] / TILE + b)
                share[0] = b, begin[0] = begins[b] + (tile - ahead) * TILE;
        }
        BARRIER();
        const u32 low = share[0] << shift;
        const i64 base = begin[0], left = begins[share[0] + 1] - base;
        const int size = left < 0 ? 0 : left < TILE ? (int)left : TILE;
        ROLL for (int q = 0; q < EACH; q += BATCH) {
            u32 words[BATCH][RECORD_WORDS];
            UNROLL for (int k = 0; k < BATCH; k++) {
                const int n = (q + k) * GROUP_SIZE + LOCAL_ID;
                if (n < size) read_record(halfway, base + n, words[k]);
            }
            UNROLL for (int k = 0; k < BATCH; k++) {
                const int n = (q + k) * GROUP_SIZE + LOCAL_ID;
                u32 where = NOWHERE;
                if (n < size) {
                    const u32 bin = (u32)bx_of(words[k]);
                    set_bx(words[k], (int)((low + bin) % (u32)blocks.counts[LINES_ALONG]));
                    stage(staged, n, words[k]);
                    where = bin << BIN_SHIFT | ATOMIC_ADD_U32(first + PADDED(bin), 1);
                }
                place[n] = where;
            }
        }
        BARRIER();
        u32 found[BINS_EACH];
        UNROLL for (int k = 0; k < BINS_EACH; k++) found[k] = first[PADDED(k * GROUP_SIZE + LOCAL_ID)];
        scan_local(warp, first, BINS, 1, of_warps);
        UNROLL for (int k = 0; k < BINS_EACH; k++) {
            const int b = k * GROUP_SIZE + LOCAL_ID;
            if (found[k]) {
                const u32 counted = ATOMIC_ADD_U32(work + WORK_COUNTS + low + b, found[k]);
                moves[b] = place_of(start, low + b, counted) - first[PADDED(b)];
            }
        }
        turn_places(place, first);
        for (int n = LOCAL_ID; n < size; n += GROUP_SIZE) {
            const u32 from = place[n];
            u32 words[RECORD_WORDS];
            unstage(words, staged, (int)(from & ((1 << BIN_SHIFT) - 1)));
            put_record(records, order, (i64)(moves[from >> BIN_SHIFT] + (u32)n), words);
        }
        BARRIER();
    }
}

// For the stable order, which sorts keys (radix.c): particles left out go after all blocks.
KERNEL block_keys(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT fraction, GLOBAL u32* RESTRICT keys,
                  const i64 count, const i64 rows, const i64 total, const Blocks blocks)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        Located located;
        int offset[3], bx;
        read_located(&located, node, fraction, rows, i, blocks.base);
        keys[i] = located.taken ? block_of(&located, &blocks, offset, &bx) : (u32)total;
    }
}

KERNEL records_in_order(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT fraction,
                        GLOBAL const u32* RESTRICT start, GLOBAL const u32* RESTRICT order,
                        GLOBAL u32* RESTRICT records, const i64 rows, const i64 total, const Blocks blocks)
{
    const i64 taken = start[total];
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < taken; k += GROUP_COUNT * GROUP_SIZE) {
        Located located;
        u32 words[RECORD_WORDS];
        int offset[3], bx;
        read_located(&located, node, fraction, rows, order[k], blocks.base);
        block_of(&located, &blocks, offset, &bx);
        record_of(words, located.fraction, offset, bx, SORTING ? (u32)k : order[k]);
        write_quads(records + RECORD_WORDS * k, words, QUADS);
    }
}
