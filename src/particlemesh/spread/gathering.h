// SPDX-License-Identifier: BSD-3-Clause
// A node that gathers: its index, the contribution of a particle that reaches it, and its addition to the field.
// Quantities of particles lie in planes, `pitch` apart.

#include "spread/meeting.h"
#include "spread/values.h"

#define SUMS (CHANNELS * PARTS)

// The window's table, any row by index: TABLE declares and fills local memory, `polynomial` loads a row into registers.
#define TERMS (DEGREE + 1)
#define TABLE(name, window)                                                                      \
    LOCAL_ARRAY(real, name, SUPPORT * TERMS);                                                    \
    for (int n = LOCAL_ID; n < SUPPORT * TERMS; n += GROUP_SIZE) name[n] = (window).table[n];    \
    BARRIER()

typedef struct {
    real c[TERMS];
} Polynomial;

DEVICE Polynomial polynomial(LOCAL const real* table, int k)
{
    Polynomial p;
    UNROLL for (int n = 0; n < TERMS; n++) p.c[n] = table[k * TERMS + n];
    return p;
}

DEVICE real value_at(PRIVATE const Polynomial* p, real z)
{
    real w = p->c[DEGREE];
    UNROLL for (int n = DEGREE - 1; n >= 0; n--) w = w * z + p->c[n];
    return w;
}

DEVICE real slope_at(PRIVATE const Polynomial* p, real z)
{
    real w = 0;
    UNROLL for (int n = DEGREE; n >= 1; n--) w = w * z + p->c[n] * (real)n;
    return w;
}

// Add the contribution of the particle at a place, by its weights and (GRADIENT) their slopes along the three axes.
DEVICE void take(PRIVATE real* sum, PRIVATE const real* weight, PRIVATE const real* slope,
                 GLOBAL const real* brought, i64 pitch, i64 at)
{
#if GRADIENT
    const real by[3] = {slope[0] * weight[1] * weight[2], weight[0] * slope[1] * weight[2],
                        weight[0] * weight[1] * slope[2]};
    UNROLL for (int c = 0; c < SUMS; c++)
        UNROLL for (int a = 3 - SUPPORT_AXES; a < 3; a++) sum[c] += by[a] * READ_1(brought + (3 * c + a) * pitch + at);
#else
    const real by = weight[0] * weight[1] * weight[2];
    UNROLL for (int c = 0; c < SUMS; c++) sum[c] += by * READ_1(brought + c * pitch + at);
#endif
}

DEVICE void give(GLOBAL real* field, PRIVATE const int* node, PRIVATE const real* sum, PRIVATE const Field* layout)
{
    i64 at = layout->offset;
    for (int a = 0; a < 3; a++) at += node[a] * layout->stride[a];
    UNROLL for (int c = 0; c < CHANNELS; c++)
        UNROLL for (int p = 0; p < PARTS; p++) field[at + c * layout->channel + p] += sum[c * PARTS + p];
}
