// SPDX-License-Identifier: BSD-3-Clause
// Positions to stencils: the first node of each, and the centred fraction the window is evaluated at.
// Computed once, in the positions' precision; only the fraction is rounded to the plan's.

#if COORDINATE_IS_DOUBLE
typedef double coordinate;
#define BELOW_ONE 0.99999999999999988897769753748
#else
typedef float coordinate;
#define BELOW_ONE 0.999999940395355224609375f
#endif

typedef struct {
    coordinate origin[3], inverse[9]; // fractional = inverse (x - origin)
    coordinate lower[3], upper[3];    // of an open axis, in x where orthorhombic, else fractional
    coordinate shift[3];              // node coordinate = fractional * scale - shift
    coordinate scale[3];
} Geometry;

typedef struct {
    int size[3], support[3];
    int wraps[3], periodic[3];
    int orthorhombic, missing; // missing axes, the first ones
} Axes;

typedef struct {
    i64 offset[3], stride[3];
} Strides;

KERNEL locate(GLOBAL const coordinate* x0, GLOBAL const coordinate* x1, GLOBAL const coordinate* x2,
              GLOBAL int* RESTRICT node, GLOBAL real* RESTRICT fraction,
              GLOBAL u64* RESTRICT status, // non-finite, outside, ~(first bad)
              const i64 count, const i64 rows, const Strides strides, const Geometry geometry, const Axes axes)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        coordinate x[3], s[3];
        x[0] = axes.missing > 0 ? geometry.origin[0] : x0[strides.offset[0] + i * strides.stride[0]];
        x[1] = axes.missing > 1 ? geometry.origin[1] : x1[strides.offset[1] + i * strides.stride[1]];
        x[2] = x2[strides.offset[2] + i * strides.stride[2]];
        // x - x is zero for finite numbers only
        const int finite = (x[0] - x[0]) + (x[1] - x[1]) + (x[2] - x[2]) == 0;
        int inside = 1;
        for (int a = 0; a < 3; a++) {
            s[a] = 0;
            for (int b = 0; b < 3; b++) s[a] += geometry.inverse[3 * a + b] * (x[b] - geometry.origin[b]);
            if (axes.periodic[a]) {
                s[a] -= floor(s[a]);
                if (!(s[a] >= 0)) s[a] = 0; // inverse * x overflowed: any place in the box is as good
                if (s[a] > (coordinate)BELOW_ONE) s[a] = (coordinate)BELOW_ONE;
            } else {
                const coordinate tested = axes.orthorhombic ? x[a] : s[a];
                if (!(tested >= geometry.lower[a] && tested <= geometry.upper[a])) inside = 0;
                if (s[a] < 0) s[a] = 0;
                if (s[a] > 1) s[a] = 1;
            }
        }
        if (!finite || !inside) {
            ATOMIC_ADD_U64(status + (finite ? 1 : 0), 1);
            ATOMIC_MAX_U64(status + 2, ~(u64)i);
            for (int a = 0; a < 3; a++) node[a * rows + i] = SKIP, fraction[a * rows + i] = 0;
            continue;
        }
        for (int a = 0; a < 3; a++) {
            const int p = axes.support[a];
            const coordinate u = s[a] * geometry.scale[a] - geometry.shift[a];
            const coordinate cell = floor((p & 1) ? u + (coordinate)0.5 : u);
            int first = (int)cell - (p & 1 ? (p - 1) / 2 : p / 2 - 1);
            if (axes.wraps[a]) {
                first %= axes.size[a];
                if (first < 0) first += axes.size[a];
            }
            node[a * rows + i] = a < axes.missing ? 0 : first;
            const coordinate centre = (p & 1) ? (coordinate)0 : (coordinate)0.5;
            fraction[a * rows + i] = a < axes.missing ? (real)0 : (real)(u - cell - centre);
        }
    }
}
