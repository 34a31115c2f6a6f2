// SPDX-License-Identifier: BSD-3-Clause
// The user's function of pairs, RESULTS sums and VALUES reals per particle, and its parameters.
//
// PASS_OF_SUMS, of grid/queries/same_bits.py, says what `add_pair` does with the RESULTS_OF_USER numbers that the user's function adds:
// PLAIN_SUMS adds it;
// LARGEST_TERMS has the largest size of each of its numbers, and at last the number of neighbours;
// WHOLE_UNITS adds WORDS_OF_SUM whole multiples of units for each number. The last values of particle i say which: factors that make
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

#define PLAIN_SUMS 0
#define LARGEST_TERMS 1
#define WHOLE_UNITS 2
#ifndef PASS_OF_SUMS
#define PASS_OF_SUMS PLAIN_SUMS
#endif
#if PASS_OF_SUMS == PLAIN_SUMS
#define add_pair pair_function
#else
DEVICE void add_pair(const real r2, PRIVATE const real* d, const i64 i, const i64 j, PRIVATE const real* a,
                     PRIVATE const real* b, PARAMETER_MEMORY const real* p, PRIVATE real* sum)
{
    real own[RESULTS_OF_USER];
    UNROLL for (int r = 0; r < RESULTS_OF_USER; r++) own[r] = 0;
    pair_function(r2, d, i, j, a, b, p, own);
#if PASS_OF_SUMS == LARGEST_TERMS
    UNROLL for (int r = 0; r < RESULTS_OF_USER; r++) {
        const real size = fabs(own[r]);
        sum[r] = fmax(sum[r], size - size == 0 ? size : (real)REAL_FROM_BITS_U32(0x7f800000u)); // infinite
    }
    sum[RESULTS_OF_USER] += 1;
#else
    const real rounding = a[VALUES - 2], units = a[VALUES - 1];
    UNROLL for (int r = 0; r < RESULTS_OF_USER; r++) {
        real left = own[r] * a[VALUES - 2 - RESULTS_OF_USER + r];
        UNROLL for (int w = 0; w < WORDS_OF_SUM; w++) {
            const real whole = (left + rounding) - rounding;
            sum[w * RESULTS_OF_USER + r] += whole;
            left = (left - whole) * units;
        }
    }
#endif
}
#endif
// What work-items that share a particle make of their sums `one` and `other` of number r.
#define TOGETHER(r, one, other) (PASS_OF_SUMS == LARGEST_TERMS && (r) < RESULTS - 1 ? fmax(one, other) : (one) + (other))
