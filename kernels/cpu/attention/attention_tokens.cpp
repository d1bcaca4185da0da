#include <hwy/cache_control.h>

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
constexpr size_t kAhead = 16;  // entries: rows lie anywhere in the pool, where hardware does not foresee them
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

void prefetch_row(const std::byte* row, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) hwy::Prefetch(row + at);
}

/// Logits of a source's entries in base 2.
struct EntryLogits {
  const SummaryPages& all;
  float scale;  // of q . k, in base 2

  size_t entries() const { return static_cast<size_t>(all.entries); }
  /// Of the query and the keys of a page's entry `entry`, by head; null: they are yet to be computed.
  const float* products(int32_t position, size_t entry) const {
    if (all.products == nullptr) return nullptr;
    return all.products + (static_cast<size_t>(position) * entries() + entry) * all.group;
  }
  float bias(int32_t position, size_t head) const {
    if (all.bias == nullptr) return 0;
    const auto heads = static_cast<size_t>(all.bias_heads);
    return all.bias[static_cast<size_t>(position) * heads + (heads == 1 ? 0 : head)] * kLog2E;
  }
};

/// Of 2^(score - largest).
float sum_of_powers(const float* scores, size_t count, float largest) {
  const VecF32 shift = hn::Set(kF32, largest);
  VecF32 sums = hn::Zero(kF32);
  size_t t = 0;
  for (; t + kLanes <= count; t += kLanes) sums = hn::Add(sums, exp2(hn::Sub(hn::LoadU(kF32, scores + t), shift)));
  float sum = hn::GetLane(hn::SumOfLanes(kF32, sums));
  for (; t < count; ++t) sum += std::exp2(scores[t] - largest);
  return sum;
}

float product(const float* a, const float* b, size_t padded) {
  VecF32 sums = hn::Zero(kF32);
  for (size_t i = 0; i < padded; i += kLanes) sums = hn::MulAdd(hn::LoadU(kF32, a + i), hn::LoadU(kF32, b + i), sums);
  return hn::GetLane(hn::SumOfLanes(kF32, sums));
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
  const std::byte* key_row(size_t i) const { return row(kv.keys(pages[slots[i] / kv.page]), i); }
  const std::byte* value_row(size_t i) const { return row(kv.values(pages[slots[i] / kv.page]), i); }
  DataType key_type() const { return kv.type; }
  DataType value_type() const { return kv.type; }
  bool score(size_t /*i*/, size_t /*heads*/, float* /*scores*/) const { return false; }
  float bias(size_t /*i*/, size_t /*head*/) const { return 0; }
  void settle(size_t /*first*/, size_t /*count*/, size_t /*heads*/, float* /*scores*/) const {}
};

/// The entries of some pages.
struct Summaries {
  const SummaryPages& all;
  std::span<const int32_t> pages;
  std::span<const int32_t> positions;
  EntryLogits logits;

  size_t size() const { return positions.size() * logits.entries(); }
  int dim() const { return all.dim; }
  int32_t position(size_t i) const { return positions[i / logits.entries()]; }
  const std::byte* row(size_t i, const SummaryPart& part) const {
    const size_t entry = i % logits.entries();
    return part.of_page(pages, position(i)) + entry * static_cast<size_t>(all.dim) * size_of(part.type);
  }
  const std::byte* key_row(size_t i) const { return row(i, all.keys); }
  const std::byte* value_row(size_t i) const { return row(i, all.values); }
  DataType key_type() const { return all.keys.type; }
  DataType value_type() const { return all.values.type; }
  /// Scores of entry i, kTogether apart, if its products are there.
  bool score(size_t i, size_t heads, float* scores) const {
    const float* const products = logits.products(position(i), i % logits.entries());
    if (products == nullptr) return false;
    for (size_t h = 0; h < heads; ++h) scores[h * kTogether] = products[h] * logits.scale + bias(i, h);
    return true;
  }
  float bias(size_t i, size_t head) const { return logits.bias(position(i), head); }
  void settle(size_t /*first*/, size_t /*count*/, size_t /*heads*/, float* /*scores*/) const {}
};

/// The tokens of some pages, those of each of which share the weight of the page's entry.
struct SharedTokens {
  const KvPages& kv;
  const OpenedPages& opened;
  EntryLogits logits;
  const float* queries;  // [heads][padded], scaled
  size_t padded;
  float* entry;  // [padded] room for a key

