// SPDX-License-Identifier: BSD-3-Clause
// Whether all results of particles are finite.

#define LOST 8 // word of status: ~i of the first particle i with a result that is not finite, or 0

typedef struct {
    i64 at[6], width[6]; // where arrays begin, and reals of a particle; 0 for an array that is not read
} Results;

KERNEL look_over(GLOBAL const real* RESTRICT a, GLOBAL const real* RESTRICT b, GLOBAL const real* RESTRICT c,
                 GLOBAL const real* RESTRICT d, GLOBAL const real* RESTRICT e, GLOBAL const real* RESTRICT f,
                 GLOBAL u64* status, const i64 rows, const i64 count, const Results of)
{
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < rows; n += GROUP_COUNT * GROUP_SIZE) {
        real zero = 0;
        for (int array = 0; array < 6; array++) {
            GLOBAL const real* from = array == 0 ? a : array == 1 ? b : array == 2 ? c : array == 3 ? d : array == 4 ? e : f;
            for (i64 k = 0; k < of.width[array]; k++) {
                const real number = from[of.at[array] + n * of.width[array] + k];
                zero += number - number;
            }
        }
        if (!(zero == 0)) ATOMIC_MAX_U64(status + LOST, ~(u64)(n % count));
    }
}
