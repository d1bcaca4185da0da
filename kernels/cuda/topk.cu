#include "kernels/cuda/topk.h"

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <string>

#include "kernels/cuda/runtime.h"
#include "scripting/graph/error.h"

namespace sluice::cuda {

namespace {

namespace cg = cooperative_groups;

// Selection narrows a bracket of order keys until it holds the key of the k-th best score. A row is read once: its scores stay in
// registers, spread over the threads of a block or of a cluster. Two things narrow the bracket: a probe counts the scores that
// reach a guess, a histogram splits the bracket into equal bins. Once few scores reach its lower end they move to the first block
// of the cluster, which finishes alone. At these times, a few µs, a kernel is as fast as its instructions are fetched: what runs
// once should be short.

// Order keys as in kernels/cpu/topk.h, but for room below NaN for places past the end of a row.
constexpr uint32_t kNoKey = 0;
constexpr uint32_t kNanKey = 1;
constexpr uint32_t kLowestKey = 0x007fffffU;  // of -inf
constexpr uint32_t kEndKey = 0xff800001U;     // above +inf

constexpr int kWarp = 32;
constexpr int kStep = 4 * kWarp;  // keys that a warp visits at once, four a lane
constexpr int kMaskSteps = 8;     // whose outcomes, a bit each, fill a word a lane
constexpr int kMaxCluster = 16;
constexpr int kCandidates = 8192;  // that the first block of a cluster has room for

__device__ uint32_t order_key(uint32_t bits) {
  if ((bits & 0x7fffffffU) > 0x7f800000U) return kNanKey;
  if (bits == 0x80000000U) bits = 0;
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000U);
}

/// Scores whose keys are at least `key`, which is above kNanKey, are those >= this (NaN for kEndKey).
__device__ float score_of(uint32_t key) {
  key = max(key, kLowestKey);
  return __uint_as_float((key & 0x80000000U) != 0 ? key ^ 0x80000000U : ~key);
}

/// The k-th best key is at least `begin` and below `end`.
struct Bracket {
  uint32_t begin = kNanKey;
  uint32_t end = kEndKey;
  int reaching_begin = 0;  // keys >= begin, at least k
  int reaching_end = 0;    // keys >= end, fewer than k
};

/// What is taken: keys >= first, and the first `ties` keys that equal first - 1.
struct Cut {
  uint32_t first = 0;
  int ties = 0;
};

/// Of the keys >= cut.first (x) and of those that tie (y).
struct Counts {
  uint2 before;       // this warp, in the order of the row
  uint32_t in_block;  // the part of before.x that lies in this block
  uint2 all;
};

template <class Is>
__device__ uint32_t number_of(const uint4& keys, const Is& is) {
  return is(keys.x) + is(keys.y) + is(keys.z) + is(keys.w);
}
template <class Is>
__device__ uint32_t bits_of(const uint4& keys, const Is& is) {
  return is(keys.x) | is(keys.y) << 1 | is(keys.z) << 2 | is(keys.w) << 3;
}

// Two or three instructions a score, which compilers make more of.

/// count += score >= first.
__device__ void count_reaching(uint32_t& count, uint32_t score, float first) {
  asm("{ .reg .pred p; setp.ge.f32 p, %1, %2; @p add.u32 %0, %0, 1; }" : "+r"(count) : "f"(__uint_as_float(score)), "f"(first));
}
/// mask |= score >= first ? bit : 0.
__device__ void mark_reaching(uint32_t& mask, uint32_t bit, uint32_t score, float first) {
  asm("{ .reg .pred p; setp.ge.f32 p, %1, %2; @p or.b32 %0, %0, %3; }"
      : "+r"(mask)
      : "f"(__uint_as_float(score)), "f"(first), "r"(bit));
}
/// Appends the score at `address` in shared memory if `mask` has the bit.
__device__ void append_marked(uint32_t& address, uint32_t mask, uint32_t bit, uint32_t score) {
  asm volatile(
      "{ .reg .pred p; .reg .u32 t; and.b32 t, %1, %2; setp.ne.u32 p, t, 0; @p st.shared.u32 [%0], %3; @p add.u32 %0, %0, 4; }"
      : "+r"(address)
      : "r"(mask), "r"(bit), "r"(score)
      : "memory");
}

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

/// Ranks, in the order of the row, of the scores that the lanes of a warp have set bits for: bit 4 * step + place.
class Ranks {
 public:
  __device__ explicit Ranks(uint32_t mask) : mask_(mask) {
    // Set bits of each step: even steps in the bytes of one word, odd steps in the other.
    uint32_t pairs = mask - ((mask >> 1) & 0x55555555U);
    uint32_t steps = (pairs & 0x33333333U) + ((pairs >> 2) & 0x33333333U);
    const uint2 own{steps & 0x0f0f0f0fU, (steps >> 4) & 0x0f0f0f0fU};
    uint2 through = own;
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const uint2 lower{__shfl_up_sync(~0U, through.x, offset), __shfl_up_sync(~0U, through.y, offset)};
      if (lane >= offset) through = {through.x + lower.x, through.y + lower.y};
    }
    lower_lanes_ = {through.x - own.x, through.y - own.y};
    all_ = {__shfl_sync(~0U, through.x, kWarp - 1), __shfl_sync(~0U, through.y, kWarp - 1)};
  }

