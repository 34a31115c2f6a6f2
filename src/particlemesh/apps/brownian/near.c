// SPDX-License-Identifier: BSD-3-Clause
// The near part of the mobility as a sparse matrix of 3x3 blocks f 1 +- u u^T, four reals and an index per pair. The
// sign is that of the index: -1 - j stands for j and minus.

// Blocks are computed as coordinates, in double precision where the device has it.
#include "backends/coordinates.h"

#define CLOSE 0.05 // times a + b: nearer than this the closed form loses digits
#define PI 3.14159265358979323846

typedef struct {
    coordinate f, g;
} Tensor;

// The functions of formulas.py, which has the derivation.
DEVICE Tensor whole(const coordinate r, const coordinate a, const coordinate b)
{
    Tensor t;
    const coordinate total = a + b, apart = a > b ? a - b : b - a;
    if (r > total) {
        const coordinate q = (a * a + b * b) / (r * r), scale = 1 / ((coordinate)(8 * PI) * r);
        t.f = (1 + q / 3) * scale, t.g = (1 - q) * scale;
    } else if (r <= apart || r == 0) {
        t.f = 1 / ((coordinate)(6 * PI) * (a > b ? a : b)), t.g = 0;
    } else {
        const coordinate scale = 1 / ((coordinate)(6 * PI) * a * b), e = apart * apart / r, w = e + 3 * r;
        t.f = scale * (total / 2 - w * w / (32 * r)), t.g = scale * 3 * (e - r) * (e - r) / (32 * r);
    }
    return t;
}

DEVICE void add_psi(PRIVATE coordinate* x, const coordinate s, const coordinate xi, const coordinate sign)
{
    const coordinate t = s < 0 ? -s : s, c = erfc(xi * t), i2 = 1 / (xi * xi);
    const coordinate e = exp(-(xi * t) * (xi * t)) / ((coordinate)1.7724538509055159 * xi), odd = s < 0 ? -sign : sign;
    x[0] += odd * (c * (t * t * t * t / 12 - i2 * i2 / 16) + e * t * (i2 / 24 - t * t / 12) + i2 * i2 / 16);
    x[1] += sign * (c * t * t * t / 3 + e * (i2 / 6 - t * t / 3));
    x[2] += odd * (t * t * c - t * e);
}

DEVICE Tensor close_by(const coordinate r, const coordinate a, const coordinate b,
                       GLOBAL const coordinate* RESTRICT quadrature, const i64 nodes)
{
    Tensor t = whole(r, a, b);
    for (i64 n = 0; n < nodes; n++) {
        const coordinate k = quadrature[n], x = k * r, u = k * a, v = k * b;
        const coordinate w = quadrature[nodes + n] * (sin(u) / u) * (sin(v) / v);
        coordinate j0, j1;
        if (x < (coordinate)0.1) {
            const coordinate y = x * x;
            j0 = 1 - y / 6 * (1 - y / 20 * (1 - y / 42));
            j1 = (coordinate)(1.0 / 3) - y / 30 * (1 - y / 28 * (1 - y / 54));
        } else {
            j0 = sin(x) / x;
            j1 = (j0 - cos(x)) / (x * x);
        }
        t.f -= w * (j0 - j1), t.g -= w * (3 * j1 - j0);
    }
    return t;
}

// One work-item per pair: vectors (pairs, 3) and indices become blocks (pairs, 4) and signed indices.
KERNEL near_blocks(GLOBAL const i64* RESTRICT start, GLOBAL int* index, GLOBAL const real* RESTRICT vector,
                   GLOBAL const coordinate* RESTRICT radii, GLOBAL const coordinate* RESTRICT quadrature,
                   GLOBAL real* blocks, const i64 count, const i64 nodes, const i64 one_radius)
{
    const coordinate xi = quadrature[2 * nodes], per_viscosity = quadrature[2 * nodes + 1];
    for (i64 i = GROUP_ID; i < count; i += GROUP_COUNT) {
        const coordinate a = radii[one_radius ? 0 : i];
        for (i64 n = start[i] + LOCAL_ID; n < start[i + 1]; n += GROUP_SIZE) {
            const int j = index[n];
            const coordinate b = radii[one_radius ? 0 : j];
            const coordinate d0 = vector[3 * n], d1 = vector[3 * n + 1], d2 = vector[3 * n + 2];
            const coordinate r = sqrt(d0 * d0 + d1 * d1 + d2 * d2);
            Tensor t;
            if (r < (coordinate)CLOSE * (a + b)) {
                t = close_by(r, a, b, quadrature, nodes);
            } else {
                coordinate x[3] = {0, 0, 0};
                add_psi(x, r + a + b, xi, 1);
                add_psi(x, r - a - b, xi, 1);
                add_psi(x, r + a - b, xi, -1);
                add_psi(x, r - a + b, xi, -1);
                const coordinate scale = 1 / ((coordinate)(32 * PI) * a * b * r);
                const coordinate slope = scale * (x[1] - x[0] / r) / r, curvature = scale * x[2] - 2 * slope;
                t.f = curvature + slope, t.g = slope - curvature;
            }
            const coordinate size = t.g < 0 ? -t.g : t.g, unit = r > 0 ? sqrt(size * per_viscosity) / r : 0;
            blocks[4 * n] = (real)(t.f * per_viscosity);
            blocks[4 * n + 1] = (real)(unit * d0), blocks[4 * n + 2] = (real)(unit * d1);
            blocks[4 * n + 3] = (real)(unit * d2);
            if (t.g < 0) index[n] = -1 - j;
        }
    }
}

