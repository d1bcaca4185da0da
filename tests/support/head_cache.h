#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "kernels/cpu/flow/flow.h"
#include "scripting/graph/plan.h"

namespace sluice::testing {

/// Pages of one layer and KV head, as a device would hold them: in any order, among others, and full of NaN where nothing has
/// been written.
class HeadCache {
 public:
  HeadCache(const PageLayout& layout, int max_pages, uint64_t seed);

  /// Appends tokens of k, v [tokens, dim]; returns the position of the first page that they touch.
  int append(std::span<const float> keys, std::span<const float> values);
  /// The same, and recomputes the fields of the pages.
  void append(const cpu::Flow& flow, cpu::FlowScratch& scratch, std::span<const float> keys, std::span<const float> values);

  /// A row for the tokens so far.
  cpu::FlowRow row(const float* query) const;
  int tokens() const { return tokens_; }
  int pages() const { return (tokens_ + layout_.page - 1) / layout_.page; }
  /// Tokens in a page.
  int tokens_in(int position) const { return std::min(layout_.page, tokens_ - position * layout_.page); }
  /// The pool's page at a position, and the bytes from page to page.
  int32_t pool_page(int position) const { return order_[position]; }
  size_t stride() const { return stride_; }
  std::span<const std::byte> memory() const { return memory_; }
  std::byte* page(int position) { return memory_.data() + static_cast<size_t>(order_[position]) * stride_; }

 private:
  PageLayout layout_;
  size_t stride_;
  std::vector<std::byte> memory_;
  std::vector<int32_t> order_;  // pool page of every position
  int tokens_ = 0;
};

/// Standard normal numbers.
std::vector<float> random_numbers(size_t count, std::mt19937_64& random, float scale = 1);

}  // namespace sluice::testing
