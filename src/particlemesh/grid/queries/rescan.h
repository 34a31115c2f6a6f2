// SPDX-License-Identifier: BSD-3-Clause
// Warps search together for the rows of their work-items that set `again`, and write their pairs from places[] on. A
// part of pairs.c and list_marks.c, which have tile, places, capacity, width, out and, for WANT_SHIFT, unfolding[].

for (u32 left = WARP_BALLOT(warp, again); left; left &= left - 1) {
    const int member = LOCAL_ID - LANE + 31 - LEADING_ZEROS_U32(left & (0u - left));
    Row row;
    IN_SYSTEM_OF_ROW(tile * GROUP_SIZE + member)
    ROW_OF(&row, tile * GROUP_SIZE + member);
    PRIVATE const coordinate* x = row.x;
    PRIVATE const coordinate* s = row.s;
    i64 next = places[member];
    const i64 end = PLACE == 2 ? next + width : capacity;
#if WANT_SHIFT
#define UNFOLD_IMAGE unfold(image, unfolding[member], index, &out);
#else
#define UNFOLD_IMAGE
#endif
#define WRITE_HITS                                                                               \
    const i64 mine = next + POPCOUNT_U32(hits & (((u32)1 << LANE) - 1));                         \
    if (hit && mine < end) {                                                                     \
        int image[3];                                                                            \
        for (int a = 0; a < 3; a++) image[a] = turn[a];                                          \
        UNFOLD_IMAGE                                                                             \
        write_pair(&out, mine, BY_INDEX ? row.index : row.slot, BY_INDEX ? index : k, image, d); \
    }                                                                                            \
    next += POPCOUNT_U32(hits);
#undef IMAGES_APART // this is for few rows: no second copy of STRIP
#define STRIP TOGETHER(WRITE_HITS)
#include "grid/queries/strips.h"
#undef STRIP
}
