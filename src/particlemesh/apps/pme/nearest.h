// SPDX-License-Identifier: BSD-3-Clause
// The vector from a particle to the nearest image of another one.

typedef struct {
    i64 offset[3], stride[3];
} Strides;

typedef struct {
    real matrix[9], inverse[9];
    real near;   // below this square the image of the rounded fractions is the nearest
    real least;  // up to this square a distance is made of rounding
} Lattice;

// Return a lattice from 20 numbers.
DEVICE Lattice lattice_at(GLOBAL const real* numbers)
{
    Lattice box;
    for (int k = 0; k < 9; k++) {
        box.matrix[k] = numbers[k];
        box.inverse[k] = numbers[9 + k];
    }
    box.near = numbers[18];
    box.least = numbers[19];
    return box;
}

// Write the vector from i to the nearest image of j; return its square.
DEVICE real nearest_image(GLOBAL const real* x0, GLOBAL const real* x1, GLOBAL const real* x2, const Strides strides,
                          const Lattice box, const i64 i, const i64 j, PRIVATE real* d)
{
    real e[3], s[3];
    e[0] = x0[strides.offset[0] + j * strides.stride[0]] - x0[strides.offset[0] + i * strides.stride[0]];
    e[1] = x1[strides.offset[1] + j * strides.stride[1]] - x1[strides.offset[1] + i * strides.stride[1]];
    e[2] = x2[strides.offset[2] + j * strides.stride[2]] - x2[strides.offset[2] + i * strides.stride[2]];
    for (int a = 0; a < 3; a++)
        s[a] = rint(box.inverse[3 * a] * e[0] + box.inverse[3 * a + 1] * e[1] + box.inverse[3 * a + 2] * e[2]);
    for (int a = 0; a < 3; a++)
        d[a] = e[a] -= s[0] * box.matrix[a] + s[1] * box.matrix[3 + a] + s[2] * box.matrix[6 + a];
    real r2 = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
    if (r2 > box.near) {
        for (int image = 0; image < 27; image++) {
            const real u = image / 9 - 1, v = image / 3 % 3 - 1, w = image % 3 - 1;
            for (int a = 0; a < 3; a++)
                s[a] = e[a] + u * box.matrix[a] + v * box.matrix[3 + a] + w * box.matrix[6 + a];
            const real square = s[0] * s[0] + s[1] * s[1] + s[2] * s[2];
            if (square < r2) {
                r2 = square;
                for (int a = 0; a < 3; a++) d[a] = s[a];
            }
        }
    }
    return r2;
}
