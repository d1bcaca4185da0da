#include "kernels/cpu/flow/scratch.h"

#include <algorithm>
#include <new>

#include "scripting/graph/selections.h"

namespace sluice::cpu::flows {

namespace {

/// Numbers that vectors may be read from behind the last one written, in whole cache lines.
hwy::AlignedFreeUniquePtr<float[]> aligned_floats(int64_t count) {
  auto floats = hwy::AllocateAligned<float>(static_cast<size_t>(count));
  if (!floats) throw std::bad_alloc();
  std::fill_n(floats.get(), count, 0.0F);
  return floats;
}

}  // namespace

Scratch::Scratch(const FlowGraph& graph, const Program& program, int max_pages)
    : max_pages_(max_pages),
      fixed_floats_(program.fixed_floats),
      tile_floats_(program.tile_floats),
      row_floats_(program.row_floats * max_pages + kPadding),
      fixed_(aligned_floats(fixed_floats_)),
      tile_(aligned_floats(tile_floats_)),
      rows_(aligned_floats(row_floats_)),
      selector_(max_pages * scores_a_page(graph)),
      leavers_(graph.eviction ? max_pages * graph.geometry.page : 0),
      tokens_(graph.selects_tokens() ? static_cast<size_t>(max_pages) * graph.geometry.page : 0),
      token_words_((tokens_.size() + 31) / 32),
      states_(graph.states.size()) {
  for (const ProgramStep& step : program.index) {
    if (step.kind != StepKind::kSelect) continue;
    for (size_t i = 0; i < step.effects.size(); ++i)
      selections_.emplace_back(static_cast<size_t>(max_pages) * scores_a_page(graph));
  }
  selection_sizes_.resize(selections_.size());
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    if (graph.nodes[id].op == Op::kConstant)
      *fixed(program.slots[id].offset) = static_cast<float>(graph.nodes[id].attributes.value);
  }
}

size_t Scratch::bytes() const {
  const size_t lists = selections_.empty() ? 0 : selections_.size() * selections_.front().size();
  return static_cast<size_t>(fixed_floats_ + tile_floats_ + row_floats_) * sizeof(float) + selector_.bytes() + leavers_.bytes() +
         (lists + tokens_.size() + token_words_.size()) * sizeof(int32_t);
}

}  // namespace sluice::cpu::flows
