// SPDX-License-Identifier: BSD-3-Clause
// c += a b by the whole warp, for kernels compiled with WITH_MMA. Lane 4g + t holds
//     MMA_16_8_8, float32:  a = {A[g][t], A[g+8][t], A[g][t+4], A[g+8][t+4]}, b = {B[t][g], B[t+4][g]},
//                           c = {C[g][2t], C[g][2t+1], C[g+8][2t], C[g+8][2t+1]}
//     MMA_8_8_4, float64:   a = A[g][t], b = B[t][g], c = {C[g][2t], C[g][2t+1]}
//     MMA_16_8_8, float64:  as for float32
//     MMA_16_8_4, float64:  a = {A[g][t], A[g+8][t]}, b = B[t][g], c as for MMA_16_8_8
// HAS_WIDE_MMA: the last two are instructions. Elsewhere they are several of MMA_8_8_4.
// Only the upper 19 bits of a float32 operand count, on every device: tensor cores have no more (TF32).

#define SPLIT_TF32(x) REAL_FROM_BITS_U32(BITS_OF_FLOAT(x) & 0xffffe000u)
#define MMA_16_8_8(warp, c, a, b) mma_16_8_8(warp, c, a, b)
#define MMA_8_8_4(warp, c, a, b) mma_8_8_4(warp, c, a, b)
#define MMA_16_8_4(warp, c, a, b) mma_16_8_4(warp, c, a, b)

#if WITH_MMA
#if HAS_MMA
#if REAL_IS_DOUBLE
DEVICE void mma_8_8_4(WARP_PARAMETER warp, PRIVATE double* c, const double a, const double b)
{
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c[0]), "+d"(c[1])
        : "d"(a), "d"(b));
}
#else
DEVICE void mma_16_8_8(WARP_PARAMETER warp, PRIVATE float* c, PRIVATE const float* a, PRIVATE const float* b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(BITS_OF_FLOAT(a[0])), "r"(BITS_OF_FLOAT(a[1])), "r"(BITS_OF_FLOAT(a[2])), "r"(BITS_OF_FLOAT(a[3])),
          "r"(BITS_OF_FLOAT(b[0])), "r"(BITS_OF_FLOAT(b[1])));
}
#endif

#elif HAS_WARP // Each lane fetches the rows and columns that it multiplies.
#if REAL_IS_DOUBLE
DEVICE void mma_8_8_4(WARP_PARAMETER warp, PRIVATE double* c, const double a, const double b)
{
    const int g = LANE / 4, t = LANE % 4;
    ROLL for (int k = 0; k < 4; k++) {
        const double row = WARP_SHUFFLE(warp, a, 4 * g + k);
        c[0] += row * WARP_SHUFFLE(warp, b, 8 * t + k);
        c[1] += row * WARP_SHUFFLE(warp, b, 8 * t + 4 + k);
    }
}
#else
DEVICE void mma_16_8_8(WARP_PARAMETER warp, PRIVATE float* c, PRIVATE const float* a, PRIVATE const float* b)
{
    const int g = LANE / 4, t = LANE % 4;
    float sum[4] = {0, 0, 0, 0};
    UNROLL for (int n = 0; n < 2; n++) {
        const float upper = SPLIT_TF32(a[2 * n]), lower = SPLIT_TF32(a[2 * n + 1]), own = SPLIT_TF32(b[n]);
        ROLL for (int k = 0; k < 4; k++) {
            const float even = WARP_SHUFFLE(warp, own, 8 * t + k), odd = WARP_SHUFFLE(warp, own, 8 * t + 4 + k);
            const float first = WARP_SHUFFLE(warp, upper, 4 * g + k), second = WARP_SHUFFLE(warp, lower, 4 * g + k);
            sum[0] += first * even, sum[1] += first * odd;
            sum[2] += second * even, sum[3] += second * odd;
        }
    }
    UNROLL for (int n = 0; n < 4; n++) c[n] += sum[n];
}
#endif

#else // Operands are exchanged in local memory: one barrier; a row of the warp's scratch holds them.
#if REAL_IS_DOUBLE
DEVICE void mma_8_8_4(WARP_PARAMETER warp, PRIVATE double* c, const double a, const double b)
{
    LOCAL u64* row = warp->scratch + warp_row * warp->turn;
    warp->turn = 1 - warp->turn;
    const int g = LANE / 4, t = LANE % 4;
    row[8 * t + g] = as_ulong(a);
    row[32 + 8 * t + g] = as_ulong(b);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < 4; k++) {
        const double own = as_double(row[8 * k + g]);
        c[0] += own * as_double(row[32 + 8 * k + 2 * t]);
        c[1] += own * as_double(row[32 + 8 * k + 2 * t + 1]);
    }
}
#else
// By bits: PoCL's optimiser has made wrong numbers of float2 that a group's items exchange.
DEVICE u64 pair_tf32(const float x, const float y) { return as_uint(SPLIT_TF32(x)) | (u64)as_uint(SPLIT_TF32(y)) << 32; }
DEVICE void mma_16_8_8(WARP_PARAMETER warp, PRIVATE float* c, PRIVATE const float* a, PRIVATE const float* b)
{
    LOCAL u64* row = warp->scratch + warp_row * warp->turn;
    warp->turn = 1 - warp->turn;
    const int g = LANE / 4, t = LANE % 4;
    row[8 * t + g] = pair_tf32(a[0], a[1]);      // column t of A: rows g, g + 8
    row[8 * t + 32 + g] = pair_tf32(a[2], a[3]); // column t + 4
    row[64 + 8 * t + g] = pair_tf32(b[0], b[1]); // column g of B: rows t, t + 4
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum[4] = {0, 0, 0, 0};
    for (int k = 0; k < 4; k++) {
        const float2 own = as_float2(row[8 * k + g]), far = as_float2(row[8 * k + 32 + g]);
        const float2 even = as_float2(row[64 + 8 * k + 2 * t]), odd = as_float2(row[64 + 8 * k + 2 * t + 1]);
        sum[0] += own.x * even.x + far.x * even.y, sum[1] += own.x * odd.x + far.x * odd.y;
        sum[2] += own.y * even.x + far.y * even.y, sum[3] += own.y * odd.x + far.y * odd.y;
    }
    for (int n = 0; n < 4; n++) c[n] += sum[n];
}
#endif
#endif

#if REAL_IS_DOUBLE
#if HAS_MMA && HAS_WIDE_MMA
DEVICE void mma_16_8_8(WARP_PARAMETER warp, PRIVATE double* c, PRIVATE const double* a, PRIVATE const double* b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}
DEVICE void mma_16_8_4(WARP_PARAMETER warp, PRIVATE double* c, PRIVATE const double* a, const double b)
{
    asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(b));
}
#else
DEVICE void mma_16_8_4(WARP_PARAMETER warp, PRIVATE double* c, PRIVATE const double* a, const double b)
{
    mma_8_8_4(warp, c, a[0], b);
    mma_8_8_4(warp, c + 2, a[1], b);
}
DEVICE void mma_16_8_8(WARP_PARAMETER warp, PRIVATE double* c, PRIVATE const double* a, PRIVATE const double* b)
{
    mma_16_8_4(warp, c, a, b[0]);
    mma_16_8_4(warp, c, a + 2, b[1]);
}
#endif
#endif
#endif
