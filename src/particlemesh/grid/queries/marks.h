// SPDX-License-Identifier: BSD-3-Clause
// What mark_pairs.c leaves for list_marks.c.

#define INFO_AGAIN 0x80000000u      // the row has more marks than there is room for, or too many pairs
#define FIRST_CANDIDATE 0x80000000u // its bit in a mark
#define LENGTH_OF(info) ((info) & INFO_AGAIN ? (info) & ~INFO_AGAIN : (info) & 0xffffu)
#define IN_MARKS_OF(info) ((info) & INFO_AGAIN ? 0 : (info) & 0xffffu)
