// SPDX-License-Identifier: BSD-3-Clause
// The K nearest particles within a radius of each particle, or of each given point (POINTS). One work-item per row.
//
// The first radius is estimated from the number of particles in the cell. It grows until it holds K particles or is the
// largest. Within it every strip not farther than the current K-th particle is searched. Equal distances are ordered by
// index, so that the order of particles does not matter.

#include "grid/queries/search.h"

#define FEW 16 // a list this short stays in registers, sorted; a longer one is a heap, farthest on top

typedef struct {
    coordinate radius, limit; // the largest, and the largest square of a distance within it
    coordinate scale;  // a first radius: scale * (particles of the cell + mean)^power
    coordinate mean, power;
} Search;

typedef struct {
    coordinate r2[K];
    int index[K];
} List;

DEVICE int closer(coordinate r2, int index, coordinate than, int other)
{
    return r2 < than || (r2 == than && index < other);
}

DEVICE void clear_list(PRIVATE List* list)
{
    UNROLL for (int k = 0; k < K; k++) list->r2[k] = REAL_FROM_BITS_U32(0x7f800000u), list->index[k] = -1; // infinite
}

#if K <= FEW

#define FARTHEST (K - 1)

DEVICE void insert(PRIVATE List* list, coordinate r2, int index)
{
    UNROLL for (int k = 0; k < K; k++) {
        if (closer(r2, index, list->r2[k], list->index[k])) {
            const coordinate next_r2 = list->r2[k];
            const int next_index = list->index[k];
            list->r2[k] = r2, list->index[k] = index;
            r2 = next_r2, index = next_index;
        }
    }
}

DEVICE void sort_list(PRIVATE List* list) {}

#else

#define FARTHEST 0

// Replace the top of a heap of `length` by an entry.
DEVICE void replace_top(PRIVATE List* list, int length, coordinate r2, int index)
{
    int at = 0;
    for (int child = 1; child < length; child = 2 * at + 1) {
        const int next = child + 1;
        if (next < length && closer(list->r2[child], list->index[child], list->r2[next], list->index[next]))
            child = next;
        if (!closer(r2, index, list->r2[child], list->index[child])) break;
        list->r2[at] = list->r2[child], list->index[at] = list->index[child];
        at = child;
    }
    list->r2[at] = r2, list->index[at] = index;
}

DEVICE void insert(PRIVATE List* list, coordinate r2, int index)
{
    if (closer(r2, index, list->r2[0], list->index[0])) replace_top(list, K, r2, index);
}

DEVICE void sort_list(PRIVATE List* list)
{
    for (int last = K - 1; last > 0; last--) {
        const coordinate r2 = list->r2[last];
        const int index = list->index[last];
        list->r2[last] = list->r2[0], list->index[last] = list->index[0];
        replace_top(list, last, r2, index);
    }
}

#endif

// The least distance of a point from a layer of cells, across the faces of an axis.
DEVICE coordinate gap(coordinate s, int cell, int size, int axis, PRIVATE const Reach* reach)
{
    const coordinate below = (coordinate)cell / (coordinate)size - s;
    const coordinate above = s - (coordinate)(cell + 1) / (coordinate)size;
    const coordinate fraction = (below > above ? below : above) - reach->margin[axis];
    return fraction > 0 ? fraction / reach->per[axis] : (coordinate)0;
}

// Gaps along two axes at once: a right angle makes them sides of a triangle.
DEVICE coordinate squared_gap(coordinate gap_0, coordinate gap_1, int orthorhombic)
{
    const coordinate larger = gap_0 > gap_1 ? gap_0 : gap_1;
    return orthorhombic ? gap_0 * gap_0 + gap_1 * gap_1 : larger * larger;
}

