// SPDX-License-Identifier: BSD-3-Clause
// How the lanes that share a particle divide its stencil (stencil.h), its weights and its sums. Rows of a level are dealt
// in runs: lane_y has LANE_ROWS rows from lane_y * LANE_ROWS on. Where that leaves lanes without a row, rows are dealt in
// turn instead, through all levels (IN_TURN): so few lanes wait.
//
// Compile-time facts beside those of stencil.h: FIELD_IS_WIDE, SYMMETRIC, VALUE, GRADIENT, IN_TURN (0 unless given).

#include "interpolate/halving.h"
#include "walk/weights.h"

#if FIELD_IS_WIDE
typedef i64 offset_t;
#define OFFSET_REGISTER "l"
#define OFF_FIELD NOWHERE
#else
typedef int offset_t; // offsets within the field are below 2^31 reals
#define OFFSET_REGISTER "r"
#define OFF_FIELD SKIP
#endif

// The compiler takes an offset for a new number here: what follows from it is not kept in registers from before.
#if defined(__CUDACC__) || HAS_PTX
#define OFFSET_ANEW(x) asm volatile("" : "+" OFFSET_REGISTER(x))
#else
#define OFFSET_ANEW(x)
#endif
#ifdef __CUDACC__
#define LOCAL_ANEW(x) asm volatile("" : "+l"(x))
#define POINTER_ANEW(x)                    \
    do {                                   \
        asm volatile("" : "+l"(x));        \
        __builtin_assume(__isGlobal(x));   \
    } while (0)
#elif HAS_PTX
#define POINTER_ANEW(x) asm volatile("" : "+l"(x))
#else
#define POINTER_ANEW(x)
#endif
#ifndef LOCAL_ANEW
#define LOCAL_ANEW(x)
#endif

#ifndef IN_TURN
#define IN_TURN 0
#endif
#if IN_TURN // after so many rows of a lane, all begin with a level again
#define OWN_ROWS (SUPPORT_Y % LANES_Y == 0 ? SUPPORT_Y / LANES_Y : SUPPORT_Y % 2 == 0 ? 2 * SUPPORT_Y / LANES_Y : SUPPORT_Y)
#define ROW_OF(lane_y, b) (((b) * LANES_Y + (lane_y)) % SUPPORT_Y)
#else
#define OWN_ROWS LANE_ROWS
#define ROW_OF(lane_y, b) ((lane_y)*LANE_ROWS + (b))
#endif

#define TEAM (WARP_SIZE / LANES) // particles that a warp takes at a time
#define NODES_OF_READ (VECTOR < PARTS ? 1 : VECTOR / PARTS)
#define SLOTS_Z (LANE_SLOTS * VECTOR)
#define PLACES_Z (LANES_Z * LANE_SLOTS * NODES_OF_READ) // of nodes along z, in the slots of all lanes
#define RESULTS_OF_PART (1 + 3 * GRADIENT)
#define SUMS (PARTS * RESULTS_OF_PART)

// A lane's share of a particle's weights: all along x, of its rows, and of the nodes of its slots. [1] are slopes.
typedef struct {
    real x[1 + GRADIENT][SUPPORT], y[1 + GRADIENT][OWN_ROWS], z[1 + GRADIENT][LANE_SLOTS * NODES_OF_READ];
} Weights;

// All weights along an axis, or their slopes.
DEVICE void along(PRIVATE real* w, PRIVATE const Window* window, const int axis, const int slope, const real z)
{
    if (slope)
        slopes_of(w, window, z);
    else
        weights_of(w, window, z);
    if (axis < 3 - SUPPORT_AXES) w[0] = (real)!slope;
}

// Reals from a lane's first slot to the stencil's first node, which begins at `base`.
DEVICE int shift_of(const int base)
{
    return VECTOR > PARTS ? base & (VECTOR - 1) : 0;
}

// Of so many weights, lane `lane` has the one at its own place.
#define OF_LANE(own, lanes, lane)                                         \
    UNROLL for (int step = (lanes) / 2; step > 0; step /= 2)              \
        UNROLL for (int l = 0; l < step; l++) own[l] = (lane) & step ? own[l + step] : own[l];

// A lane computes all weights of its particle, and keeps those of its rows and nodes: that takes less time than to compute
// them once and to pass them on in local memory.
DEVICE void weights_of_lane(PRIVATE Weights* w, PRIVATE const Window* window, PRIVATE const real* fraction, const int base,
                            const int lane)
{
    const int lane_z = lane % LANES_Z, lane_y = lane / LANES_Z;
    const int before = shift_of(base) / PARTS; // nodes of the first slot that are not the stencil's
    UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++) {
        real all[SUPPORT], placed[PLACES_Z];
        along(w->x[slope], window, 0, slope, fraction[0]);
        along(all, window, 1, slope, fraction[1]);
        UNROLL for (int b = 0; b < OWN_ROWS; b++) {
            real own[LANES_Y];
            UNROLL for (int l = 0; l < LANES_Y; l++) own[l] = ROW_OF(l, b) < SUPPORT_Y ? all[ROW_OF(l, b)] : 0;
            OF_LANE(own, LANES_Y, lane_y);
            w->y[slope][b] = own[0];
        }
        along(all, window, 2, slope, fraction[2]);
        UNROLL for (int n = 0; n < PLACES_Z; n++) placed[n] = n < SUPPORT_Z ? all[n] : 0;
        UNROLL for (int bit = 1; bit < NODES_OF_READ; bit *= 2)
            UNROLL for (int n = PLACES_Z - 1; n >= 0; n--) placed[n] = before & bit ? (n < bit ? 0 : placed[n - bit]) : placed[n];
        UNROLL for (int m = 0; m < LANE_SLOTS; m++)
            UNROLL for (int n = 0; n < NODES_OF_READ; n++) {
                real own[LANES_Z];
                UNROLL for (int l = 0; l < LANES_Z; l++) own[l] = placed[(m * LANES_Z + l) * VECTOR / PARTS + n];
                OF_LANE(own, LANES_Z, lane_z);
                w->z[slope][m * NODES_OF_READ + n] = own[0];
            }
    }
}

