// SPDX-License-Identifier: BSD-3-Clause
// What a CUDA device can do at most, one thing a kernel. Sums are written if they have a value that they never have:
// without that the compiler would drop the work.

extern "C" __global__ void nothing(float *to)
{
    if (to == nullptr) return;
}

// The least that interpolation does: an index, a load that depends on it, a store.
extern "C" __global__ void shortest_gather(const unsigned *index, const float *from, float *to, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = from[index[i]];
}

// Reads `words` float4 again and again, past the first-level cache (cg) or through it (ca).
#define READ(name, load)                                                                               \
    extern "C" __global__ void name(const float4 *from, float *to, unsigned words, int turns)          \
    {                                                                                                  \
        float sum = 0;                                                                                 \
        for (int turn = 0; turn < turns; turn++) {                                                     \
            for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) { \
                const float4 v = load(from + i);                                                       \
                sum += v.x + v.y + v.z + v.w;                                                          \
            }                                                                                          \
        }                                                                                              \
        if (sum == 12345.678f) *to = sum;                                                              \
    }
READ(read_l2, __ldcg)

extern "C" __global__ void read_l1(const float4 *from, float *to, int turns) // each group its own 16 KB
{
    const float4 *own = from + 1024 * blockIdx.x;
    float4 sum = {0, 0, 0, 0};
    for (int turn = 0; turn < turns; turn++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float4 v;
            const float4 *place = own + ((threadIdx.x + 256 * i + 32 * turn) & 1023);
            asm volatile("ld.global.ca.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                         : "l"(place));
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
    }
    if (sum.x + sum.y + sum.z + sum.w == 12345.678f) *to = sum.x;
}

#define MULTIPLY_ADDS(name, real)                                          \
    extern "C" __global__ void name(real *to, real a, real b, int turns)   \
    {                                                                      \
        real c[8];                                                         \
        for (int i = 0; i < 8; i++) c[i] = threadIdx.x + i;                \
        for (int turn = 0; turn < turns; turn++) {                         \
            _Pragma("unroll") for (int k = 0; k < 16; k++) {               \
                _Pragma("unroll") for (int i = 0; i < 8; i++) c[i] = c[i] * a + b; \
            }                                                              \
        }                                                                  \
        real sum = 0;                                                      \
        for (int i = 0; i < 8; i++) sum += c[i];                           \
        if (sum == (real)12345.678) *to = sum;                             \
    }
MULTIPLY_ADDS(multiply_adds_f32, float)
MULTIPLY_ADDS(multiply_adds_f64, double)

// Matrix products of a warp: 16 x 8 x 8 in TF32, 8 x 8 x 4 in float64.
extern "C" __global__ void matrix_f32(float *to, unsigned a, unsigned b, int turns)
{
    float c[8][4] = {};
    for (int turn = 0; turn < turns; turn++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                         "{%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, %3};"
                         : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
                         : "r"(a), "r"(b));
        }
    }
    float sum = 0;
    for (int i = 0; i < 8; i++) sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
    if (sum == 12345.678f) *to = sum;
}

extern "C" __global__ void matrix_f64(double *to, double a, double b, int turns)
{
    double c[8][2] = {};
    for (int turn = 0; turn < turns; turn++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                         : "+d"(c[i][0]), "+d"(c[i][1])
                         : "d"(a), "d"(b));
        }
    }
    double sum = 0;
    for (int i = 0; i < 8; i++) sum += c[i][0] + c[i][1];
    if (sum == 12345.678) *to = sum;
}

// Adds to memory: lanes side by side fill `run` sectors of 32 bytes, drawn anew each time; both are powers of two.
__device__ unsigned drawn(unsigned n)
{
    n ^= n >> 16, n *= 0x7feb352du, n ^= n >> 15, n *= 0x846ca68bu;
    return n ^ n >> 16;
}

#define ADDS(name, real, wide, add)                                                                          \
    extern "C" __global__ void name(real *mesh, unsigned sectors, unsigned run, int turns)                   \
    {                                                                                                        \
        const unsigned lanes = run * (32 / sizeof(real) / wide), item = blockIdx.x * blockDim.x + threadIdx.x; \
        for (int turn = 0; turn < turns; turn++) {                                                           \
            const unsigned sector = drawn(item / lanes * turns + turn) & (sectors / run - 1);                \
            real *place = mesh + (size_t)sector * run * (32 / sizeof(real)) + item % lanes * wide;           \
            add;                                                                                             \
        }                                                                                                    \
    }
#define ONE 1.0f
ADDS(add_f32, float, 1, asm volatile("red.global.add.f32 [%0], %1;" ::"l"(place), "f"(ONE) : "memory"))
ADDS(add_f64, double, 1, asm volatile("red.global.add.f64 [%0], %1;" ::"l"(place), "d"(1.0) : "memory"))
#if __CUDA_ARCH__ >= 900
ADDS(add_f32x2, float, 2,
     asm volatile("red.global.add.v2.f32 [%0], {%1, %1};" ::"l"(place), "f"(ONE) : "memory"))
ADDS(add_f32x4, float, 4,
     asm volatile("red.global.add.v4.f32 [%0], {%1, %1, %1, %1};" ::"l"(place), "f"(ONE) : "memory"))
#endif
