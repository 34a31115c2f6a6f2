// SPDX-License-Identifier: BSD-3-Clause
// The bin of every item: read from an array of keys, or the cell of a position. A kernel names ITEMS first among its
// parameters and ITEM_RECORDS last. TAKE_ITEM(status, i) fills in `item` and records its faults; later ITEM(i) only
// fills it in.
//
// KEYS_ARE_POSITIONS; EXTENTS of items: 0 none, 1 a radius each, 3 half an edge per axis. SYSTEMS: items belong to
// systems, each with cells in a box of its own.

#define GOOD_ITEM 0
#define LEFT_OUT (-1) // a negative key: not a fault
#define BAD_RADIUS 4

// Words of a status.
#define STATUS_NOT_FINITE 0
#define STATUS_OUTSIDE 1
#define STATUS_FIRST 2      // ~(index of the first bad item)
#define STATUS_BAD_RADIUS 3 // negative or not finite
#define STATUS_FULLEST 4    // (items << 32) | cell, from builders that compute it
#define STATUS_FOLDED 5     // whether folding moved anything
#define STATUS_WORDS 8

#if KEYS_ARE_POSITIONS

#include "particles/coordinates.h"

typedef coordinate item_t;

typedef struct {
    int size[3]; // cells along each axis, of the finest level
    int levels;
#if SYSTEMS
    int systems, each; // cells of one system
#endif
    coordinate edge; // items of level 0 are at most this wide, those of level l twice as wide as those of l - 1
} Cells;

#define MOST_TURNS 1048576 // 2^20: turns of three axes fit into 64 bits

#if SYSTEMS
// The numbers of a system: a Geometry, whether the box is orthorhombic, a Reach (grid/queries/search.h), and the edge of
// a cube of its volume, relative to that of the grid's box.
#define NUMBERS 45
#define FLAG_OF_SYSTEM 37
#define REACH_OF_SYSTEM 38
#define SCALE_OF_SYSTEM 44

#define SYSTEM_ITEMS , GLOBAL const int *system_of, GLOBAL const coordinate *boxes
#define SYSTEM_ITEM , system_of[i], boxes
#else
#define SYSTEM_ITEMS
#define SYSTEM_ITEM
#endif

#define ITEMS                                                                                                \
    GLOBAL const item_t *x0, GLOBAL const item_t *x1, GLOBAL const item_t *x2, GLOBAL const item_t *extents SYSTEM_ITEMS
#define ITEM_RECORDS , const Strides strides, const Geometry geometry, const Frame frame, const Cells cells
#define ITEM(i) item_of(&item, x0, x1, x2, extents, i, &strides, &geometry, &frame, &cells SYSTEM_ITEM)

typedef struct {
    coordinate x[3], s[3], turns[3]; // folded; fractions; turns removed
    int level;
    i64 bin;
} Item;

DEVICE int cells_of_level(PRIVATE const Cells* cells, int level, int axis)
{
    const int size = cells->size[axis] >> level;
    return size > 1 ? size : 1;
}

// The first cell of a level in the common numbering.
DEVICE i64 first_of_level(PRIVATE const Cells* cells, int level)
{
    i64 first = 0;
    for (int l = 0; l < level; l++)
        first += (i64)cells_of_level(cells, l, 0) * cells_of_level(cells, l, 1) * cells_of_level(cells, l, 2);
    return first;
}

DEVICE int level_of(PRIVATE const Cells* cells, coordinate radius)
{
    int level = 0;
    coordinate edge = cells->edge;
    while (level + 1 < cells->levels && 2 * radius > edge) level++, edge *= 2;
    return level;
}

// The extent of item i along an axis.
DEVICE coordinate extent_of(GLOBAL const item_t* extents, i64 i, int axis)
{
#if EXTENTS == 3
    return extents[3 * i + axis];
#elif EXTENTS == 1
    return extents[i];
#else
    return 0;
#endif
}

DEVICE int was_folded(PRIVATE const Item* item)
{
    return item->turns[0] != 0 || item->turns[1] != 0 || item->turns[2] != 0;
}

// The place of a point, in fractions of the box.
DEVICE void fractions(PRIVATE coordinate* s, PRIVATE const coordinate* x, PRIVATE const Geometry* geometry)
{
    for (int a = 0; a < 3; a++) {
        s[a] = 0;
        for (int b = 0; b < 3; b++) s[a] += geometry->inverse[3 * a + b] * (x[b] - geometry->origin[b]);
    }
}

