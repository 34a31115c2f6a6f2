// SPDX-License-Identifier: BSD-3-Clause
// The search of a warp for the particles near a cluster: up to MEMBERS particles that follow each other by cell, and so
// lie close to each other (grid/queries/each_cluster.h).
//
// Cells along the last axis are a column. Each lane takes a column within reach of the cluster's bounding box, and finds
// the part of it within reach. The particles of 32 columns follow each other as candidates: a bit for the first of each
// column tells a lane the column of its candidate. Candidates near the bounding box wait in a queue until there is one
// for each lane. These lanes then walk through the members.
//
// The reach is less than a box along periodic axes, so that turns are -1, 0 and 1.

#define PART 1024u // candidates whose columns have bits in local memory
#define STEPS 2    // of 32 candidates at once: their loads overlap, which takes 0.84 to 0.98 of the time (H200)
#define QUEUE 128u
#define WARPS (GROUP_SIZE / WARP_SIZE)

#define ROUNDING (32 * ((coordinate)1 - (coordinate)BELOW_ONE)) // of a distance, and of its square: 16 units
#define NOWHERE (coordinate)REAL_FROM_BITS_U32(0x7fc00000u)     // NaN: no distance from it is within a limit

// In local memory, since registers are for sums.
typedef struct {
    coordinate centre[3], extent[3]; // of the bounding box, which allows for rounding
    coordinate least[3], most[3];    // fractions of the members
    coordinate width[3];             // of a cell, as a fraction
    int size[3];                     // cells of the box
    int low[3], high[3];             // the first and last cell within reach
} Cluster;

#define OF_AXIS(array, a) ((a) == 0 ? (array)[0] : (a) == 1 ? (array)[1] : (array)[2])

// Writes what a cluster's search needs along one axis. members, fractions_of: four reals for each.
DEVICE void bound_axis(LOCAL Cluster* cluster, int a, LOCAL const real* members, LOCAL const real* fractions_of,
                       const coordinate distance, PRIVATE const Geometry* geometry, PRIVATE const Frame* frame,
                       PRIVATE const Cells* cells, PRIVATE const Reach* reach)
{
    coordinate low = NOWHERE, high = NOWHERE, least = NOWHERE, most = NOWHERE; // which fmin and fmax ignore
    UNROLL for (int m = 0; m < MEMBERS; m++) {
        low = fmin(low, members[4 * m + a]), high = fmax(high, members[4 * m + a]);
        least = fmin(least, fractions_of[4 * m + a]), most = fmax(most, fractions_of[4 * m + a]);
    }
    coordinate rounding = ROUNDING * distance;
    for (int b = 0; b < 3; b++) rounding = fma(fabs(OF_AXIS(geometry->rows + 3 * b, a)), reach->margin[b], rounding);
    const int size = OF_AXIS(cells->size, a), periodic = OF_AXIS(frame->periodic, a);
    const coordinate wide = distance * OF_AXIS(reach->per, a) + OF_AXIS(reach->margin, a);
    int first, last, other;
    cells_within(&first, &other, least, wide, size, periodic);
    cells_within(&other, &last, most, wide, size, periodic);
    cluster->centre[a] = (low + high) / 2;
    cluster->extent[a] = (high - low) / 2 + rounding;
    cluster->least[a] = least;
    cluster->most[a] = most;
    cluster->width[a] = (coordinate)1 / (coordinate)size;
    cluster->size[a] = size;
    cluster->low[a] = first;
    cluster->high[a] = last;
}

// Turns in one word.
DEVICE u32 word_of_turns(PRIVATE const int* turn)
{
    return (u32)(turn[0] + 1) << 4 | (u32)(turn[1] + 1) << 2 | (u32)(turn[2] + 1);
}

DEVICE void turns_of_word(PRIVATE int* turn, u32 word)
{
    turn[0] = (int)(word >> 4) - 1, turn[1] = (int)(word >> 2 & 3) - 1, turn[2] = (int)(word & 3) - 1;
}

// The cells of a column within reach, as places along it, if there are any. `cell` are the column's places along the
// first two axes, which move into the box, and turn[2] is given. Returns the column's first cell.
DEVICE cell_t reach_column(PRIVATE int* low, PRIVATE int* high, PRIVATE int* turn, PRIVATE int* cell,
                           LOCAL const Cluster* cluster, const coordinate limit, PRIVATE const Frame* frame,
                           PRIVATE const Reach* reach)
{
    // The square of its distance from the box, at least; across the column if the box is orthorhombic.
    coordinate away = 0;
    UNROLL for (int a = 0; a < 2; a++) {
        const coordinate begin = (coordinate)cell[a] * cluster->width[a];
        const coordinate below = cluster->least[a] - (begin + cluster->width[a]);
        const coordinate gap = fmax(begin - cluster->most[a], below) - reach->margin[a];
        if (gap > 0) {
            const coordinate distance = gap / reach->per[a], square = distance * distance;
            away = frame->orthorhombic ? away + square : fmax(away, square);
        }
        turn[a] = (cell[a] >= cluster->size[a]) - (cell[a] < 0);
        cell[a] -= turn[a] * cluster->size[a];
    }
    const coordinate left = limit - away;
    if (left >= 0) {
        const int size = cluster->size[2], begin = turn[2] * size;
        const coordinate wide = sqrt(frame->orthorhombic ? left : limit) * reach->per[2] + reach->margin[2];
        int first, last, other;
        cells_within(&first, &other, cluster->least[2], wide, size, frame->periodic[2]);
        cells_within(&other, &last, cluster->most[2], wide, size, frame->periodic[2]);
        *low = first > begin ? first - begin : 0;
        *high = last < begin + size ? last - begin : size - 1;
    }
    return ((cell_t)cell[0] * cluster->size[1] + cell[1]) * cluster->size[2];
}
