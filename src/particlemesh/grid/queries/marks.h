// SPDX-License-Identifier: BSD-3-Clause
// What mark_pairs.c leaves for list_marks.c.

#define INFO_AGAIN 0x80000000u      // the row has more marks than there is room for, or too many pairs
#define FIRST_CANDIDATE 0x80000000u // its bit in a mark
#define LENGTH_OF(info) ((info) & INFO_AGAIN ? (info) & ~INFO_AGAIN : (info) & 0xffffu)
#define IN_MARKS_OF(info) ((info) & INFO_AGAIN ? 0 : (info) & 0xffffu)

#if SPLIT
// That of a row, from those of its images and its box.
DEVICE u32 both_infos(u32 images, u32 box)
{
    const u32 length = LENGTH_OF(images) + LENGTH_OF(box);
    return (images | box) & INFO_AGAIN ? INFO_AGAIN | length : ((images >> 16) + (box >> 16)) << 16 | length;
}
#endif
