#pragma once

#include "kernels/cuda/primitives/cluster.cuh"
#include "kernels/cuda/primitives/crew.cuh"
#include "kernels/cuda/selection/topk_keys.cuh"

namespace sluice::cuda::topk {

/// What a team works with; `kInCluster`: it may be one of several.
template <int kThreads, bool kInCluster = true>
struct Shared {
  static constexpr int kWarps = kThreads / kWarp;
  static constexpr int kBins = kThreads < 256 ? 1024 : kThreads < 512 ? 4 * kThreads : 2048;

  alignas(16) uint32_t histogram[kBins];
  uint32_t slice[kInCluster ? kBins : 1];  // of the sums of all histograms of a cluster, this block's part
  uint32_t slice_sums[kMaxCluster];        // of all blocks' parts
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
/// what it is given, four keys and the place of the first at a time; every warp visits a contiguous stretch, in order. They are
/// the first kThreads of the block; the others of `Crew`, if any, do not take part.
template <int kThreads, class Crew = WholeBlock>
class Team {
 public:
  static constexpr int kWarps = Shared<kThreads, Crew::kIsWhole>::kWarps;
  static constexpr int kBins = Shared<kThreads, Crew::kIsWhole>::kBins;

  __device__ Team(Shared<kThreads, Crew::kIsWhole>& shared, int blocks, int block)
      : blocks(blocks), block(block), warp(threadIdx.x / kWarp), lane(threadIdx.x % kWarp), shared_(shared) {}

  /// Empties the histogram, as `narrow<kAcross>` leaves it; a barrier is to follow.
  template <bool kAcross>
  __device__ void clear() {
#pragma unroll 1
    for (int bin = threadIdx.x; bin < kBins; bin += kThreads) {
      shared_.histogram[bin] = 0;
      if constexpr (kAcross) shared_.slice[bin] = 0;
    }
  }

  /// Largest value that a thread of this block has. Two in a row need a barrier between them.
  __device__ uint32_t block_max(uint32_t value) {
    value = __reduce_max_sync(~0U, value);
    if (lane == 0) shared_.warp_most[warp] = value;
    Crew::sync();
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
    Crew::sync();
    Counts counts = sums_of(shared_.warp_counts[count_turn_], kWarps, warp);
    counts.in_block = counts.before.x;
    if constexpr (kAcross) {
      uint2* slot = &shared_.block_counts[count_turn_][block];
      if (warp == 0 && lane < blocks) *in_block(slot, lane) = counts.all;
      sync_cluster();
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
    visit([&](const uint4& keys, int) { add_to(shared_.histogram, keys, bracket.begin, span, shift); });
    const uint32_t need = k - bracket.reaching_end;
    if constexpr (kAcross) {
      find_in_cluster(need);
    } else {
      find_in_block(need);
    }
    bracket.begin += shared_.found[0] << shift;
    if (bracket.end - bracket.begin > 1U << shift) bracket.end = bracket.begin + (1U << shift);  // which may be the last of all
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

  /// Sums of `value`, 0 to 4, over the lanes below this one (x) and over all (y).
  __device__ uint2 sums_of_lanes(uint32_t value) const {
    const uint32_t lower = (1U << lane) - 1;
    const uint32_t ones = __ballot_sync(~0U, value & 1);
    const uint32_t twos = __ballot_sync(~0U, value & 2);
    const uint32_t fours = __ballot_sync(~0U, value & 4);
    return {__popc(ones & lower) + 2U * __popc(twos & lower) + 4U * __popc(fours & lower),
            __popc(ones) + 2U * __popc(twos) + 4U * __popc(fours)};
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

  /// The sum of `sum` over lower threads, and over all.
  __device__ uint2 sums_before(uint32_t sum) {
    uint32_t through = sum;
#pragma unroll
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const uint32_t lower = __shfl_up_sync(~0U, through, offset);
      if (lane >= offset) through += lower;
    }
    if (lane == kWarp - 1) shared_.warp_sums[warp] = through;
    Crew::sync();
    const uint32_t of_warp = lane < kWarps ? shared_.warp_sums[lane] : 0;
    return {through - sum + __reduce_add_sync(~0U, lane < warp ? of_warp : 0), __reduce_add_sync(~0U, of_warp)};
  }

  /// Sets `found` to the bin in which the keys, counted from the highest bin on, reach `need`, and clears the histogram.
  __device__ void find_in_block(uint32_t need) {
    Crew::sync();
    // Threads own runs of bins, the first thread the highest.
    constexpr int kOwn = kBins / kThreads;
    const int lowest = kBins - (threadIdx.x + 1) * kOwn;
    uint32_t own[kOwn];
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      own[i] = shared_.histogram[lowest + i];
      shared_.histogram[lowest + i] = 0;
      sum += own[i];
    }
    uint32_t above = sums_before(sum).x;
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
    Crew::sync();
  }

  /// The same for the sum of the histograms of a cluster, of which every block adds up a slice: the first block the highest.
  __device__ void find_in_cluster(uint32_t need) {
    const int size = (kBins + blocks - 1) / blocks;
    const int top = max(0, kBins - block * size);
    const int count = min(size, top);
    sync_cluster();
#pragma unroll 4
    for (int i = threadIdx.x; i < count * blocks; i += kThreads) {
      const int bin = i % count;
      const uint32_t theirs = in_block(shared_.histogram, i / count)[top - count + bin];
      if (theirs != 0) atomicAdd(&shared_.slice[bin], theirs);
    }
    Crew::sync();
    const int own = (count + kThreads - 1) / kThreads;
    const int end = max(0, count - static_cast<int>(threadIdx.x) * own);
    const int begin = max(0, end - own);
    uint32_t sum = 0;
#pragma unroll 1
    for (int bin = begin; bin < end; ++bin) sum += shared_.slice[bin];
    const uint2 sums = sums_before(sum);
    if (warp == 0 && lane < blocks) in_block(shared_.slice_sums, lane)[block] = sums.y;
    sync_cluster();  // nor does anyone read this block's histogram any more
#pragma unroll 1
    for (int bin = threadIdx.x; bin < kBins; bin += kThreads) shared_.histogram[bin] = 0;
    uint32_t above = sums.x + __reduce_add_sync(~0U, lane < block ? shared_.slice_sums[lane] : 0);
    const bool here = above < need && need <= above + sum;
#pragma unroll 1
    for (int bin = end - 1; bin >= begin; --bin) {
      const uint32_t keys = shared_.slice[bin];
      shared_.slice[bin] = 0;
      if (here && above < need && need <= above + keys) {
#pragma unroll 1
        for (int other = 0; other < blocks; ++other) {
          uint32_t* const found = in_block(shared_.found, other);
          found[0] = top - count + bin;
          found[1] = above;
          found[2] = keys;
        }
      }
      above += keys;
    }
    sync_cluster();
  }

  Shared<kThreads, Crew::kIsWhole>& shared_;
  int count_turn_ = 0;
};

}  // namespace sluice::cuda::topk
