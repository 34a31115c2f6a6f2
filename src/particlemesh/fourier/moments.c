// SPDX-License-Identifier: BSD-3-Clause
// Spectra of MOMENTS fields of DIM axes: the coefficients of 1, of first and of second derivatives (upper triangle).

#include "fourier/waves.h"

// Spectra are (MOMENTS, systems, modes), rows the reciprocal vectors of each system. Without EXPAND the first field
// becomes the density of all, for which a moment of a derivative enters times minus ik for each order. With EXPAND the
// others become derivatives of the first: times ik for each order.
KERNEL moments(GLOBAL real* spectra, GLOBAL const real* RESTRICT rows, const i64 modes, const i64 systems,
               const Band band)
{
    const i64 step = 2 * modes * systems;
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < modes * systems; n += GROUP_COUNT * GROUP_SIZE) {
        const i64 s = n / modes, k = n - s * modes;
        real q[DIM];
        wave_vector(k, band, rows + 3 * DIM * s, q);
        GLOBAL real* at = spectra + band.source_at + 2 * n;
        real2 whole = *(GLOBAL const real2*)at;
        UNROLL for (int c = 0; c < DIM; c++) {
            GLOBAL real2* first = (GLOBAL real2*)(at + (1 + c) * step);
#if EXPAND
            real2 slope;
            slope.x = -q[c] * whole.y, slope.y = q[c] * whole.x;
            *first = slope;
#else
            whole.x += q[c] * (*first).y, whole.y -= q[c] * (*first).x;
#endif
            UNROLL for (int d = c; d < DIM; d++) {
                GLOBAL real2* second = (GLOBAL real2*)(at + (1 + DIM + c * DIM - c * (c - 1) / 2 + d - c) * step);
                const real square = q[c] * q[d];
#if EXPAND
                real2 turn;
                turn.x = -square * whole.x, turn.y = -square * whole.y;
                *second = turn;
#else
                whole.x -= square * (*second).x, whole.y -= square * (*second).y;
#endif
            }
        }
#if !EXPAND
        *(GLOBAL real2*)at = whole;
#endif
    }
}
