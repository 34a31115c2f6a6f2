// SPDX-License-Identifier: BSD-3-Clause
// Stores of lists. STORE_2_U64: two words in one access, at a multiple of 16 bytes. STORE_ONCE_I32: of results that no
// kernel of ours reads, which are evicted first from the caches.

#if defined(__CUDA_ARCH__)
#define STORE_2_U64(p, a, b) (*(ulonglong2*)(p) = make_ulonglong2(a, b))
#define STORE_ONCE_I32(p, value) __stcs(p, value)
#else
#define STORE_2_U64(p, a, b) (*(__global ulong2*)(p) = (ulong2)(a, b))
#if HAS_PTX
#define STORE_ONCE_I32(p, value) store_once_i32(p, value)
DEVICE void store_once_i32(__global int* p, int value)
{
    asm volatile("st.global.cs.s32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
#else
#define STORE_ONCE_I32(p, value) (*(p) = (value))
#endif
#endif
