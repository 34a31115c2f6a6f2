// SPDX-License-Identifier: BSD-3-Clause

// Replaces numbers by the mean of them and others: results of two interlaced meshes.
KERNEL average(GLOBAL real* target, GLOBAL const real* other, const i64 count)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE)
        target[k] = (real)0.5 * (target[k] + other[k]);
}
