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
        const real re = 0, im = table[k];
#else
        const real re = table[k], im = 0;
#endif
        for (i64 c = 0; c < channels; c++) {
            const i64 from = source_at + c * source_step + 2 * k, to = target_at + c * target_step + 2 * k;
            const real a = source[from], b = source[from + 1];
#if PARTS == 2
            target[to] = a * re - b * im, target[to + 1] = a * im + b * re;
#elif TURNS
            target[to] = -b * im, target[to + 1] = a * im;
#else
            target[to] = a * re, target[to + 1] = b * re;
#endif
        }
    }
}
