// SPDX-License-Identifier: BSD-3-Clause
// The dialect in CUDA C++, compiled by NVRTC. docs/developers/dialect.rst has the table of verbs and the traps.

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;

#ifdef RESIDENT_GROUPS
#define KERNEL extern "C" __global__ void __launch_bounds__(GROUP_SIZE, RESIDENT_GROUPS)
#else
#define KERNEL extern "C" __global__ void __launch_bounds__(GROUP_SIZE)
#endif
#define DEVICE static __device__ __forceinline__
#define GLOBAL
#define LOCAL
#define PRIVATE
#define LOCAL_ARRAY(type, name, count) __shared__ __align__(16) type name[count]
#define RESTRICT __restrict__
#define UNROLL _Pragma("unroll")
#define ROLL _Pragma("unroll 1")

#define LOCAL_ID ((int)threadIdx.x)
#define GROUP_ID ((i64)blockIdx.x)
#define GROUP_COUNT ((i64)gridDim.x)
#define BARRIER() __syncthreads()

// Dynamic local memory: WITH_LOCAL_POOL ends the kernel's parameters, LOCAL_POOL opens its body.
#define WITH_LOCAL_POOL
#define LOCAL_POOL(type, name)                     \
    extern __shared__ __align__(16) char pool_[]; \
    type* name = (type*)pool_

// A warp is 32 lanes that exchange registers. Every lane calls every verb.
#define WARP_SIZE 32
#define LANE (LOCAL_ID & 31)
#define WARP(name) const int name = 0
#define WARP_PARAMETER const int
#define WARP_SYNC(warp) __syncwarp()
#define ANY_AROUND(predicate) __any_sync(__activemask(), predicate)
#define WARP_BALLOT(warp, predicate) __ballot_sync(0xffffffffu, predicate)
#define WARP_MATCH(warp, value, bits) warp_match(value, bits)
#define WARP_SHUFFLE(warp, value, lane) __shfl_sync(0xffffffffu, value, lane)
#define WARP_SHUFFLE_U32(warp, value, lane) __shfl_sync(0xffffffffu, (u32)(value), lane)
#define WARP_SHUFFLE_U64(warp, value, lane) __shfl_sync(0xffffffffu, (u64)(value), lane)

DEVICE u32 warp_match(u32 value, int bits)
{
    u32 same = 0xffffffffu;
    UNROLL for (int b = 0; b < bits; b++) {
        const u32 bit = value >> b & 1;
        same &= __ballot_sync(0xffffffffu, bit) ^ (bit - 1);
    }
    return same;
}

#define ATOMIC_ADD_U32(pointer, value) atomicAdd(pointer, (u32)(value))
#define ATOMIC_MAX_U32(pointer, value) atomicMax(pointer, (u32)(value))
#define ATOMIC_EXCHANGE_U32(pointer, value) atomicExch(pointer, (u32)(value))
#define NEAREST_I64(value) llrint(value)
#define ATOMIC_ADD_U64(pointer, value) atomicAdd(pointer, (u64)(value))
#define ATOMIC_MAX_U64(pointer, value) atomicMax(pointer, (u64)(value))
#define ATOMIC_ADD(pointer, value) atomicAdd(pointer, value)
#define ATOMIC_ADD_LOCAL(pointer, value) atomicAdd(pointer, value)

#if __CUDA_ARCH__ >= 900 && !REAL_IS_DOUBLE
DEVICE void atomic_add_2(float* p, const float* v)
{
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "f"(v[0]), "f"(v[1])
                 : "memory");
}
DEVICE void atomic_add_4(float* p, const float* v)
{
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "f"(v[0]),
                 "f"(v[1]), "f"(v[2]), "f"(v[3])
                 : "memory");
}
#else
#define SCALAR_VECTOR_ATOMICS 1
#endif