  __device__ uint32_t total() const { return sum(all_.x) + sum(all_.y); }

  __device__ uint32_t in_lower_lanes() const { return sum(lower_lanes_.x) + sum(lower_lanes_.y); }
  __device__ uint32_t of(int bit) const {
    const int step = bit / 4;
    const int byte = 8 * (step / 2);
    const uint32_t lower_bytes = (1U << byte) - 1;
    const bool odd = step % 2 != 0;
    const uint32_t lower_steps = sum(all_.x & (odd ? lower_bytes | 0xffU << byte : lower_bytes)) + sum(all_.y & lower_bytes);
    const uint32_t lower_lanes = ((odd ? lower_lanes_.y : lower_lanes_.x) >> byte) & 0xffU;
    return lower_steps + lower_lanes + __popc(mask_ & ((1U << bit) - 1) & 0xfU << 4 * step);
  }

 private:
  static __device__ uint32_t sum(uint32_t bytes) { return __dp4a(bytes, 0x01010101U, 0U); }

  uint32_t mask_;
  uint2 lower_lanes_;
  uint2 all_;
};

template <class Use>
__device__ void for_each_bit(uint32_t mask, const Use& use) {
#pragma unroll 1
  for (; mask != 0; mask &= mask - 1) use(__ffs(mask) - 1);
}

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

/// A row's scores in registers, as keys, or raw (`kRaw`) where most are never needed as keys. Rows longer than registers hold are
/// read again on every visit.
template <int kKeys, bool kRaw>
class Row {
 public:
  static constexpr int kSteps = kKeys / 4;

  __device__ Row(const float* scores, int length, bool aligned, int warps, int warp, int lane)
      : scores_(scores), length_(length), aligned_(aligned) {
    steps_ = (length + kStep * warps - 1) / (kStep * warps);
    first_ = warp * steps_ * kStep + 4 * lane;
    load(0);
  }

  /// Waits for the loads that the constructor issued. Must precede the first visit.
  __device__ void finish_load() { finish(0); }

