// SPDX-License-Identifier: BSD-3-Clause
// Counts and their sums: 64 bits where there may be 2^31 or more (COUNT_IS_64).

#ifndef COUNT_H
#define COUNT_H

#if COUNT_IS_64
typedef u64 count_t;
#define ATOMIC_ADD_COUNT(pointer, value) ATOMIC_ADD_U64(pointer, value)
#define SHUFFLE_COUNT(warp, value, lane) WARP_SHUFFLE_U64(warp, value, lane)
#else
typedef u32 count_t;
#define ATOMIC_ADD_COUNT(pointer, value) ATOMIC_ADD_U32(pointer, value)
#define SHUFFLE_COUNT(warp, value, lane) WARP_SHUFFLE_U32(warp, value, lane)
#endif

#endif
