// SPDX-License-Identifier: BSD-3-Clause
// The particle method over particles in the order of their tiles.

#define ORDERED 1
#define TURNS 4 // particles of a lane group one after the other; measured on an H200, results/spread-nvidia-h200.csv
#include "interpolate/particle.c"
