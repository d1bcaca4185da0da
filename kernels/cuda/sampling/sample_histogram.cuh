#pragma once

#include <cooperative_groups.h>

#include "kernels/cuda/sampling/sample_order.cuh"

/// A row of logits in the hands of a cluster, and sums over its tokens.
namespace sluice::cuda::sampling {

namespace cg = cooperative_groups;

inline constexpr int kCluster = 8;  // blocks a row
inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / 32;
inline constexpr unsigned kAllLanes = 0xffffffffU;
inline constexpr int kList = 1024;  // tokens that are sorted at most
inline constexpr int kEach = 4;     // neighbours in a list or histogram that a thread sums
static_assert(kBuckets == kThreads * kEach && kList == kThreads * kEach && kThreads == 2 * kBuckets / kCluster);

struct Line {
  const float* logits;
  int columns;
};

struct Shared {
  uint32_t counts[kBuckets];  // of this block
  Word weights[kBuckets];
  uint32_t all_counts[kBuckets];  // of the cluster, each with those before it
  Word all_weights[kBuckets];
  Word list[kList];  // the first block's: places, ascending
  Word list_weights[kList];
  Extent extent;
  Extent warp_extents[kWarps];
  Sum warp_sums[kWarps];
  Found found[2];
  uint32_t listed;
  int crossing;
};

/// Histograms of one row. All blocks of its cluster call the same in turn, and see the same sums.
class RowHistogram {
 protected:
  __device__ RowHistogram(Shared& shared, const Line& line)
      : shared_(shared),
        line_(line),
        block_(static_cast<int>(cg::this_cluster().block_rank())),
        thread_(static_cast<int>(threadIdx.x)) {}

  /// Calls body(id, logit) for this block's part of the row, ids of a thread ascending, with kTogether loads on their way at a
  /// time. All lanes of a warp come along; those past the end get -inf.
  template <int kTogether, class Body>
  __device__ void visit(Body&& body) const {
    constexpr int kStride = kCluster * kThreads;
    const bool by_fours = reinterpret_cast<uintptr_t>(line_.logits) % sizeof(float4) == 0;
    const int packs = by_fours ? line_.columns / 4 : 0;
    const int mine = block_ * kThreads + thread_;
    const auto load = [&](int at) {
      return at < packs ? reinterpret_cast<const float4*>(line_.logits)[at] : float4{-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    };
    float4 pack[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) pack[i] = load(mine + i * kStride);
#pragma unroll 1
    for (int start = mine; start - mine < packs; start += kTogether * kStride) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int at = start + i * kStride;
        const float4 now = pack[i];
        pack[i] = load(at + kTogether * kStride);
        body(4 * at, now.x);
        body(4 * at + 1, now.y);
        body(4 * at + 2, now.z);
        body(4 * at + 3, now.w);
      }
    }
#pragma unroll 1
    for (int id = 4 * packs + mine; id - mine < line_.columns; id += kStride)
      body(id, id < line_.columns ? line_.logits[id] : -INFINITY);
  }

  /// body(id, logit, distance) for tokens that have weight, of logits that are not below `least`.
  template <class Body>
  __device__ void visit_from(float least, Body&& body) const {
    visit<2>([&](int id, float logit) {
      if (!(logit >= least) || logit == -INFINITY) return;
      const double distance = scale_.distance(logit);
      if (distance < kFarthest) body(id, logit, distance);
    });
  }

  __device__ Extent whole_row() {
    float best = -INFINITY;
    float least = INFINITY;
    int id_of_best = 0;
    bool damaged = false;
    visit<4>([&](int id, float logit) {
      if (logit > best) {
        best = logit;
        id_of_best = id;
      }
      if (logit > -INFINITY) least = fminf(least, logit);
      damaged |= !(logit < INFINITY);
    });
    return joined({place_of(best, id_of_best), place_of(least, 0), damaged});
  }

  /// Of all threads of the cluster.
  __device__ Extent joined(Extent extent) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      extent.join({__shfl_xor_sync(kAllLanes, extent.first, mask), __shfl_xor_sync(kAllLanes, extent.last, mask),
                   __shfl_xor_sync(kAllLanes, static_cast<int>(extent.damaged), mask) != 0});
    }
    if (thread_ % 32 == 0) shared_.warp_extents[thread_ / 32] = extent;
    __syncthreads();
    if (thread_ == 0) {
#pragma unroll 1
      for (int warp = 0; warp < kWarps; ++warp) extent.join(shared_.warp_extents[warp]);
      shared_.extent = extent;
    }
    cg::this_cluster().sync();