// What is left of the sums along z: of each part the value, and with GRADIENT the slopes in node coordinates.
DEVICE void sums_along_z(PRIVATE real* sums, PRIVATE const real* flat, PRIVATE const real* along_x,
                         PRIVATE const real* along_y, const int lane_z, PRIVATE const Weights* w)
{
    // Slots have nodes along z that are not the stencil's: their weight is zero, and they may not be finite.
    UNROLL for (int k = 0; k < SUMS; k++) sums[k] = 0;
    UNROLL for (int n = 0; n < SLOTS_Z; n++) {
        const int m = n / VECTOR, v = n % VECTOR, node = m * NODES_OF_READ + (VECTOR < PARTS ? 0 : v / PARTS);
        const int part = VECTOR < PARTS ? ((m * LANES_Z + lane_z) * VECTOR + v) % PARTS : v % PARTS;
        UNROLL for (int p = 0; p < PARTS; p++)
            if (part == p) {
                PRIVATE real* of_part = sums + p * RESULTS_OF_PART;
                of_part[0] += weighted(flat[n], w->z[0][node]);
                if (GRADIENT) {
                    of_part[GRADIENT] += weighted(along_x[n], w->z[0][node]);
                    of_part[2 * GRADIENT] += weighted(along_y[n], w->z[0][node]);
                    of_part[3 * GRADIENT] += weighted(flat[n], w->z[GRADIENT][node]);
                }
            }
    }
}

#define KINDS (VALUE + GRADIENT * SUPPORT_AXES)
#define DEALT (KINDS * PARTS)
#define DEALT_4 (LANES > 4 ? FEWER(DEALT) : DEALT) // left for the lanes that differ in bit 2 and bit 1
#define DEALT_2 (LANES > 2 ? FEWER(DEALT_4) : DEALT_4)
#define DEALT_1 (LANES > 1 ? FEWER(DEALT_2) : DEALT_2)

DEVICE void write_result(GLOBAL real* values, GLOBAL real* gradient, const i64 i, const int channel, const int kind,
                         const int part, const real result, PRIVATE const Values* value_layout,
                         PRIVATE const Values* gradient_layout)
{
    if (GRADIENT ? VALUE && kind == 0 : VALUE)
        values[number_at(value_layout, i, channel, part)] = result;
    else
        gradient[number_at(gradient_layout, i, channel, part) + (kind - VALUE) * gradient_layout->axis] = result;
}

// A result of `kind` from sums in node coordinates: the value, or a component of the gradient.
DEVICE real result_of(PRIVATE const real* sums, const int kind, PRIVATE const Jacobian* jacobian)
{
    real result = sums[0];
#if GRADIENT
    UNROLL for (int b = 3 - SUPPORT_AXES; b < 3; b++)
        if (kind == VALUE + b - 3 + SUPPORT_AXES)
            result = sums[1] * jacobian->row[b] + sums[2] * jacobian->row[3 + b] + sums[3] * jacobian->row[6 + b];
#endif
    return result;
}

// Add up the sums of a particle's lanes, and write its results, each by one of the lanes.
DEVICE void deal_results(WARP_PARAMETER warp, PRIVATE const real* sums, const int here, GLOBAL real* values,
                         GLOBAL real* gradient, const i64 i, const int channel, PRIVATE const Values* value_layout,
                         PRIVATE const Values* gradient_layout, PRIVATE const Jacobian* jacobian)
{
    real results[DEALT];
    UNROLL for (int p = 0; p < PARTS; p++) {
        PRIVATE const real* of_part = sums + p * RESULTS_OF_PART;
        UNROLL for (int kind = 0; kind < KINDS; kind++) results[kind * PARTS + p] = result_of(of_part, kind, jacobian);
    }
    Halved dealt = {0, DEALT, DEALT};
    UNROLL for (int bit = LANES / 2; bit > 0; bit /= 2) halve(&dealt, bit);
#if LANES > 4
    add_two(warp, results, DEALT, 4);
#endif
#if LANES > 2
    add_two(warp, results, DEALT_4, 2);
#endif
#if LANES > 1
    add_two(warp, results, DEALT_2, 1);
#endif
    if (!here) dealt.count = 0;
    UNROLL for (int k = 0; k < DEALT_1; k++) {
        const int kind = (dealt.from + k) / PARTS, part = (dealt.from + k) % PARTS;
        if (k < dealt.count)
            write_result(values, gradient, i, channel, kind, part, results[k], value_layout, gradient_layout);
    }
}
