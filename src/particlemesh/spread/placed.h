// SPDX-License-Identifier: BSD-3-Clause
// The particles' quantities for stored weights, in node order: those that meet at a node are adjacent in memory.
//
// A particle has QUANTITIES reals side by side, with SLOPES its vectors: component by component, axis after axis. STEP
// reals lie between particles, for wide reads.

#define COMPONENTS (CHANNELS * PARTS)
#define WEIGHTS (SLOPES ? SLOPES : 1) // per entry
#define QUANTITIES (COMPONENTS * WEIGHTS)
#define STEP (QUANTITIES > 2 ? (QUANTITIES + 3) / 4 * 4 : QUANTITIES)

// The quantities of particle i, from the caller's array.
DEVICE void quantities_of(PRIVATE real* q, GLOBAL const real* values, i64 i, PRIVATE const Values* layout)
{
    GLOBAL const real* own = values + layout->offset + i * layout->particle;
    UNROLL for (int c = 0; c < CHANNELS; c++)
        UNROLL for (int p = 0; p < PARTS; p++)
            UNROLL for (int b = 0; b < WEIGHTS; b++)
                q[(c * PARTS + p) * WEIGHTS + b] = own[c * layout->channel + p * layout->part + b * layout->axis];
}

// The quantities of the particle at place t.
DEVICE void placed_at(PRIVATE real* q, GLOBAL const real* placed, u32 t)
{
    GLOBAL const real* own = placed + (i64)t * STEP;
#if STEP == 1
    q[0] = READ_1(own);
#elif STEP == 2
    const real2 v = READ_2(own);
    q[0] = v.x, q[1] = v.y;
#else
    UNROLL for (int j = 0; j < STEP; j += 4) {
        const real4 v = READ_4(own + j);
        q[j] = v.x, q[j + 1] = v.y, q[j + 2] = v.z, q[j + 3] = v.w;
    }
#endif
}
