// SPDX-License-Identifier: BSD-3-Clause
// The walk of walk.c with sums of 64-bit integers: those of fixed_point.c, particle by particle, in any order.
// Each axis has a table of weights: wide windows are taken in pieces.

#include "spread/fixed.h"

typedef u64 Sink;
typedef i64 Sum;
#if VECTOR != 1
#error "integer adds have no vector form"
#endif
typedef struct {
    real table[3 * SUPPORT * (DEGREE + 1)];
} Windows;
#define WHOLE 1
#define TABLE_ALONG(windows, axis) ((PRIVATE const Window*)((windows)->table + (axis) * SUPPORT * (DEGREE + 1)))
#define DEPOSIT(to, vector) \
    if ((vector)[0] != 0) ATOMIC_ADD_U64(to, (vector)[0])
#define PARTS_APART 0
#define MORE_PARAMETERS , GLOBAL const int* RESTRICT bounds, const i64 first_bound
#define BROUGHT(q) scale_bounded(q, bounds, first_bound)
#include "spread/walk.c"
