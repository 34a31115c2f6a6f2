// SPDX-License-Identifier: BSD-3-Clause
// Visits (visits.h) by window, and within a window by the node along x at which stencils begin; where visits are many, by
// nodes along y; then by increasing index.
//
// Every visit is counted in its bin, the counts are summed, and every visit goes to its place. Atomics place the visits
// of a bin in any order, so bins are sorted: small ones by one work-item each, crowded ones by a group each.
//
// PACKED: the particles are packed (packed.h). Else their fractions are copied to records, for those who read visits.

#include "orders/visits.h"

#define QUADS (REAL_IS_DOUBLE ? 2 : 1)
#define SMALL 24 // the most visits of a bin that one work-item sorts

#define EACH_VISIT(located)                                                                            \
    for (Reach y = reach_from(&windows, 1, (located).at[1]); reaches(&y, &windows, 1); y.window++)     \
        for (Reach z = reach_from(&windows, 2, (located).at[2]); reaches(&z, &windows, 2); z.window++) \
            for (Reach x = reach_from(&windows, 0, (located).at[0]); reaches(&x, &windows, 0); x.window++)

DEVICE u32 bin_of(PRIVATE const Windows* windows, PRIVATE const Reach* x, PRIVATE const Reach* y,
                  PRIVATE const Reach* z)
{
    const u32 window = ((u32)y->window * (u32)windows->counts[2] + (u32)z->window) * (u32)windows->counts[0] + (u32)x->window;
    const int level = offset_in(x, windows, 0) + windows->support[0] - 1;
    const int row = (offset_in(y, windows, 1) + windows->support[1] - 1) / windows->height;
    return window * (u32)bins_of(windows) + (u32)(level * windows->rows + row);
}

KERNEL count_visits(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT fraction, GLOBAL u32* RESTRICT work,
                    GLOBAL u32* RESTRICT records, const i64 count, const i64 rows, const Windows windows)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        Located located;
        read_located(&located, node, fraction, rows, i, windows.base);
#if !PACKED
        u32 words[PACKED_WORDS];
#if REAL_IS_DOUBLE
        fraction_words(words, located.fraction);
        words[6] = words[7] = 0;
#else
        for (int a = 0; a < 3; a++) words[a] = located.fraction[a] << 8;
        words[3] = 0;
#endif
        write_quads(records + PACKED_WORDS * i, words, QUADS);
#endif
        if (!located.taken) continue;
        EACH_VISIT(located) ATOMIC_ADD_U32(work + WORK_COUNTS + bin_of(&windows, &x, &y, &z), 1);
    }
}

// Counts go on from the visits that a bin has.
KERNEL place_visits(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT fraction,
                    GLOBAL const u32* RESTRICT start, GLOBAL u32* RESTRICT work, GLOBAL u64* RESTRICT visits,
                    const i64 count, const i64 rows, const Windows windows)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        Located located;
        read_located(&located, node, fraction, rows, i, windows.base);
        if (!located.taken) continue;
        EACH_VISIT(located)
        {
            const u32 bin = bin_of(&windows, &x, &y, &z), begin = start[bin], size = start[bin + 1] - begin;
            const u32 place = begin + (ATOMIC_ADD_U32(work + WORK_COUNTS + bin, 1) - size);
            const u32 where = (u32)(offset_in(&x, &windows, 0) + windows.support[0] - 1) << 10
                            | (u32)(offset_in(&y, &windows, 1) + windows.before) << 5
                            | (u32)(offset_in(&z, &windows, 2) + windows.before);
            visits[place] = (u64)i << 32 | where;
        }
    }
}

