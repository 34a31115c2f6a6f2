// SPDX-License-Identifier: BSD-3-Clause
// The user's function of pairs, RESULTS sums and VALUES reals per particle, and its parameters.
//
// SUMS, of grid/queries/same_bits.py, says what `add_pair` does with the OWN_RESULTS numbers that the user's function adds:
// PLAIN adds it;
// LARGEST has the largest size of each of its numbers, and at last the number of neighbours;
// WHOLE adds WORDS whole multiples of units for each number. The last values of particle i say which: factors that make
// the numbers at most 1, the addend whose rounding leaves whole units, and how many units are 1.

#define AT_LEAST_ONE(n) ((n) > 0 ? (n) : 1)

typedef struct {
    coordinate radius, limit; // the largest square of a distance within it
} Ask;

// PARAMETERS: how many the function has. So few are arguments of the kernel, which GPUs read without loads; 0 if more.
#if PARAMETERS
typedef struct {
    real p[PARAMETERS];
} Parameters;
#define PARAMETER_MEMORY PRIVATE
#define PARAMETER_ARRAY
#define PARAMETER_RECORD , const Parameters parameters
#define PARAMETER_VALUES parameters.p
#else
#define PARAMETER_MEMORY GLOBAL
#define PARAMETER_ARRAY GLOBAL const real *RESTRICT parameters,
#define PARAMETER_RECORD
#define PARAMETER_VALUES parameters
#endif

// Visible to the user's C code: the squared distance, the vector from particle i to particle j's image, their indices
// in the caller's order, their values, parameters, and the sums of particle i.
DEVICE void pair_function(const real r2, PRIVATE const real* d, const i64 i, const i64 j, PRIVATE const real* a,
                          PRIVATE const real* b, PARAMETER_MEMORY const real* p, PRIVATE real* sum)
{
#include <pair function>
}

#define PLAIN 0
#define LARGEST 1
#define WHOLE 2
#ifndef SUMS
#define SUMS PLAIN
#endif
#if SUMS == PLAIN
#define add_pair pair_function
#else
DEVICE void add_pair(const real r2, PRIVATE const real* d, const i64 i, const i64 j, PRIVATE const real* a,
                     PRIVATE const real* b, PARAMETER_MEMORY const real* p, PRIVATE real* sum)
{
    real own[OWN_RESULTS];
    UNROLL for (int r = 0; r < OWN_RESULTS; r++) own[r] = 0;
    pair_function(r2, d, i, j, a, b, p, own);
#if SUMS == LARGEST
    UNROLL for (int r = 0; r < OWN_RESULTS; r++) {
        const real size = fabs(own[r]);
        sum[r] = fmax(sum[r], size - size == 0 ? size : (real)REAL_FROM_BITS_U32(0x7f800000u)); // infinite
    }
    sum[OWN_RESULTS] += 1;
#else
    const real rounding = a[VALUES - 2], units = a[VALUES - 1];
    UNROLL for (int r = 0; r < OWN_RESULTS; r++) {
        real left = own[r] * a[VALUES - 2 - OWN_RESULTS + r];
        UNROLL for (int w = 0; w < WORDS; w++) {
            const real whole = (left + rounding) - rounding;
            sum[w * OWN_RESULTS + r] += whole;
            left = (left - whole) * units;
        }
    }
#endif
}
#endif
// What work-items that share a particle make of their sums `one` and `other` of number r.
#define TOGETHER(r, one, other) (SUMS == LARGEST && (r) < RESULTS - 1 ? fmax(one, other) : (one) + (other))
