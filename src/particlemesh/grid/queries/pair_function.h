// SPDX-License-Identifier: BSD-3-Clause
// The user's function of pairs, RESULTS sums and VALUES reals per particle, and its parameters.

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
