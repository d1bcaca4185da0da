#pragma once

#include <hwy/aligned_allocator.h>

#include <cstdint>
#include <vector>

#include "kernels/cpu/flow/eviction.h"
#include "kernels/cpu/flow/flow.h"
#include "kernels/cpu/flow/program.h"
#include "kernels/cpu/selection/topk.h"

namespace sluice::cpu::flows {

/// Buffers of one thread for one compiled flow.
class Scratch final : public FlowScratch {
 public:
  Scratch(const FlowGraph& graph, const Program& program, int max_pages);

  size_t bytes() const override;
  int max_pages() const { return max_pages_; }
  float* fixed(int64_t offset) const { return fixed_.get() + offset; }
  float* tile(int64_t offset) const { return tile_.get() + offset; }
  float* rows(int64_t offset) const { return rows_.get() + offset * max_pages_; }
  PageSelector& selector() { return selector_; }
  Leavers& leavers() { return leavers_; }
  /// Pages selected by a node (its list and their number).
  std::vector<int32_t>& selection(int index) { return selections_[static_cast<size_t>(index)]; }
  /// Of a selection of tokens, a bit for each token of the pages that were selected; empty: they are whole.
  std::span<const uint32_t> token_words() const { return token_words_; }
  std::vector<uint32_t>& words_of_tokens() { return token_words_; }
  /// Room for the tokens of all pages, of flows that select tokens.
  std::vector<int32_t>& tokens() { return tokens_; }
  int& selection_size(int index) { return selection_sizes_[static_cast<size_t>(index)]; }
  /// First float of each state of the current row, by state.
  std::vector<float*>& states() { return states_; }
  /// First float of the masses of the current row. Nothing writes there while the flow runs.
  float*& masses() { return masses_; }

 private:
  int max_pages_;
  int64_t fixed_floats_;
  int64_t tile_floats_;
  int64_t row_floats_;
  hwy::AlignedFreeUniquePtr<float[]> fixed_;
  hwy::AlignedFreeUniquePtr<float[]> tile_;
  hwy::AlignedFreeUniquePtr<float[]> rows_;
  PageSelector selector_;
  Leavers leavers_;
  std::vector<std::vector<int32_t>> selections_;  // by selection step: pages, or tokens
  std::vector<int32_t> tokens_;
  std::vector<uint32_t> token_words_;
  std::vector<int> selection_sizes_;
  std::vector<float*> states_;
  float* masses_ = nullptr;
};

}  // namespace sluice::cpu::flows
