// SPDX-License-Identifier: BSD-3-Clause
// Between all modes of real fields and the half of a symmetric band whose last numbers are not negative, in one pass.
// Arrays are dense; complex numbers are two reals. Missing axes come first, one mode thick.

typedef struct {
    i64 modes[3];         // of the whole, with numbers from -(modes / 2) to (modes - 1) / 2
    i64 reach[3];         // largest numbers of the half, whose first two axes ascend from -reach
    i64 half_at, whole_at; // first reals
    i64 centred;          // the order of the whole: ascending, or as transforms have it
    i64 conjugate;
} Halves;

// The whole's index of the number k, or -1.
DEVICE i64 place_of(i64 k, i64 axis, PRIVATE const Halves* h)
{
    const i64 n = h->modes[axis];
    if (k < -(n / 2) || k > (n - 1) / 2) return -1;
    return h->centred ? k + n / 2 : k < 0 ? k + n : k;
}

// The number at the whole's index i.
DEVICE i64 number_of(i64 i, i64 axis, PRIVATE const Halves* h)
{
    const i64 n = h->modes[axis];
    return h->centred ? i - n / 2 : i > (n - 1) / 2 ? i - n : i;
}

// Adds half of a mode, or of its conjugate, if there is such a mode.
DEVICE real2 joined(real2 sum, GLOBAL const real* whole, i64 first, i64 x, i64 y, i64 z, real sign,
                    PRIVATE const Halves* h)
{
    const i64 i = place_of(x, 0, h), j = place_of(y, 1, h), k = place_of(z, 2, h);
    if (i >= 0 && j >= 0 && k >= 0) {
        const real2 mode = *(GLOBAL const real2*)(whole + first + 2 * ((i * h->modes[1] + j) * h->modes[2] + k));
        sum.x += (real)0.5 * mode.x;
        sum.y += (real)0.5 * sign * mode.y;
    }
    return sum;
}

KERNEL unfold(GLOBAL const real* upper, GLOBAL real* whole, const i64 count, const Halves halves)
{
    const Halves h = halves;
    const i64 ny = 2 * h.reach[1] + 1, nz = h.reach[2] + 1, size = (2 * h.reach[0] + 1) * ny * nz;
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < count; n += GROUP_COUNT * GROUP_SIZE) {
        const i64 line = n / h.modes[2], plane = line / h.modes[1], channel = plane / h.modes[0];
        i64 x = number_of(plane - channel * h.modes[0], 0, &h), y = number_of(line - plane * h.modes[1], 1, &h);
        i64 z = number_of(n - line * h.modes[2], 2, &h);
        const i64 opposite = z < 0;
        if (opposite) x = -x, y = -y, z = -z;
        const i64 from = channel * size + ((x + h.reach[0]) * ny + y + h.reach[1]) * nz + z;
        real2 mode = *(GLOBAL const real2*)(upper + h.half_at + 2 * from);
        if (opposite != h.conjugate) mode.y = -mode.y;
        *(GLOBAL real2*)(whole + h.whole_at + 2 * n) = mode;
    }
}

KERNEL fold(GLOBAL const real* whole, GLOBAL real* upper, const i64 count, const Halves halves)
{
    const Halves h = halves;
    const i64 ny = 2 * h.reach[1] + 1, nz = h.reach[2] + 1, nx = 2 * h.reach[0] + 1;
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < count; n += GROUP_COUNT * GROUP_SIZE) {
        const i64 line = n / nz, plane = line / ny, channel = plane / nx;
        const i64 x = plane - channel * nx - h.reach[0], y = line - plane * ny - h.reach[1], z = n - line * nz;
        const i64 first = h.whole_at + 2 * channel * h.modes[0] * h.modes[1] * h.modes[2];
        real2 sum;
        sum.x = 0, sum.y = 0;
        sum = joined(sum, whole, first, x, y, z, 1, &h);
        sum = joined(sum, whole, first, -x, -y, -z, -1, &h);
        if (h.conjugate) sum.y = -sum.y;
        *(GLOBAL real2*)(upper + h.half_at + 2 * n) = sum;
    }
}
