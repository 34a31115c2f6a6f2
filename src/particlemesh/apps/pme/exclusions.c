// SPDX-License-Identifier: BSD-3-Clause
// Corrections of excluded and scaled pairs, added to the sums over neighbours. One work-item per particle, which alone
// adds to its sums. WIDTH sums for each set of charges: potential, field, and with 10 the six terms of the virial.

typedef struct {
    i64 offset[3], stride[3];
} Strides;

typedef struct {
    real matrix[9], inverse[9], near;
} Lattice;

KERNEL exclusions(GLOBAL const real* x0, GLOBAL const real* x1, GLOBAL const real* x2, GLOBAL const int* RESTRICT start,
                  GLOBAL const int* RESTRICT partners, GLOBAL const real* RESTRICT weights,
                  GLOBAL const real* RESTRICT charges, GLOBAL real* RESTRICT sums, const i64 count, const i64 sets,
                  const i64 charges_at, const i64 sums_at, const Strides strides, const Lattice box)
{
    const i64 width = sets * WIDTH + 1;
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        GLOBAL real* own = sums + sums_at + i * width;
        for (int n = start[i]; n < start[i + 1]; n++) {
            const i64 j = partners[n];
            real e[3], s[3], d[3];
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
            const real inverse = r2 > 0 ? weights[n] / sqrt(r2) : (real)0;
            if (!(r2 > 0) && weights[n] == (real)-1) own[width - 1] -= (real)1;
            for (i64 c = 0; c < sets; c++) {
                GLOBAL real* sum = own + c * WIDTH;
                const real value = charges[charges_at + c * count + j] * inverse;
                const real g = r2 > 0 ? -value / r2 : (real)0;
                sum[0] += value;
                for (int a = 0; a < 3; a++) {
                    sum[1 + a] += g * d[a];
#if WIDTH > 4
                    sum[4 + a] += g * d[a] * d[a];
                    sum[7 + a] += g * d[(a + 1) % 3] * d[(a + 2) % 3];
#endif
                }
            }
        }
    }
}
