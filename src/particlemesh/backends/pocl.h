// SPDX-License-Identifier: BSD-3-Clause
// The OpenCL C that kernels use, for PoCL. Its compiler parses Clang's declarations before every program: a megabyte
// takes several times longer than a kernel. With the guard of that file defined it parses types only.

void __attribute__((overloadable, convergent)) barrier(uint fences);

#define PURE __attribute__((overloadable, const))
size_t PURE get_local_id(uint axis);
size_t PURE get_group_id(uint axis);
size_t PURE get_num_groups(uint axis);
uint PURE clz(uint x);
uint PURE popcount(uint x);
#define OF_REALS(type)                     \
    type PURE fabs(type x);                \
    type PURE floor(type x);               \
    type PURE rint(type x);                \
    type PURE sqrt(type x);                \
    type PURE rsqrt(type x);               \
    type PURE exp(type x);                 \
    type PURE erfc(type x);                \
    type PURE sin(type x);                 \
    type PURE cos(type x);                 \
    type PURE fmax(type x, type y);        \
    type PURE fmin(type x, type y);        \
    type PURE nextafter(type x, type y);   \
    type PURE pow(type x, type y);         \
    type PURE fma(type x, type y, type z); \
    type PURE ldexp(type x, int n);
OF_REALS(float)
OF_REALS(double)

#define OVER __attribute__((overloadable))
#define ATOMICS(space)                                                       \
    uint OVER atomic_add(volatile space uint* p, uint value);                \
    uint OVER atomic_max(volatile space uint* p, uint value);                \
    uint OVER atomic_xchg(volatile space uint* p, uint value);               \
    uint OVER atomic_cmpxchg(volatile space uint* p, uint seen, uint value); \
    ulong OVER atom_add(volatile space ulong* p, ulong value);               \
    ulong OVER atom_max(volatile space ulong* p, ulong value);               \
    ulong OVER atom_xchg(volatile space ulong* p, ulong value);              \
    ulong OVER atom_cmpxchg(volatile space ulong* p, ulong seen, ulong value);
ATOMICS(__global)
ATOMICS(__local)
#undef PURE
#undef OF_REALS
#undef OVER
#undef ATOMICS
