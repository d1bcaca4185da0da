#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_tokens.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd/bfloat16.h"
#include "kernels/cpu/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

constexpr size_t kTogether = 256;  // tokens of one step of the online softmax
constexpr size_t kWidest = 16;     // floats of the widest vectors
constexpr float kNone = -std::numeric_limits<float>::infinity();

/// What one row needs; rows of channels are padded with zeros to whole vectors.
struct TokenScratch {
  size_t padded;
  float* queries;  // [group][padded]
  float* output;   // [group][padded]
  float* row;      // [padded] K or V of a token
  float* scores;   // [group][kTogether]

  TokenScratch(float* memory, int group, int dim) {
    padded = (static_cast<size_t>(dim) + kWidest - 1) / kWidest * kWidest;
    queries = memory;
    output = queries + static_cast<size_t>(group) * padded;
    row = output + static_cast<size_t>(group) * padded;
    scores = row + padded;
  }
};

void widen_token(const KvPages& kv, const int32_t* pages, bool keys, int slot, float* row) {
  const int32_t page = pages[slot / kv.page];
  const std::byte* block = keys ? kv.keys(page) : kv.values(page);
  const int64_t at = static_cast<int64_t>(slot % kv.page) * kv.dim;
  if (kv.type == DataType::kBF16) {
    const auto* narrow = reinterpret_cast<const uint16_t*>(block) + at;
    for (int i = 0; i < kv.dim; ++i) row[i] = widen(narrow[i]);
  } else {
    std::copy_n(reinterpret_cast<const float*>(block) + at, kv.dim, row);
  }
}

/// Scores [tokens] of one head become powers of 2; what the output counted so far is to be multiplied by the result.
float soften_head(float* scores, size_t tokens, float& maximum, float& sum) {
  std::fill(scores + tokens, scores + (tokens + kLanes - 1) / kLanes * kLanes, kNone);
  const float before = maximum;
  maximum = std::max(before, *std::max_element(scores, scores + tokens));
  const float rescale = before == kNone ? 0.0F : std::exp2(before - maximum);
  const VecF32 shift = hn::Set(kF32, maximum);
  for (size_t t = 0; t < tokens; t += kLanes) hn::StoreU(exp2(hn::Sub(hn::LoadU(kF32, scores + t), shift)), kF32, scores + t);
  sum *= rescale;
  for (size_t t = 0; t < tokens; ++t) sum += scores[t];
  return rescale;
}

void attend_tokens_any(const KvPages& kv, const int32_t* pages, std::span<const int32_t> slots, const float* query, int group,
                       float scale, float* memory, const Partial& result) {
  const TokenScratch at(memory, group, kv.dim);
  const auto heads = static_cast<size_t>(group);
  const auto dim = static_cast<size_t>(kv.dim);
  std::fill(at.queries, at.scores, 0.0F);
  const float factor = scale * 1.44269504088896341F;
  for (size_t h = 0; h < heads; ++h) {
    for (size_t i = 0; i < dim; ++i) at.queries[h * at.padded + i] = query[h * dim + i] * factor;
    result.maximum[h] = kNone;
    result.sum[h] = 0;
  }
  for (; !slots.empty(); slots = slots.subspan(std::min(slots.size(), kTogether))) {
    const size_t tokens = std::min(slots.size(), kTogether);
    for (size_t t = 0; t < tokens; ++t) {
      widen_token(kv, pages, true, slots[t], at.row);
      for (size_t h = 0; h < heads; ++h) {
        VecF32 sums = hn::Zero(kF32);
        for (size_t i = 0; i < at.padded; i += kLanes) {
          sums = hn::MulAdd(hn::LoadU(kF32, at.queries + h * at.padded + i), hn::LoadU(kF32, at.row + i), sums);
        }
        at.scores[h * kTogether + t] = hn::GetLane(hn::SumOfLanes(kF32, sums));
      }
    }
    for (size_t h = 0; h < heads; ++h) {
      const float rescale = soften_head(at.scores + h * kTogether, tokens, result.maximum[h], result.sum[h]);
      for (size_t i = 0; i < at.padded; ++i) at.output[h * at.padded + i] *= rescale;
    }
    for (size_t t = 0; t < tokens; ++t) {
      widen_token(kv, pages, false, slots[t], at.row);
      for (size_t h = 0; h < heads; ++h) {
        const VecF32 weight = hn::Set(kF32, at.scores[h * kTogether + t]);
        float* const to = at.output + h * at.padded;
        for (size_t i = 0; i < at.padded; i += kLanes) {
          hn::StoreU(hn::MulAdd(weight, hn::LoadU(kF32, at.row + i), hn::LoadU(kF32, to + i)), kF32, to + i);
        }
      }
    }
  }
  for (size_t h = 0; h < heads; ++h) std::copy_n(at.output + h * at.padded, dim, result.output + h * dim);
}

}  // namespace
}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(attend_tokens_any);

size_t token_scratch_floats(int group, int dim) {
  const auto heads = static_cast<size_t>(group);
  const size_t padded = (static_cast<size_t>(dim) + 15) / 16 * 16;
  return (2 * heads + 1) * padded + 256 * heads;
}

void attend_tokens(const KvPages& kv, const int32_t* pages, std::span<const int32_t> slots, const float* query, int group,
                   float scale, float* scratch, const Partial& result) {
  HWY_DYNAMIC_DISPATCH(attend_tokens_any)(kv, pages, slots, query, group, scale, scratch, result);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
