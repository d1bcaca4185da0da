#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/flow/device_flow.h"
#include "scripting/base/bits.h"
#include "scripting/base/error.h"
#include "scripting/graph/selections.h"

// What CudaDevice tells of attention to those who ask.

namespace sluice::cuda {

void CudaDevice::report_tokens(const FlowResult& result, int64_t row, std::span<const int32_t> positions, int page,
                               std::span<uint32_t> tokens) {
  std::vector<uint32_t> masks(static_cast<size_t>(result.mask_stride));
  read(masks.data(), result.selected_masks + row * result.mask_stride, masks.size() * sizeof(uint32_t));
  std::fill(tokens.begin(), tokens.end(), 0U);
  for (size_t i = 0; i < positions.size(); ++i)
    join_bits(tokens, int64_t{positions[i]} * page, masks, static_cast<int64_t>(i) * page, page);
}

void CudaDevice::report_flow(const Attention& call, const Plan& plan, const FlowResult& result, const DecodeShape& shape,
                             const Matrix& q, int first) {
  std::vector<int> scores_of_page;
  for (const NodeId id : scored_selections(plan.graph)) {
    const bool of_tokens = plan.graph.nodes[static_cast<size_t>(id)].op == Op::kTopKTokens;
    scores_of_page.push_back(of_tokens ? plan.layout.page : 1);
  }
  const AttentionProbe& probe = *call.probe;
  const int kv_heads = pass_.pool().kv_heads();
  const size_t rows = static_cast<size_t>(shape.sequences) * kv_heads;
  const int64_t slot = int64_t{first} * kv_heads;
  std::vector<int32_t> counts(rows);
  read(counts.data(), result.counts, rows * sizeof(int32_t));
  if (probe.counts != nullptr) std::copy(counts.begin(), counts.end(), probe.counts + slot);
  for (size_t row = 0; row < rows; ++row) {
    const int pages = pass_.page_count(pass_.pool().group_of(call.layer), first + static_cast<int>(row) / kv_heads);
    for (size_t i = 0; i < result.scores.size(); ++i) {
      float* const to = probe.scores + ((slot + row) * result.scores.size() + i) * probe.score_capacity;
      const auto numbers = static_cast<size_t>(pages) * static_cast<size_t>(scores_of_page[i]);
      if (static_cast<size_t>(probe.score_capacity) < numbers)
        throw InternalError(fmt::format("probe: {} scores, room for {}", numbers, probe.score_capacity));
      read(to, result.scores[i] + row * result.score_stride, numbers * sizeof(float));
    }
    if (probe.selected == nullptr) continue;
    if (probe.selected_capacity < counts[row]) {
      throw InternalError(fmt::format("probe: {} selected pages, room for {}", counts[row], probe.selected_capacity));
    }
    int32_t* const to = probe.selected + (slot + row) * probe.selected_capacity;
    read(to, result.positions + row * result.stride, counts[row] * sizeof(int32_t));
    std::fill(to + counts[row], to + probe.selected_capacity, -1);
    if (result.selected_masks != nullptr && probe.tokens != nullptr)
      report_tokens(result, static_cast<int64_t>(row), {to, static_cast<size_t>(counts[row])}, plan.layout.page,
                    std::span(probe.tokens + (slot + static_cast<int64_t>(row)) * probe.token_words,
                              static_cast<size_t>(probe.token_words)));
  }
  if (probe.mass == nullptr) return;
  // The share of the sum over all that the step is shown that lies on what it attends to.
  const size_t sums = rows * shape.group;
  attend_lists(call, shape, all_pages(call.layer, first), q, probe_output(q), first, probe_sums_.as<float>() + sums);
  std::vector<float> logs(2 * sums);
  read(logs.data(), probe_sums_.data(), logs.size() * sizeof(float));
  for (size_t row = 0; row < rows; ++row) {
    float mass = 0;
    for (int h = 0; h < shape.group; ++h) {
      const float attended = logs[row * shape.group + h];
      if (attended > -INFINITY) mass += std::exp2(attended - logs[sums + row * shape.group + h]);
    }
    probe.mass[slot + row] = mass / static_cast<float>(shape.group);
  }
}

void CudaDevice::report_dense(const Attention& call, int sequence) const {
  const AttentionProbe& probe = *call.probe;
  const int pages = pass_.page_count(pass_.pool().group_of(call.layer), sequence);
  if (probe.selected != nullptr && probe.selected_capacity < pages) {
    throw InternalError(fmt::format("probe: {} selected pages, room for {}", pages, probe.selected_capacity));
  }
  const int kv_heads = pass_.pool().kv_heads();
  for (int64_t slot = int64_t{sequence} * kv_heads; slot < int64_t{sequence + 1} * kv_heads; ++slot) {
    if (probe.counts != nullptr) probe.counts[slot] = pages;
    if (probe.mass != nullptr) probe.mass[slot] = 1;
    if (probe.selected == nullptr) continue;
    int32_t* to = probe.selected + slot * probe.selected_capacity;
    std::iota(to, to + pages, 0);
    std::fill(to + pages, to + probe.selected_capacity, -1);
  }
}

}  // namespace sluice::cuda
