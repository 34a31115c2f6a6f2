// SPDX-License-Identifier: BSD-3-Clause
// The particle method over particles in the order of their tiles.

#define ORDERED 1
#include "interpolate/particle.c"
