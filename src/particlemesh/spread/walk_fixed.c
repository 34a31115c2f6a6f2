// SPDX-License-Identifier: BSD-3-Clause
// The walk of walk.c into 64-bit integers (fixed.h). A warp adds up in a known order, and the sums of all warps do not
// depend on theirs. The integers are placed so that four lanes add to neighbours, which fill a memory sector.

#include "spread/fixed.h"

typedef u64 Sink;
#if VECTOR != 1
#error "integer adds have no vector form"
#endif
#define DEPOSIT(to, vector) add_whole(to, (vector)[0])
#define PARTS_APART 1
#define MORE_PARAMETERS , GLOBAL const u32* RESTRICT most, GLOBAL const u32* RESTRICT largest, const i64 headroom
#define BROUGHT(q) scale_values(q, most, largest, headroom)
#include "spread/walk.c"
