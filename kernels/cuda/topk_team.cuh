#pragma once

#include <cooperative_groups.h>

#include "kernels/cuda/topk_keys.cuh"

namespace sluice::cuda::topk {

namespace cg = cooperative_groups;

template <int kThreads>
struct Shared {
  static constexpr int kWarps = kThreads / kWarp;
  static constexpr int kBins = kThreads * 8 < 2048 ? kThreads * 8 : 2048;

  // Two by turns where blocks read each other's, so that clearing one never races with its readers.
  alignas(16) uint32_t histogram[2][kBins];
  uint2 warp_counts[2][kWarps];
  uint2 block_counts[2][kMaxCluster];
  uint32_t warp_sums[kWarps];
  uint32_t warp_most[kWarps];
  uint32_t found[3];  // bin, keys above it, keys in it
};

struct Candidates {
  alignas(16) uint32_t keys[kCandidates];
  int32_t indices[kCandidates];
  uint32_t own_scores[kCandidates];  // those of this block, on their way
};

/// The threads that select from one row, and the steps they take together. A source of keys is a function `visit` that passes, to
/// what it is given, four keys and the place of the first at a time; every warp visits a contiguous stretch, in order.
template <int kThreads>
class Team {
 public:
  static constexpr int kWarps = Shared<kThreads>::kWarps;
  static constexpr int kBins = Shared<kThreads>::kBins;

  __device__ Team(Shared<kThreads>& shared, int blocks, int block)
      : blocks(blocks), block(block), warp(threadIdx.x / kWarp), lane(threadIdx.x % kWarp), shared_(shared) {
    for (int bin = threadIdx.x; bin < 2 * kBins; bin += kThreads) shared.histogram[0][bin] = 0;
  }

  /// Largest value that a thread of this block has. Two in a row need a barrier between them.
  __device__ uint32_t block_max(uint32_t value) {
    value = __reduce_max_sync(~0U, value);
    if (lane == 0) shared_.warp_most[warp] = value;
    __syncthreads();
    return __reduce_max_sync(~0U, lane < kWarps ? shared_.warp_most[lane] : 0);
  }

  /// Counts what `cut` takes of a source; `kAcross`: one that is spread over the blocks of the cluster. `reaching` returns how
  /// many keys of this thread are at least what it is given.
  template <bool kAcross, class Visit, class Reaching>
  __device__ Counts count(const Cut& cut, const Visit& visit, const Reaching& reaching) {
    uint2 mine{0, 0};
    if (cut.ties == 0) {
      mine.x = reaching(cut.first);
    } else {
      visit([&](const uint4& keys, int) {
        mine.x += number_of(keys, [&](uint32_t key) { return key >= cut.first; });
        mine.y += number_of(keys, [&](uint32_t key) { return key == cut.first - 1; });
      });
    }
    mine = {__reduce_add_sync(~0U, mine.x), __reduce_add_sync(~0U, mine.y)};
    if (lane == 0) shared_.warp_counts[count_turn_][warp] = mine;
    __syncthreads();
    Counts counts = sums_of(shared_.warp_counts[count_turn_], kWarps, warp);
    counts.in_block = counts.before.x;
    if constexpr (kAcross) {
      auto cluster = cg::this_cluster();
      uint2* slot = &shared_.block_counts[count_turn_][block];
      if (warp == 0 && lane < blocks) *cluster.map_shared_rank(slot, lane) = counts.all;
      cluster.sync();
      const Counts across = sums_of(shared_.block_counts[count_turn_], blocks, block);
      counts.before.x += across.before.x;
      counts.before.y += across.before.y;
      counts.all = across.all;
    }
    count_turn_ ^= 1;
    return counts;
  }

