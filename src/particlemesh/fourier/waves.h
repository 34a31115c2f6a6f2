// SPDX-License-Identifier: BSD-3-Clause
// Wave vectors of DIM axes for slopes by ik.

typedef struct {
    i64 shape[3]; // modes along each axis; axes that the box does not have are first
    i64 nodes[3];
    i64 starts[3]; // of the modes that are here
    i64 source_at, target_at; // where spectra begin
} Band;

// The number of a mode; 0 for the highest of an even axis, which has no slope.
DEVICE real slope_number(const i64 k, const i64 nodes)
{
    return (real)(2 * k < nodes ? k : 2 * k == nodes ? 0 : k - nodes);
}

DEVICE void wave_vector(const i64 k, const Band band, GLOBAL const real* rows, PRIVATE real* q)
{
    const i64 row = k / band.shape[2], z = k - row * band.shape[2], x = row / band.shape[1];
    const real n0 = slope_number(band.starts[0] + x, band.nodes[0]),
               n1 = slope_number(band.starts[1] + row - x * band.shape[1], band.nodes[1]),
               n2 = slope_number(band.starts[2] + z, band.nodes[2]);
    UNROLL for (int c = 0; c < DIM; c++) q[c] = n0 * rows[c] + n1 * rows[DIM + c] + n2 * rows[2 * DIM + c];
}