  __device__ int steps() const { return steps_; }
  __device__ int index_of(int step) const { return first_ + step * kStep; }
  /// Makes the registers hold the tile that begins at step `done`.
  __device__ void hold(int done) {
    if (steps_ <= kSteps) return;
    load(done);
    finish(done);
  }
  /// Calls use(step of the tile, what registers hold of it) for the tile that begins at step `done`.
  template <class Use>
  __device__ void visit_tile(int done, const Use& use) const {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (done + i < steps_) use(i, held_[i]);
    }
  }
  /// The same, with keys.
  template <class Use>
  __device__ void visit_tile_keys(int done, const Use& use) const {
    visit_tile(done, [&](int i, const uint4& four) { use(i, kRaw ? keys_of(four, index_of(done + i)) : four); });
  }

  template <class Use>
  __device__ void visit(const Use& use) {
#pragma unroll 1
    for (int done = 0; done < steps_; done += kSteps) {
      hold(done);
      visit_tile_keys(done, [&](int i, const uint4& keys) { use(keys, index_of(done + i)); });
    }
  }

  __device__ uint32_t reaching(uint32_t first) {
    uint32_t count = 0;
    if (!kRaw || first <= kNanKey) {
      visit([&](const uint4& keys, int) { count += number_of(keys, [&](uint32_t key) { return key >= first; }); });
      return count;
    }
    const float score = score_of(first);
#pragma unroll 1
    for (int done = 0; done < steps_; done += kSteps) {
      hold(done);
      visit_tile(done, [&](int, const uint4& four) {
        count_reaching(count, four.x, score);
        count_reaching(count, four.y, score);
        count_reaching(count, four.z, score);
        count_reaching(count, four.w, score);
      });
    }
    return count;
  }

 private:
  /// Only issues the loads; volatile keeps them here, ahead of the guess.
  __device__ void load(int done) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int index = index_of(done + i);
      uint4& four = held_[i];
      four = {kNan, kNan, kNan, kNan};
      if (done + i >= steps_) continue;
      if (aligned_) {
        if (index < length_) {
          asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
                       : "l"(scores_ + index));
        }
      } else {
        if (index < length_) four.x = __float_as_uint(scores_[index]);
        if (index + 1 < length_) four.y = __float_as_uint(scores_[index + 1]);
        if (index + 2 < length_) four.z = __float_as_uint(scores_[index + 2]);
        if (index + 3 < length_) four.w = __float_as_uint(scores_[index + 3]);
      }
    }
  }

  /// Past the end of the row there are to be no keys, or NaN, which reaches nothing.
  __device__ void finish(int done) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int index = index_of(done + i);
      if constexpr (kRaw) {
        if (index + 4 <= length_) continue;
        if (index + 1 >= length_) held_[i].y = kNan;
        if (index + 2 >= length_) held_[i].z = kNan;
        if (index + 3 >= length_) held_[i].w = kNan;
      } else {
        held_[i] = done + i < steps_ ? keys_of(held_[i], index) : uint4{kNoKey, kNoKey, kNoKey, kNoKey};
      }
    }
  }

  __device__ uint4 keys_of(const uint4& scores, int index) const {
    const int left = length_ - index;
    return {left > 0 ? order_key(scores.x) : kNoKey, left > 1 ? order_key(scores.y) : kNoKey,
            left > 2 ? order_key(scores.z) : kNoKey, left > 3 ? order_key(scores.w) : kNoKey};
  }

  static constexpr uint32_t kNan = 0x7fffffffU;

  const float* scores_;
  int length_;
  bool aligned_;
  int steps_;  // of this warp
  int first_;  // index of this lane's first score
  uint4 held_[kSteps];
};

