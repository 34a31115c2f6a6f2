// SPDX-License-Identifier: BSD-3-Clause
// A place in its bin for every item of a warp. Neighbouring lanes with the same bin share one atomic: nearly sorted
// input has long runs of them. All lanes call it, with a negative bin if there is nothing to place.

#include "backends/count.h"

#if COUNT_IS_64
typedef i64 index_t;
#else
typedef int index_t;
#endif

// The first lane of the run of equal bins that a lane is in; only that first lane gets `length`.
DEVICE int run_of_lane(WARP_PARAMETER warp, i64 bin, PRIVATE int* length)
{
    const u32 low = (u32)bin, low_before = WARP_SHUFFLE_U32(warp, low, LANE - 1);
    int first = LANE == 0 || low != low_before;
#if KEY_IS_64
    const u32 high = (u32)(bin >> 32), high_before = WARP_SHUFFLE_U32(warp, high, LANE - 1);
    first = first || high != high_before;
#endif
    const u32 firsts = WARP_BALLOT(warp, first);
    const u32 later = LANE == 31 ? 0 : firsts >> (LANE + 1); // where later runs begin
    *length = later ? 32 - LEADING_ZEROS_U32(later & (0u - later)) : 32 - LANE;
    return 31 - LEADING_ZEROS_U32(firsts & (0xffffffffu >> (31 - LANE)));
}

DEVICE index_t rank_in_bin(WARP_PARAMETER warp, GLOBAL count_t* counts, i64 bin)
{
    int length;
    const int leader = run_of_lane(warp, bin, &length);
    index_t ahead = -1;
    if (LANE == leader && bin >= 0) ahead = (index_t)ATOMIC_ADD_COUNT(counts + bin, length);
#if COUNT_IS_64
    const u64 upper = (u64)WARP_SHUFFLE_U32(warp, (u32)((u64)ahead >> 32), leader) << 32;
    ahead = (index_t)(upper | WARP_SHUFFLE_U32(warp, (u32)ahead, leader));
#else
    ahead = (index_t)WARP_SHUFFLE_U32(warp, (u32)ahead, leader);
#endif
    return bin < 0 ? (index_t)-1 : ahead + (LANE - leader);
}

// Only counts, by atomics without a result. Returns whether the lane added for its run.
DEVICE int count_in_bin(WARP_PARAMETER warp, GLOBAL count_t* counts, i64 bin)
{
    int length;
    const int adds = run_of_lane(warp, bin, &length) == LANE && bin >= 0;
    if (adds) ATOMIC_ADD_COUNT(counts + bin, length);
    return adds;
}
