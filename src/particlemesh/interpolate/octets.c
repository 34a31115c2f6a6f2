// SPDX-License-Identifier: BSD-3-Clause
// Rings whose particles read their nodes by matrix instructions, several at a time (octets.h).

#define BY_OCTETS 1
#include "interpolate/ring.c"
