// SPDX-License-Identifier: BSD-3-Clause
// Where results go, and the results of particles without weight. RESULTS per particle: for each of REALS reals the
// value (if VALUE) and a slope per axis (if GRADIENT).

#include "particles/packed.h"

#ifndef WEIGHTLESS_LAST
#define WEIGHTLESS_LAST 0
#endif

// Where results go: those of particle i begin at `to` + i * step.
typedef struct {
    GLOBAL real* to;
    i64 step;
} Target;

DEVICE void target_of(PRIVATE Target* target, const int result, GLOBAL real* values, GLOBAL real* gradient,
                      PRIVATE const Values* value_layout, PRIVATE const Values* gradient_layout)
{
    const int kind = result / REALS, channel = result % REALS / PARTS, part = result % PARTS;
    const int value = GRADIENT ? VALUE && kind == 0 : VALUE;
    PRIVATE const Values* layout = value ? value_layout : gradient_layout;
    target->to = (value ? values : gradient) + layout->offset + channel * layout->channel + part * layout->part
               + (value ? 0 : (kind - VALUE) * layout->axis);
    target->step = layout->particle;
}

// Zero for particles without weight; `taken` have weight. WEIGHTLESS_LAST: these come first; stencils are not read.
DEVICE void clear_weightless(GLOBAL const u32* located, GLOBAL const int* node, GLOBAL real* values, GLOBAL real* gradient,
                       const i64 taken, const i64 particles, const i64 rows, PRIVATE const Values* value_layout,
                       PRIVATE const Values* gradient_layout)
{
    const i64 begin = WEIGHTLESS_LAST ? taken : 0;
    ROLL for (i64 i = begin + GROUP_ID * GROUP_SIZE + LOCAL_ID; i < particles; i += GROUP_COUNT * GROUP_SIZE) {
#if WEIGHTLESS_LAST
        // all after them
#elif PACKED
        u32 words[PACKED_WORDS];
        Located one;
        read_quads(words, located + PACKED_WORDS * i, PACKED_WORDS / 4);
        unpack_located(&one, words);
        if (one.taken) continue;
#else
        if (node[2 * rows + i] != SKIP) continue;
#endif
        for (int result = 0; result < RESULTS; result++) {
            Target target;
            target_of(&target, result, values, gradient, value_layout, gradient_layout);
            target.to[i * target.step] = 0;
        }
    }
}
