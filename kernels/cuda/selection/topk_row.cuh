#pragma once

#include "kernels/cuda/selection/topk_keys.cuh"

/// The scores of a row in the registers of those who select from it.
namespace sluice::cuda::topk {

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

}  // namespace sluice::cuda::topk