#pragma unroll 1
    for (int block = 0; block < kCluster; ++block) extent.join(*of_block(&shared_.extent, block));
    return extent;
  }

  template <class T>
  __device__ static T* of_block(T* mine, int block) {
    return cg::this_cluster().map_shared_rank(mine, block);
  }

  /// Histograms of the row by `bucket_of(place, distance)`, -1 for tokens that do not count; then sums from the first bucket on.
  template <class BucketOf>
  __device__ void count(BucketOf&& bucket_of) {
    for (int i = thread_; i < kBuckets; i += kThreads) {
      shared_.counts[i] = 0;
      shared_.weights[i] = 0;
    }
    __syncthreads();
    visit<1>([&](int id, float logit) {
      const double distance = scale_.distance(logit);
      const bool weighty = logit > -INFINITY && distance < kFarthest;
      const int bucket = weighty ? bucket_of(place_of(logit, id), distance) : -1;
      add(bucket, bucket < 0 ? 0 : Scale::weight(distance));
    });
    cg::this_cluster().sync();
    // Each block adds up its share of the buckets for all.
    constexpr int kShare = kBuckets / kCluster;
    const int bucket = block_ * kShare + thread_ % kShare;
    if (thread_ < kShare) {
      share_total(&shared_.counts[bucket], &shared_.all_counts[bucket]);
    } else {
      share_total(&shared_.weights[bucket], &shared_.all_weights[bucket]);
    }
    cg::this_cluster().sync();
    Sum mine;
    for (int i = kEach * thread_; i < kEach * (thread_ + 1); ++i)
      mine = mine + Sum{shared_.all_counts[i], shared_.all_weights[i]};
    Sum sum = before(mine);
    for (int i = kEach * thread_; i < kEach * (thread_ + 1); ++i) {
      sum = sum + Sum{shared_.all_counts[i], shared_.all_weights[i]};
      shared_.all_counts[i] = sum.tokens;
      shared_.all_weights[i] = sum.weight;
    }
    __syncthreads();
  }

  /// The sum of `mine` of all threads before this one of the block.
  __device__ Sum before(const Sum& mine) {
    const int lane = thread_ % 32;
    Sum sum = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const Sum more{__shfl_up_sync(kAllLanes, sum.tokens, step), __shfl_up_sync(kAllLanes, sum.weight, step)};
      if (lane >= step) sum = sum + more;
    }
    if (lane == 31) shared_.warp_sums[thread_ / 32] = sum;
    __syncthreads();
    Sum result{sum.tokens - mine.tokens, sum.weight - mine.weight};
#pragma unroll 1
    for (int warp = 0; warp < thread_ / 32; ++warp) result = result + shared_.warp_sums[warp];
    return result;
  }

  __device__ Sum bucket_sum(int bucket) const {
    return bucket < 0 ? Sum{} : Sum{shared_.all_counts[bucket], shared_.all_weights[bucket]};
  }

  /// The first i of `count` for which sum_at(i) reaches the goal; the last does.
  template <class SumAt>
  __device__ int first_reaching(int count, const Goal& goal, SumAt&& sum_at) {
#pragma unroll 1
    for (int i = thread_; i < count; i += kThreads) {
      if (sum_at(i).reaches(goal) && (i == 0 || !sum_at(i - 1).reaches(goal))) shared_.crossing = i;
    }
    __syncthreads();
    const int crossing = shared_.crossing;
    __syncthreads();
    return crossing;
  }

  Shared& shared_;
  Line line_;
  int block_;
  int thread_;
  Scale scale_;

 private:
  /// Adds `weight`, and `tokens` to the count. Sums of 64 bits are two of 32, of which the lower says when it wraps.
  __device__ void add_to(int bucket, uint32_t tokens, Word weight) {
    atomicAdd(&shared_.counts[bucket], tokens);
    auto* const halves = reinterpret_cast<uint32_t*>(&shared_.weights[bucket]);
    const auto low = static_cast<uint32_t>(weight);
    const uint32_t high = static_cast<uint32_t>(weight >> 32) + (atomicAdd(halves, low) + low < low ? 1 : 0);
    if (high != 0) atomicAdd(halves + 1, high);
  }

  /// The same for the warp's tokens, each in its bucket, or none (-1).
  __device__ void add(int bucket, Word weight) {
    if (!__all_sync(kAllLanes, bucket == __shfl_sync(kAllLanes, bucket, 0))) {
      if (bucket >= 0) add_to(bucket, 1, weight);
      return;
    }
    if (bucket < 0) return;
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) weight += __shfl_xor_sync(kAllLanes, weight, mask);
    if (thread_ % 32 == 0) add_to(bucket, 32, weight);
  }

  template <class T>
  __device__ static void share_total(T* part, T* total) {
    T sum = 0;
#pragma unroll
    for (int block = 0; block < kCluster; ++block) sum += *of_block(part, block);
#pragma unroll
    for (int block = 0; block < kCluster; ++block) *of_block(total, block) = sum;
  }
};

}  // namespace sluice::cuda::sampling