/// Like Team::place, for raw rows of many steps: outcomes become masks first, so that what follows is one small loop. If `taken`
/// is not null, it has the scores taken when sink(place, index, place in `taken`) is called.
template <class Scores, class Sink>
__device__ void place_by_masks(const Cut& cut, const Counts& counts, Scores& row, uint32_t* taken, const Sink& sink) {
  static_assert(Scores::kSteps <= kMaskSteps);
  const float first = score_of(cut.first);
  const bool by_score = cut.ties == 0 && cut.first > kNanKey;
  const uint32_t most = cut.ties;
  uint32_t ties_before = counts.before.y;
  uint32_t place = counts.before.x + min(ties_before, most);
  uint32_t slot = counts.in_block;
#pragma unroll 1
  for (int begin = 0; begin < row.steps(); begin += Scores::kSteps) {
    row.hold(begin);
    uint32_t mask = 0;
    if (by_score) {
      row.visit_tile(begin, [&](int i, const uint4& four) {
        mark_reaching(mask, 1U << 4 * i, four.x, first);
        mark_reaching(mask, 2U << 4 * i, four.y, first);
        mark_reaching(mask, 4U << 4 * i, four.z, first);
        mark_reaching(mask, 8U << 4 * i, four.w, first);
      });
    } else {
      uint32_t tied = 0;
      row.visit_tile_keys(begin, [&](int i, const uint4& keys) {
        mask |= bits_of(keys, [&](uint32_t key) { return key >= cut.first; }) << 4 * i;
        tied |= bits_of(keys, [&](uint32_t key) { return most > 0 && key == cut.first - 1; }) << 4 * i;
      });
      const Ranks ranks(tied);
      for_each_bit(tied, [&](int bit) { mask |= static_cast<uint32_t>(ties_before + ranks.of(bit) < most) << bit; });
      ties_before += ranks.total();
    }
    if (!__any_sync(~0U, mask != 0)) continue;
    const Ranks ranks(mask);
    uint32_t mine = slot + ranks.in_lower_lanes();
    if (taken != nullptr) {
      auto next = static_cast<uint32_t>(__cvta_generic_to_shared(taken + mine));
      row.visit_tile(begin, [&](int i, const uint4& four) {
        append_marked(next, mask, 1U << 4 * i, four.x);
        append_marked(next, mask, 2U << 4 * i, four.y);
        append_marked(next, mask, 4U << 4 * i, four.z);
        append_marked(next, mask, 8U << 4 * i, four.w);
      });
    }
    for_each_bit(mask, [&](int bit) { sink(place + ranks.of(bit), row.index_of(begin + bit / 4) + bit % 4, mine++); });
    place += ranks.total();
    slot += ranks.total();
  }
}

struct Arguments {
  TopK rows;
  TopKMethod method;
  bool aligned;  // every row begins at 16 bytes
};

/// A key of which about `rank` of the keys that the threads of the block hold, one each (or kNoKey), are at least as high.
template <int kThreads>
__device__ uint32_t key_of_rank(Team<kThreads>& team, uint32_t key, int held, int rank) {
  constexpr int kPasses = 2;
  const auto visit = [&](const auto& use) { use(uint4{key, kNoKey, kNoKey, kNoKey}, 0); };
  Bracket bracket{.reaching_begin = held};
  for (int pass = 0; pass < kPasses && bracket.reaching_begin > rank + rank / 2; ++pass) {
    team.template narrow<false>(bracket, rank, visit);
  }
  // A key that occurs, as it may be that of a plateau.
  return ~team.block_max(key >= bracket.begin ? ~key : 0);
}

/// Ranks, among the keys that the threads hold for guesses, to probe at in the hope that the k-th best key is just above.
struct Guess {
  int rank = 0;  // 0: none left
  int held = 0;
};

/// In an even sample of the row: the lowest rank that is all but sure to reach the k-th best.
__device__ Guess guess_in_sample(int sampled, int k, int length) {
  const float expected = static_cast<float>(sampled) * k / length;
  const float rank = ceilf(expected + 3 * sqrtf(expected) + 2);
  if (rank * length > 0.5F * sampled * kCandidates) return {};  // too many would reach it
  return {static_cast<int>(rank), sampled};
}

/// Among hints: half are expected to be as good as ever.
__device__ Guess guess_in_hints(int held, int threads) { return {held < threads / 8 ? 0 : held / 2 + held / 64, held}; }

/// The next guess after `reached` keys reached the last: the secant method of GVR, section 4.2.2, on ranks among the hints.
__device__ Guess next_guess(Guess last, int k, int reached) {
  if (reached >= k) return {last.rank * 3 / 4, last.held};
  const float wanted = static_cast<float>(last.rank) * k / max(reached, 1) + last.held / 32 + 1;
  return {last.rank == last.held ? 0 : static_cast<int>(fminf(wanted, last.held)), last.held};
}

