// SPDX-License-Identifier: BSD-3-Clause
// The library's particle method with plain memory accesses in the place of atomic additions: wrong wherever two
// particles meet, to see what being right costs. STORES writes without reading before, as the paper's variant does.

#if VECTOR == 4
typedef real4 Plain;
#elif VECTOR == 2
typedef real2 Plain;
#else
typedef real Plain;
#endif

DEVICE void plain_vector(GLOBAL real* p, PRIVATE const real* v)
{
    GLOBAL Plain* at = (GLOBAL Plain*)p;
#if STORES
    Plain sum;
#else
    Plain sum = *at;
#endif
#if VECTOR == 1
    sum = STORES ? v[0] : sum + v[0];
#elif STORES
    sum.x = v[0], sum.y = v[1];
#else
    sum.x += v[0], sum.y += v[1];
#endif
#if VECTOR == 4 && STORES
    sum.z = v[2], sum.w = v[3];
#elif VECTOR == 4
    sum.z += v[2], sum.w += v[3];
#endif
    *at = sum;
}

#define atomic_add_vector plain_vector
#include "spread/particle.c"
