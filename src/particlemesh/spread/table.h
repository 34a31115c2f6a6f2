// SPDX-License-Identifier: BSD-3-Clause
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
