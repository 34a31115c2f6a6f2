// SPDX-License-Identifier: BSD-3-Clause
// All weights of a support at once, and their slopes. SYMMETRIC: of the window's table, weights at z from one side are
// its weights at -z from the other; then two are computed at a time, which differ by the sign of odd powers.

DEVICE void weights_of(PRIVATE real* w, PRIVATE const Window* window, const real z)
{
#if SYMMETRIC
    const real zz = z * z;
    UNROLL for (int j = 0; j < (SUPPORT + 1) / 2; j++) {
        PRIVATE const real* c = window->table + j * (DEGREE + 1);
        real even = c[DEGREE & ~1], odd = DEGREE > 0 ? c[(DEGREE - 1) | 1] : (real)0;
        UNROLL for (int k = (DEGREE & ~1) - 2; k >= 0; k -= 2) even = even * zz + c[k];
        UNROLL for (int k = ((DEGREE - 1) | 1) - 2; k >= 1; k -= 2) odd = odd * zz + c[k];
        w[j] = 2 * j + 1 == SUPPORT ? even : even + z * odd;
        if (2 * j + 1 != SUPPORT) w[SUPPORT - 1 - j] = even - z * odd;
    }
#else
    UNROLL for (int j = 0; j < SUPPORT; j++) w[j] = weight_of(window, j, z);
#endif
}

DEVICE void slopes_of(PRIVATE real* w, PRIVATE const Window* window, const real z)
{
#if SYMMETRIC && DEGREE > 1
    const real zz = z * z;
    UNROLL for (int j = 0; j < (SUPPORT + 1) / 2; j++) {
        PRIVATE const real* c = window->table + j * (DEGREE + 1);
        real even = c[(DEGREE - 1) | 1] * (real)((DEGREE - 1) | 1), odd = c[DEGREE & ~1] * (real)(DEGREE & ~1);
        UNROLL for (int k = ((DEGREE - 1) | 1) - 2; k >= 1; k -= 2) even = even * zz + c[k] * (real)k;
        UNROLL for (int k = (DEGREE & ~1) - 2; k >= 2; k -= 2) odd = odd * zz + c[k] * (real)k;
        w[j] = 2 * j + 1 == SUPPORT ? z * odd : even + z * odd;
        if (2 * j + 1 != SUPPORT) w[SUPPORT - 1 - j] = z * odd - even;
    }
#else
    UNROLL for (int j = 0; j < SUPPORT; j++) w[j] = slope_of(window, j, z);
#endif
}
