// SPDX-License-Identifier: BSD-3-Clause
// A band of low modes: out of a spectrum, or into one whose other modes are zero. One pass, with a complex factor per
// axis and mode. Arrays are dense; complex numbers are two reals. Missing axes come first, one mode thick.
//
// TEAM work-items write a piece of a row of PIECE numbers: what all of a row share is worked out once for several of them.

typedef struct {
    i64 nodes[3], modes[3];    // of the spectrum, of the band
    i64 negative[3];           // modes of the band with negative numbers
    i64 spectrum_at, modes_at; // first reals
    i64 centred;               // the band's order: from the most negative mode on, or as transforms have it
} Band;

DEVICE i64 quotient(i64 a, i64 b)
{
    // Division of 64-bit numbers takes several times as long.
    return a >> 32 ? a / b : (i64)((u32)a / (u32)b);
}

// The spectrum's index of the band's index i.
DEVICE i64 node_of(i64 i, i64 axis, PRIVATE const Band* b)
{
    const i64 positive = b->modes[axis] - b->negative[axis];
    const i64 k = b->centred ? i - b->negative[axis] : i < positive ? i : i - b->modes[axis];
    return k < 0 ? k + b->nodes[axis] : k;
}

// The band's index of the spectrum's index s, or -1.
DEVICE i64 mode_of(i64 s, i64 axis, PRIVATE const Band* b)
{
    const i64 positive = b->modes[axis] - b->negative[axis];
    i64 k = s;
    if (s >= positive) {
        k = s - b->nodes[axis];
        if (k < -b->negative[axis]) return -1;
    }
    return b->centred ? k + b->negative[axis] : k < 0 ? k + b->modes[axis] : k;
}

DEVICE real2 product(const real2 a, const real2 b)
{
    real2 c;
    c.x = a.x * b.x - a.y * b.y;
    c.y = a.x * b.y + a.y * b.x;
    return c;
}

// What all numbers of a row share: its factor.
DEVICE real2 factor_of_row(GLOBAL const real* factors, i64 x, i64 y, PRIVATE const Band* b)
{
    GLOBAL const real2* f = (GLOBAL const real2*)factors;
    return product(f[x], f[b->modes[0] + y]);
}

DEVICE real2 scaled(GLOBAL const real* mode, const real2 row, GLOBAL const real* factors, i64 z, PRIVATE const Band* b)
{
    GLOBAL const real2* along_z = (GLOBAL const real2*)factors + b->modes[0] + b->modes[1];
    return product(*(GLOBAL const real2*)mode, product(row, along_z[z]));
}

#define FIRST_PIECE ((GROUP_ID * GROUP_SIZE + LOCAL_ID) / TEAM)
#define ALL_TEAMS (GROUP_COUNT * GROUP_SIZE / TEAM)

KERNEL crop(GLOBAL const real* spectrum, GLOBAL real* modes, GLOBAL const real* factors, const i64 channels,
            const Band band)
{
    const Band b = band;
    const i64 pieces = (b.modes[2] + PIECE - 1) / PIECE, lines = b.modes[0] * b.modes[1];
    for (i64 piece = FIRST_PIECE; piece < channels * lines * pieces; piece += ALL_TEAMS) {
        const i64 row = quotient(piece, pieces), channel = quotient(row, lines), line = row - channel * lines;
        const i64 x = quotient(line, b.modes[1]), y = line - x * b.modes[1];
        const i64 from = ((channel * b.nodes[0] + node_of(x, 0, &b)) * b.nodes[1] + node_of(y, 1, &b)) * b.nodes[2];
        const i64 begin = (piece - row * pieces) * PIECE, rest = b.modes[2] - begin;
        const real2 factor = factor_of_row(factors, x, y, &b);
        for (int n = LOCAL_ID % TEAM; n < (rest < PIECE ? (int)rest : PIECE); n += TEAM) {
            const i64 z = begin + n, source = b.spectrum_at + 2 * (from + node_of(z, 2, &b));
            const i64 target = b.modes_at + 2 * (row * b.modes[2] + z);
            *(GLOBAL real2*)(modes + target) = scaled(spectrum + source, factor, factors, z, &b);
        }
    }
}

KERNEL embed(GLOBAL const real* modes, GLOBAL real* spectrum, GLOBAL const real* factors, const i64 channels,
             const Band band)
{
    const Band b = band;
    const i64 pieces = (b.nodes[2] + PIECE - 1) / PIECE, lines = b.nodes[0] * b.nodes[1];
    for (i64 piece = FIRST_PIECE; piece < channels * lines * pieces; piece += ALL_TEAMS) {
        const i64 row = quotient(piece, pieces), channel = quotient(row, lines), line = row - channel * lines;
        const i64 sx = quotient(line, b.nodes[1]), sy = line - sx * b.nodes[1];
        const i64 x = mode_of(sx, 0, &b), y = mode_of(sy, 1, &b);
        const i64 begin = (piece - row * pieces) * PIECE, rest = b.nodes[2] - begin;
        const int count = rest < PIECE ? (int)rest : PIECE;
        GLOBAL real2* to = (GLOBAL real2*)(spectrum + b.spectrum_at + 2 * (row * b.nodes[2] + begin));
        real2 zero;
        zero.x = 0, zero.y = 0;
        if (x < 0 || y < 0) {
            for (int n = LOCAL_ID % TEAM; n < count; n += TEAM) to[n] = zero;
            continue;
        }
        GLOBAL const real* from = modes + b.modes_at + 2 * ((channel * b.modes[0] + x) * b.modes[1] + y) * b.modes[2];
        const real2 factor = factor_of_row(factors, x, y, &b);
        for (int n = LOCAL_ID % TEAM; n < count; n += TEAM) {
            const i64 z = mode_of(begin + n, 2, &b);
            real2 value = zero;
            if (z >= 0) value = scaled(from + 2 * z, factor, factors, z, &b);
            to[n] = value;
        }
    }
}
