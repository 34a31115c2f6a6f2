// SPDX-License-Identifier: BSD-3-Clause
// A place for every item of a warp in its bin. Neighbouring lanes that want the same bin share one atomic: input that
// is nearly sorted has long runs of them. Called by all lanes, with a negative bin where there is nothing to place.

#include "backends/count.h"

#if COUNT_IS_64
typedef i64 index_t;
#else
typedef int index_t;
#endif

DEVICE index_t rank_in_bin(WARP_PARAMETER warp, GLOBAL count_t* counts, i64 bin)
{
    const u32 low = (u32)bin, low_before = WARP_SHUFFLE_U32(warp, low, LANE - 1);
    int first = LANE == 0 || low != low_before;
#if KEY_IS_64
    const u32 high = (u32)(bin >> 32), high_before = WARP_SHUFFLE_U32(warp, high, LANE - 1);
    first = first || high != high_before;
#endif
    const u32 firsts = WARP_BALLOT(warp, first);
    const int leader = 31 - LEADING_ZEROS_U32(firsts & (0xffffffffu >> (31 - LANE)));
    index_t ahead = -1;
    if (first && bin >= 0) {
        const u32 later = LANE == 31 ? 0 : firsts >> (LANE + 1); // where the runs behind begin
        const int length = later ? 32 - LEADING_ZEROS_U32(later & (0u - later)) : 32 - LANE;
        ahead = (index_t)ATOMIC_ADD_COUNT(counts + bin, length);
    }
#if COUNT_IS_64
    const u64 upper = (u64)WARP_SHUFFLE_U32(warp, (u32)((u64)ahead >> 32), leader) << 32;
    ahead = (index_t)(upper | WARP_SHUFFLE_U32(warp, (u32)ahead, leader));
#else
    ahead = (index_t)WARP_SHUFFLE_U32(warp, (u32)ahead, leader);
#endif
    return bin < 0 ? (index_t)-1 : ahead + (LANE - leader);
}
