// SPDX-License-Identifier: BSD-3-Clause
// The dialect in OpenCL C 1.2. HAS_PTX: the compiler accepts NVIDIA's inline assembly, so the verbs are as fast as
// CUDA's. HAS_WARP: 32 lanes exchange registers; elsewhere the work-group is the warp, and warp verbs use local memory.

#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
#if HAS_FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

typedef long i64;
typedef ulong u64;
typedef uint u32;

#if defined(RESIDENT_GROUPS) && BOUNDS_REGISTERS
#define KERNEL __kernel void // with a required group size the compiler ignores the limit on registers
#else
#define KERNEL __kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void
#endif
#define DEVICE static inline
#define GLOBAL __global
#define LOCAL __local
#define PRIVATE __private
#define LOCAL_ARRAY(type, name, count) __local type name[count] __attribute__((aligned(16)))
#define RESTRICT restrict
#if HAS_PTX
#define UNROLL _Pragma("unroll")
#define ROLL _Pragma("unroll 1")
#else
#define UNROLL
#define ROLL
#endif

#define LOCAL_ID ((int)get_local_id(0))
#define GROUP_ID ((i64)get_group_id(0))
#define GROUP_COUNT ((i64)get_num_groups(0))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

// Not char*: NVIDIA's compiler would misalign the pool.
#define WITH_LOCAL_POOL , __local ulong2* pool_
#define LOCAL_POOL(type, name) __local type* name = (__local type*)pool_

#if REAL_IS_DOUBLE
typedef double real;
typedef double2 real2;
typedef double4 real4;
#else
typedef float real;
typedef float2 real2;
typedef float4 real4;
#endif

#define WARP_SIZE 32
#define LANE (LOCAL_ID & 31)
#if HAS_PTX
#define WARP(name) const int name = 0
#define WARP_PARAMETER const int
#define WARP_SYNC(warp) asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#define ANY_AROUND(predicate) any_around(predicate)
#define WARP_BALLOT(warp, predicate) warp_ballot(predicate)
#define WARP_MATCH(warp, value, bits) warp_match(value, bits)
#define WARP_SHUFFLE_U32(warp, value, lane) warp_shuffle_u32(value, lane)
#define WARP_SHUFFLE_U64(warp, value, lane) warp_shuffle_u64(value, lane)
#define WARP_SHUFFLE(warp, value, lane) warp_shuffle(value, lane)
DEVICE int any_around(int predicate)
{
    int r;
    asm volatile("{.reg .pred p; .reg .pred q; .reg .b32 m; setp.ne.s32 p, %1, 0; activemask.b32 m; "
                 "vote.sync.any.pred q, p, m; selp.s32 %0, 1, 0, q;}"
                 : "=r"(r)
                 : "r"(predicate));
    return r;
}
DEVICE u32 warp_ballot(int predicate)
{
    u32 r;
    asm volatile("{.reg .pred p; setp.ne.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff;}"
                 : "=r"(r)
                 : "r"(predicate));
    return r;
}
DEVICE u32 warp_match(u32 value, int bits)
{
    u32 same = 0xffffffffu;
    UNROLL for (int b = 0; b < bits; b++) {
        const u32 bit = value >> b & 1;
        same &= warp_ballot((int)bit) ^ (bit - 1);
    }
    return same;
}
DEVICE u32 warp_shuffle_u32(u32 value, int lane)
{
    u32 r;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(value), "r"(lane));
    return r;
}
DEVICE u64 warp_shuffle_u64(u64 value, int lane)
{
    return (u64)warp_shuffle_u32((u32)(value >> 32), lane) << 32 | warp_shuffle_u32((u32)value, lane);
}
DEVICE real warp_shuffle(real value, int lane)
{
#if REAL_IS_DOUBLE
    const uint2 bits = as_uint2(value);
    return as_double((uint2)(warp_shuffle_u32(bits.x, lane), warp_shuffle_u32(bits.y, lane)));
#else
    return as_float(warp_shuffle_u32(as_uint(value), lane));
#endif
}
#else
// The scratch has room for two verbs in a row, so one barrier per verb suffices: a word per lane, or MMA's operands.
#if !WITH_MMA
enum { warp_row = 32 };
#elif REAL_IS_DOUBLE
enum { warp_row = 64 };
#else
enum { warp_row = 96 };
#endif
typedef struct {
    __local u64* scratch;
    int turn;
} Warp;
#define WARP(name)                                                 \
    __local u64 name##_scratch[2 * warp_row];                     \
    Warp name##_state;                                            \
    name##_state.scratch = name##_scratch, name##_state.turn = 0; \
    __private Warp* name = &name##_state
