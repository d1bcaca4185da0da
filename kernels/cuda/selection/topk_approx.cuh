#pragma once

#include "kernels/cuda/selection/topk_team.cuh"
#include "kernels/device/random.h"

/// Approximate selection (Vortex, sections 5.2 and 11.2): one histogram over bins that a monotonic map of the scores evens out;
/// of the bin in which the budget ends pages are drawn, if those above it are enough. Step by step what
/// PageSelector::approx_top_k (kernels/cpu/selection/topk.h) does, in the same arithmetic: the same scores give the same pages on
/// every device, however many blocks a row has.
namespace sluice::cuda::topk {

inline constexpr int kLongApproximateRow = 4096;  // from here on a sample also says which scores are far too low
inline constexpr int kLongRowBins = 2048;
inline constexpr int kShortRowBins = 256;
inline constexpr uint32_t kTakenKey = ~0U;  // of what lies above the bin in which the budget ends

/// The score of an order key.
inline __device__ float exact_score_of(uint32_t key) { return key == kNanKey ? __uint_as_float(0x7fffffffU) : score_of(key); }
inline __device__ float infinity() { return __uint_as_float(0x7f800000U); }

/// Keys from `lowest` on go to bin scale * (score - low); the others are left out.
struct Remap {
  uint32_t lowest;
  float low;
  float scale;
  int bins;

  __device__ bool filters() const { return lowest > kNanKey; }
  /// 1 to `bins`, in the order of scores; kNoKey for what is left out, or is no key.
  __device__ uint32_t bin_of(uint32_t key) const {
    // No operation may be joined with another: devices would differ.
    const float place = __fmul_rn(__fsub_rn(score_of(key), low), scale);
    const uint32_t bin = 2 + static_cast<uint32_t>(fminf(fmaxf(place, 0.0F), static_cast<float>(bins - 2)));
    return key < lowest ? kNoKey : key == kNanKey ? 1 : bin;
  }
  __device__ uint4 bins_of(const uint4& keys) const { return {bin_of(keys.x), bin_of(keys.y), bin_of(keys.z), bin_of(keys.w)}; }
};

/// What finding a remap works with.
struct SampleMemory {
  static constexpr int kMost = 256;
  alignas(16) float scores[kMost];
  uint32_t lowest, highest;  // keys of those that are kept
};

/// Bins that span [low, high].
inline __device__ Remap spanning(uint32_t lowest, double low, double high, int bins) {
  const auto start = static_cast<float>(low);
  const auto scale = static_cast<float>(__ddiv_rn(bins - 2, __dsub_rn(high, low)));
  const bool usable = fabsf(start) < infinity() && fabsf(scale) < infinity() && fabsf(scale) >= 0x1p-126F;
  return usable ? Remap{lowest, start, scale, bins} : Remap{lowest, 0, 1, bins};
}

/// Bins around the mean of a sample, in units of its deviation. By each warp for itself; sums depend on their order.
inline __device__ Remap remap_by_deviation(const float* sample, int count, int bins) {
  double sum = 0;
  double squares = 0;
  int finite = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int place = half * kWarp + static_cast<int>(threadIdx.x) % kWarp;
    const float score = place < count ? sample[place] : infinity();
    const bool is_finite = fabsf(score) < infinity();
    const double counted = is_finite ? score : 0;
    sum = __dadd_rn(sum, counted);
    squares = __dadd_rn(squares, __dmul_rn(counted, counted));
    finite += __popc(__ballot_sync(~0U, is_finite));
  }
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    sum = __dadd_rn(sum, __shfl_xor_sync(~0U, sum, lanes));
    squares = __dadd_rn(squares, __shfl_xor_sync(~0U, squares, lanes));
  }
  if (finite == 0) return {kNanKey, 0, 1, bins};
  const double mean = __ddiv_rn(sum, finite);
  const double deviation = __dsqrt_rn(fmax(0.0, __dsub_rn(__ddiv_rn(squares, finite), __dmul_rn(mean, mean))));
  return spanning(kNanKey, __dsub_rn(mean, 2 * deviation), __dadd_rn(mean, 4 * deviation), bins);
}

