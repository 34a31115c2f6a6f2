// SPDX-License-Identifier: BSD-3-Clause
// Clears or copies words of 4 bytes between arrays of any strides (PyOpenCL does neither).

typedef struct {
    i64 shape[6], target[6], source[6]; // strides in words
    i64 target_offset, source_offset;
} Strided;

KERNEL strided(GLOBAL u32* target, GLOBAL const u32* source, const i64 count, const i64 clears, const Strided s)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        i64 rest = k, to = s.target_offset, from = s.source_offset;
        for (int a = 5; a >= 0; a--) {
            const i64 at = rest % s.shape[a];
            rest /= s.shape[a];
            to += at * s.target[a];
            from += at * s.source[a];
        }
        target[to] = clears ? 0u : source[from];
    }
}