#if REAL_IS_DOUBLE
typedef double real;
typedef double2 real2;
typedef double4 real4;
#else
typedef float real;
typedef float2 real2;
typedef float4 real4;
#endif
// Reads of memory that is constant during the kernel. Vectors need aligned addresses.
#define READ_1(p) __ldg(p)
#define READ_2(p) __ldg((const real2*)(p))
#define READ_4(p) (*(const real4*)(p))
// The same for data read once: it does not evict reused data from the first-level cache.
#if __CUDA_ARCH__ >= 700
DEVICE u32 read_once_u32(const u32* p)
{
    u32 v;
    asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(__cvta_generic_to_global(p)));
    return v;
}
DEVICE real read_once(const real* p)
{
    real v;
#if REAL_IS_DOUBLE
    asm("ld.global.nc.L1::no_allocate.f64 %0, [%1];" : "=d"(v) : "l"(__cvta_generic_to_global(p)));
#else
    asm("ld.global.nc.L1::no_allocate.f32 %0, [%1];" : "=f"(v) : "l"(__cvta_generic_to_global(p)));
#endif
    return v;
}
#define READ_ONCE(p) read_once(p)
#define READ_ONCE_U32(p) read_once_u32(p)
#else
#define READ_ONCE(p) __ldg(p)
#define READ_ONCE_U32(p) __ldg(p)
#endif

#define STORE_2_U64(p, a, b) (*(ulonglong2*)(p) = make_ulonglong2(a, b))

// Four words of a constant record in one read, at a multiple of 16 bytes.
#define READ_RECORD(p, words) read_record_4(p, words)
DEVICE void read_record_4(const u32* p, u32* words)
{
    const uint4 v = __ldg((const uint4*)p);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
}

#define REAL_FROM_BITS_U32(bits) __uint_as_float(bits)
#define BITS_OF_FLOAT(value) __float_as_uint(value)
#define HIGH_BITS_OF_DOUBLE(value) ((u32)__double2hiint(value))
// Four reals in one access, at a multiple of 16 bytes; an index may travel as a real's bits.
#if REAL_IS_DOUBLE
#define STORE_4(p, a, b, c, d) (((double2*)(p))[0] = make_double2(a, b), ((double2*)(p))[1] = make_double2(c, d))
#define REAL_FROM_INDEX(index) __longlong_as_double(index)
#define INDEX_OF_REAL(value) __double_as_longlong(value)
#else
#define STORE_4(p, a, b, c, d) (*(float4*)(p) = make_float4(a, b, c, d))
#define REAL_FROM_INDEX(index) __int_as_float((int)(index))
#define INDEX_OF_REAL(value) ((i64)__float_as_int(value))
#endif

// Two or four neighbouring reals of local memory, at a multiple of 16 bytes (two of float32: of 8).
#define STORE_LOCAL_4(p, a, b, c, d) STORE_4(p, a, b, c, d)
#define STORE_LOCAL_2(p, a, b) store_local_2(p, a, b)
#define LOAD_LOCAL_2(p, v) load_local_2(p, v)
#define LOAD_LOCAL_4(p, v) load_local_4(p, v)
DEVICE void store_local_2(real* p, const real a, const real b)
{
    real2 t;
    t.x = a, t.y = b;
    *(real2*)p = t;
}
DEVICE void load_local_2(const real* p, real* v)
{
    const real2 t = *(const real2*)p;
    v[0] = t.x, v[1] = t.y;
}
DEVICE void load_local_4(const real* p, real* v)
{
#if REAL_IS_DOUBLE
    load_local_2(p, v);
    load_local_2(p + 2, v + 2);
#else
    const float4 t = *(const float4*)p;
    v[0] = t.x, v[1] = t.y, v[2] = t.z, v[3] = t.w;
#endif
}

// A single access that is visible between groups. It orders no other access.
#define PEEK_U32(p) (*(const volatile u32*)(p))
#define PEEK_U64(p) (*(const volatile u64*)(p))
#define POST_U32(p, value) (*(volatile u32*)(p) = (value))
#define POST_U64(p, value) (*(volatile u64*)(p) = (value))

#define POPCOUNT_U32(bits) __popc(bits)
#define LEADING_ZEROS_U32(bits) __clz((int)(bits))
#define FIRST_BIT_U32(bits) (__ffs((int)(bits)) - 1)

#include "backends/mma.h"
#include "backends/copy.h"

#define SKIP ((int)0x80000000) // node of a particle that is left out