  size_t page() const { return static_cast<size_t>(kv.page); }
  size_t size() const {
    const bool has_last = opened.positions.back() + 1 == static_cast<int32_t>(opened.pages.size());
    return opened.positions.size() * page() - (has_last ? page() - static_cast<size_t>(opened.last_tokens) : 0);
  }
  int dim() const { return kv.dim; }
  const std::byte* row(const std::byte* block, size_t i) const {
    return block + i % page() * static_cast<size_t>(kv.dim) * size_of(kv.type);
  }
  int32_t block(size_t i) const { return opened.pages[static_cast<size_t>(opened.positions[i / page()])]; }
  const std::byte* key_row(size_t i) const { return row(kv.keys(block(i)), i); }
  const std::byte* value_row(size_t i) const { return row(kv.values(block(i)), i); }
  DataType key_type() const { return kv.type; }
  DataType value_type() const { return kv.type; }
  bool score(size_t /*i*/, size_t /*heads*/, float* /*scores*/) const { return false; }
  float bias(size_t /*i*/, size_t /*head*/) const { return 0; }

  /// Of whole pages: those of tokens [first, first + count).
  void settle(size_t first, size_t count, size_t heads, float* scores) const {
    static_assert(kTogether % 128 == 0);
    for (size_t at = 0; at < count; at += page()) {
      const size_t tokens = std::min(page(), count - at);
      const int32_t position = opened.positions[(first + at) / page()];
      for (size_t h = 0; h < heads; ++h) {
        float* const own = scores + h * kTogether + at;
        const float largest = *std::max_element(own, own + tokens);
        if (largest > kNone) {
          const float shift = logit(position, h) - largest - std::log2(sum_of_powers(own, tokens, largest));
          for (size_t t = 0; t < tokens; ++t) own[t] += shift;
        }
        if (opened.logits == nullptr) continue;
        float* const to = opened.logits + static_cast<size_t>(position) * page() * heads + h;
        for (size_t t = 0; t < tokens; ++t) to[t * heads] = own[t];
      }
    }
  }

