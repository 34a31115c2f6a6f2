// SPDX-License-Identifier: BSD-3-Clause
// Numbers of a box in double precision, as lattices.c derives them. Missing axes are first, and have unit vectors.

#define ROWS 0      // lattice vectors
#define INVERSE 9   // from positions to fractions: row a is the reciprocal vector of axis a
#define VOLUME 18
#define EDGE 19     // of a cube, or square, of this volume
#define STRAIGHT 20 // whether the lattice vectors are along the axes
#define PER 21      // fractions that a distance of one spans across the faces of each axis, of the box as given
#define LENGTH 24   // of each lattice vector, of the box as given
#define WRONG 27    // whether it is no box
#define NUMBERS 28