#define WARP_PARAMETER __private Warp*
#define WARP_SYNC(warp) BARRIER()
#define ANY_AROUND(predicate) (predicate)
#define WARP_BALLOT(warp, predicate) warp_ballot(warp, predicate)
#define WARP_MATCH(warp, value, bits) warp_match(warp, value)
#define WARP_SHUFFLE_U32(warp, value, lane) ((u32)warp_shuffle_u64(warp, (u64)(value), lane))
#define WARP_SHUFFLE_U64(warp, value, lane) warp_shuffle_u64(warp, value, lane)
#define WARP_SHUFFLE(warp, value, lane) warp_shuffle(warp, value, lane)
DEVICE u64 warp_shuffle_u64(__private Warp* warp, u64 value, int lane)
{
    __local u64* row = warp->scratch + warp_row * warp->turn;
    warp->turn = 1 - warp->turn;
    row[LANE] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    return row[lane & 31];
}
DEVICE real warp_shuffle(__private Warp* warp, real value, int lane)
{
#if REAL_IS_DOUBLE
    return as_double(warp_shuffle_u64(warp, as_ulong(value), lane));
#else
    return as_float((u32)warp_shuffle_u64(warp, (u64)as_uint(value), lane));
#endif
}
DEVICE u32 warp_ballot(__private Warp* warp, int predicate)
{
    __local u64* row = warp->scratch + warp_row * warp->turn;
    warp->turn = 1 - warp->turn;
    row[LANE] = predicate != 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    u32 votes = 0;
    for (int lane = 0; lane < 32; lane++) votes |= (u32)row[lane] << lane;
    return votes;
}
DEVICE u32 warp_match(__private Warp* warp, u32 value)
{
    __local u64* row = warp->scratch + warp_row * warp->turn;
    warp->turn = 1 - warp->turn;
    row[LANE] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    u32 same = 0;
    for (int lane = 0; lane < 32; lane++) same |= (u32)(row[lane] == value) << lane;
    return same;
}
#endif

#define ATOMIC_ADD_U32(pointer, value) atomic_add(pointer, (u32)(value))
#define ATOMIC_MAX_U32(pointer, value) atomic_max(pointer, (u32)(value))
#define ATOMIC_EXCHANGE_U32(pointer, value) atomic_xchg(pointer, (u32)(value))
#define NEAREST_I64(value) ((i64)rint(value))
#define ATOMIC_ADD_U64(pointer, value) atom_add(pointer, (u64)(value))
#define ATOMIC_MAX_U64(pointer, value) atom_max(pointer, (u64)(value))
#define ATOMIC_ADD(pointer, value) atomic_add_real(pointer, value)
#define ATOMIC_ADD_LOCAL(pointer, value) atomic_add_local(pointer, value)

// Every read of the cell is atomic, the first included: a plain read would be a race.
#if REAL_IS_DOUBLE
#define add_by_exchange(space, p, v)                                       \
    space u64* bits = (space u64*)p;                                       \
    u64 seen = atom_cmpxchg(bits, (u64)0, (u64)0), old;                    \
    do {                                                                   \
        old = seen;                                                        \
        seen = atom_cmpxchg(bits, old, as_ulong(as_double(old) + v));      \
    } while (seen != old)
#else
#define add_by_exchange(space, p, v)                                       \
    space u32* bits = (space u32*)p;                                       \
    u32 seen = atomic_cmpxchg(bits, 0u, 0u), old;                          \
    do {                                                                   \
        old = seen;                                                        \
        seen = atomic_cmpxchg(bits, old, as_uint(as_float(old) + v));      \
    } while (seen != old)
#endif

DEVICE void atomic_add_real(__global real* p, real v)
{
#if !HAS_PTX
    add_by_exchange(__global, p, v);
#elif REAL_IS_DOUBLE
    asm volatile("red.global.add.f64 [%0], %1;" ::"l"(p), "d"(v) : "memory");
#else
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(p), "f"(v) : "memory");
#endif
}

// For reals in local memory, NVIDIA's own instruction is such a loop.
DEVICE void atomic_add_local(__local real* p, real v) { add_by_exchange(__local, p, v); }

#if HAS_VECTOR_ATOMIC && !REAL_IS_DOUBLE
DEVICE void atomic_add_2(__global float* p, const __private float* v)
{
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(p), "f"(v[0]), "f"(v[1]) : "memory");
}
DEVICE void atomic_add_4(__global float* p, const __private float* v)
{
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(v[0]), "f"(v[1]), "f"(v[2]),
                 "f"(v[3])
                 : "memory");
}
#else
#define SCALAR_VECTOR_ATOMICS 1
#endif

#if HAS_PTX
// Plain loads bypass the read-only cache here, even with restrict.
#define READ_1(p) read_1(p)
#define READ_2(p) read_2(p)
#define READ_4(p) read_4(p)
#define READ_ONCE(p) read_once(p)
#define READ_ONCE_U32(p) read_once_u32(p)
DEVICE u32 read_once_u32(__global const u32* p)
{
    u32 v;
    asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}
