// SPDX-License-Identifier: BSD-3-Clause
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
