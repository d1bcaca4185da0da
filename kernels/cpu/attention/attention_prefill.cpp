#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_prefill.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention/tiles-inl.h"

// A tile holds kColumns (token, head) queries, one a lane. Scores are kept transposed, [token][query], so that the softmax
// over tokens runs down the lanes without shuffles; K and V of a block are widened once a tile and then only broadcast.

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

/// Turns scores [tokens][kColumns] into 2^(score - maximum) by column; gives what the old output counts now.
void soften_columns(float* scores, int tokens, float* maximum, float* sum, float* rescale) {
  for (int column = 0; column < kColumns; column += static_cast<int>(kLanes)) {
    float* at = scores + column;
    const VecF32 before = hn::Load(kF32, maximum + column);
    VecF32 largest = before;
    for (int t = 0; t < tokens; ++t) largest = hn::Max(hn::Load(kF32, at + t * kColumns), largest);
    hn::Store(largest, kF32, maximum + column);
    const auto unchanged = hn::Eq(before, largest);  // also -inf before and after
    const VecF32 factor = hn::IfThenElse(unchanged, hn::Set(kF32, 1.0f), exp2(hn::Sub(before, largest)));
    hn::Store(factor, kF32, rescale + column);
    const VecF32 none = hn::Set(kF32, -std::numeric_limits<float>::infinity());
    const VecF32 shift = hn::IfThenZeroElse(hn::Eq(largest, none), largest);
    VecF32 total = hn::Zero(kF32);
    for (int t = 0; t < tokens; ++t) {
      const VecF32 score = hn::Load(kF32, at + t * kColumns);
      // Exactly 0 where the token is not seen: exp2 gives 2^-126, and a row must not depend on tokens after it.
      const VecF32 power = hn::IfThenZeroElse(hn::Eq(score, none), exp2(hn::Sub(score, shift)));
      hn::Store(power, kF32, at + t * kColumns);
      total = hn::Add(total, power);
    }
    hn::Store(hn::MulAdd(hn::Load(kF32, sum + column), factor, total), kF32, sum + column);
  }
}

/// -inf where a row does not see one of the tokens from `first` on.
void hide_unseen(const PrefillTile& tile, int group, int first, int tokens, float* scores) {
  const auto hide = [&](int row, int t) {
    std::fill_n(scores + t * kColumns + row * group, group, -std::numeric_limits<float>::infinity());
  };
  for (int row = 0; row < tile.rows; ++row) {
    if (tile.masks == nullptr) {
      for (int t = std::max(0, tile.slots[row] + 1 - first); t < tokens; ++t) hide(row, t);
      continue;
    }
    const uint32_t* words = tile.masks + static_cast<ptrdiff_t>(row) * tile.mask_stride + first / 32;
    for (int t = 0; t < tokens; t += 32) {
      const int count = std::min(32, tokens - t);
      // Rows see most words whole.
      for (uint32_t unseen = ~words[t / 32] & ~uint32_t{0} >> (32 - count); unseen != 0; unseen &= unseen - 1) {
        hide(row, t + std::countr_zero(unseen));
      }
    }
  }
}

void attend_tile_any(const KvPages& kv, const int32_t* pages, const PrefillTile& tile, int group, float scale, float* scratch) {
  const int dim = kv.dim;
  float* queries = scratch;  // [dim][kColumns]
  float* output = queries + dim * kColumns;
  float* scores = output + dim * kColumns;    // [kBlock][kColumns]
  float* block = scores + kBlock * kColumns;  // [kBlock][dim]
  float* maximum = block + kBlock * dim;      // [kColumns] each
  float* sum = maximum + kColumns;
  float* rescale = sum + kColumns;

  const float factor = scale * 1.44269504088896341f;
  std::fill(queries, scores, 0.0f);
  for (int r = 0; r < tile.rows; ++r) {
    for (int h = 0; h < group; ++h) {
      const float* from = tile.queries + r * tile.query_stride + h * dim;
      for (int d = 0; d < dim; ++d) queries[d * kColumns + r * group + h] = from[d] * factor;
    }
  }
  std::fill(maximum, maximum + kColumns, -std::numeric_limits<float>::infinity());
  std::fill(sum, sum + kColumns, 0.0f);

  const int length = tile.length;
  // Under masks blocks begin and end where some row sees something, by whole words and pages.
  const int step = std::max(32, kv.page);
  const bool trims = tile.masks != nullptr && step % kv.page == 0 && kBlock % step == 0;
  for (int first = 0, next = 0; first < length; first = next) {
    while (trims && first < length && !tile.sees_any(first, std::min(step, length - first))) first += step;
    if (first >= length) break;
    int tokens = std::min(kBlock, length - first);
    next = first + tokens;
    if (!trims && !tile.sees_any(first, tokens)) continue;
    const auto last_step = [&] { return (tokens - 1) / step * step; };
    while (trims && tokens > step && !tile.sees_any(first + last_step(), tokens - last_step())) tokens = last_step();
    const int padded = (tokens + kRegisterRows - 1) / kRegisterRows * kRegisterRows;
    const int32_t* block_pages = pages + first / kv.page;
    widen_rows(kv, block_pages, true, tokens, padded, block);
    outer_products(block, dim, 1, queries, padded, dim, nullptr, scores);
    hide_unseen(tile, group, first, tokens, scores);
    soften_columns(scores, tokens, maximum, sum, rescale);
    widen_rows(kv, block_pages, false, tokens, tokens, block);
    outer_products(block, 1, dim, scores, dim, tokens, rescale, output);
  }

  for (int r = 0; r < tile.rows; ++r) {
    for (int h = 0; h < group; ++h) {
      const int column = r * group + h;
      const float inverse = tile.masks != nullptr && sum[column] == 0 ? 0.0f : 1.0f / sum[column];
      if (tile.log_sums != nullptr) tile.log_sums[column] = maximum[column] + std::log2(sum[column]);
      float* to = tile.out + r * tile.out_stride + h * dim;
      for (int d = 0; d < dim; ++d) to[d] = output[d * kColumns + column] * inverse;
    }
  }
}

}  // namespace
}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(attend_tile_any);

int prefill_tile_rows(int group) { return kMostTileColumns / group; }

size_t prefill_scratch_floats(int dim) {
  return static_cast<size_t>(kMostTileColumns) * dim * 2 + kMostTileColumns * 128 + static_cast<size_t>(128) * dim +
         3 * kMostTileColumns;
}

void attend_tile(const KvPages& kv, const int32_t* pages, const PrefillTile& tile, int group, float scale, float* scratch) {
  HWY_DYNAMIC_DISPATCH(attend_tile_any)(kv, pages, tile, group, scale, scratch);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