/// How scores of a row of `length`, of which the best k are wanted, go to bins; `score_at` gives one of them. The same for all
/// threads of the crew, which are kThreads, and for all blocks that have the row.
template <int kThreads, class Crew, class ScoreAt>
__device__ Remap remap_of(SampleMemory& memory, int length, int k, const ScoreAt& score_at) {
  const bool is_long = length >= kLongApproximateRow;
  const int bins = is_long ? kLongRowBins : kShortRowBins;
  if (is_long) {
    constexpr int kRuns = 32;
    constexpr int kRun = SampleMemory::kMost / kRuns;
    bool has_nan = false;
#pragma unroll 1
    for (int i = threadIdx.x; i < SampleMemory::kMost; i += kThreads) {
      const float score = score_at(i / kRun * (length / kRuns) + i % kRun);
      memory.scores[i] = score;
      has_nan |= isnan(score);
    }
    if (threadIdx.x == 0) {
      memory.lowest = kEndKey;
      memory.highest = kNoKey;
    }
    has_nan = Crew::count(has_nan) > 0;
    const long long rank = static_cast<long long>(SampleMemory::kMost) * k / length * 5 / 4 + 16;
    if (rank < SampleMemory::kMost && !has_nan) {
      // Of what a score is compared with, by as many threads.
      constexpr int kParts = kThreads < SampleMemory::kMost ? 1 : kThreads / SampleMemory::kMost;
      static_assert((kParts & (kParts - 1)) == 0);
#pragma unroll 1
      for (int i = threadIdx.x; i < kParts * SampleMemory::kMost; i += kThreads) {
        const float score = memory.scores[i / kParts];
        int greater = 0;
#pragma unroll 4
        for (int other = 4 * (i % kParts); other < SampleMemory::kMost; other += 4 * kParts) {
          const float4 four = *reinterpret_cast<const float4*>(memory.scores + other);
          greater += four.x > score ? 1 : 0;
          greater += four.y > score ? 1 : 0;
          greater += four.z > score ? 1 : 0;
          greater += four.w > score ? 1 : 0;
        }
#pragma unroll
        for (int lane = 1; lane < kParts; lane *= 2) greater += __shfl_xor_sync(~0U, greater, lane);
        if (i % kParts != 0) continue;
        const uint32_t key = order_key(__float_as_uint(score));
        if (greater == 0) atomicMax(&memory.highest, key);
        if (greater <= rank) atomicMin(&memory.lowest, key);
      }
      Crew::sync();
      const uint32_t lowest = memory.lowest;
      return spanning(lowest > kLowestKey ? lowest : kNanKey, score_of(lowest), score_of(memory.highest), bins);
    }
  }
  constexpr int kSamples = kWarp;
  const int step = max(1, length / kSamples);
  const int count = (length + step - 1) / step;  // fewer than twice as many
#pragma unroll 1
  for (int i = threadIdx.x; i < count; i += kThreads) memory.scores[i] = score_at(i * step);
  Crew::sync();
  return remap_by_deviation(memory.scores, count, bins);
}

/// What an approximate selection takes, as keys of which the best k are it.
struct Drawing {
  Remap remap;
  uint32_t bin = 0;      // in which the budget ends; 0: a plain order key says it
  bool in_order = true;  // of the bin the best are taken, not any
  uint64_t random = 0;   // key of the draws
  Bracket bracket;       // that the k-th best of these keys is in

  /// Of an order key of a page.
  __device__ uint32_t key_of(uint32_t key, int page) const {
    if (bin == 0) return key;
    const uint32_t own = remap.bin_of(key);
    if (own != bin) return own > bin ? kTakenKey : kNoKey;
    return in_order ? key : min(max(random_bits(random, static_cast<uint64_t>(page)), kNoKey + 1), kTakenKey - 1);
  }
  __device__ uint4 keys_of(const uint4& keys, int page) const {
    return {key_of(keys.x, page), key_of(keys.y, page + 1), key_of(keys.z, page + 2), key_of(keys.w, page + 3)};
  }
};

/// Plans a selection of k of `length` keys, 0 < k < length: `visit` gives order keys as Team has it, at least those that `remap`
/// does not leave out, and `left` says how many these are, of this thread. The team's histogram is clear, behind a barrier.
template <bool kAcross, int kThreads, class Crew, class Visit, class Left>
__device__ Drawing plan_drawing(Team<kThreads, Crew>& team, const Remap& remap, int length, int k, double tolerate,
                                uint64_t random, const Visit& visit, const Left& left) {
  Drawing drawing{.remap = remap, .random = random};
  drawing.bracket.reaching_begin = length;
  const auto bins = [&](const auto& use) { visit([&](const uint4& keys, int at) { use(remap.bins_of(keys), at); }); };
  Bracket bracket{.begin = 1, .end = static_cast<uint32_t>(remap.bins) + 1, .reaching_begin = length};
  if (remap.filters()) {
    const Counts counts = team.template count<kAcross>(Cut{1, 0}, bins, [&](uint32_t) { return left(); });
    bracket.reaching_begin = static_cast<int>(counts.all.x);
    if (bracket.reaching_begin < k) return drawing;  // the sample was wrong: all are searched
  }
#pragma unroll 1
  while (bracket.end - bracket.begin > 1) team.template narrow<kAcross>(bracket, k, bins);
  drawing.bin = bracket.begin;
  drawing.in_order = bracket.reaching_end < __dmul_rn(__dsub_rn(1, tolerate), k);
  drawing.bracket = {1, kTakenKey, bracket.reaching_begin, bracket.reaching_end};
  return drawing;
}

}  // namespace sluice::cuda::topk