// A warp per particle, whose lanes take neighbours in turn; VECTORS right-hand sides in one pass, PARTS vectors of the
// far part per particle: velocity = self force + sum of blocks + sum over parts of shape * far.
KERNEL near_multiply(GLOBAL const i64* RESTRICT start, GLOBAL const int* RESTRICT index,
                     GLOBAL const real* RESTRICT blocks, GLOBAL const real* RESTRICT self,
                     GLOBAL const real* RESTRICT force, GLOBAL const real* RESTRICT far,
                     GLOBAL const real* RESTRICT shape, GLOBAL real* velocity, const i64 count, const i64 one_radius,
                     const i64 first, const i64 force_at, const i64 velocity_at)
{
    WARP(warp);
    force += force_at + 3 * first * count;
    velocity += velocity_at + 3 * first * count;
    const i64 lanes = WARP_SIZE * count;
    for (i64 base = GROUP_ID * GROUP_SIZE + LOCAL_ID - LANE; base < lanes; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = base / WARP_SIZE;
        real sum[3 * VECTORS];
        UNROLL for (int c = 0; c < 3 * VECTORS; c++) sum[c] = 0;
        for (i64 n = start[i] + LANE; n < start[i + 1]; n += WARP_SIZE) {
            const int at = index[n];
            const i64 j = at < 0 ? -1 - at : at;
            const real4 block = READ_4(blocks + 4 * n);
            UNROLL for (int v = 0; v < VECTORS; v++) {
                GLOBAL const real* q = force + 3 * (v * count + j);
                const real along = block.y * q[0] + block.z * q[1] + block.w * q[2], g = at < 0 ? -along : along;
                sum[3 * v] += block.x * q[0] + g * block.y;
                sum[3 * v + 1] += block.x * q[1] + g * block.z;
                sum[3 * v + 2] += block.x * q[2] + g * block.w;
            }
        }
        UNROLL for (int c = 0; c < 3 * VECTORS; c++)
            for (int gap = WARP_SIZE / 2; gap > 0; gap /= 2) sum[c] += WARP_SHUFFLE(warp, sum[c], LANE ^ gap);
        const real own = self[one_radius ? 0 : i];
        UNROLL for (int c = 0; c < 3 * VECTORS; c++)
            if (LANE == c) { // lanes beyond 3 * VECTORS have nothing to write
                const i64 v = c / 3, axis = c - 3 * v, at = 3 * (v * count + i) + axis;
                real total = sum[c] + own * force[at];
                for (int m = 0; m < PARTS; m++)
                    total += (PARTS > 1 ? shape[m * count + i] : 1)
                             * far[3 * (((first + v) * PARTS + m) * count + i) + axis];
                velocity[at] = total;
            }
    }
}

// Forces (vectors, count, 3) times shapes (PARTS, count): (vectors, PARTS, count, 3).
KERNEL near_spread(GLOBAL const real* RESTRICT force, GLOBAL const real* RESTRICT shape, GLOBAL real* parts,
                   const i64 count, const i64 vectors, const i64 force_at)
{
    const i64 all = vectors * PARTS * count;
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < all; n += GROUP_COUNT * GROUP_SIZE) {
        const i64 row = n / count, i = n - row * count, v = row / PARTS, part = row - v * PARTS;
        for (int axis = 0; axis < 3; axis++)
            parts[3 * n + axis] = shape[part * count + i] * force[force_at + 3 * (v * count + i) + axis];
    }
}