__device__ bool is_exact(const Bracket& bracket, int k) {
  return bracket.reaching_begin == k || bracket.end - bracket.begin == 1;
}

__device__ Cut exact_cut(const Bracket& bracket, int k) {
  if (bracket.reaching_begin == k) return {bracket.begin, 0};
  return {bracket.end, k - bracket.reaching_end};
}

/// The first block of a cluster selects from the candidates that all have left with it: `bracket.reaching_begin` of them.
template <int kThreads>
__device__ void select_candidates(Team<kThreads>& team, const Candidates& candidates, Bracket bracket, int k, int32_t* selected) {
  const int held = bracket.reaching_begin;
  const int steps = (held + kStep * team.kWarps - 1) / (kStep * team.kWarps);
  const auto visit = [&](const auto& use) {
    for (int i = 0; i < steps; ++i) {
      const int place = (team.warp * steps + i) * kStep + 4 * team.lane;
      if (place - 4 * team.lane >= held) return;
      uint4 keys = *reinterpret_cast<const uint4*>(&candidates.keys[min(place, kCandidates - 4)]);
      if (place >= held) keys.x = kNoKey;
      if (place + 1 >= held) keys.y = kNoKey;
      if (place + 2 >= held) keys.z = kNoKey;
      if (place + 3 >= held) keys.w = kNoKey;
      use(keys, place);
    }
  };
  uint32_t highest = 0;
  visit([&](const uint4& keys, int) { highest = max(highest, max(max(keys.x, keys.y), max(keys.z, keys.w))); });
  if (bracket.end > bracket.begin + 1) bracket.end = min(bracket.end, team.block_max(highest) + 1);
  while (!is_exact(bracket, k)) team.template narrow<false>(bracket, k, visit);
  const Cut cut = exact_cut(bracket, k);
  const auto reaching = [&](uint32_t first) {
    uint32_t count = 0;
    visit([&](const uint4& keys, int) { count += number_of(keys, [&](uint32_t key) { return key >= first; }); });
    return count;
  };
  team.place(cut, team.template count<false>(cut, visit, reaching).before, visit,
             [&](int at, uint32_t, int place) { selected[at] = candidates.indices[place]; });
}

/// Index of the score that this thread contributes to the guess, or -1.
__device__ int guess_index(const Arguments& arguments, TopKMethod method, int row, int length, int threads) {
  const TopK& rows = arguments.rows;
  const int64_t thread = threadIdx.x;
  int index = -1;
  if (method == TopKMethod::kSample) index = static_cast<int>(thread * length / threads);
  if (method == TopKMethod::kGuessVerifyRefine) {
    const int64_t place = rows.hint_count > threads ? thread * rows.hint_count / threads : thread;
    if (place < rows.hint_count) index = rows.hints[row * rows.hint_stride + place];
  }
  return index < length ? index : -1;
}

