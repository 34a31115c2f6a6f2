// SPDX-License-Identifier: BSD-3-Clause
// The walk of walk.c with sums of 64-bit integers: those of fixed_point.c, particle by particle, in any order.
// Of wide windows a launch adds a piece: the nodes from `first` on along each axis.

#include "spread/fixed.h"

typedef u64 Sink;
typedef i64 Sum;
#if VECTOR != 1
#error "integer adds have no vector form"
#endif
#define WHOLE 1
#if PIECES > 1
typedef struct {
    i64 first[3];
    real table[PIECES * SUPPORT * (DEGREE + 1)];
} Tables;
#define TABLE_ALONG(window, axis) ((PRIVATE const Window*)((window)->table + (window)->first[axis] * (DEGREE + 1)))
#endif
#define DEPOSIT(to, vector) \
    if ((vector)[0] != 0) ATOMIC_ADD_U64(to, (vector)[0])
#define PARTS_APART 0
#define MORE_PARAMETERS , GLOBAL const int* RESTRICT bounds, const i64 first_bound
#define BROUGHT(q) scale_bounded(q, bounds, first_bound)
#include "spread/walk.c"
