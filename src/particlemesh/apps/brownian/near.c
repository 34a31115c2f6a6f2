// SPDX-License-Identifier: BSD-3-Clause
// The near part of the mobility as a sparse matrix of 3x3 blocks f 1 +- u u^T, four reals and an index per pair. The
// sign is that of the index: -1 - j stands for j and minus. Spheres are in the order of the grid, so that those that
// follow each other have common neighbours, whose forces are in the cache: the k-th is the caller's sphere order[k]. Over
// ranks they are in the order of the arrays instead, ORDERED 0. There rows are those of this rank's spheres from `first`
// on, among ghosts.

// Blocks are computed as coordinates, in double precision where the device has it.
#include "particles/coordinates.h"

#define CLOSE 0.05 // times a + b: nearer than this the closed form loses digits
#define PI 3.14159265358979323846

#define SPHERE(k) (ORDERED ? order[k] : (k))

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
                   GLOBAL const int* RESTRICT order, GLOBAL const coordinate* RESTRICT radii,
                   GLOBAL const coordinate* RESTRICT quadrature, GLOBAL real* blocks, const i64 count, const i64 first, const i64 nodes, const i64 one_radius)
{
    const coordinate xi = quadrature[2 * nodes], per_viscosity = quadrature[2 * nodes + 1];
    for (i64 i = GROUP_ID; i < count; i += GROUP_COUNT) {
        const coordinate a = radii[one_radius ? 0 : SPHERE(first + i)];
        for (i64 n = start[i] + LOCAL_ID; n < start[i + 1]; n += GROUP_SIZE) {
            const int j = index[n];
            const coordinate b = radii[one_radius ? 0 : SPHERE(j)];
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

// Vectors of a product lie side by side in the row of their particle: one vector in four reals, the last unused, or
// groups of four vectors in twelve. VECTORS of a lane's group.
#if VECTORS == 1
#define WIDTH 4
#else
#define WIDTH (3 * VECTORS)
#endif
#define SHAPES (PARTS > 1 ? PARTS : 1)

// Forces (vectors, count, 3), times shapes (PARTS, count) if there are several, to rows of `row` reals: per vector its
// parts. The rest of each row is 0.
KERNEL near_gather(GLOBAL const real* RESTRICT force, GLOBAL const int* RESTRICT order,
                   GLOBAL const real* RESTRICT shape, GLOBAL real* rows, const i64 count, const i64 vectors, const i64 row, const i64 force_at)
{
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < count * row; n += GROUP_COUNT * GROUP_SIZE) {
        const i64 k = n / row, c = n - k * row, vector = c / 3, v = vector / SHAPES, part = vector - v * SHAPES;
        const i64 i = SPHERE(k);
        real q = 0;
        if (v < vectors) q = force[force_at + 3 * (v * count + i) + c - 3 * vector];
        rows[n] = PARTS > 1 ? shape[part * count + i] * q : q;
    }
}

// ROW_LANES lanes per particle. SPLIT of them share a neighbour and take a group of vectors each; the others take other
// neighbours in turn. Rows of forces become rows of the near part's velocities.
KERNEL near_multiply(GLOBAL const i64* RESTRICT start, GLOBAL const int* RESTRICT index,
                     GLOBAL const real* RESTRICT blocks, GLOBAL const int* RESTRICT order,
                     GLOBAL const real* RESTRICT self, GLOBAL const real* RESTRICT rows, GLOBAL real* velocity,
                     const i64 count, const i64 first, const i64 one_radius, const i64 groups)
{
    WARP(warp);
    const i64 passes = (groups + SPLIT - 1) / SPLIT, lanes = ROW_LANES * passes * count, row = WIDTH * groups;
    for (i64 base = GROUP_ID * GROUP_SIZE + LOCAL_ID - LANE; base < lanes; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 item = (base + LANE) / ROW_LANES, pass = item / count, i = item - pass * count;
        const int turn = LANE % ROW_LANES / SPLIT;
        const i64 group = pass * SPLIT + LANE % SPLIT;
        const int takes = item < passes * count && group < groups;
        real sum[WIDTH];
        UNROLL for (int c = 0; c < WIDTH; c++) sum[c] = 0;
        const i64 end = takes ? start[i + 1] : 0;
        for (i64 n = takes ? start[i] + turn : 0; n < end; n += ROW_LANES / SPLIT) {
            const int at = index[n];
            const i64 j = at < 0 ? -1 - at : at;
            const real4 block = READ_4(blocks + 4 * n);
            GLOBAL const real* from = rows + row * j + WIDTH * group;
            real q[WIDTH];
            UNROLL for (int c = 0; c < WIDTH; c += 4) {
                const real4 four = READ_4(from + c);
                q[c] = four.x, q[c + 1] = four.y, q[c + 2] = four.z, q[c + 3] = four.w;
            }
            UNROLL for (int c = 0; c < 3 * VECTORS; c += 3) {
                const real along = block.y * q[c] + block.z * q[c + 1] + block.w * q[c + 2];
                const real g = at < 0 ? -along : along;
                sum[c] += block.x * q[c] + g * block.y;
                sum[c + 1] += block.x * q[c + 1] + g * block.z;
                sum[c + 2] += block.x * q[c + 2] + g * block.w;
            }
        }
        UNROLL for (int c = 0; c < 3 * VECTORS; c++)
            for (int gap = ROW_LANES / 2; gap >= SPLIT; gap /= 2) sum[c] += WARP_SHUFFLE(warp, sum[c], LANE ^ gap);
        const real own = takes ? self[one_radius ? 0 : SPHERE(first + i)] : (real)0;
        UNROLL for (int c = 0; c < WIDTH; c++)
            if (takes && turn == c % (ROW_LANES / SPLIT)) {
                const i64 at = row * i + WIDTH * group + c;
                velocity[at] = sum[c] + own * rows[row * first + at];
            }
    }
}

// Velocities (vectors, count, 3) from the rows of the near part and, if PARTS > 0, those of the far part's vectors.
KERNEL near_finish(GLOBAL const real* RESTRICT near, GLOBAL const real* RESTRICT far, GLOBAL const int* RESTRICT order,
                   GLOBAL const real* RESTRICT shape, GLOBAL real* velocity, const i64 count, const i64 vectors, const i64 row, const i64 far_row,
                   const i64 velocity_at)
{
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < 3 * count * vectors; n += GROUP_COUNT * GROUP_SIZE) {
        const i64 v = n / (3 * count), rest = n - 3 * count * v, k = rest / 3, axis = rest - 3 * k, i = SPHERE(k);
        real total = near[row * k + 3 * v + axis];
        for (int m = 0; m < PARTS; m++)
            total += (PARTS > 1 ? shape[m * count + i] : 1) * far[far_row * k + 3 * (v * PARTS + m) + axis];
        velocity[velocity_at + 3 * (v * count + i) + axis] = total;
    }
}