// For rows of particles that were left out, which the search does not write: this runs first.
KERNEL no_neighbours(GLOBAL const u32* RESTRICT start, GLOBAL int* RESTRICT indices, GLOBAL real* RESTRICT distances,
                     const i64 count, const i64 bins)
{
    const int all = start[bins] == count;
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count * K; i += GROUP_COUNT * GROUP_SIZE) {
        if (all) continue;
        indices[i] = -1;
        distances[i] = REAL_FROM_BITS_U32(0x7f800000u);
    }
}

KERNEL nearest(SYSTEM_ARRAYS GLOBAL const real* RESTRICT records, GLOBAL const u32* RESTRICT start, GLOBAL const u32* RESTRICT ends,
               GLOBAL const real* RESTRICT x0, GLOBAL const real* RESTRICT x1, GLOBAL const real* RESTRICT x2,
               GLOBAL u64* RESTRICT status, GLOBAL int* RESTRICT indices, GLOBAL real* RESTRICT distances,
               const i64 rows, const i64 bins, const Strides strides, BOX_RECORDS, const Search search)
{
#if POINTS
    const i64 valid = rows;
#else
    const i64 valid = start[bins];
#endif
    for (i64 p = GROUP_ID * GROUP_SIZE + LOCAL_ID; p < valid; p += GROUP_COUNT * GROUP_SIZE) {
        coordinate x[3], s[3];
        List list;
        clear_list(&list);
#if POINTS
        const i64 row = p;
        IN_SYSTEM_OF_POINT(p)
        const int bad = POINT_FAULT(point_of(x, s, x0, x1, x2, p, &strides, &geometry, &frame));
        record_item(status, bad, p);
#else
        const int bad = 0;
        IN_SYSTEM_OF_PARTICLE(p)
        const real4 own = READ_4(records + 4 * p);
        const i64 row = INDEX_OF_REAL(own.w);
        x[0] = own.x, x[1] = own.y, x[2] = own.z;
        fractions(s, x, &geometry);
#endif
        if (!bad) {
            i64 cell = 0;
            for (int a = 0; a < 3; a++) {
                const int size = cells_of_level(&cells, 0, a);
                const coordinate place = s[a] * (coordinate)size;
                cell = cell * size + (place >= (coordinate)size ? size - 1 : place > 0 ? (int)place : 0);
            }
            cell += CELLS_BEFORE;
#if CELLS_ARE_SCATTERED
            const u32 held = ends[cell] - start[cell];
#else
            const u32 held = start[cell + 1] - start[cell];
#endif
            coordinate tried = SCALE_OF_BOX * search.scale * pow((coordinate)held + search.mean, search.power);
            for (;;) {
                if (!(tried < search.radius)) tried = search.radius;
                const coordinate most = tried == search.radius ? search.limit : tried * tried;
#define FIRST_LEVEL 0
#define REACH_OF(level) tried
#define BOUND (list.r2[FARTHEST] < most ? list.r2[FARTHEST] : most)
#if POINTS
#define ITSELF 0
#else
#define ITSELF (q == p && !turned)
#endif
#define STRIP                                                                                                        \
    if (squared_gap(gap(s[0], c0, size[0], 0, &reach), gap(s[1], c1, size[1], 1, &reach), frame.orthorhombic)        \
        <= BOUND)                                                                                                    \
        for (i64 q = from; q < to; q++) {                                                                            \
            const real4 other = READ_4(records + 4 * q);                                                             \
            coordinate d[3];                                                                                         \
            VECTOR(d, other, x, shift);                                                                              \
            const coordinate r2 = SQUARED(d);                                                                        \
            if (r2 <= BOUND && !ITSELF) insert(&list, r2, (int)INDEX_OF_REAL(other.w));                              \
        }
#include "grid/queries/strips.h"
                if (list.index[FARTHEST] >= 0 || tried == search.radius) break;
                tried *= (coordinate)1.5; // three times the volume
                clear_list(&list);
            }
            sort_list(&list);
        }
        for (int k = 0; k < K; k++) {
            indices[row * K + k] = list.index[k];
            distances[row * K + k] = sqrt(list.r2[k]);
        }
    }
}
