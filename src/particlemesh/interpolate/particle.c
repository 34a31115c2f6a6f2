// SPDX-License-Identifier: BSD-3-Clause
// A few neighbouring lanes per particle read its rows and add up through the warp. VALUE, GRADIENT and HESSIAN select the
// results; one pass over the field gives all.

#ifdef ORDERED // ordered.c: particles in block order
#define REALS (CHANNELS * PARTS)
#define RESULTS ((VALUE + GRADIENT * SUPPORT_AXES) * REALS)
#include "orders/ordered.h"
#include "interpolate/weightless.h"
#define PARTICLES                                                            \
    GLOBAL const u32 *RESTRICT records, GLOBAL const u32 *RESTRICT start,    \
        GLOBAL const u32 *RESTRICT located, GLOBAL const int *RESTRICT node, \
        GLOBAL const real *RESTRICT fraction
#define MORE_RECORDS , const Blocks blocks
#else
#define PARTICLES GLOBAL const int *RESTRICT node, GLOBAL const real *RESTRICT fraction
#define MORE_RECORDS
#endif

#if HESSIAN
#define HESSIAN_ARRAY GLOBAL real *RESTRICT hessian, // written, per user length squared
#define HESSIAN_LAYOUT const Values hessian_layout,
#else
#define HESSIAN_ARRAY
#define HESSIAN_LAYOUT
#endif

DEVICE real lanes_sum(WARP_PARAMETER warp, real x)
{
    UNROLL for (int step = LANES / 2; step > 0; step /= 2) x += WARP_SHUFFLE(warp, x, LANE ^ step);
    return x;
}

KERNEL interpolate_particle(PARTICLES, GLOBAL const real* RESTRICT field,
                            GLOBAL real* RESTRICT values,   // written
                            GLOBAL real* RESTRICT gradient, // written, per user length
                            HESSIAN_ARRAY const i64 count, const i64 rows, const Values value_layout,
                            const Values gradient_layout, HESSIAN_LAYOUT const Field field_layout,
                            const Window window, const Jacobian jacobian MORE_RECORDS)
{
    WARP(warp);
#ifdef ORDERED
    const i64 all = start[(i64)blocks.counts[0] * blocks.counts[1] * blocks.counts[2]];
#else
    const i64 all = count;
#endif
    // Whole groups run together: every lane takes part in the sums, even without a particle.
    const i64 stop = (all * LANES + GROUP_SIZE - 1) / GROUP_SIZE * GROUP_SIZE;
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < stop; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 at = k / LANES;
        const int here = at < all, lane = LOCAL_ID % LANES;
        Stencil s;
#ifdef ORDERED
        int first[3];
        real z[3];
        const i64 i = ordered_particle(warp, records, start, at, here, &blocks, first, z);
        const int taken = here;
        if (taken) stencil_at(&s, first, z, lane, &field_layout, &window);
#else
        const i64 i = at;
        const int taken = here && node[2 * rows + (here ? i : 0)] != SKIP;
        if (taken) stencil_of(&s, node, fraction, i, rows, lane, &field_layout, &window);
#endif

        for (int c = 0; c < CHANNELS; c++) {
            real sums[WEIGHT_PRODUCTS][LANE_SLOTS * VECTOR]; // over rows of the field's nodes, not yet weighted along z
            UNROLL for (int v = 0; v < LANE_SLOTS * VECTOR; v++)
                UNROLL for (int n = 0; n < WEIGHT_PRODUCTS; n++) sums[n][v] = 0;
            if (taken) {
                UNROLL_ROWS for (int a = 0; a < SUPPORT_X; a++) {
                    UNROLL_ROWS for (int b = 0; b < LANE_ROWS; b++) {
                        if (s.at_x[a] < 0 || s.at_y[b] == NOWHERE) continue;
                        const i64 row = field_layout.offset + c * field_layout.channel
                                      + s.at_x[a] * field_layout.stride[0] + s.at_y[b];
                        real across[WEIGHT_PRODUCTS];
                        UNROLL for (int n = 0; n < WEIGHT_PRODUCTS; n++) across[n] = s.x[ALONG_X(n)][a] * s.y[ALONG_Y(n)][b];
                        UNROLL for (int m = 0; m < LANE_SLOTS; m++) {
                            if (s.at_z[m] == NOWHERE) continue;
                            real f[VECTOR];
                            load_vector(field + row + s.at_z[m], f);
                            UNROLL for (int v = 0; v < VECTOR; v++)
                                UNROLL for (int n = 0; n < WEIGHT_PRODUCTS; n++) sums[n][m * VECTOR + v] += across[n] * f[v];
                        }
                    }
                }
            }
            UNROLL for (int p = 0; p < PARTS; p++) {
                real value = 0;
#if GRADIENT
                real g[3] = {0, 0, 0};
#endif
#if HESSIAN
                real h[SECONDS] = {0, 0, 0, 0, 0, 0};
#endif
                if (taken) {
                    UNROLL for (int v = 0; v < LANE_SLOTS * VECTOR; v++)
                        if (s.part[v] == p) {
                            value += weighted(sums[0][v], s.z[0][v]);
#if GRADIENT
                            UNROLL for (int a = 0; a < 3; a++) g[a] += weighted(sums[(a + 1) % 3][v], s.z[a == 2][v]);
#endif
#if HESSIAN
                            UNROLL for (int n = 0; n < SECONDS; n++)
                                h[n] += weighted(sums[n][v], s.z[2 - ALONG_X(n) - ALONG_Y(n)][v]);
#endif
                        }
                }
#if VALUE
                value = lanes_sum(warp, value);
                if (here && lane == 0)
                    values[number_at(&value_layout, i, c, p)] = value;
#endif
#if GRADIENT
                UNROLL for (int a = 3 - SUPPORT_AXES; a < 3; a++) g[a] = lanes_sum(warp, g[a]);
                if (here && lane == 0) {
                    UNROLL for (int b = 3 - SUPPORT_AXES; b < 3; b++)
                        gradient[number_at(&gradient_layout, i, c, p) + (b - 3 + SUPPORT_AXES) * gradient_layout.axis] =
                            g[0] * jacobian.row[b] + g[1] * jacobian.row[3 + b] + g[2] * jacobian.row[6 + b];
                }
#endif
#if HESSIAN
                UNROLL for (int n = 0; n < SECONDS; n++) h[n] = lanes_sum(warp, h[n]);
                if (here && lane == 0) {
                    GLOBAL real* to = hessian + number_at(&hessian_layout, i, c, p);
                    UNROLL for (int b = 0; b < SUPPORT_AXES; b++)
                        UNROLL for (int e = b; e < SUPPORT_AXES; e++) {
                            real sum = 0;
                            UNROLL for (int n = 0; n < SECONDS; n++)
                                sum += h[n] * second_slope(&jacobian, n, 3 - SUPPORT_AXES + b, 3 - SUPPORT_AXES + e);
                            to[b * hessian_layout.axis + e * hessian_layout.second] = sum;
                            to[e * hessian_layout.axis + b * hessian_layout.second] = sum;
                        }
                }
#endif
            }
        }
    }
#ifdef ORDERED
    if (all < count) clear_weightless(located, node, values, gradient, all, count, rows, &value_layout, &gradient_layout);
#endif
}