 private:
  float logit(int32_t position, size_t head) const {
    if (const float* const products = logits.products(position, 0))
      return products[head] * logits.scale + logits.bias(position, head);
    const SummaryPart& keys = logits.all.keys;
    widen_row(keys.type, keys.of_page(opened.summaries, position), logits.all.dim, entry);
    return product(queries + head * padded, entry, padded) + logits.bias(position, head);
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

void scale_queries(const TokenScratch& at, const float* query, size_t heads, size_t dim, float scale) {
  std::fill(at.queries, at.scores, 0.0F);
  for (size_t h = 0; h < heads; ++h) {
    for (size_t i = 0; i < dim; ++i) at.queries[h * at.padded + i] = query[h * dim + i] * scale;
  }
}

/// `at` has the queries, scaled, and zeros.
template <class Entries>
void attend_each(const Entries& entries, const TokenScratch& at, size_t heads, const Partial& result) {
  const auto dim = static_cast<size_t>(entries.dim());
  for (size_t h = 0; h < heads; ++h) {
    result.maximum[h] = kNone;
    result.sum[h] = 0;
  }
  const size_t key_bytes = dim * size_of(entries.key_type());
  const size_t value_bytes = dim * size_of(entries.value_type());
  for (size_t first = 0; first < entries.size(); first += kTogether) {
    const size_t count = std::min(entries.size() - first, kTogether);
    for (size_t t = 0; t < count; ++t) {
      if (entries.score(first + t, heads, at.scores + t)) continue;
      if (t + kAhead < count) prefetch_row(entries.key_row(first + t + kAhead), key_bytes);
      widen_row(entries.key_type(), entries.key_row(first + t), entries.dim(), at.row);
      for (size_t h = 0; h < heads; ++h) {
        at.scores[h * kTogether + t] = product(at.queries + h * at.padded, at.row, at.padded) + entries.bias(first + t, h);
      }
    }
    entries.settle(first, count, heads, at.scores);
    for (size_t t = 0; t < std::min(count, kAhead); ++t) prefetch_row(entries.value_row(first + t), value_bytes);
    for (size_t h = 0; h < heads; ++h) {
      const float rescale = soften_head(at.scores + h * kTogether, count, result.maximum[h], result.sum[h]);
      for (size_t i = 0; i < at.padded; ++i) at.output[h * at.padded + i] *= rescale;
    }
    for (size_t t = 0; t < count; ++t) {
      if (t + kAhead < count) prefetch_row(entries.value_row(first + t + kAhead), value_bytes);
      widen_row(entries.value_type(), entries.value_row(first + t), entries.dim(), at.row);
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
  const TokenScratch at(memory, group, kv.dim);
  scale_queries(at, query, static_cast<size_t>(group), static_cast<size_t>(kv.dim), scale * kLog2E);
  attend_each(Tokens{kv, pages, slots}, at, static_cast<size_t>(group), result);
}

void attend_summaries_any(const SummaryPages& summaries, std::span<const int32_t> pages, std::span<const int32_t> positions,
                          const float* query, int group, float scale, float* memory, const Partial& result) {
  const TokenScratch at(memory, group, summaries.dim);
  scale_queries(at, query, static_cast<size_t>(group), static_cast<size_t>(summaries.dim), scale * kLog2E);
  const EntryLogits logits{summaries, scale * kLog2E};
  attend_each(Summaries{summaries, pages, positions, logits}, at, static_cast<size_t>(group), result);
}

void attend_opened_any(const KvPages& kv, const SummaryPages& summaries, const OpenedPages& opened, const float* query, int group,
                       float scale, float* memory, const Partial& result) {
  const TokenScratch at(memory, group, kv.dim);
  scale_queries(at, query, static_cast<size_t>(group), static_cast<size_t>(kv.dim), scale * kLog2E);
  const EntryLogits logits{summaries, scale * kLog2E};
  attend_each(SharedTokens{kv, opened, logits, at.queries, at.padded, at.row}, at, static_cast<size_t>(group), result);
}

void weigh_groups_any(const SummaryPages& summaries, std::span<const int32_t> pages, std::span<const GroupKind> kinds,
                      int group_pages, const float* query, int group, float scale, float* memory, float* logits) {
  const TokenScratch at(memory, group, summaries.dim);
  const auto heads = static_cast<size_t>(group);
  const auto together = static_cast<size_t>(group_pages);
  scale_queries(at, query, heads, static_cast<size_t>(summaries.dim), scale * kLog2E);
  const EntryLogits known{summaries, scale * kLog2E};
  for (size_t page = 0; page < pages.size(); ++page) {
    const auto position = static_cast<int32_t>(page);
    const float* const products = known.products(position, 0);
    if (products == nullptr) widen_row(summaries.keys.type, summaries.keys.of_page(pages, position), summaries.dim, at.row);
    for (size_t h = 0; h < heads; ++h) {
      const float scaled =
          products == nullptr ? product(at.queries + h * at.padded, at.row, at.padded) : products[h] * known.scale;
      logits[page * heads + h] = scaled + known.bias(position, h);
    }
  }
  const float count = summaries.bias == nullptr ? 0 : std::log2(static_cast<float>(group_pages));
  for (size_t g = 0; g < kinds.size(); ++g) {
    if (kinds[g] == GroupKind::kPages) continue;
    for (size_t h = 0; h < heads; ++h) {
      float* const own = logits + g * together * heads + h;
      float sum = 0;
      float largest = kNone;
      for (size_t i = 0; i < together; ++i) {
        sum += own[i * heads];
        largest = std::max(largest, own[i * heads]);
      }
      const float mean = sum / static_cast<float>(group_pages);
      if (kinds[g] == GroupKind::kWhole) {
        // Without a bias the group counts as one entry, which its pages have equal parts of.
        const float part = mean + count - std::log2(static_cast<float>(group_pages));
        for (size_t i = 0; i < together; ++i) own[i * heads] = part;
        continue;
      }
      if (mean == kNone) {  // nobody looks at the group, whatever its pages weigh beside each other
        for (size_t i = 0; i < together; ++i) own[i * heads] = kNone;
        continue;
      }
      float powers = 0;
      for (size_t i = 0; i < together; ++i) powers += std::exp2(own[i * heads] - largest);
      const float shift = mean + count - largest - std::log2(powers);
      for (size_t i = 0; i < together; ++i) own[i * heads] += shift;
    }
  }
  const float unscaled = 1 / (scale * kLog2E);
  for (size_t i = 0; i < pages.size() * heads; ++i) logits[i] *= unscaled;
}

}  // namespace
}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(attend_tokens_any);
HWY_EXPORT(attend_summaries_any);
HWY_EXPORT(attend_opened_any);
HWY_EXPORT(weigh_groups_any);

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

void attend_opened(const KvPages& kv, const SummaryPages& summaries, const OpenedPages& opened, const float* query, int group,
                   float scale, float* scratch, const Partial& result) {
  HWY_DYNAMIC_DISPATCH(attend_opened_any)(kv, summaries, opened, query, group, scale, scratch, result);
}

void weigh_groups(const SummaryPages& summaries, std::span<const int32_t> pages, std::span<const GroupKind> kinds,
                  int group_pages, const float* query, int group, float scale, float* scratch, float* logits) {
  HWY_DYNAMIC_DISPATCH(weigh_groups_any)(summaries, pages, kinds, group_pages, query, group, scale, scratch, logits);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