KERNEL settle_visits(GLOBAL const u32* RESTRICT start, GLOBAL u32* RESTRICT work, GLOBAL u64* RESTRICT visits,
                     GLOBAL u32* RESTRICT queue, const i64 bins)
{
    for (i64 bin = GROUP_ID * GROUP_SIZE + LOCAL_ID; bin < bins; bin += GROUP_COUNT * GROUP_SIZE) {
        const u32 begin = start[bin], size = start[bin + 1] - begin;
        if (size > SMALL) {
            queue[ATOMIC_ADD_U32(work + WORK_QUEUED, 1)] = (u32)bin;
            continue;
        }
        GLOBAL u64* own = visits + begin;
        for (u32 n = 1; n < size; n++) {
            const u64 visit = own[n];
            u32 at = n;
            for (; at > 0 && own[at - 1] > visit; at--) own[at] = own[at - 1];
            own[at] = visit;
        }
    }
}

#define STAGED 1024

// A crowded bin is sorted by a group: by a bitonic network, which needs no other memory.
KERNEL settle_crowded_visits(GLOBAL const u32* RESTRICT start, GLOBAL const u32* RESTRICT work,
                             GLOBAL u64* RESTRICT visits, GLOBAL const u32* RESTRICT queue)
{
    LOCAL_ARRAY(u64, staged, STAGED);
    const u32 queued = work[WORK_QUEUED];
    for (i64 q = GROUP_ID; q < queued; q += GROUP_COUNT) {
        const u32 begin = start[queue[q]], size = start[queue[q] + 1] - begin;
        GLOBAL u64* own = visits + begin;
        u32 power = 2;
        while (power < size) power *= 2;
        const int fits = size <= STAGED;
        if (fits) {
            for (u32 k = LOCAL_ID; k < size; k += GROUP_SIZE) staged[k] = own[k];
            BARRIER();
        }
        // Every run is first compared with its mirror image, so that all runs increase. What would lie beyond the end
        // is larger than all visits, and would stay there.
        for (u32 run = 2; run <= power; run *= 2)
            for (u32 step = run / 2; step > 0; step /= 2) {
                for (u32 k = LOCAL_ID; k < power / 2; k += GROUP_SIZE) {
                    const u32 low = k / step * 2 * step + k % step;
                    const u32 high = step == run / 2 ? low - low % run + run - 1 - low % run : low + step;
                    if (high >= size) continue;
                    const u64 a = fits ? staged[low] : own[low], b = fits ? staged[high] : own[high];
                    if (a <= b) continue;
                    if (fits) staged[low] = b, staged[high] = a;
                    else own[low] = b, own[high] = a;
                }
                BARRIER();
            }
        if (fits)
            for (u32 k = LOCAL_ID; k < size; k += GROUP_SIZE) own[k] = staged[k];
        BARRIER();
    }
}

// Cut windows with many visits into pieces. The first piece of each window is not listed; a further one is listed as
// its window, its first visit, the end of its visits, and its number.
KERNEL cut_windows(GLOBAL const u32* RESTRICT start, GLOBAL u32* RESTRICT work, GLOBAL u32* RESTRICT pieces,
                   const i64 total, const i64 most, const i64 least, const Windows windows)
{
    const i64 bins = bins_of(&windows), all = start[total * bins], mean = all / total;
    i64 limit = mean + mean / 4 + (i64)(6 * sqrt((real)mean));
    if (limit <= all / most) limit = all / most + 1; // so that there is room for all pieces
    if (limit < least) limit = least;
    for (i64 w = GROUP_ID * GROUP_SIZE + LOCAL_ID; w < total; w += GROUP_COUNT * GROUP_SIZE) {
        if (w == 0) work[WORK_LIMIT] = (u32)limit;
        const i64 begin = start[w * bins], size = start[(w + 1) * bins] - begin;
        if (size <= limit) continue;
        const u32 more = (u32)((size - 1) / limit);
        const u32 place = ATOMIC_ADD_U32(work + WORK_PIECES, more);
        for (u32 n = 1; n <= more; n++) {
            GLOBAL u32* piece = pieces + 4 * (i64)(place + n - 1);
            const i64 from = begin + n * limit, rest = size - n * limit;
            piece[0] = (u32)w, piece[1] = (u32)from, piece[2] = (u32)(from + (rest < limit ? rest : limit)), piece[3] = n;
        }
    }
}
