// SPDX-License-Identifier: BSD-3-Clause
// Kept lists of pairs: who has moved too far since the list was made, and which kept pairs are within the radius now.
//
// AXES of the box. DENSE: rows of one width, else rows that follow each other. FILTERS: pairs beyond the radius are left
// out. RADII: each particle has one, and two are added. WRITES: pairs are written, else counted. WANT_...: what is written.

#include "particles/coordinates.h"

// Numbers of a system, as in grid/skin.py.
#define TABLE 32
#define CHANGED 0
#define LIMIT 1
#define ORIGIN_AT 2
#define MAP_AT 5
#define INVERSE_AT 14
#define ROWS_AT 23
#define FAR 1048576

#define POSITIONS GLOBAL const coordinate *x0, GLOBAL const coordinate *x1, GLOBAL const coordinate *x2
#define READ(x, i) read_position(x, x0, x1, x2, i, &strides, &frame)

DEVICE coordinate image_at(GLOBAL const coordinate* numbers, PRIVATE const coordinate* turn, int b)
{
    GLOBAL const coordinate* rows = numbers + ROWS_AT + b;
    return fma(turn[2], rows[6], fma(turn[1], rows[3], turn[0] * rows[0]));
}

DEVICE coordinate square_of(PRIVATE const coordinate* d)
{
    return fma(d[0], d[0], fma(d[1], d[1], d[2] * d[2]));
}

// Writes whole turns since the list was made, and flags systems with a particle that has moved too far.
KERNEL moves(POSITIONS, GLOBAL const coordinate* RESTRICT before, GLOBAL const int* RESTRICT system,
             GLOBAL const coordinate* RESTRICT table, GLOBAL int* RESTRICT turns, GLOBAL int* moved, const i64 count,
             const Strides strides, const Frame frame)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        GLOBAL const coordinate* numbers = table + (i64)system[i] * TABLE;
        coordinate x[3], move[3], turn[3];
        READ(x, i);
        for (int b = 0; b < 3; b++) {
            move[b] = x[b] - before[3 * i + b];
            if (numbers[CHANGED] != 0) { // places in the box are compared
                coordinate place = 0;
                for (int a = 0; a < 3; a++)
                    place += (before[3 * i + a] - numbers[ORIGIN_AT + a]) * numbers[MAP_AT + 3 * a + b];
                move[b] = (x[b] - numbers[ORIGIN_AT + b]) - place;
            }
        }
        int far = 0, turned = 0;
        for (int a = 0; a < 3; a++) {
            GLOBAL const coordinate* inverse = numbers + INVERSE_AT + 3 * a;
            turn[a] = rint(move[0] * inverse[0] + move[1] * inverse[1] + move[2] * inverse[2]);
            far = far || !(fabs(turn[a]) <= (coordinate)FAR);
            turned = turned || turn[a] != 0;
        }
        if (turned)
            for (int b = 0; b < 3; b++) move[b] -= image_at(numbers, turn, b);
        far = far || !(square_of(move) <= numbers[LIMIT]);
        if (far) moved[system[i]] = 1;
        for (int a = 0; a < 3; a++) turns[3 * i + a] = far ? 0 : (int)turn[a];
    }
}

// The system of each particle that is searched for again; -1 for the others.
KERNEL chosen(GLOBAL const int* RESTRICT system, GLOBAL const int* RESTRICT moved, GLOBAL int* RESTRICT searched,
              GLOBAL int* RESTRICT rebuilds, const i64 count, const i64 systems)
{
    const i64 items = count > systems ? count : systems;
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < items; i += GROUP_COUNT * GROUP_SIZE) {
        if (i < count) searched[i] = moved[system[i]] ? system[i] : -1;
        if (i < systems) rebuilds[i] += moved[i];
    }
}

// Keeps places, and rows of one width, of the particles of systems that were searched.
KERNEL renew(POSITIONS, GLOBAL coordinate* RESTRICT before, GLOBAL const int* RESTRICT system,
             GLOBAL const int* RESTRICT moved, GLOBAL int* RESTRICT turns, GLOBAL const int* RESTRICT fresh_count,
             GLOBAL const int* RESTRICT fresh_j, GLOBAL const int* RESTRICT fresh_shift, GLOBAL int* RESTRICT kept_count,
             GLOBAL int* RESTRICT kept_j, GLOBAL int* RESTRICT kept_shift, const i64 count, const i64 width,
             const Strides strides, const Frame frame)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        if (!moved[system[i]]) continue;
        coordinate x[3];
        READ(x, i);
        for (int b = 0; b < 3; b++) before[3 * i + b] = x[b], turns[3 * i + b] = 0;
