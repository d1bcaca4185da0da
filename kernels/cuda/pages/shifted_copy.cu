#include "kernels/cuda/pages/shifted_copy.h"

#include <algorithm>

#include "kernels/cuda/primitives/eight_bits.cuh"
#include "kernels/cuda/rows/row_view.cuh"
#include "kernels/cuda/runtime/runtime.h"

namespace sluice::cuda {
namespace {

constexpr int kHalfThreads = 128;  // that have K; as many have V
constexpr int kThreads = 2 * kHalfThreads;
constexpr int kBlocks = 2;  // of a multiprocessor
constexpr int kRuns = 4;    // of a block
constexpr int kEight = 8;   // channels that a thread reads at a time, and those half a row further on

/// Eight neighbouring numbers of a row.
template <DataType Type>
struct Eight {
  using Number = std::conditional_t<Type == DataType::kBF16, uint16_t, uint8_t>;
  alignas(kEight * sizeof(Number)) Number at[kEight];

  __device__ __forceinline__ float widened(int i) const {
    if constexpr (Type == DataType::kBF16) {
      return __uint_as_float(uint32_t{at[i]} << 16);
    } else {
      return widen_byte(Type, at[i]);
    }
  }
  __device__ __forceinline__ void set(int i, float x) {
    if constexpr (Type == DataType::kBF16) {
      at[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x));
    } else {
      at[i] = narrow_to_byte(Type, x);
    }
  }
};

/// How a key is turned on its way: of eight pairs of channels.
struct Turn {
  float cosine[kEight];
  float sine[kEight];

  /// As KeyTurns has it: angles are float32, as models have them.
  __device__ __forceinline__ Turn(const float* frequencies, int from, int to) {
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      const float old_angle = __fmul_rn(static_cast<float>(from), frequencies[i]);
      const float new_angle = __fmul_rn(static_cast<float>(to), frequencies[i]);
      constexpr double kHalfTurn = 3.141592653589793;
      double half_turns = (static_cast<double>(new_angle) - static_cast<double>(old_angle)) / kHalfTurn;
      half_turns -= 2 * rint(half_turns / 2);
      sincospif(static_cast<float>(half_turns), &sine[i], &cosine[i]);
    }
  }
  template <DataType Type>
  __device__ __forceinline__ void apply(Eight<Type>& low, Eight<Type>& high) const {
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      const float a = low.widened(i);
      const float b = high.widened(i);
      low.set(i, a * cosine[i] - b * sine[i]);
      high.set(i, b * cosine[i] + a * sine[i]);
    }
  }
};

/// Copies what a thread has of a token to its new place, in all heads. `turn` is null for V.
template <DataType Type>
__device__ __forceinline__ void copy_rows(const ShiftedRows& rows, const std::byte* from, std::byte* to, const Turn* turn) {
  constexpr int kAtOnce = 4;
  const size_t half = static_cast<size_t>(rows.head_dim / 2) * sizeof(typename Eight<Type>::Number);
  for (int first = 0; first < rows.rows.kv_heads; first += kAtOnce) {
    Eight<Type> low[kAtOnce];
    Eight<Type> high[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= rows.rows.kv_heads) break;
      const std::byte* const at = from + (first + i) * rows.rows.block_bytes;
      low[i] = *reinterpret_cast<const Eight<Type>*>(at);
      high[i] = *reinterpret_cast<const Eight<Type>*>(at + half);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= rows.rows.kv_heads) break;
      if (turn != nullptr) turn->apply(low[i], high[i]);
      std::byte* const at = to + (first + i) * rows.rows.block_bytes;
      *reinterpret_cast<Eight<Type>*>(at) = low[i];
      *reinterpret_cast<Eight<Type>*>(at + half) = high[i];
    }
  }
}

/// A block for each layer and kRuns runs, since many are shorter than a page. Blocks of a layer follow each other, so that what
/// is read and written at a time lies in few places of the memory's page tables.
template <DataType Type>
__global__ __launch_bounds__(kThreads, kBlocks) void shifted_copy_kernel(const __grid_constant__ ShiftedRows rows,
                                                                         const ShiftedRun* __restrict__ runs, int count) {
  const bool is_key = threadIdx.x < kHalfThreads;
  const size_t offset = is_key ? rows.rows.key_offset : rows.rows.value_offset;
  const int eights = rows.head_dim / (2 * kEight);
  int place = static_cast<int>(threadIdx.x) % kHalfThreads;  // among the eights of a run and those behind it
  const int last = min(count, static_cast<int>(blockIdx.x + 1) * kRuns);
  for (int r = static_cast<int>(blockIdx.x) * kRuns;; place += kHalfThreads) {
    for (; r < last && place >= runs[r].tokens * eights; ++r) place -= runs[r].tokens * eights;
    if (r >= last) break;
    const ShiftedRun run = runs[r];
    const int token = place / eights;
    const int channel = place % eights * kEight;
    const size_t in_row = offset + channel * sizeof(typename Eight<Type>::Number);
    std::byte* const layer = rows.blocks.base + blockIdx.y * rows.blocks.layer_stride + in_row;
    const std::byte* const from = layer + run.from_page * rows.blocks.bytes + (run.from_token + token) * rows.rows.bytes;
    std::byte* const to = layer + run.to_page * rows.blocks.bytes + (run.to_token + token) * rows.rows.bytes;
    if (is_key) {
      const Turn turn(rows.frequencies + channel, run.from_position + token, run.to_position + token);
      copy_rows<Type>(rows, from, to, &turn);
    } else {
      copy_rows<Type>(rows, from, to, nullptr);
    }
  }
}

template <DataType Type>
void launch(const ShiftedRows& rows, const ShiftedRun* runs, int count, Stream stream) {
  shifted_copy_kernel<Type><<<dim3(static_cast<unsigned>((count + kRuns - 1) / kRuns), static_cast<unsigned>(rows.blocks.layers)),
                              kThreads, 0, stream>>>(rows, runs, count);
  SLUICE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace

void copy_shifted(const ShiftedRows& rows, const ShiftedRun* runs, int count, Stream stream) {
  switch (rows.kv) {
    case DataType::kE4M3:
      return launch<DataType::kE4M3>(rows, runs, count, stream);
    case DataType::kE5M2:
      return launch<DataType::kE5M2>(rows, runs, count, stream);
    default:
      return launch<DataType::kBF16>(rows, runs, count, stream);
  }
}

}  // namespace sluice::cuda
