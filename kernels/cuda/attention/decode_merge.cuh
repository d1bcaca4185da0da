#pragma once

#include "kernels/cuda/attention/decode_stretch.cuh"
#include "kernels/cuda/primitives/cluster.cuh"

namespace sluice::cuda::decode {

/// The blocks that have a stretch of a row.
struct Parts {
  int first = 0;
  int count = 1;

  __device__ __forceinline__ Parts(const Stretch& stretch, int row, int row_begin, int row_end) {
    if (stretch.parts > 0) {
      first = row * stretch.parts;
      count = stretch.parts;
    } else {
      first = row_begin / stretch.length;
      count = (row_end - 1) / stretch.length - first + 1;
    }
    // Now, while copies are on their way, rather than where it counts.
    asm volatile("" : "+r"(first), "+r"(count));
  }
};

/// Counts a stretch of a row that has ended, whose partial results lie in device memory; true for the last one, which then sees
/// those of all. For one thread, behind a barrier of its block.
__device__ __forceinline__ bool arrives_last(int* arrived, int parts) {
  int before = 0;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(arrived) : "memory");
  if (before + 1 < parts) return false;
  *arrived = 0;
  return true;
}

/// The weights of the parts of a row, [group][parts], and what the sum of each head is to be multiplied with. A warp takes a
/// head. What it reads it keeps in `scratch` behind the weights, [group][parts].
template <int Dim, int Threads>
__device__ __forceinline__ void weigh_parts(const Arguments& a, int64_t out_row, const float* begin, int parts, float* weights,
                                            float* inverse, float* scratch) {
  const int lane = threadIdx.x % 32;
  const int step = 2 * part_floats(a.group, Dim);
#pragma unroll 1
  for (int head = threadIdx.x / 32; head < a.group; head += Threads / 32) {
    const float* maxima = begin + a.group * Dim + head;
    float maximum = -INFINITY;
#pragma unroll 1
    for (int part = lane; part < parts; part += 32) {
      const float* from = maxima + max(0, part * step - step / 2);
      const float highest = __ldcg(from);
      scratch[head * parts + part] = __ldcg(from + a.group);
      weights[head * parts + part] = highest;
      maximum = fmaxf(maximum, highest);
    }
#pragma unroll
    for (int other = 16; other > 0; other /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffU, maximum, other));
    const float shift = maximum == -INFINITY ? 0.0f : maximum;
    float sum = 0;
#pragma unroll 1
    for (int part = lane; part < parts; part += 32) {
      const float weight = power(weights[head * parts + part] - shift);
      weights[head * parts + part] = weight;
      sum += weight * scratch[head * parts + part];
    }
#pragma unroll
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, other);
    if (lane == 0) {
      inverse[head] = sum > 0 ? __fdividef(1, sum) : 0;
      if (a.log_sums != nullptr) a.log_sums[out_row + head] = maximum + log2f(sum);
    }
  }
}

