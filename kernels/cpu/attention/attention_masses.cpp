#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_masses.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention/tiles-inl.h"

// Of a prompt, scores are [query][token], so that a row's weights are added to the sums of all tokens of a block at once, and
// rows one after the other.

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

static_assert(kMassTokens == kColumns);
constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504088896341F;

void weigh_tokens_any(std::span<float> logits, std::span<const float> log_sums) {
  const size_t group = log_sums.size();
  // Whichever head a vector begins with, those of its lanes stand one behind the other.
  std::array<float, kMostHeads + kWidestFloats> shifts{};
  for (size_t i = 0; i < shifts.size(); ++i) shifts[i] = log_sums[i % group];
  const VecF32 none = hn::Set(kF32, kNone);
  const auto weight = [&](VecF32 logit, VecF32 shift) {
    return hn::IfThenZeroElse(hn::Eq(logit, none), exp2(hn::Sub(logit, shift)));
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    const VecF32 shift = hn::LoadU(kF32, shifts.data() + i % group);
    hn::StoreU(weight(hn::LoadU(kF32, logits.data() + i), shift), kF32, logits.data() + i);
  }
  HWY_ALIGN std::array<float, kLanes> rest{};
  const size_t left = logits.size() - i;
  std::copy_n(logits.data() + i, left, rest.begin());
  const VecF32 shift = hn::LoadU(kF32, shifts.data() + i % group);
  hn::StoreU(weight(hn::LoadU(kF32, rest.data()), shift), kF32, rest.data());
  std::copy_n(rest.begin(), left, logits.data() + i);
}

/// What `add_masses` needs.
struct MassScratch {
  float* queries;  // [kColumns][dim] scaled
  float* keys;     // [dim][kColumns] of a block of tokens
  float* rows;     // [kColumns][dim] the same, token by token
  float* scores;   // [kColumns][kColumns] by query and token

  MassScratch(float* memory, int dim) {
    queries = memory;
    keys = queries + static_cast<ptrdiff_t>(kColumns) * dim;
    rows = keys + static_cast<ptrdiff_t>(kColumns) * dim;
    scores = rows + static_cast<ptrdiff_t>(kColumns) * dim;
  }
};

/// -inf for those of `tokens` tokens from `first` on that a row does not see.
void hide_unseen(const PrefillTile& rows, int row, int first, int tokens, float* scores) {
  if (rows.masks == nullptr) {
    for (int t = std::max(0, rows.slots[row] + 1 - first); t < tokens; ++t) scores[t] = kNone;
    return;
  }
  const uint32_t* words = rows.masks + static_cast<ptrdiff_t>(row) * rows.mask_stride + first / 32;
  for (int t = 0; t < tokens; ++t) {
    if ((words[t / 32] >> (t % 32) & 1U) == 0) scores[t] = kNone;
  }
}

/// The first row that may see a token at `first` or behind it.
int first_row_at(const PrefillTile& rows, int first) {
  if (rows.masks != nullptr) return 0;
  return static_cast<int>(std::lower_bound(rows.slots, rows.slots + rows.rows, first) - rows.slots);
}

void add_masses_any(const KvPages& kv, const int32_t* pages, const PrefillTile& rows, int first, int tokens, int group,
                    float scale, float* memory, float* masses) {
  const int dim = kv.dim;
  const MassScratch at(memory, dim);
  widen_rows(kv, pages + first / kv.page, true, tokens, kColumns, at.rows);
  for (int t = 0; t < kColumns; ++t) {
    for (int d = 0; d < dim; ++d) at.keys[d * kColumns + t] = at.rows[t * dim + d];
  }
  HWY_ALIGN std::array<float, static_cast<size_t>(kMostHeads) * kColumns> sums;  // [group][kColumns]
  for (int t = 0; t < kColumns; ++t) {
    for (int h = 0; h < group; ++h)
      sums[static_cast<size_t>(h) * kColumns + static_cast<size_t>(t)] = t < tokens ? masses[t * group + h] : 0;
  }
  const int together = kColumns / group;
  for (int row = first_row_at(rows, first); row < rows.rows; row += together) {
    const int count = std::min(together, rows.rows - row);
    const int queries = (count * group + kRegisterRows - 1) / kRegisterRows * kRegisterRows;
    std::fill(at.queries + static_cast<ptrdiff_t>(count) * group * dim, at.queries + static_cast<ptrdiff_t>(queries) * dim, 0.0F);
    for (int r = 0; r < count; ++r) {
      const float* from = rows.queries + (row + r) * rows.query_stride;
      for (int i = 0; i < group * dim; ++i) at.queries[r * group * dim + i] = from[i] * (scale * kLog2E);
    }
    outer_products(at.queries, dim, 1, at.keys, queries, dim, nullptr, at.scores);
    for (int q = 0; q < count * group; ++q) {
      float* scores = at.scores + static_cast<ptrdiff_t>(q) * kColumns;
      float* sum = sums.data() + static_cast<ptrdiff_t>(q % group) * kColumns;
      hide_unseen(rows, row + q / group, first, tokens, scores);
      const VecF32 shift = hn::Set(kF32, rows.log_sums[row * group + q]);
      const VecF32 none = hn::Set(kF32, kNone);
      for (int t = 0; t < kColumns; t += static_cast<int>(kLanes)) {
        const VecF32 score = hn::Load(kF32, scores + t);
        const VecF32 weight = hn::IfThenZeroElse(hn::Eq(score, none), exp2(hn::Sub(score, shift)));
        hn::Store(hn::Add(hn::Load(kF32, sum + t), weight), kF32, sum + t);
      }
    }
  }
  for (int t = 0; t < tokens; ++t) {
    for (int h = 0; h < group; ++h) masses[t * group + h] = sums[static_cast<size_t>(h) * kColumns + static_cast<size_t>(t)];
  }
}

}  // namespace
}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(weigh_tokens_any);
HWY_EXPORT(add_masses_any);

size_t mass_scratch_floats(int dim) { return static_cast<size_t>(kMassTokens) * static_cast<size_t>(3 * dim + kMassTokens); }

void weigh_tokens(std::span<float> logits, std::span<const float> log_sums) {
  HWY_DYNAMIC_DISPATCH(weigh_tokens_any)(logits, log_sums);
}

void add_masses(const KvPages& kv, const int32_t* pages, const PrefillTile& rows, int first, int tokens, int group, float scale,
                float* scratch, float* masses) {
  HWY_DYNAMIC_DISPATCH(add_masses_any)(kv, pages, rows, first, tokens, group, scale, scratch, masses);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
