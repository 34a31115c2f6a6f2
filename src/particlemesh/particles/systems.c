// SPDX-License-Identifier: BSD-3-Clause
// Fields of systems, and the field in which they lie one behind the other with ghosts between them (systems.py).

// Channels of each system, nodes along the first axis, along the other two, reals of a node.
typedef struct {
    i64 shape[5], strides[5];
    i64 offset;
} Fields;

DEVICE void index_of(PRIVATE i64* at, i64 k, PRIVATE const Fields* of)
{
    for (int a = 4; a >= 0; a--) {
        const i64 rest = k / of->shape[a];
        at[a] = k - rest * of->shape[a];
        k = rest;
    }
}

DEVICE i64 real_at(PRIVATE const i64* at, PRIVATE const Fields* of)
{
    i64 place = of->offset;
    for (int a = 0; a < 5; a++) place += at[a] * of->strides[a];
    return place;
}

// Adds to every node of the systems its images: `period` nodes apart, or itself only if that is 0.
KERNEL fold_systems(GLOBAL real* RESTRICT fields, GLOBAL const real* RESTRICT stacked, const i64 count, const i64 lower,
                    const i64 period, const Fields nodes, const Fields padded)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        i64 at[5];
        index_of(at, k, &nodes);
        GLOBAL real* node = fields + real_at(at, &nodes);
        real sum = *node;
        at[1] += lower;
        if (period) at[1] %= period;
        for (; at[1] < padded.shape[1]; at[1] += period ? period : padded.shape[1]) sum += stacked[real_at(at, &padded)];
        *node = sum;
    }
}

// Copies to every place the node that it is an image of, or zero.
KERNEL fill_systems(GLOBAL real* RESTRICT stacked, GLOBAL const real* RESTRICT fields, const i64 count, const i64 lower,
                    const i64 period, const Fields nodes, const Fields padded)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        i64 at[5];
        index_of(at, k, &padded);
        const i64 to = real_at(at, &padded);
        at[1] -= lower;
        if (period) {
            at[1] %= period;
            if (at[1] < 0) at[1] += period;
        }
        stacked[to] = at[1] >= 0 && at[1] < nodes.shape[1] ? fields[real_at(at, &nodes)] : 0;
    }
}
