// SPDX-License-Identifier: BSD-3-Clause
// COPY_LOCAL: `reals` neighbouring reals from global to local memory, zeros if they are not `there`: then `from` may be
// anything. 8 or 16 bytes are aligned at both ends. The work-item's copies are complete after COPY_WAIT, for others after a barrier behind it.

#define COPY_LOCAL(to, from, reals, there) copy_local(to, from, reals, there)
#define COPY_WAIT() copy_wait()

#if __CUDA_ARCH__ >= 800
#define local_address(p) (u32)__cvta_generic_to_shared(p)
#define global_address(p) (u64)__cvta_generic_to_global(p)
#elif HAS_PTX && HAS_MMA // devices of the same generations; a pointer is an address of its memory
#define local_address(p) (u32)(size_t)(p)
#define global_address(p) (u64)(p)
#endif

#ifdef local_address // no registers hold the reals, and the work-item goes on
DEVICE void copy_local(LOCAL real* to, GLOBAL const real* from, const int reals, const int there)
{
    const u32 at = local_address(to), bytes = reals * (u32)sizeof(real), taken = there ? bytes : 0;
    const u64 source = global_address(from);
    if (bytes == 16) // whoever copies 16 bytes soon copies their neighbours
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(at), "l"(source), "r"(taken) : "memory");
    else if (bytes == 8)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(at), "l"(source), "r"(taken) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(source), "r"(taken) : "memory");
}
DEVICE void copy_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
DEVICE void copy_local(LOCAL real* to, GLOBAL const real* from, const int reals, const int there)
{
#if !REAL_IS_DOUBLE
    if (reals == 4) {
        real4 four;
        four.x = four.y = four.z = four.w = 0;
        if (there) four = READ_4(from);
        STORE_LOCAL_4(to, four.x, four.y, four.z, four.w);
        return;
    }
#endif
    if (reals == 2) {
        real2 two;
        two.x = two.y = 0;
        if (there) two = READ_2(from);
        STORE_LOCAL_2(to, two.x, two.y);
    } else {
        *to = there ? READ_1(from) : (real)0;
    }
}
DEVICE void copy_wait(void) {}
#endif