/// Merges what the stretches of a row found, in an order that only their number decides, once all are there. scratch: two numbers
/// for each part of each head, and one for each head. What it reads first leaves at once, so that all of this takes little more
/// than one trip to the second-level cache.
template <int Dim, int Threads>
__device__ __forceinline__ void merge_row(const Arguments& a, int row, const Parts& parts, float* scratch) {
  const int step = part_floats(a.group, Dim);
  // A row that begins in a block is the last one there; where it goes on it is the first.
  const float* begin = a.partials + static_cast<size_t>(2 * parts.first + 1) * step;
  const int64_t out_row = static_cast<int64_t>(row) * a.group;  // rows are (sequence, KV head), then heads of the group

  // A thread has four channels of every part, or of every `slices`-th, where there are more threads than channels.
  const int quads = a.group * (Dim / 4);
  int slice_bits = 0;
#pragma unroll
  for (int bits = 1; bits <= 5; ++bits) slice_bits += quads << bits <= Threads ? 1 : 0;
  const int slices = 1 << slice_bits;
  const int slice = static_cast<int>(threadIdx.x) & (slices - 1);
  const int first_quad = static_cast<int>(threadIdx.x) >> slice_bits;
  const auto values_of = [&](int part, int quad) {
    return reinterpret_cast<const float4*>(begin + max(0, 2 * part - 1) * step) + quad;
  };
  constexpr int kEarly = 8;
  float4 early[kEarly];
  const int early_parts = first_quad < quads ? parts.count : 0;
#pragma unroll
  for (int i = 0; i < kEarly; ++i) {
    const int part = slice + (i << slice_bits);
    const float4* from = values_of(part, first_quad);
    early[i] = float4{0, 0, 0, 0};
    if (part < early_parts) early[i] = __ldcg(from);
  }

  float* inverse = scratch + parts.count * a.group;
  weigh_parts<Dim, Threads>(a, out_row, begin, parts.count, scratch, inverse, inverse + a.group);
  __syncthreads();
#pragma unroll 1
  for (int quad = first_quad; quad < quads; quad += Threads >> slice_bits) {
    const int head = quad / (Dim / 4);
    const float* weights = scratch + head * parts.count;
    float4 sum = {0, 0, 0, 0};
    const auto add = [&](float weight, const float4& values) {
      sum.x += weight * values.x;
      sum.y += weight * values.y;
      sum.z += weight * values.z;
      sum.w += weight * values.w;
    };
    int part = slice;
    if (quad == first_quad) {
#pragma unroll
      for (int i = 0; i < kEarly; ++i, part += slices) add(part < parts.count ? weights[part] : 0.0f, early[i]);
    }
#pragma unroll 4
    for (; part < parts.count; part += slices) add(weights[part], __ldcg(values_of(part, quad)));
#pragma unroll 1
    for (int other = 1; other < slices; other *= 2) {
      sum.x += __shfl_xor_sync(0xffffffffU, sum.x, other);
      sum.y += __shfl_xor_sync(0xffffffffU, sum.y, other);
      sum.z += __shfl_xor_sync(0xffffffffU, sum.z, other);
      sum.w += __shfl_xor_sync(0xffffffffU, sum.w, other);
    }
    if (slice > 0) continue;
    const float scale = inverse[head];
    *reinterpret_cast<uint2*>(a.out + out_row * Dim + 4 * quad) = {pack(sum.x * scale, sum.y * scale),
                                                                   pack(sum.z * scale, sum.w * scale)};
  }
}

/// The same where the two blocks of a cluster have a row together: each has its part at `own` in its shared memory,
/// [part_floats], and the first merges both. By all threads of both.
template <int Dim, int Threads>
__device__ __forceinline__ void merge_pair(const Arguments& a, int row, float* own) {
  sync_cluster();
  if (cluster_rank() == 0) {
    const float* const other = in_block(own, 1);
    const int64_t out_row = static_cast<int64_t>(row) * a.group;
#pragma unroll 1
    for (int i = 2 * static_cast<int>(threadIdx.x); i < a.group * Dim; i += 2 * Threads) {
      const int head = i / Dim;
      const int maximum_at = a.group * Dim + head;
      const float2 theirs = *reinterpret_cast<const float2*>(other + i);
      const float their_maximum = other[maximum_at];
      const float their_sum = other[maximum_at + a.group];
      const float2 ours = *reinterpret_cast<const float2*>(own + i);
      const float maximum = fmaxf(own[maximum_at], their_maximum);
      const float shift = maximum == -INFINITY ? 0.0f : maximum;
      const float weight = power(own[maximum_at] - shift);
      const float their_weight = power(their_maximum - shift);
      const float sum = weight * own[maximum_at + a.group] + their_weight * their_sum;
      const float inverse = sum > 0 ? __fdividef(1, sum) : 0;
      *reinterpret_cast<uint32_t*>(a.out + out_row * Dim + i) =
          pack((weight * ours.x + their_weight * theirs.x) * inverse, (weight * ours.y + their_weight * theirs.y) * inverse);
      if (a.log_sums != nullptr && i % Dim == 0) a.log_sums[out_row + head] = maximum + log2f(sum);
    }
  }
  sync_cluster();  // the memory of a block that has ended is gone
}

}  // namespace sluice::cuda::decode
