// SPDX-License-Identifier: BSD-3-Clause
// What particles bring to stored weights, in node order: those that meet at a node are then neighbours in memory.
//
// A particle brings QUANTITIES reals side by side, with SLOPES its vectors: component by component, an axis after the
// other. There are STEP reals from a particle to the next, so that they are read in wide pieces.

#define COMPONENTS (CHANNELS * PARTS)
#define WEIGHTS (SLOPES ? SLOPES : 1) // of an entry
#define QUANTITIES (COMPONENTS * WEIGHTS)
#define STEP (QUANTITIES > 2 ? (QUANTITIES + 3) / 4 * 4 : QUANTITIES)

// What particle i brings, from where the caller has it.
DEVICE void quantities_of(PRIVATE real* q, GLOBAL const real* values, i64 i, PRIVATE const Values* layout)
{
    GLOBAL const real* own = values + layout->offset + i * layout->particle;
    UNROLL for (int c = 0; c < CHANNELS; c++)
        UNROLL for (int p = 0; p < PARTS; p++)
            UNROLL for (int b = 0; b < WEIGHTS; b++)
                q[(c * PARTS + p) * WEIGHTS + b] = own[c * layout->channel + p * layout->part + b * layout->axis];
}

// What the particle at place t brings.
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
