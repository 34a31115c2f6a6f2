// SPDX-License-Identifier: BSD-3-Clause
// Windows that cut the field into parts, and visits: one for each window that a particle's stencil reaches.
//
// A visit is 64 bits: from bit 32 on the particle's index; below it where its stencil begins, from bit 10 on along x, from
// bit 5 on along y, from bit 0 on along z. Nodes are counted from the first at which stencils that reach the window begin.

#ifndef VISITS_H
#define VISITS_H

#include "particles/packed.h"

typedef struct {
    int base[3];    // that located nodes are counted from
    int size[3];    // nodes of the field
    int wraps[3];   // nodes are taken modulo size
    int support[3]; // nodes of a stencil
    int length[3];  // nodes of a window; the last one along an axis may be narrow
    int counts[3];  // windows along each axis
    int before;     // the most nodes of a stencil before a window, along y and z
    int height;     // nodes along y, at which stencils may begin, of a bin
    int rows;       // bins of a node along x
} Windows;

#define VISITOR(visit) ((u32)((visit) >> 32))
#define VISIT_X(where) ((int)((where) >> 10))
#define VISIT_Y(where) ((int)((where) >> 5 & 31))
#define VISIT_Z(where) ((int)((where)&31))

// `work` of orders/visits.py: pieces beyond the first of their windows; the most visits of a piece; crowded bins; and
// counts of visits.
#define WORK_PIECES 0
#define WORK_LIMIT 1
#define WORK_QUEUED 2
#define WORK_COUNTS 4

// A window has bins for each node along x at which stencils that reach it may begin.
DEVICE int bins_of(PRIVATE const Windows* windows)
{
    return (windows->length[0] + windows->support[0] - 1) * windows->rows;
}

// The windows along an axis that a stencil reaches, one after the other; and, where the axis wraps, as often as the
// stencil comes round.
typedef struct {
    int first, window; // the stencil's first node, as seen from this round; the window
} Reach;

DEVICE Reach reach_from(PRIVATE const Windows* windows, const int axis, const int at)
{
    Reach r;
    r.first = at + windows->base[axis];
    r.window = r.first > 0 ? r.first / windows->length[axis] : 0;
    return r;
}

DEVICE int reaches(PRIVATE Reach* r, PRIVATE const Windows* windows, const int axis)
{
    const int size = windows->size[axis];
    for (;;) {
        const int end = r->first + windows->support[axis];
        if (r->first < size && r->window * windows->length[axis] < (end < size ? end : size)) return 1;
        if (!windows->wraps[axis] || end <= size) return 0;
        r->first -= size, r->window = 0;
    }
}

// Where the stencil begins, from the window's first node on.
DEVICE int offset_in(PRIVATE const Reach* r, PRIVATE const Windows* windows, const int axis)
{
    return r->first - r->window * windows->length[axis];
}

#endif
