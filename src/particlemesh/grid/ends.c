// SPDX-License-Identifier: BSD-3-Clause
// The least and largest coordinates of the particles of each system. Runs of RUN particles mostly belong to one system:
// so a run writes once, where it is beyond what is there.

#include "particles/coordinates.h"

#define RUN 32

// A number that sorts like x and is never 0. `real` has 32 bits here; doubles are rounded up.
DEVICE u32 key_of(const coordinate x)
{
    const real rounded = (real)x;
    const u32 bits = BITS_OF_FLOAT(rounded);
    return (bits >> 31 ? ~bits : bits | 0x80000000u) + (u32)((coordinate)rounded < x);
}

DEVICE void raise(GLOBAL u32* word, const u32 key)
{
    if (key > PEEK_U32(word)) ATOMIC_MAX_U32(word, key);
}

// `ends` has six words for each system, all 0 before: those of all systems for -x along three axes, then for x.
KERNEL find_ends(GLOBAL const coordinate* x0, GLOBAL const coordinate* x1, GLOBAL const coordinate* x2,
                 GLOBAL const int* RESTRICT system_of, GLOBAL u32* ends, const i64 count, const i64 systems,
                 const i64 several, const Strides strides, const Frame frame)
{
    for (i64 begin = RUN * (GROUP_ID * GROUP_SIZE + LOCAL_ID); begin < count; begin += RUN * GROUP_COUNT * GROUP_SIZE) {
        i64 system = -1;
        u32 largest[6] = {0, 0, 0, 0, 0, 0};
        for (i64 i = begin; i <= begin + RUN; i++) {
            const int inside = i < count && i < begin + RUN;
            const i64 next = !inside ? -1 : several ? (i64)system_of[i] : 0;
            if (next != system) {
                if (system >= 0 && system < systems)
                    for (int e = 0; e < 6; e++) raise(ends + e * systems + system, largest[e]);
                for (int e = 0; e < 6; e++) largest[e] = 0;
                system = next;
            }
            coordinate x[3];
            if (!inside || read_position(x, x0, x1, x2, i, &strides, &frame) != GOOD) continue;
            for (int a = 0; a < 3; a++) {
                const u32 low = key_of(-x[a]), high = key_of(x[a]);
                if (low > largest[a]) largest[a] = low;
                if (high > largest[3 + a]) largest[3 + a] = high;
            }
        }
    }
}