template <int kThreads, int kKeys, bool kClustered>
__global__ __launch_bounds__(kThreads, 1) void select_rows(const __grid_constant__ Arguments arguments) {
  __shared__ Shared<kThreads> shared;
  extern __shared__ Candidates candidates[];  // one, where blocks are clustered

  const TopK& rows = arguments.rows;
  int blocks = 1;
  int block = 0;
  if constexpr (kClustered) {
    blocks = static_cast<int>(cg::this_cluster().num_blocks());
    block = static_cast<int>(cg::this_cluster().block_rank());
  }
  const int row = blockIdx.x / blocks;
  const int length = min(max(rows.lengths != nullptr ? rows.lengths[row] : rows.max_length, 0), rows.max_length);
  const int budget = min(rows.budgets != nullptr ? rows.budgets[row] : rows.max_budget, rows.max_budget);
  const int k = min(max(budget, 0), length);
  int32_t* selected = rows.selected + row * rows.selected_stride;
  if (rows.counts != nullptr && block == 0 && threadIdx.x == 0) rows.counts[row] = k;
  if (k == length || k == 0) {
    for (int i = block * kThreads + threadIdx.x; i < k; i += blocks * kThreads) selected[i] = i;
    return;
  }

  const float* scores = rows.scores + row * rows.stride;
  Team<kThreads> team(shared, blocks, block);
  const TopKMethod method = length > kCandidates ? arguments.method : TopKMethod::kRadix;
  int index = -1;
  float guess_score = 0;
  if constexpr (kClustered) {
    // Every block gathers the same scores for the guess, so that all agree without a word.
    index = guess_index(arguments, method, row, length, kThreads);
    if (index >= 0) guess_score = scores[index];
  }
  Row<kKeys, kClustered> row_scores(scores, length, arguments.aligned, blocks * team.kWarps, block * team.kWarps + team.warp,
                                    team.lane);
  const auto visit = [&](const auto& use) { row_scores.visit(use); };
  const auto reaching = [&](uint32_t first) { return row_scores.reaching(first); };
  Guess guess;
  uint32_t guess_key = kNoKey;
  if constexpr (kClustered) {
    if (index >= 0) guess_key = order_key(__float_as_uint(guess_score));
    if (method == TopKMethod::kSample) guess = guess_in_sample(kThreads, k, length);
    if (method == TopKMethod::kGuessVerifyRefine) guess = guess_in_hints(__syncthreads_count(guess_key != kNoKey), kThreads);
    cg::this_cluster().sync();  // all blocks run, and their histograms are clear
  } else {
    __syncthreads();
  }

  bool loading = true;
  Bracket bracket{.reaching_begin = length};
  Cut cut;
  Counts counts;
  bool exact = false;
  uint32_t probed = kNoKey;
  for (int probes = 0;;) {
    exact = is_exact(bracket, k);
    const bool done = exact || (kClustered && bracket.reaching_begin <= kCandidates);
    Cut next = exact ? exact_cut(bracket, k) : Cut{bracket.begin, 0};
    if (done && cut.first == next.first && next.ties == 0) break;
    if (!done) {
      if constexpr (kClustered) {
        constexpr int kProbes = 4;
        next.first = kNoKey;
        // Too many reach a probe: if that is a plateau, it may be the threshold, or enough keys may lie above it.
        const bool on_plateau = probed != kNoKey && probed == bracket.begin;
        if (probes < kProbes && on_plateau) {
          next.first = probed + 1;
        } else if (probes < kProbes && guess.rank > 0) {
          next.first = probed = key_of_rank(team, guess_key, guess.held, guess.rank);
        }
        ++probes;
        if (on_plateau) probed = kNoKey;
      }
    }
    if (loading) row_scores.finish_load();
    loading = false;
    if (!done && (!kClustered || next.first <= bracket.begin || next.first >= bracket.end)) {
      guess.rank = 0;
      team.template narrow<kClustered>(bracket, k, visit);
      continue;
    }
    cut = next;
    counts = team.template count<kClustered>(cut, visit, reaching);
    if (done) break;
    const int reached = static_cast<int>(counts.all.x);
    (reached >= k ? bracket.begin : bracket.end) = cut.first;
    (reached >= k ? bracket.reaching_begin : bracket.reaching_end) = reached;
    guess = method == TopKMethod::kGuessVerifyRefine ? next_guess(guess, k, reached) : Guess{};
  }

  if constexpr (!kClustered) {
    team.place(cut, counts.before, visit, [&](int at, uint32_t, int index) { selected[at] = index; });
  } else {
    Candidates* collected = exact ? nullptr : cg::this_cluster().map_shared_rank(&candidates[0], 0);
    uint32_t* own_scores = exact ? nullptr : candidates[0].own_scores;
    place_by_masks(cut, counts, row_scores, own_scores, [&](uint32_t at, int index, uint32_t slot) {
      if (collected == nullptr) {
        selected[at] = index;
      } else {
        collected->keys[at] = order_key(own_scores[slot]);
        collected->indices[at] = index;
      }
    });
    if (exact) return;
    cg::this_cluster().sync();
    if (block == 0) select_candidates(team, candidates[0], bracket, k, selected);
  }
}

