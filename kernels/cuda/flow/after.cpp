#include "kernels/cuda/flow/flow.h"
#include "kernels/cuda/primitives/round_up.h"
#include "scripting/graph/verify.h"

// What a flow does once attention has run, and what it knows of tokens that leave.

namespace sluice::cuda {

bool CudaFlow::attends_to_all() const {
  const NodeId selection = plan_.attend.selection();
  if (selection == kNoNode || !plan_.attend.is_plain() || plan_.graph.selects_under_masks()) return false;
  const Node& node = layout_.node(selection);
  return node.op == Op::kWindow && std::max(node.attributes.first, node.attributes.last) >= GraphLimits::kPages;
}

bool CudaFlow::finds_after_beside() const {
  // Scratch is that of all kernels of the flow.
  if (layout_.after.size() != 1 || layout_.after.front().by_row || source_.after.front().global_memory) return false;
  const std::vector<const PlanStep*>& steps = layout_.after.front().steps;
  return std::none_of(plan_.graph.nodes.begin(), plan_.graph.nodes.end(),
                      [](const Node& node) { return node.stage == Stage::kAfter && node.op == Op::kQuery; }) &&
         std::none_of(steps.begin(), steps.end(), [&](const PlanStep* step) {
           return std::any_of(step->nodes.begin(), step->nodes.end(),
                              [&](NodeId id) { return layout_.slots[static_cast<size_t>(id)].stored; });
         });
}

int64_t CudaFlow::logit_stride() const {
  // Who decodes has left room for the row that comes.
  const int64_t pages = layers_apart_ ? pages_for(plan_.graph.eviction->budget, plan_.layout.page) : capacity_;
  return round_up<int64_t>(pages * plan_.layout.page, 32);
}

TokenLogits CudaFlow::token_logits(int layer) const {
  return {logits_.as<float>() + logit_layer(layer) * log_sums_of_layer() * logit_stride(), logit_stride()};
}

float* CudaFlow::log_sums(int layer) const { return log_sums_.as<float>() + logit_layer(layer) * log_sums_of_layer(); }

void CudaFlow::run_after(const FlowBlocks& blocks, const FlowSequences& sequences, const TokenMasses& masses, bool ends_prompt,
                         bool overlaps, Stream stream) {
  require(blocks, sequences);
  reserve(sequences.count, sequences.most_pages);
  FlowArguments arguments = index_arguments(blocks, sequences);
  arguments.behind_refresh = 0;
  arguments.masses = masses.numbers;
  arguments.mass_stride = masses.stride;
  arguments.mass_sums = masses.log_sums;
  arguments.mass_pages = masses.pages;
  arguments.mass_page_counts = masses.counts;
  arguments.mass_page_stride = masses.page_stride;
  arguments.ends_prompt = ends_prompt ? 1 : 0;
  launch_all(after_, arguments, overlaps, stream);
}

void CudaFlow::place_token_states() {
  std::vector<TokenState> found;
  for (size_t i = 0; i < plan_.graph.states.size(); ++i) {
    const State& state = plan_.graph.states[i];
    const int axis = find_axis(state.shape, Axis::kToken);
    if (!has_axis(state.shape, Axis::kPage) || axis < 0) continue;
    int64_t inner = 1;
    for (size_t d = static_cast<size_t>(axis) + 1; d < state.shape.size(); ++d) inner *= state.shape[d].extent;
    found.push_back({.offset = layout_.states[i].offset,
                     .elements = elements_per_page(state.shape),
                     .inner = inner,
                     .initial = static_cast<float>(state.initial)});
  }
  token_state_count_ = static_cast<int>(found.size());
  token_states_ = DeviceMemory(found.size() * sizeof(TokenState));
  token_states_.upload(found.data(), token_states_.bytes());
}

const int32_t* CudaFlow::last_readers(std::span<const int32_t> readers) {
  if (readers.empty()) return nullptr;
  if (last_readers_.bytes() != readers.size_bytes()) {
    DeviceMemory memory(readers.size_bytes());
    memory.upload(readers.data(), readers.size_bytes());
    last_readers_ = std::move(memory);
  }
  return last_readers_.as<int32_t>();
}

}  // namespace sluice::cuda
