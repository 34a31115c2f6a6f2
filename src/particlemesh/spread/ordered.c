// SPDX-License-Identifier: BSD-3-Clause
// The particle method over particles in the order by blocks.

#define ORDERED
#include "spread/particle.c"