#if DENSE
        const int there = fresh_count[i];
        kept_count[i] = there;
        for (i64 k = i * width; k < i * width + (there < width ? there : width); k++) {
            kept_j[k] = fresh_j[k];
            for (int a = 0; a < AXES; a++) kept_shift[AXES * k + a] = fresh_shift[AXES * k + a];
        }
#endif
    }
}

typedef struct {
    coordinate square;
} Within;

// Counts the kept pairs of each row that are within reach, or writes them from the row's place on.
KERNEL kept_pairs(POSITIONS, GLOBAL const coordinate* RESTRICT radii, GLOBAL const int* RESTRICT system,
                  GLOBAL const coordinate* RESTRICT table, GLOBAL const int* RESTRICT turns,
                  GLOBAL const i64* RESTRICT start, GLOBAL const int* RESTRICT kept_count,
                  GLOBAL const int* RESTRICT kept_j, GLOBAL const int* RESTRICT kept_shift, GLOBAL u64* RESTRICT counts,
                  GLOBAL const i64* RESTRICT places, GLOBAL int* RESTRICT out_count, GLOBAL int* RESTRICT out_i,
                  GLOBAL int* RESTRICT out_j, GLOBAL int* RESTRICT out_shift, GLOBAL coordinate* RESTRICT out_distance,
                  GLOBAL coordinate* RESTRICT out_vector, const i64 count, const i64 width, const Strides strides,
                  const Frame frame, const Within within)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        GLOBAL const coordinate* numbers = table + (i64)system[i] * TABLE;
        coordinate x[3];
        READ(x, i);
#if DENSE
        const i64 begin = i * width, end = begin + (kept_count[i] < width ? kept_count[i] : width);
        i64 at = begin;
#else
        const i64 begin = start[i], end = start[i + 1];
        i64 at = WRITES ? places[i] : 0;
#endif
        for (i64 k = begin; k < end; k++) {
            const i64 j = kept_j[k];
            coordinate d[3], turn[3] = {0, 0, 0};
            READ(d, j);
            for (int a = 0; a < AXES; a++)
                turn[3 - AXES + a] =
                    kept_shift[AXES * k + a] + turns[3 * i + 3 - AXES + a] - turns[3 * j + 3 - AXES + a];
            const int away = turn[0] != 0 || turn[1] != 0 || turn[2] != 0;
            for (int b = 0; b < 3; b++) {
                d[b] -= x[b];
                if (away) d[b] += image_at(numbers, turn, b);
            }
            const coordinate square = square_of(d);
#if FILTERS && RADII
            if (!(sqrt(square) <= radii[i] + radii[j])) continue;
#elif FILTERS
            if (!(square <= within.square)) continue;
#endif
#if WRITES && WANT_I
            out_i[at] = (int)i;
#endif
#if WRITES && WANT_J
            out_j[at] = (int)j;
#endif
#if WRITES && WANT_SHIFT
            for (int a = 0; a < AXES; a++) out_shift[AXES * at + a] = (int)turn[3 - AXES + a];
#endif
#if WRITES && WANT_DISTANCE
            out_distance[at] = sqrt(square);
#endif
#if WRITES && WANT_VECTOR
            for (int a = 0; a < AXES; a++) out_vector[AXES * at + a] = d[3 - AXES + a];
#endif
            at++;
        }
#if DENSE
        out_count[i] = (int)(at - begin);
        for (; at < begin + width; at++) { // empty places
#if WANT_I
            out_i[at] = -1;
#endif
#if WANT_J
            out_j[at] = -1;
#endif
#if WANT_SHIFT
            for (int a = 0; a < AXES; a++) out_shift[AXES * at + a] = 0;
#endif
#if WANT_DISTANCE
            out_distance[at] = 0;
#endif
#if WANT_VECTOR
            for (int a = 0; a < AXES; a++) out_vector[AXES * at + a] = 0;
#endif
        }
#elif !WRITES
        counts[i] = (u64)at;
#endif
    }
}
