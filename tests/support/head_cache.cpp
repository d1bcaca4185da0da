#include "tests/support/head_cache.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/reference/oracle.h"

namespace sluice::testing {

namespace {

/// Stores a number that the oracle has rounded; 2-byte and 4-byte types only need their bits cut.
void store(DataType type, float value, std::byte* target) {
  const auto rounded = static_cast<float>(oracle::round_to(type, value));
  uint32_t bits = 0;
  std::memcpy(&bits, &rounded, sizeof bits);
  if (type == DataType::kBF16) {
    const auto half = static_cast<uint16_t>(bits >> 16);
    std::memcpy(target, &half, sizeof half);
  } else {
    std::memcpy(target, &bits, sizeof bits);
  }
}

}  // namespace

HeadCache::Pages HeadCache::make_pages(size_t bytes, int max_pages, uint64_t seed) {
  const auto count = static_cast<size_t>(max_pages + 3);
  Pages pages{.stride = 2 * bytes, .memory = std::vector<std::byte>(count * 2 * bytes, std::byte{0xff}), .order = {}};
  pages.order.resize(count);
  std::iota(pages.order.begin(), pages.order.end(), 0);
  std::mt19937_64 random(seed);
  std::shuffle(pages.order.begin(), pages.order.end(), random);
  pages.order.resize(static_cast<size_t>(max_pages));
  return pages;
}

HeadCache::HeadCache(const PageLayout& layout, int max_pages, uint64_t seed)
    : layout_(layout), tokens_at_(make_pages(layout.bytes, max_pages, seed)) {}

HeadCache::HeadCache(const Plan& plan, int max_pages, uint64_t seed) : HeadCache(plan.layout, max_pages, seed) {
  if (plan.has_field_pages()) fields_at_ = make_pages(plan.fields().bytes, max_pages, seed + 1);
}

int HeadCache::append(std::span<const float> keys, std::span<const float> values) {
  const int dim = layout_.head_dim;
  const int added = static_cast<int>(keys.size()) / dim;
  const int first_page = token_count_ / layout_.page;
  for (int i = 0; i < added; ++i, ++token_count_) {
    std::byte* target = page(token_count_ / layout_.page);
    for (int d = 0; d < dim; ++d) {
      const size_t at = (static_cast<size_t>(token_count_ % layout_.page) * dim + d) * size_of(layout_.kv);
      store(layout_.kv, keys[static_cast<size_t>(i) * dim + d], target + layout_.key_offset + at);
      store(layout_.kv, values[static_cast<size_t>(i) * dim + d], target + layout_.value_offset + at);
    }
  }
  return first_page;
}

void HeadCache::append(const cpu::Flow& flow, cpu::FlowScratch& scratch, std::span<const float> keys,
                       std::span<const float> values) {
  for (int p = append(keys, values); p < pages(); ++p) {
    flow.refresh_page(page(p), flow.plan().has_field_pages() ? fields_at_.page(p) : page(p), tokens_in(p), scratch);
  }
}

cpu::FlowRow HeadCache::row(const float* query) const {
  cpu::FlowRow row;
  row.query = query;
  row.tokens = tokens_at_.table(pages());
  row.fields = fields_at_.order.empty() ? row.tokens : fields_at_.table(pages());
  row.last_tokens = tokens_in(pages() - 1);
  row.step = token_count_;
  return row;
}

std::vector<float> random_numbers(size_t count, std::mt19937_64& random, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

}  // namespace sluice::testing
