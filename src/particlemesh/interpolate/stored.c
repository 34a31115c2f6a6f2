// SPDX-License-Identifier: BSD-3-Clause
// Stored weights times the nodes of each stencil. Particles are in tile order, and a group takes neighbours: the nodes
// they read stay in its cache, while weights are read once. The TEAM lanes of a particle take every TEAM-th node, so
// that they read consecutive weights, and whole rows of the field.

#define ENTRIES (SUPPORT_X * SUPPORT_Y * SUPPORT_Z)
#define STEPS ((ENTRIES + TEAM - 1) / TEAM)
#define KINDS (VALUE + (GRADIENT ? SUPPORT_AXES : 0))
#define SUMS (CHANNELS * PARTS * KINDS)
// The places of a lane's nodes are kept in registers if they are few. In any case several loads are in flight.
#define KEPT (STEPS <= 16)
#define IN_FLIGHT (KEPT ? STEPS : 8)

DEVICE i64 ahead_of(int e, PRIVATE const Field* layout)
{
    return e / (SUPPORT_Y * SUPPORT_Z) * layout->stride[0] + e / SUPPORT_Z % SUPPORT_Y * layout->stride[1]
         + e % SUPPORT_Z * layout->stride[2];
}

// Add one node's contribution: its weight, its slopes.
DEVICE void add_node(PRIVATE real* sum, GLOBAL const real* weight, GLOBAL const real* slope, GLOBAL const real* field,
                     i64 channel)
{
    real w[KINDS];
#if VALUE
    w[0] = READ_ONCE(weight);
#endif
#if GRADIENT
    UNROLL for (int b = 0; b < SUPPORT_AXES; b++) w[VALUE + b] = READ_ONCE(slope + b * ENTRIES);
#endif
    UNROLL for (int c = 0; c < CHANNELS; c++)
        UNROLL for (int p = 0; p < PARTS; p += VECTOR) {
            real f[VECTOR];
            load_vector(field + c * channel + p, f);
            UNROLL for (int v = 0; v < VECTOR; v++)
                UNROLL for (int n = 0; n < KINDS; n++) sum[(c * PARTS + p + v) * KINDS + n] += w[n] * f[v];
        }
}

KERNEL interpolate_stored(GLOBAL const real* RESTRICT places,  // first node of each stencil and its particle, as bits
                          GLOBAL const real* RESTRICT weights,
                          GLOBAL const real* RESTRICT slopes,  // read if GRADIENT
                          GLOBAL const real* RESTRICT field,
                          GLOBAL real* RESTRICT values,        // written
                          GLOBAL real* RESTRICT gradient,      // written, per user length
                          const i64 count,
                          const i64 rounds,                    // particles that a team takes one after the other
                          const Values value_layout, const Values gradient_layout, const Field layout)
{
    WARP(warp);
    const int lane = LOCAL_ID % TEAM, teams = GROUP_SIZE / TEAM;
#if KEPT
    i64 ahead[STEPS]; // of a node, relative to the first
    UNROLL for (int s = 0; s < STEPS; s++) ahead[s] = ahead_of(s * TEAM + lane, &layout);
#define AHEAD(s) ahead[s]
#else
#define AHEAD(s) ahead_of((s) * TEAM + lane, &layout)
#endif
    for (i64 first = GROUP_ID * teams * rounds; first < count; first += GROUP_COUNT * teams * rounds) {
        for (i64 round = 0; round < rounds; round++) {
            const i64 k = first + round * teams + LOCAL_ID / TEAM;
            const int here = k < count;
            int x = SKIP, y = 0, z = 0;
            i64 i = 0;
            if (here) {
                const real4 at = READ_4(places + 4 * k);
                x = (int)INDEX_OF_REAL(at.x), y = (int)INDEX_OF_REAL(at.y), z = (int)INDEX_OF_REAL(at.z);
                i = INDEX_OF_REAL(at.w);
            }
            real sum[SUMS];
            UNROLL for (int n = 0; n < SUMS; n++) sum[n] = 0;
            if (z != SKIP && here) {
                GLOBAL const real* weight = weights + k * ENTRIES + lane;
                GLOBAL const real* slope = slopes + k * (SUPPORT_AXES * ENTRIES) + lane;
                if (x >= 0 && y >= 0 && z >= 0 && x + SUPPORT_X <= layout.size[0] && y + SUPPORT_Y <= layout.size[1]
                    && z + SUPPORT_Z <= layout.size[2]) {
                    GLOBAL const real* start = field + layout.offset + x * layout.stride[0] + y * layout.stride[1]
                                             + z * layout.stride[2];
                    ROLL for (int begin = 0; begin < STEPS; begin += IN_FLIGHT)
                        UNROLL for (int s = begin; s < begin + IN_FLIGHT; s++)
                            if (s * TEAM + lane < ENTRIES)
                                add_node(sum, weight + s * TEAM, slope + s * TEAM, start + AHEAD(s), layout.channel);
                } else {
                    ROLL for (int e = lane; e < ENTRIES; e += TEAM) {
                        const int a = place(x + e / (SUPPORT_Y * SUPPORT_Z), layout.size[0], layout.wraps[0]);
                        const int b = place(y + e / SUPPORT_Z % SUPPORT_Y, layout.size[1], layout.wraps[1]);
                        const int c = place(z + e % SUPPORT_Z, layout.size[2], layout.wraps[2]);
                        if (a >= 0 && b >= 0 && c >= 0)
                            add_node(sum, weight + (e - lane), slope + (e - lane),
                                     field + layout.offset + a * layout.stride[0] + b * layout.stride[1]
                                         + c * layout.stride[2], layout.channel);
                    }
                }
            }
            UNROLL for (int n = 0; n < SUMS; n++)
                UNROLL for (int step = TEAM / 2; step > 0; step /= 2) sum[n] += WARP_SHUFFLE(warp, sum[n], LANE ^ step);
            if (here && lane == 0) {
                UNROLL for (int c = 0; c < CHANNELS; c++)
                    UNROLL for (int p = 0; p < PARTS; p++) {
                        PRIVATE const real* own = sum + (c * PARTS + p) * KINDS;
#if VALUE
                        values[number_at(&value_layout, i, c, p)] = own[0];
#endif
#if GRADIENT
                        UNROLL for (int b = 0; b < SUPPORT_AXES; b++)
                            gradient[number_at(&gradient_layout, i, c, p) + b * gradient_layout.axis] = own[VALUE + b];
#endif
                    }
            }
        }
    }
}