#if REAL_IS_DOUBLE
DEVICE double read_once(__global const double* p)
{
    double v;
    asm("ld.global.nc.L1::no_allocate.f64 %0, [%1];" : "=d"(v) : "l"(p));
    return v;
}
DEVICE double read_1(__global const double* p)
{
    double v;
    asm("ld.global.nc.f64 %0, [%1];" : "=d"(v) : "l"(p));
    return v;
}
DEVICE double2 read_2(__global const double* p)
{
    double2 v;
    asm("ld.global.nc.v2.f64 {%0, %1}, [%2];" : "=d"(v.x), "=d"(v.y) : "l"(p));
    return v;
}
DEVICE double4 read_4(__global const double* p)
{
    return (double4)(read_2(p), read_2(p + 2));
}
#else
DEVICE float read_once(__global const float* p)
{
    float v;
    asm("ld.global.nc.L1::no_allocate.f32 %0, [%1];" : "=f"(v) : "l"(p));
    return v;
}
DEVICE float read_1(__global const float* p)
{
    float v;
    asm("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(p));
    return v;
}
DEVICE float2 read_2(__global const float* p)
{
    float2 v;
    asm("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p));
    return v;
}
DEVICE float4 read_4(__global const float* p)
{
    float4 v;
    asm("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}
#endif
#else
#define READ_1(p) (*(p))
#define READ_ONCE(p) (*(p))
#define READ_ONCE_U32(p) (*(p))
#define READ_2(p) (*(__global const real2*)(p))
#define READ_4(p) (*(__global const real4*)(p))
#endif

#define READ_RECORD(p, words) read_record_4(p, words)
DEVICE void read_record_4(__global const u32* p, __private u32* words)
{
#if HAS_PTX
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
        : "l"(p));
#else
    const uint4 v = *(__global const uint4*)p;
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
#endif
}

#define REAL_FROM_BITS_U32(bits) as_float(bits)
#define BITS_OF_FLOAT(value) as_uint(value)
#define HIGH_BITS_OF_DOUBLE(value) ((u32)(as_ulong(value) >> 32))
#if REAL_IS_DOUBLE
#define STORE_4(p, a, b, c, d) (*(__global double4*)(p) = (double4)(a, b, c, d))
#define REAL_FROM_INDEX(index) as_double((i64)(index))
#define INDEX_OF_REAL(value) as_long(value)
#else
#define STORE_4(p, a, b, c, d) (*(__global float4*)(p) = (float4)(a, b, c, d))
#define REAL_FROM_INDEX(index) as_float((int)(index))
#define INDEX_OF_REAL(value) ((i64)as_int(value))
#endif
#define STORE_2_U64(p, a, b) (*(__global ulong2*)(p) = (ulong2)(a, b))

#define STORE_LOCAL_4(p, a, b, c, d) store_local_4(p, a, b, c, d)
#define STORE_LOCAL_2(p, a, b) (*(__local real2*)(p) = (real2)(a, b))
#define LOAD_LOCAL_2(p, v) load_local_2(p, v)
#define LOAD_LOCAL_4(p, v) load_local_4(p, v)
DEVICE void store_local_4(__local real* p, const real a, const real b, const real c, const real d)
{
#if REAL_IS_DOUBLE
    ((__local double2*)p)[0] = (double2)(a, b);
    ((__local double2*)p)[1] = (double2)(c, d);
#else
    *(__local float4*)p = (float4)(a, b, c, d);
#endif
}
DEVICE void load_local_2(__local const real* p, __private real* v)
{
    const real2 t = *(__local const real2*)p;
    v[0] = t.x, v[1] = t.y;
}
DEVICE void load_local_4(__local const real* p, __private real* v)
{
#if REAL_IS_DOUBLE
    load_local_2(p, v), load_local_2(p + 2, v + 2);
#else
    const float4 t = *(__local const float4*)p;
    v[0] = t.x, v[1] = t.y, v[2] = t.z, v[3] = t.w;
#endif
}

#if HAS_PTX
#define PEEK_U32(p) (*(volatile __global const u32*)(p))
#define PEEK_U64(p) (*(volatile __global const u64*)(p))
#define POST_U32(p, value) (*(volatile __global u32*)(p) = (value))
#define POST_U64(p, value) (*(volatile __global u64*)(p) = (value))
#else
// In OpenCL 1.2 no other access may race with a write of another group.
#define PEEK_U32(p) atomic_add((volatile __global u32*)(p), 0u)
#define PEEK_U64(p) atom_add((volatile __global u64*)(p), (u64)0)
#define POST_U32(p, value) ((void)atomic_xchg((volatile __global u32*)(p), (u32)(value)))
#define POST_U64(p, value) ((void)atom_xchg((volatile __global u64*)(p), (u64)(value)))
#endif

#define POPCOUNT_U32(bits) ((int)popcount((u32)(bits)))
#define LEADING_ZEROS_U32(bits) ((int)clz((u32)(bits)))
#define FIRST_BIT_U32(bits) first_bit_u32(bits)
DEVICE int first_bit_u32(u32 bits) { return (int)popcount((bits & -bits) - 1); }

#include "backends/mma.h"
#include "backends/copy.h"

#define SKIP ((int)0x80000000) // node of a particle that is left out
