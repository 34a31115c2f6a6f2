// SPDX-License-Identifier: BSD-3-Clause

#ifndef PROJECTION

// Multiplies spectra by one table of factors per mode: real factors (PARTS 1), those times i (TURNS 1), or complex
// ones (PARTS 2). The target may be the source.
KERNEL multiply(GLOBAL const real* source, GLOBAL real* target, GLOBAL const real* table, const i64 modes,
                const i64 channels, const i64 source_at, const i64 source_step, const i64 target_at,
                const i64 target_step)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < modes; k += GROUP_COUNT * GROUP_SIZE) {
#if PARTS == 2
        const real re = table[2 * k], im = table[2 * k + 1];
#elif TURNS
        const real im = table[k];
#else
        const real re = table[k];
#endif
        for (i64 c = 0; c < channels; c++) {
            const real2 a = *(GLOBAL const real2*)(source + source_at + c * source_step + 2 * k);
            real2 b;
#if PARTS == 2
            b.x = a.x * re - a.y * im, b.y = a.x * im + a.y * re;
#elif TURNS
            b.x = -a.y * im, b.y = a.x * im;
#else
            b.x = a.x * re, b.y = a.y * re;
#endif
            *(GLOBAL real2*)(target + target_at + c * target_step + 2 * k) = b;
        }
    }
}

#else

#include "fourier/waves.h"

// Multiplies vectors of DIM spectra by one table and keeps their part across k (PROJECTION 1), along k (2), or all (0).
// Of SOURCES vectors per channel the sum enters, each times its form factor; TARGETS vectors leave, each times its own.
// One vector alone has no form factor. The target may be the source if both have as many vectors.
KERNEL project(GLOBAL const real* source, GLOBAL real* target, GLOBAL const real* table, GLOBAL const real* forms,
               GLOBAL const real* rows, const i64 modes, const i64 channels, const Band band)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < modes; k += GROUP_COUNT * GROUP_SIZE) {
        real q[DIM], square = 0;
        wave_vector(k, band, rows, q);
        UNROLL for (int c = 0; c < DIM; c++) square += q[c] * q[c];
        const real inverse = square > 0 ? 1 / square : 0, factor = table[k];
        for (i64 channel = 0; channel < channels; channel++) {
            GLOBAL const real* from = source + band.source_at + 2 * (channel * SOURCES * DIM * modes + k);
            GLOBAL real* to = target + band.target_at + 2 * (channel * TARGETS * DIM * modes + k);
            real re[DIM], im[DIM], along_re = 0, along_im = 0;
            UNROLL for (int c = 0; c < DIM; c++) re[c] = im[c] = 0;
            ROLL for (int m = 0; m < SOURCES; m++) {
                const real form = SOURCES > 1 ? forms[m * modes + k] : 1;
                UNROLL for (int c = 0; c < DIM; c++) {
                    const real2 a = *(GLOBAL const real2*)(from + 2 * (m * DIM + c) * modes);
                    re[c] += form * a.x, im[c] += form * a.y;
                }
            }
#if PROJECTION
            UNROLL for (int c = 0; c < DIM; c++) along_re += q[c] * re[c], along_im += q[c] * im[c];
            along_re *= inverse, along_im *= inverse;
            UNROLL for (int c = 0; c < DIM; c++) {
                re[c] = (PROJECTION == 1 ? re[c] : 0) + (PROJECTION == 1 ? -q[c] : q[c]) * along_re;
                im[c] = (PROJECTION == 1 ? im[c] : 0) + (PROJECTION == 1 ? -q[c] : q[c]) * along_im;
            }
#endif
            ROLL for (int m = 0; m < TARGETS; m++) {
                const real form = factor * (TARGETS > 1 ? forms[m * modes + k] : 1);
                UNROLL for (int c = 0; c < DIM; c++) {
                    real2 b;
                    b.x = form * re[c], b.y = form * im[c];
                    *(GLOBAL real2*)(to + 2 * (m * DIM + c) * modes) = b;
                }
            }
        }
    }
}

#endif
