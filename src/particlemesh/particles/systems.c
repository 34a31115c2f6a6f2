// SPDX-License-Identifier: BSD-3-Clause
// Fields of systems, and the field in which they lie one behind the other with ghosts between them (systems.py).

#if MOVES
#include "particles/coordinates.h"
#include "arrays/lattices.h"

typedef struct {
    real origin[3];
} Origin;

typedef struct {
    real rows[9];
} Rows;

// The maps from boxes to the mesh's box: inverse matrices times its lattice vectors.
KERNEL map_systems(GLOBAL const real* RESTRICT boxes, GLOBAL coordinate* RESTRICT maps, GLOBAL real* RESTRICT wide,
                   const i64 systems, const i64 missing, const Rows mesh)
{
    const int first = (int)missing, axes = 3 - first;
    for (i64 s = GROUP_ID * GROUP_SIZE + LOCAL_ID; s < systems; s += GROUP_COUNT * GROUP_SIZE)
        for (int b = 0; b < axes; b++)
            for (int c = 0; c < axes; c++) {
                real sum = 0;
                for (int a = first; a < 3; a++)
                    sum += boxes[s * NUMBERS + INVERSE + 3 * a + first + b] * mesh.rows[3 * a + first + c];
                wide[(s * axes + b) * axes + c] = sum;
                maps[(s * axes + b) * axes + c] = (coordinate)sum;
            }
}

// Positions in the boxes of their systems to the same fractions of the mesh's box, in double precision (real).
KERNEL move_systems(GLOBAL const coordinate* x0, GLOBAL const coordinate* x1, GLOBAL const coordinate* x2,
                    GLOBAL real* RESTRICT moved, GLOBAL const real* RESTRICT maps,
                    GLOBAL const int* RESTRICT system, const i64 count, const i64 systems, const Strides strides,
                    const Frame frame, const Origin box)
{
    const int axes = 3 - frame.missing;
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        coordinate x[3];
        read_position(x, x0, x1, x2, i, &strides, &frame);
        const int known = system[i] >= 0 && system[i] < systems;
        GLOBAL const real* map = maps + (known ? system[i] : 0) * axes * axes;
        for (int c = 0; c < axes; c++) {
            real sum = box.origin[frame.missing + c];
            for (int b = 0; b < axes; b++)
                sum += ((real)x[frame.missing + b] - box.origin[frame.missing + b]) * map[b * axes + c];
            moved[i * axes + c] = sum;
        }
    }
}
#endif

// Of fields: channels of each system, nodes along the first axis, along the other two, reals of a node. Of vectors and
// tensors: channels, particles, one or two axes, reals.
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

#ifdef TENSORS
// Vectors or tensors (TENSORS) per length of the boxes of their systems to those of the mesh's box, or `back`. Both may be
// the same memory.
KERNEL turn_systems(GLOBAL real* target, GLOBAL const real* source, GLOBAL const real* maps, GLOBAL const int* system,
                    GLOBAL const int* order, // of values, if `sorted`
                    const i64 count, const i64 systems, const i64 sorted, const i64 back, const Fields to,
                    const Fields from)
{
    const int second = TENSORS ? AXES : 1;
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 part = k % to.shape[4], rest = k / to.shape[4], i = rest % to.shape[1], channel = rest / to.shape[1];
        const int own = system[sorted ? order[i] : i];
        const int known = own >= 0 && own < systems;
        i64 at[5] = {channel, i, 0, 0, part};
        real map[AXES][AXES], given[AXES][AXES], turned[AXES][AXES];
        for (int b = 0; b < AXES; b++) {
            for (int c = 0; c < AXES; c++)
                map[b][c] = known ? maps[(i64)own * AXES * AXES + (back ? c * AXES + b : b * AXES + c)] : b == c;
            for (int e = 0; e < second; e++) {
                at[2] = b, at[3] = e;
                given[b][e] = source[real_at(at, &from)];
            }
        }
        for (int c = 0; c < AXES; c++)
            for (int e = 0; e < second; e++) {
                turned[c][e] = 0;
                for (int b = 0; b < AXES; b++) turned[c][e] += given[b][e] * map[b][c];
            }
        for (int c = 0; c < AXES; c++)
            for (int e = 0; e < second; e++) {
                real sum = turned[c][e];
                if (TENSORS) { // back from the mesh they are symmetric, and stay so
                    const int swap = back && c > e, row = swap ? e : c, column = swap ? c : e;
                    sum = 0;
                    for (int f = 0; f < AXES; f++) sum += turned[row][f] * map[f][column];
                }
                at[2] = c, at[3] = e;
                target[real_at(at, &to)] = sum;
            }
    }
}
#endif