struct Kernel {
  int threads;
  int keys;
  bool clustered;
  void (*function)(Arguments);
};

template <int kThreads, int kKeys, bool kClustered>
constexpr Kernel kernel() {
  return {kThreads, kKeys, kClustered, select_rows<kThreads, kKeys, kClustered>};
}

constexpr Kernel kKernels[] = {
    kernel<128, 8, false>(), kernel<512, 4, false>(),  kernel<512, 8, false>(),  kernel<1024, 8, false>(),
    kernel<1024, 8, true>(), kernel<1024, 16, true>(), kernel<1024, 32, true>(),
};

const Kernel& kernel_of(const TopKPlan& plan, int max_length) {
  const bool clustered = plan.cluster > 1 || plan.threads * plan.keys < max_length || plan.method != TopKMethod::kRadix;
  for (const Kernel& kernel : kKernels) {
    if (kernel.threads == plan.threads && kernel.keys == plan.keys && kernel.clustered == clustered) return kernel;
  }
  throw InternalError("top-k: no kernel of " + std::to_string(plan.threads) + " threads of " + std::to_string(plan.keys) +
                      " keys for rows of " + std::to_string(max_length));
}

}  // namespace

// Chosen from times on an H200.
TopKPlan plan_top_k(int rows, int max_length, int max_budget, bool hinted) {
  constexpr auto kRadix = TopKMethod::kRadix;
  if (max_length <= 1024) return {kRadix, 128, 8, 1};
  if (max_length <= 2048) return {kRadix, 512, 4, 1};
  if (max_length <= 4096) return {kRadix, 512, 8, 1};
  if (max_length <= 8192) return {kRadix, 1024, 8, 1};
  // As many blocks a row as the device has room for, as long as each has work.
  constexpr int kThreads = 1024;
  constexpr int kFewKeys = 8;
  constexpr int kMostKeys = 32;
  constexpr int kMostBlocks = 8;  // a cluster of any device
  const int room = multiprocessors();
  TopKPlan plan{TopKMethod::kSample, kThreads, kFewKeys, 1};
  while (plan.cluster < kMostBlocks && 2 * plan.cluster * rows <= room && plan.cluster * kThreads * kFewKeys < max_length)
    plan.cluster *= 2;
  while (plan.keys < kMostKeys && plan.cluster * kThreads * plan.keys < max_length) plan.keys *= 2;
  // Hints spare a pass over the sample, but the longer the row, the more of it lies above a wrong hint.
  if (hinted && plan.cluster == kMostBlocks && max_length / 32 <= max_budget) plan.method = TopKMethod::kGuessVerifyRefine;
  return plan;
}

void select_top_k(const TopK& rows, const TopKPlan& plan, Stream stream) {
  if (rows.rows <= 0 || rows.max_budget <= 0) return;
  const Kernel& kernel = kernel_of(plan, rows.max_length);
  constexpr int kAlignment = 4;
  const bool aligned = rows.stride % kAlignment == 0 && reinterpret_cast<uintptr_t>(rows.scores) % sizeof(float4) == 0;
  const Arguments arguments{rows, plan.method, aligned};
  cudaLaunchConfig_t config{};
  config.gridDim = rows.rows * plan.cluster;
  config.blockDim = plan.threads;
  config.stream = stream;
  cudaLaunchAttribute cluster{};
  if (kernel.clustered) {
    config.dynamicSmemBytes = sizeof(Candidates);
    SLUICE_CHECK_CUDA(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Candidates)));
    SLUICE_CHECK_CUDA(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = plan.cluster;
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
  SLUICE_CHECK_CUDA(cudaLaunchKernelEx(&config, kernel.function, arguments));
}

}  // namespace sluice::cuda
