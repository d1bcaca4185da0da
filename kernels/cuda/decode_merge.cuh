#pragma once

#include "kernels/cuda/decode_stretch.cuh"

namespace sluice::cuda::decode {

/// Merges what the stretches of a row found, in their order, once all are there. scratch: [group][parts] floats, and [group].
template <int Dim, int Threads>
__device__ void merge_row(const Arguments& a, int row, int row_begin, int row_end, int length, float* scratch) {
  const int first = row_begin / length;
  const int parts = (row_end - 1) / length - first + 1;
  const size_t step = static_cast<size_t>(a.group) * (Dim + 2);
  // A row that begins in a block is the last one there; where it goes on it is the first.
  const float* begin = a.partials + (2 * static_cast<size_t>(first) + 1) * step;
  const auto partial = [&](int part) { return part == 0 ? begin : begin + (2 * static_cast<size_t>(part) - 1) * step; };
  const int64_t out_row = static_cast<int64_t>(row) * a.group;  // rows are (sequence, KV head), then heads of the group
  float* inverse = scratch + parts * a.group;
  // These are on their way while the weights are found.
  constexpr int kEarly = 8;
  const int early = static_cast<int>(threadIdx.x) < a.group * Dim ? min(kEarly, parts) : 0;
  float values[kEarly];
#pragma unroll
  for (int part = 0; part < kEarly; ++part) values[part] = part < early ? __ldcg(partial(part) + 2 * a.group + threadIdx.x) : 0;

  const int lane = threadIdx.x % 32;
  for (int head = threadIdx.x / 32; head < a.group; head += Threads / 32) {
    constexpr int kRounds = (kMostBlocks + 31) / 32;
    float maxima[kRounds];
    float sums[kRounds];
    float maximum = -INFINITY;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int part = 32 * round + lane;
      maxima[round] = part < parts ? __ldcg(partial(part) + head) : -INFINITY;
      sums[round] = part < parts ? __ldcg(partial(part) + a.group + head) : 0;
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) maximum = fmaxf(maximum, maxima[round]);
    for (int step_lanes = 16; step_lanes > 0; step_lanes /= 2) {
      maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffU, maximum, step_lanes));
    }
    float sum = 0;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int part = 32 * round + lane;
      const float weight = maximum == -INFINITY ? 0.0f : exp2f(maxima[round] - maximum);
      if (part < parts) scratch[head * parts + part] = weight;
      sum += weight * sums[round];
    }
    for (int step_lanes = 16; step_lanes > 0; step_lanes /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, step_lanes);
    if (lane == 0) {
      inverse[head] = sum > 0 ? 1 / sum : 0;
      if (a.log_sums != nullptr) a.log_sums[out_row + head] = maximum + log2f(sum);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < a.group * Dim; i += Threads) {
    const float* weights = scratch + i / Dim * parts;
    float value = 0;
    int part = 0;
    if (i == static_cast<int>(threadIdx.x)) {
#pragma unroll
      for (; part < kEarly; ++part) value += part < parts ? weights[part] * values[part] : 0;
    }
#pragma unroll 8
    for (; part < parts; ++part) value += weights[part] * __ldcg(partial(part) + 2 * a.group + i);
    a.out[out_row * Dim + i] = __float2bfloat16(value * inverse[i / Dim]);
  }
}

}  // namespace sluice::cuda::decode