  /// Narrows the bracket of the k-th best key to one of up to kBins equal parts.
  template <bool kAcross, class Visit>
  __device__ void narrow(Bracket& bracket, int k, const Visit& visit) {
    const uint32_t span = bracket.end - bracket.begin;
    const int shift = max(0, kWarp - __clz(span - 1) - (31 - __clz(kBins)));
    uint32_t* histogram = shared_.histogram[histogram_turn_];
    visit([&](const uint4& keys, int) { add_to(histogram, keys, bracket.begin, span, shift); });
    if constexpr (kAcross) {
      cg::this_cluster().sync();
    } else {
      __syncthreads();
    }
    // Threads own runs of bins, the first thread the highest.
    constexpr int kOwn = kBins / kThreads;
    const int lowest = kBins - (threadIdx.x + 1) * kOwn;
    uint32_t own[kOwn];
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] = histogram[lowest + i];
    if constexpr (kAcross) {
      for (int other = 1; other < blocks; ++other) {
        const uint32_t* theirs = cg::this_cluster().map_shared_rank(histogram, (block + other) % blocks);
#pragma unroll
        for (int i = 0; i < kOwn; ++i) own[i] += theirs[lowest + i];
      }
      histogram_turn_ ^= 1;
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      shared_.histogram[histogram_turn_][lowest + i] = 0;
      sum += own[i];
    }
    uint32_t through = sum;
#pragma unroll
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const uint32_t lower = __shfl_up_sync(~0U, through, offset);
      if (lane >= offset) through += lower;
    }
    if (lane == kWarp - 1) shared_.warp_sums[warp] = through;
    __syncthreads();
    uint32_t above = through - sum + __reduce_add_sync(~0U, lane < warp ? shared_.warp_sums[lane] : 0);
    const uint32_t need = k - bracket.reaching_end;
    if (above < need && need <= above + sum) {
#pragma unroll
      for (int i = kOwn - 1; i >= 0; --i) {
        if (above < need && need <= above + own[i]) {
          shared_.found[0] = lowest + i;
          shared_.found[1] = above;
          shared_.found[2] = own[i];
        }
        above += own[i];
      }
    }
    __syncthreads();
    bracket.begin += shared_.found[0] << shift;
    bracket.end = min(bracket.end, bracket.begin + (1U << shift));
    bracket.reaching_end += shared_.found[1];
    bracket.reaching_begin = bracket.reaching_end + shared_.found[2];
  }

  /// Passes what `cut` takes to `sink`: its place in the selection, its key and its place in the source.
  template <class Visit, class Sink>
  __device__ void place(const Cut& cut, uint2 before, const Visit& visit, const Sink& sink) const {
    const uint32_t ties = cut.ties;
    const uint32_t lowest = ties > 0 ? cut.first - 1 : cut.first;
    visit([&](const uint4& four, int index) {
      const uint32_t keys[4] = {four.x, four.y, four.z, four.w};
      if (!__any_sync(~0U, max(max(four.x, four.y), max(four.z, four.w)) >= lowest)) return;
      uint32_t over = 0;
      uint32_t tied = 0;
#pragma unroll
      for (const uint32_t key : keys) over += key >= cut.first;
      const uint2 overs = sums_of_lanes(over);
      uint2 at{before.x + overs.x, before.y};
      before.x += overs.y;
      if (ties > 0) {
#pragma unroll
        for (const uint32_t key : keys) tied += key == lowest;
        const uint2 tieds = sums_of_lanes(tied);
        at.y += tieds.x;
        before.y += tieds.y;
      }
      if (over + tied == 0) return;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (keys[i] >= cut.first) {
          sink(at.x + min(at.y, ties), keys[i], index + i);
          ++at.x;
        } else if (ties > 0 && keys[i] == lowest) {
          if (at.y < ties) sink(at.x + at.y, keys[i], index + i);
          ++at.y;
        }
      }
    });
  }

  const int blocks;  // of the cluster
  const int block;   // this one
  const int warp;
  const int lane;

 private:
  __device__ Counts sums_of(const uint2* counts, int size, int own) const {
    const uint2 count = lane < size ? counts[lane] : uint2{0, 0};
    const uint2 lower = lane < own ? count : uint2{0, 0};
    return {{__reduce_add_sync(~0U, lower.x), __reduce_add_sync(~0U, lower.y)},
            0,
            {__reduce_add_sync(~0U, count.x), __reduce_add_sync(~0U, count.y)}};
  }

  /// Sums of `value`, 0 to 4, over the lanes below this one (x) and over all (y).
  __device__ uint2 sums_of_lanes(uint32_t value) const {
    const uint32_t lower = (1U << lane) - 1;
    const uint32_t ones = __ballot_sync(~0U, value & 1);
    const uint32_t twos = __ballot_sync(~0U, value & 2);
    const uint32_t fours = __ballot_sync(~0U, value & 4);
    return {__popc(ones & lower) + 2U * __popc(twos & lower) + 4U * __popc(fours & lower),
            __popc(ones) + 2U * __popc(twos) + 4U * __popc(fours)};
  }

  __device__ void add_to(uint32_t* histogram, const uint4& four, uint32_t begin, uint32_t span, int shift) const {
    const uint32_t offsets[4] = {four.x - begin, four.y - begin, four.z - begin, four.w - begin};
    const bool any = offsets[0] < span || offsets[1] < span || offsets[2] < span || offsets[3] < span;
    if (!__any_sync(~0U, any)) return;
    // Lanes that add to one bin take turns; where many would, as on plateaus, one adds for all.
    constexpr int kMany = 8;
    const uint32_t first_in = __ballot_sync(~0U, offsets[0] < span);
    const uint32_t common = __shfl_sync(~0U, offsets[0] >> shift, (__ffs(first_in) - 1) & (kWarp - 1));
    if (__popc(__ballot_sync(~0U, offsets[0] < span && offsets[0] >> shift == common)) < kMany) {
#pragma unroll
      for (const uint32_t offset : offsets) {
        if (offset < span) atomicAdd(&histogram[offset >> shift], 1);
      }
      return;
    }
    uint32_t alike = 0;
#pragma unroll
    for (const uint32_t offset : offsets) {
      const bool is_common = offset < span && offset >> shift == common;
      alike += __popc(__ballot_sync(~0U, is_common));
      if (offset < span && !is_common) atomicAdd(&histogram[offset >> shift], 1);
    }
    if (lane == 0) atomicAdd(&histogram[common], alike);
  }

  Shared<kThreads>& shared_;
  int histogram_turn_ = 0;
  int count_turn_ = 0;
};

}  // namespace sluice::cuda::topk