DEVICE int item_in_box(PRIVATE Item* item, GLOBAL const item_t* x0, GLOBAL const item_t* x1, GLOBAL const item_t* x2,
                       GLOBAL const item_t* extents, i64 i, PRIVATE const Strides* strides,
                       PRIVATE const Geometry* geometry, PRIVATE const Frame* frame, PRIVATE const Cells* cells)
{
    item->bin = -1;
    const int place = fractional(item->x, item->s, item->turns, x0, x1, x2, i, strides, geometry, frame);
    if (place > GOOD) return place;
    if (place == TO_FOLD) {
        for (int a = 0; a < 3; a++)
            if (!(item->turns[a] < MOST_TURNS - 1 && item->turns[a] > 1 - MOST_TURNS)) return OUTSIDE;
        fold(item->x, item->turns, geometry);
        // The rounding error of a far position's fraction grows with its distance: use the folded one.
        coordinate further[3];
        fractions(item->s, item->x, geometry);
        for (int a = 0; a < 3; a++) {
            further[a] = frame->periodic[a] ? floor(item->s[a]) : (coordinate)0;
            item->turns[a] += further[a];
            item->s[a] = fmin(fmax(item->s[a] - further[a], (coordinate)0), (coordinate)1);
        }
        fold(item->x, further, geometry);
        if (frame->orthorhombic) confine(item->x, item->s, item->turns, geometry, frame);
    }
    item->level = 0;
#if EXTENTS
    coordinate reach = 0;
    for (int a = 0; a < 3; a++) {
        const coordinate extent = extent_of(extents, i, a);
        if (!(extent >= 0 && extent - extent == 0)) return BAD_RADIUS;
        reach = extent > reach ? extent : reach;
    }
    item->level = level_of(cells, reach);
#endif
    int bin = 0;
    for (int a = 0; a < 3; a++) {
        const int size = cells_of_level(cells, item->level, a);
        const int cell = (int)(item->s[a] * (coordinate)size);
        bin = bin * size + (cell < size ? cell : size - 1);
    }
    item->bin = item->level ? bin + first_of_level(cells, item->level) : bin;
    return GOOD_ITEM;
}

#if SYSTEMS
DEVICE int is_system(int system, PRIVATE const Cells* cells)
{
    return system >= 0 && system < cells->systems;
}

// The box of a system: the first one if it is no system.
DEVICE GLOBAL const coordinate* read_box(PRIVATE Geometry* geometry, PRIVATE Frame* frame, int system,
                                         GLOBAL const coordinate* boxes, PRIVATE const Cells* cells)
{
    GLOBAL const coordinate* box = boxes + (i64)(is_system(system, cells) ? system : 0) * NUMBERS;
    for (int n = 0; n < 3; n++) {
        geometry->origin[n] = box[n];
        geometry->lower[n] = box[30 + n];
        geometry->upper[n] = box[33 + n];
    }
    for (int n = 0; n < 9; n++) {
        geometry->inverse[n] = box[3 + n];
        geometry->rows[n] = box[12 + n];
        geometry->tails[n] = box[21 + n];
    }
    geometry->one = box[36];
    frame->orthorhombic = box[FLAG_OF_SYSTEM] != 0;
    return box;
}

DEVICE int item_of(PRIVATE Item* item, GLOBAL const item_t* x0, GLOBAL const item_t* x1, GLOBAL const item_t* x2,
                   GLOBAL const item_t* extents, i64 i, PRIVATE const Strides* strides, PRIVATE const Geometry* common,
                   PRIVATE const Frame* common_frame, PRIVATE const Cells* cells, int system,
                   GLOBAL const coordinate* boxes)
{
    Geometry geometry;
    Frame frame = *common_frame;
    read_box(&geometry, &frame, system, boxes, cells);
    int bad = item_in_box(item, x0, x1, x2, extents, i, strides, &geometry, &frame, cells);
    if (!bad && !is_system(system, cells)) bad = OUTSIDE;
    item->bin = bad ? -1 : item->bin + (i64)system * cells->each;
    return bad;
}
#else
#define item_of item_in_box
#endif

// Turns of three axes in one word.
DEVICE u64 packed_turns(PRIVATE const coordinate* turns)
{
    u64 packed = 0;
    for (int a = 0; a < 3; a++) packed = packed << 21 | (u64)((i64)turns[a] + MOST_TURNS);
    return packed;
}

DEVICE int turn_of(u64 packed, int axis)
{
    return (int)(packed >> (21 * (2 - axis)) & 0x1fffff) - MOST_TURNS;
}

#else

#if KEY_IS_64
typedef i64 item_t;
#else
typedef int item_t;
#endif

#define NOT_FINITE 1
#define OUTSIDE 2

#define ITEMS GLOBAL const item_t *item_keys
#define ITEM_RECORDS
#define ITEM(i) item_of(&item, item_keys, i, bins)

typedef struct {
    i64 bin;
} Item;

DEVICE int item_of(PRIVATE Item* item, GLOBAL const item_t* keys, i64 i, i64 bins)
{
    const item_t key = keys[i];
    item->bin = key < 0 || key >= bins ? -1 : (i64)key;
    return key < 0 ? LEFT_OUT : key < bins ? GOOD_ITEM : OUTSIDE;
}

#endif

// The fault of item i, from ITEM's result: NOT_FINITE, OUTSIDE or BAD_RADIUS.
DEVICE void record_item(GLOBAL u64* status, int what, i64 i)
{
    if (what <= 0) return;
    ATOMIC_ADD_U64(status + what - 1, 1);
    ATOMIC_MAX_U64(status + STATUS_FIRST, ~(u64)i);
}

#if KEYS_ARE_POSITIONS
#define TAKE_ITEM(status, i)                                                       \
    do {                                                                           \
        record_item(status, ITEM(i), i);                                           \
        if (item.bin >= 0 && was_folded(&item)) (status)[STATUS_FOLDED] = 1; /* all write the same */ \
    } while (0)
#else
#define TAKE_ITEM(status, i) record_item(status, ITEM(i), i)
#endif
