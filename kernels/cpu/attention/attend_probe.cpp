// What a probe is told of the pages that rows attend to.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/cpu/attention/attend.h"
#include "scripting/base/bits.h"

namespace sluice::cpu {

void Attend::report(int64_t slot, std::span<const int32_t> positions) {
  const AttentionProbe& probe = *call_->probe;
  if (probe.counts != nullptr) probe.counts[slot] = static_cast<int32_t>(positions.size());
  if (probe.selected == nullptr) return;
  if (static_cast<size_t>(probe.selected_capacity) < positions.size()) {
    throw InternalError(fmt::format("probe: {} selected pages, room for {}", positions.size(), probe.selected_capacity));
  }
  int32_t* to = probe.selected + slot * probe.selected_capacity;
  std::fill(std::copy(positions.begin(), positions.end(), to), to + probe.selected_capacity, -1);
}

void Attend::report_tokens(int64_t slot, std::span<const int32_t> positions, std::span<const uint32_t> tokens) {
  const AttentionProbe& probe = *call_->probe;
  if (probe.tokens == nullptr) return;
  const int page = layer_->layout.page;
  const std::span<uint32_t> to(probe.tokens + slot * probe.token_words, static_cast<size_t>(probe.token_words));
  if ((positions.back() + 1) * page > 32 * static_cast<int>(to.size()))
    throw InternalError(fmt::format("probe: a token of page {}, room for bits of {}", positions.back(), 32 * to.size()));
  std::fill(to.begin(), to.end(), 0);
  for (size_t i = 0; i < positions.size(); ++i)
    join_bits(to, int64_t{positions[i]} * page, tokens, static_cast<int64_t>(i) * page, page);
}

void Attend::report_dense(int sequence, int kv_head) {
  const AttentionProbe& probe = *call_->probe;
  const int64_t slot = static_cast<int64_t>(sequence) * pass_->pool().kv_heads() + kv_head;
  const auto pages = static_cast<int>(pass_->pages(layer_->group, sequence).size());
  if (probe.counts != nullptr) probe.counts[slot] = pages;
  if (probe.mass != nullptr) probe.mass[slot] = 1;
  if (probe.selected == nullptr) return;
  if (probe.selected_capacity < pages) {
    throw InternalError(fmt::format("probe: {} selected pages, room for {}", pages, probe.selected_capacity));
  }
  int32_t* to = probe.selected + slot * probe.selected_capacity;
  std::iota(to, to + pages, 0);
  std::fill(to + pages, to + probe.selected_capacity, -1);
}

}  // namespace sluice::cpu
