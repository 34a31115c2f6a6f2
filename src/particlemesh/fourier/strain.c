// SPDX-License-Identifier: BSD-3-Clause
// Sums over modes of |spectrum|**2 times TERMS tables, for each row of spectra. Row r takes the tables r % owners.
// Groups sum shares of the modes; the second kernel adds up the shares in order, so that results are reproducible.

KERNEL strain_shares(GLOBAL const real* source, GLOBAL const real* tables, GLOBAL real* partial, const i64 modes,
                     const i64 rows, const i64 owners, const i64 shares, const i64 source_at)
{
    LOCAL_ARRAY(real, scratch, GROUP_SIZE);
    const i64 length = (modes + shares - 1) / shares;
    for (i64 n = GROUP_ID; n < rows * shares; n += GROUP_COUNT) {
        const i64 row = n / shares, share = n - row * shares;
        const i64 end = (share + 1) * length < modes ? (share + 1) * length : modes;
        GLOBAL const real* table = tables + row % owners * TERMS * modes;
        real sum[TERMS];
        for (int t = 0; t < TERMS; t++) sum[t] = 0;
        for (i64 k = share * length + LOCAL_ID; k < end; k += GROUP_SIZE) {
            const real2 a = *(GLOBAL const real2*)(source + source_at + 2 * (row * modes + k));
            const real square = a.x * a.x + a.y * a.y;
            for (int t = 0; t < TERMS; t++) sum[t] += square * table[t * modes + k];
        }
        for (int t = 0; t < TERMS; t++) {
            scratch[LOCAL_ID] = sum[t];
            BARRIER();
            for (int reach = GROUP_SIZE / 2; reach > 0; reach /= 2) {
                if (LOCAL_ID < reach) scratch[LOCAL_ID] += scratch[LOCAL_ID + reach];
                BARRIER();
            }
            if (LOCAL_ID == 0) partial[n * TERMS + t] = scratch[0];
            BARRIER();
        }
    }
}

// LANES work-items add up each entry: one alone would take longer than all products of a large mesh.
#define LANES 32

KERNEL strain_totals(GLOBAL const real* partial, GLOBAL real* totals, const i64 rows, const i64 shares)
{
    LOCAL_ARRAY(real, scratch, GROUP_SIZE);
    const int lane = LOCAL_ID % LANES;
    for (i64 first = GROUP_ID * GROUP_SIZE; first < rows * TERMS * LANES; first += GROUP_COUNT * GROUP_SIZE) {
        const i64 n = (first + LOCAL_ID) / LANES, row = n / TERMS;
        const int t = (int)(n - row * TERMS);
        real sum = 0;
        for (i64 share = row < rows ? lane : shares; share < shares; share += LANES)
            sum += partial[(row * shares + share) * TERMS + t];
        scratch[LOCAL_ID] = sum;
        BARRIER();
        for (int reach = LANES / 2; reach > 0; reach /= 2) {
            if (lane < reach) scratch[LOCAL_ID] += scratch[LOCAL_ID + reach];
            BARRIER();
        }
        int a = 0, b = t;  // entries of the upper triangle, row by row
        while (b >= NDIM) b -= NDIM - ++a;
        if (lane == 0 && row < rows) {
            totals[row * NDIM * NDIM + a * NDIM + b] = scratch[LOCAL_ID];
            totals[row * NDIM * NDIM + b * NDIM + a] = scratch[LOCAL_ID];
        }
        BARRIER();
    }
}
