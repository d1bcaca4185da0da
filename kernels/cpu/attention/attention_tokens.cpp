#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/flow/storage.h"
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

constexpr size_t kTogether = kEntriesTogether;
constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504088896341F;

/// What one row needs; rows of channels are padded with zeros to whole vectors.
struct TokenScratch {
  size_t padded;
  float* queries;  // [group][padded]
  float* output;   // [group][padded]
  float* row;      // [padded] K or V of a token
  float* scores;   // [group][kTogether]

  TokenScratch(float* memory, int group, int dim) {
    padded = (static_cast<size_t>(dim) + kWidestFloats - 1) / kWidestFloats * kWidestFloats;
    queries = memory;
    output = queries + static_cast<size_t>(group) * padded;
    row = output + static_cast<size_t>(group) * padded;
    scores = row + padded;
  }
};

void widen_row(DataType type, const std::byte* from, int dim, float* row) {
  if (type == DataType::kF32) {
    std::memcpy(row, from, static_cast<size_t>(dim) * sizeof(float));
  } else if (type == DataType::kBF16) {
    const auto* const narrow = reinterpret_cast<const uint16_t*>(from);
    for (int i = 0; i < dim; ++i) row[i] = widen(narrow[i]);
  } else {
    for (int i = 0; i < dim; ++i) row[i] = flows::float_from_byte(type, static_cast<uint8_t>(from[i]));
  }
}

/// The tokens at some slots of a sequence.
struct Tokens {
  const KvPages& kv;
  const int32_t* pages;
  std::span<const int32_t> slots;

  size_t size() const { return slots.size(); }
  int dim() const { return kv.dim; }
  const std::byte* row(const std::byte* block, size_t i) const {
    return block + static_cast<size_t>(slots[i] % kv.page) * static_cast<size_t>(kv.dim) * size_of(kv.type);
  }
  void key(size_t i, float* to) const { widen_row(kv.type, row(kv.keys(pages[slots[i] / kv.page]), i), kv.dim, to); }
  void value(size_t i, float* to) const { widen_row(kv.type, row(kv.values(pages[slots[i] / kv.page]), i), kv.dim, to); }
  float bias(size_t /*i*/, size_t /*head*/) const { return 0; }
};

/// The entries of some pages.
struct Summaries {
  const SummaryPages& all;
  std::span<const int32_t> pages;
  std::span<const int32_t> positions;

  size_t entries() const { return static_cast<size_t>(all.entries); }
  size_t size() const { return positions.size() * entries(); }
  int dim() const { return all.dim; }
  const std::byte* row(size_t i, size_t offset, DataType type) const {
    const auto page = static_cast<size_t>(pages[static_cast<size_t>(positions[i / entries()])]);
    return all.base + page * all.page_stride + offset + i % entries() * static_cast<size_t>(all.dim) * size_of(type);
  }
  void key(size_t i, float* to) const { widen_row(all.key_type, row(i, all.key_offset, all.key_type), all.dim, to); }
  void value(size_t i, float* to) const { widen_row(all.value_type, row(i, all.value_offset, all.value_type), all.dim, to); }
  float bias(size_t i, size_t head) const {
    if (all.bias == nullptr) return 0;
    const auto heads = static_cast<size_t>(all.bias_heads);
    return all.bias[static_cast<size_t>(positions[i / entries()]) * heads + (heads == 1 ? 0 : head)] * kLog2E;
  }
};

/// Scores [tokens] of one head become powers of 2; what the output counted so far is to be multiplied by the result. A score of
/// -inf weighs nothing.
float soften_head(float* scores, size_t tokens, float& maximum, float& sum) {
  std::fill(scores + tokens, scores + (tokens + kLanes - 1) / kLanes * kLanes, kNone);
  const float before = maximum;
  maximum = std::max(before, *std::max_element(scores, scores + tokens));
  const float rescale = before == kNone ? 0.0F : std::exp2(before - maximum);
  const VecF32 shift = hn::Set(kF32, maximum == kNone ? 0.0F : maximum);
  for (size_t t = 0; t < tokens; t += kLanes) hn::StoreU(exp2(hn::Sub(hn::LoadU(kF32, scores + t), shift)), kF32, scores + t);
  sum *= rescale;
  for (size_t t = 0; t < tokens; ++t) sum += scores[t];
  return rescale;
}

template <class Entries>
void attend_each(const Entries& entries, const float* query, int group, float scale, float* memory, const Partial& result) {
  const TokenScratch at(memory, group, entries.dim());
  const auto heads = static_cast<size_t>(group);
  const auto dim = static_cast<size_t>(entries.dim());
  std::fill(at.queries, at.scores, 0.0F);
  for (size_t h = 0; h < heads; ++h) {
    for (size_t i = 0; i < dim; ++i) at.queries[h * at.padded + i] = query[h * dim + i] * scale * kLog2E;
    result.maximum[h] = kNone;
    result.sum[h] = 0;
  }
  for (size_t first = 0; first < entries.size(); first += kTogether) {
    const size_t count = std::min(entries.size() - first, kTogether);
    for (size_t t = 0; t < count; ++t) {
      entries.key(first + t, at.row);
      for (size_t h = 0; h < heads; ++h) {
        VecF32 sums = hn::Zero(kF32);
        for (size_t i = 0; i < at.padded; i += kLanes) {
          sums = hn::MulAdd(hn::LoadU(kF32, at.queries + h * at.padded + i), hn::LoadU(kF32, at.row + i), sums);
        }
        at.scores[h * kTogether + t] = hn::GetLane(hn::SumOfLanes(kF32, sums)) + entries.bias(first + t, h);
      }
    }
    for (size_t h = 0; h < heads; ++h) {
      const float rescale = soften_head(at.scores + h * kTogether, count, result.maximum[h], result.sum[h]);
      for (size_t i = 0; i < at.padded; ++i) at.output[h * at.padded + i] *= rescale;
    }
    for (size_t t = 0; t < count; ++t) {
      entries.value(first + t, at.row);
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

void attend_tokens_any(const KvPages& kv, const int32_t* pages, std::span<const int32_t> slots, const float* query, int group,
                       float scale, float* memory, const Partial& result) {
  attend_each(Tokens{kv, pages, slots}, query, group, scale, memory, result);
}

void attend_summaries_any(const SummaryPages& summaries, std::span<const int32_t> pages, std::span<const int32_t> positions,
                          const float* query, int group, float scale, float* memory, const Partial& result) {
  attend_each(Summaries{summaries, pages, positions}, query, group, scale, memory, result);
}

}  // namespace
}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(attend_tokens_any);
HWY_EXPORT(attend_summaries_any);

size_t token_scratch_floats(int group, int dim) {
  const auto heads = static_cast<size_t>(group);
  const size_t padded = (static_cast<size_t>(dim) + kWidestFloats - 1) / kWidestFloats * kWidestFloats;
  return (2 * heads + 1) * padded + kEntriesTogether * heads;
}

void attend_tokens(const KvPages& kv, const int32_t* pages, std::span<const int32_t> slots, const float* query, int group,
                   float scale, float* scratch, const Partial& result) {
  HWY_DYNAMIC_DISPATCH(attend_tokens_any)(kv, pages, slots, query, group, scale, scratch, result);
}

void attend_summaries(const SummaryPages& summaries, std::span<const int32_t> pages, std::span<const int32_t> positions,
                      const float* query, int group, float scale, float* scratch, const Partial& result) {
  HWY_DYNAMIC_DISPATCH(attend_summaries_any)(summaries, pages, positions, query, group, scale, scratch, result);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
