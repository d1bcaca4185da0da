#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <initializer_list>

#include "kernels/device.h"

/// How kernels that work on rows see matrices.
namespace sluice::cuda::row_view {

/// N neighbours that one instruction loads or stores.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

/// A matrix as kernels see it. Its type is the same for all threads, so asking for it costs next to nothing beside the memory.
struct View {
  void* data;
  int64_t stride;
  bool narrow;  // bf16
};

inline View view_of(const Matrix& matrix) { return {matrix.data, matrix.stride, matrix.type == DataType::kBF16}; }

template <int N>
__device__ __forceinline__ void load(const View& view, int64_t row, int64_t column, float (&values)[N]) {
  const int64_t at = row * view.stride + column;
  if (view.narrow) {
    const auto pack = *reinterpret_cast<const Pack<__nv_bfloat16, N>*>(static_cast<const __nv_bfloat16*>(view.data) + at);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = __bfloat162float(pack.at[i]);
  } else {
    const auto pack = *reinterpret_cast<const Pack<float, N>*>(static_cast<const float*>(view.data) + at);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = pack.at[i];
  }
}

template <int N>
__device__ __forceinline__ void store_narrow(__nv_bfloat16* target, const float (&values)[N]) {
  Pack<__nv_bfloat16, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.at[i] = __float2bfloat16_rn(values[i]);
  *reinterpret_cast<Pack<__nv_bfloat16, N>*>(target) = pack;
}

/// As bf16 holds it.
__device__ __forceinline__ float rounded(float value) { return __bfloat162float(__float2bfloat16_rn(value)); }

template <int N>
__device__ __forceinline__ void store(const View& view, int64_t row, int64_t column, const float (&values)[N]) {
  const int64_t at = row * view.stride + column;
  if (view.narrow) {
    store_narrow(static_cast<__nv_bfloat16*>(view.data) + at, values);
  } else {
    Pack<float, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = values[i];
    *reinterpret_cast<Pack<float, N>*>(static_cast<float*>(view.data) + at) = pack;
  }
}

/// Whether rows of `columns` numbers can be taken four at a time.
inline bool by_fours(int64_t columns, std::initializer_list<const Matrix*> matrices) {
  return columns % 4 == 0 && std::all_of(matrices.begin(), matrices.end(), [](const Matrix* matrix) {
           return matrix->stride % 4 == 0 && reinterpret_cast<uintptr_t>(matrix->data) % (4 * size_of(matrix->type)) == 0;
         });
}

/// Threads for a row of `packs` loads.
inline unsigned threads_for(int64_t packs) { return static_cast<unsigned>(std::clamp<int64_t>((packs + 31) / 32 * 32, 32, 512)); }

template <int N>
__device__ __forceinline__ void load_gain(const float* gain, int64_t column, float (&values)[N]) {
  const auto pack = *reinterpret_cast<const Pack<float, N>*>(gain + column);
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = pack.at[i];
}

inline unsigned blocks_for(int64_t count) { return static_cast<unsigned>(count); }

}  // namespace sluice::cuda::row_view
