// SPDX-License-Identifier: BSD-3-Clause
// Vectors (sets, n) of linear equations, and the steps of conjugate gradients for all sets at once. Sums over a set are
// by share: `shares` work-groups of a set write one number each, and what needs the sum adds these up.

#include "apps/pme/gather.h"

typedef struct {
    real value;
} Number;

// target += factor * source, whose element k of a set is at set * of_set + k / columns * of_row + k % columns.
KERNEL add(GLOBAL real* RESTRICT target, GLOBAL const real* RESTRICT source, const i64 count, const i64 sets,
           const i64 columns, const i64 of_set, const i64 of_row, const i64 source_at, const i64 target_at,
           const Number factor)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < sets * count; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 set = k / count, n = k - set * count, row = n / columns;
        target[target_at + k] += factor.value * source[source_at + set * of_set + row * of_row + n - row * columns];
    }
}

// target = weights * source; all sets have the same weights.
KERNEL scale(GLOBAL real* RESTRICT target, GLOBAL const real* RESTRICT weights, GLOBAL const real* RESTRICT source,
             const i64 count, const i64 sets)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < sets * count; k += GROUP_COUNT * GROUP_SIZE)
        target[k] = weights[k % count] * source[k];
}

// target[i] += factor * sum over columns of a[i] * b[i].
KERNEL dots(GLOBAL real* RESTRICT target, GLOBAL const real* RESTRICT a, GLOBAL const real* RESTRICT b, const i64 count,
            const i64 columns, const i64 target_at, const i64 a_at, const i64 b_at, const Number factor)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        real sum = 0;
        for (i64 c = 0; c < columns; c++) sum += a[a_at + columns * i + c] * b[b_at + columns * i + c];
        target[target_at + i] += factor.value * sum;
    }
}

// target = a x b of rows of three.
KERNEL cross_products(GLOBAL real* RESTRICT target, GLOBAL const real* RESTRICT a, GLOBAL const real* RESTRICT b,
                      const i64 count)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        for (int n = 0; n < 3; n++) {
            const i64 k = 3 * i + (n + 1) % 3, l = 3 * i + (n + 2) % 3;
            target[3 * i + n] = a[k] * b[l] - a[l] * b[k];
        }
    }
}

DEVICE real total(GLOBAL const real* partial, const i64 set, const i64 shares)
{
    real sum = 0;
    for (i64 k = 0; k < shares; k++) sum += partial[set * shares + k];
    return sum;
}

// Elements of a share, as work-items take them.
#define OF_SHARE(share, k)                                                                     \
    const i64 set = share / shares, length = (count + shares - 1) / shares;                    \
    const i64 begin = share % shares * length, end = begin + length < count ? begin + length : count; \
    for (i64 k = begin + LOCAL_ID; k < end; k += GROUP_SIZE)

// Sums of a * b over sets; the values of b are those of all sets, or of one for all.
KERNEL products(GLOBAL const real* RESTRICT a, GLOBAL const real* RESTRICT b, GLOBAL real* RESTRICT partial,
                const i64 count, const i64 sets, const i64 shares, const i64 of_set)
{
    LOCAL_ARRAY(real, scratch, GROUP_SIZE);
    for (i64 share = GROUP_ID; share < sets * shares; share += GROUP_COUNT) {
        real sum = 0;
        OF_SHARE(share, k) sum += a[set * count + k] * b[set * of_set + k];
        gather(scratch, sum, partial + share);
    }
}

// Shift residuals so that weighted ones sum to zero, if there is a weight; z = weights * residual; sum residual * z.
KERNEL weigh(GLOBAL real* RESTRICT residual, GLOBAL const real* RESTRICT weights, GLOBAL real* RESTRICT z,
             GLOBAL const real* RESTRICT mean, GLOBAL real* RESTRICT square, const i64 count, const i64 sets,
             const i64 shares, const Number inverse)
{
    LOCAL_ARRAY(real, scratch, GROUP_SIZE);
    for (i64 share = GROUP_ID; share < sets * shares; share += GROUP_COUNT) {
        const real shift = inverse.value > 0 ? inverse.value * total(mean, share / shares, shares) : (real)0;
        real sum = 0;
        OF_SHARE(share, k) {
            const real r = residual[set * count + k] - shift, weighted = weights[k] * r;
            residual[set * count + k] = r;
            z[set * count + k] = weighted;
            sum += r * weighted;
        }
        gather(scratch, sum, square + share);
    }
}

// p = z + square / former * p, or z at the first step.
KERNEL direct(GLOBAL const real* RESTRICT z, GLOBAL real* RESTRICT p, GLOBAL const real* RESTRICT square,
              GLOBAL const real* RESTRICT former, const i64 count, const i64 sets, const i64 shares, const i64 first)
{
    for (i64 share = GROUP_ID; share < sets * shares; share += GROUP_COUNT) {
        const real before = first ? (real)0 : total(former, share / shares, shares);
        const real turn = before > 0 ? total(square, share / shares, shares) / before : (real)0;
        OF_SHARE(share, k) p[set * count + k] = z[set * count + k] + (first ? (real)0 : turn * p[set * count + k]);
    }
}

// x += square / curve * p, residual -= square / curve * image, of sets that move.
KERNEL advance(GLOBAL real* RESTRICT x, GLOBAL real* RESTRICT residual, GLOBAL const real* RESTRICT p,
               GLOBAL const real* RESTRICT image, GLOBAL const real* RESTRICT square,
               GLOBAL const real* RESTRICT curve, GLOBAL const real* RESTRICT moves, const i64 count,
               const i64 sets, const i64 shares)
{
    for (i64 share = GROUP_ID; share < sets * shares; share += GROUP_COUNT) {
        if (moves[share / shares] == 0) continue;
        const real bend = total(curve, share / shares, shares);
        const real step = bend > 0 ? total(square, share / shares, shares) / bend : (real)0;
        OF_SHARE(share, k) {
            x[set * count + k] += step * p[set * count + k];
            residual[set * count + k] -= step * image[set * count + k];
        }
    }
}
