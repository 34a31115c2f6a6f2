// SPDX-License-Identifier: BSD-3-Clause
// The particle method over particles in block order.

#define ORDERED
#include "spread/particle.c"
