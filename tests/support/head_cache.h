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
  /// With the plan's fields where it has them, in pages of their own if it says so.
  HeadCache(const Plan& plan, int max_pages, uint64_t seed);

  /// Appends tokens of k, v [tokens, dim]; returns the position of the first page that they touch.
  int append(std::span<const float> keys, std::span<const float> values);
  /// The same, and recomputes the fields of the pages.
  void append(const cpu::Flow& flow, cpu::FlowScratch& scratch, std::span<const float> keys, std::span<const float> values);

  /// A row for the tokens so far.
  cpu::FlowRow row(const float* query) const;
  int tokens() const { return token_count_; }
  int pages() const { return (token_count_ + layout_.page - 1) / layout_.page; }
  /// Tokens in a page.
  int tokens_in(int position) const { return std::min(layout_.page, token_count_ - position * layout_.page); }
  /// The pool's page at a position, and the bytes from page to page.
  int32_t pool_page(int position) const { return tokens_at_.order[position]; }
  size_t stride() const { return tokens_at_.stride; }
  std::span<const std::byte> memory() const { return tokens_at_.memory; }
  std::byte* page(int position) { return tokens_at_.page(position); }

  /// Of the fields, where they have pages of their own.
  int32_t field_page(int position) const { return fields_at_.order[position]; }
  size_t field_stride() const { return fields_at_.stride; }
  std::span<const std::byte> field_memory() const { return fields_at_.memory; }

 private:
  struct Pages {
    size_t stride = 0;
    std::vector<std::byte> memory;
    std::vector<int32_t> order;  // pool page of every position

    std::byte* page(int position) { return memory.data() + static_cast<size_t>(order[position]) * stride; }
    cpu::PageTable table(int pages) const { return {memory.data(), stride, {order.data(), static_cast<size_t>(pages)}}; }
  };

  static Pages make_pages(size_t bytes, int max_pages, uint64_t seed);

  PageLayout layout_;
  Pages tokens_at_;
  Pages fields_at_;  // empty where they lie with K and V
  int token_count_ = 0;
};

/// Standard normal numbers.
std::vector<float> random_numbers(size_t count, std::mt19937_64& random, float scale = 1);

}  // namespace sluice::testing
