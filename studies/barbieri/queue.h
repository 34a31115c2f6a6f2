// SPDX-License-Identifier: BSD-3-Clause
// Spheres in reach wait in local memory, QUEUE places for each work-item, and collide together: the loop of tests then
// has no long branch. A kernel has `queue`, and `place`, which runs from LOCAL_ID in steps of GROUP_SIZE. A sphere finds
// itself, too.

#define ENQUEUE(q)                \
    {                             \
        queue[place] = (u32)(q);  \
        place += GROUP_SIZE;      \
    }
// Whether there are fewer than so many places.
#define QUEUE_LACKS(places) (place >= (QUEUE - (places) + 1) * GROUP_SIZE)
// Short queues: unrolled by 4, as NVRTC does by itself, steps over lists took a tenth longer on an H200.
#if __CUDA_ARCH__ && QUEUE <= 16
#define EACH_QUEUED _Pragma("unroll 2")
#else
#define EACH_QUEUED
#endif
#define COLLIDE_QUEUED                                                                           \
    {                                                                                            \
        EACH_QUEUED for (int m = LOCAL_ID; m < place; m += GROUP_SIZE) {                         \
            const i64 q = queue[m];                                                              \
            real d[3];                                                                           \
            const real r2 = apart(d, &own, READ_4(positions + 4 * q));                           \
            if (r2 > COINCIDENT) collide(&own, d, r2, READ_4(velocities + 4 * q), &green);       \
        }                                                                                        \
        place = LOCAL_ID;                                                                        \
    }
