// SPDX-License-Identifier: BSD-3-Clause
// CUB's radix sort of 32-bit keys with 32-bit values, for benchmarks/grid/peers.py, which compiles and calls it.
#include <cstddef>
#include <cstdint>

#include <cub/device/device_radix_sort.cuh>

// Without scratch it writes to *bytes how much scratch it needs, and sorts nothing. Returns CUDA's error code.
extern "C" int sort_pairs(void* scratch, size_t* bytes, const uint32_t* keys, uint32_t* sorted_keys,
                          const uint32_t* values, uint32_t* sorted_values, int count, int bits, void* stream)
{
    return (int)cub::DeviceRadixSort::SortPairs(scratch, *bytes, keys, sorted_keys, values, sorted_values, count, 0,
                                                bits, (cudaStream_t)stream);
}
