// SPDX-License-Identifier: BSD-3-Clause
// The sums that lanes have of particles' results: added up over the warp, and written to where the caller wants them.

// Add up over the lanes that differ in bits from LANES_Y_BIT on. As long as there are several sums, a lane goes on with
// half of them: with the second half where its bit is set.
DEVICE void add_up(WARP_PARAMETER warp, PRIVATE real* sums)
{
    int left = SUMS;
    UNROLL for (int bit = LANES_Y_BIT; bit < WARP_SIZE; bit *= 2) {
        const int most = left > 1 ? (left + 1) / 2 : 0, second = LANE & bit;
        if (left == 1) sums[0] += WARP_SHUFFLE(warp, sums[0], LANE ^ bit);
        UNROLL for (int k = 0; k < most; k++) {
            const real far = k + most < left ? sums[k + most < left ? k + most : k] : (real)0;
            const real other = WARP_SHUFFLE(warp, second ? sums[k] : far, LANE ^ bit);
            sums[k] = (second ? far : sums[k]) + other;
        }
        left = left > 1 ? most : 1;
    }
}

// Which sums a lane has then: from which on, and how many.
DEVICE int own_sums(PRIVATE int* count)
{
    int from = 0, left = SUMS, own = SUMS;
    for (int bit = LANES_Y_BIT; bit < WARP_SIZE; bit *= 2) {
        const int most = (left + 1) / 2;
        if (LANE & bit)
            from += most, own = left > 1 && own > most ? own - most : 0;
        else
            own = own < most ? own : most;
        left = most;
    }
    *count = own;
    return from;
}

// Where results go: those of particle i to i * step from `to` on.
typedef struct {
    GLOBAL real* to;
    i64 step;
} Target;

DEVICE void target_of(PRIVATE Target* target, const int result, GLOBAL real* values, GLOBAL real* gradient,
                      PRIVATE const Values* value_layout, PRIVATE const Values* gradient_layout)
{
    const int kind = result / REALS, channel = result % REALS / PARTS, part = result % PARTS;
    const int value = VALUE && (kind == 0 || !GRADIENT);
    PRIVATE const Values* layout = value ? value_layout : gradient_layout;
    target->to = (value ? values : gradient) + layout->offset + channel * layout->channel + part * layout->part
               + (value ? 0 : (kind - VALUE) * layout->axis);
    target->step = layout->particle;
}

// Particles without weight find nothing.
DEVICE void clear_lost(GLOBAL const u32* located, GLOBAL const int* node, GLOBAL real* values, GLOBAL real* gradient,
                       const i64 particles, const i64 rows, PRIVATE const Values* value_layout,
                       PRIVATE const Values* gradient_layout)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < particles; i += GROUP_COUNT * GROUP_SIZE) {
#if PACKED
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
