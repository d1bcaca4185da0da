#include <algorithm>

#include "kernels/cuda/codegen/selection_plan.h"
#include "kernels/cuda/flow/flow.h"
#include "kernels/cuda/primitives/round_up.h"
#include "kernels/cuda/selection/tokens.h"
#include "kernels/cuda/selection/topk.h"

// The index stage in several kernels, and top-k between them, with hints of each request's last step.

namespace sluice::cuda {
namespace {

constexpr int kLeastChunk = 64;  // pages worth a block

}  // namespace

int CudaFlow::hint_room(int max_pages) const {
  if (!plan_.graph.patterns.empty()) return 0;   // the list of another step has other pages
  if (path(1, max_pages).cluster > 0) return 0;  // rows that one kernel holds are selected from without
  int most = 0;
  for (const codegen::ScoredSelection& selection : layout_.selections) {
    const Node& node = layout_.node(selection.node);
    // A shorter row, of which it takes a larger part, may be one for hints where the longest is not.
    if (codegen::takes_hints(node, {1, max_pages, max_pages, multiprocessors()}))
      most = std::max(most, codegen::most_budget(node, max_pages));
  }
  return most;
}

bool CudaFlow::takes_hints(int sequences, int pages) const {
  if (!plan_.graph.patterns.empty()) return false;
  return std::any_of(layout_.selections.begin(), layout_.selections.end(), [&](const codegen::ScoredSelection& selection) {
    const Node& node = layout_.node(selection.node);
    return codegen::takes_hints(node, {sequences * kv_heads_, pages, codegen::most_budget(node, pages), multiprocessors()});
  });
}

SelectionLeaf CudaFlow::select_leaf(NodeId id, int layer, int rows, const FlowSequences& sequences, Stream stream) {
  const Node& node = layout_.node(id);
  const int pages = sequences.most_pages * layout_.scores_of_page(id);  // or tokens
  SelectionLeaf leaf;
  leaf.first = node.attributes.first;
  leaf.last = node.attributes.last;
  const int budget = node.op == Op::kWindow ? 0 : codegen::most_budget(node, pages);
  if (budget == 0) return leaf;
  const int number = layout_.selection_index(id);
  TopK top;
  top.scores = values_of(node.inputs[0]) + leaf.first;
  top.stride = row_stride();
  top.rows = rows;
  top.max_length = codegen::ranked_scores(node, pages);
  top.lengths = numbers_at(1, number);
  top.budgets = numbers_at(2, number);
  top.max_budget = budget;
  top.selected = lists_.as<int32_t>() + static_cast<int64_t>(number) * most_rows_ * list_stride();
  top.selected_stride = list_stride();
  leaf.list = top.selected;
  leaf.list_stride = top.selected_stride;
  leaf.counts = numbers_at(0, number);
  top.counts = numbers_at(0, number);
  if (codegen::is_drawn(node)) {
    draw_top_k(top,
               {.tolerate = node.attributes.tolerate,
                .seeds = sequences.seeds,
                .tokens = sequences.lengths,
                .heads = kv_heads_,
                .layer = layer,
                .first = leaf.first},
               stream);
    return leaf;
  }
  const codegen::SelectedRows selected{rows, pages, budget, multiprocessors()};
  const int place = state_layers_.at(static_cast<size_t>(layer));
  if (sequences.hints != nullptr && place >= 0 && codegen::takes_hints(node, selected)) {
    // Scores change little from step to step (GVR, section 3).
    top.hints = sequences.hints;
    top.owner_rows = kv_heads_;
    top.hint_list = place * static_cast<int>(layout_.selections.size()) + number;
    top.hint_count = budget;
    top.keeps_hints = true;
  }
  select_top_k(top, codegen::plan_selection(node, selected, top.hints != nullptr), stream);
  return leaf;
}

void CudaFlow::launch_all(const std::vector<LoadedKernel>& kernels, FlowArguments arguments, bool overlaps, Stream stream) const {
  const int rows = arguments.row_count;
  const int pages = arguments.most_pages;
  for (const LoadedKernel& loaded : kernels) {
    if (loaded.how.by_row) {
      launch(loaded, rows, arguments, overlaps, stream);
      continue;
    }
    // Blocks that run at once, as many as there are: each has to find its row before it can read.
    const int64_t per_row = std::max(1, loaded.resident / rows);
    arguments.chunk = std::max(kLeastChunk, static_cast<int>(round_up<int64_t>((pages + per_row - 1) / per_row, 32)));
    launch(loaded, rows * ((int64_t{pages} + arguments.chunk - 1) / arguments.chunk), arguments, overlaps, stream);
  }
}

void CudaFlow::launch_steps(const Selection& selection, const FlowSequences& sequences, FlowArguments arguments, Stream stream) {
  const int rows = arguments.row_count;
  const int pages = sequences.most_pages;
  launch_all(index_, arguments, true, stream);
  Selection joined = selection;
  for (const NodeId id : leaves_) joined.leaves[joined.leaf_count++] = select_leaf(id, arguments.layer, rows, sequences, stream);
  if (leaves_.empty()) joined.leaves[joined.leaf_count++].first = pages;  // no selection: every page
  if (plan_.graph.selects_tokens()) {
    finish_tokens(joined, stream);
  } else {
    finish_selection(joined, stream);
  }
  if (!opened_leaves_.empty()) open_groups(joined, arguments.layer, sequences, stream);
}

void CudaFlow::open_groups(const Selection& selected, int layer, const FlowSequences& sequences, Stream stream) {
  Selection opened = selected;
  opened.leaf_count = 0;
  for (const NodeId id : opened_leaves_) {
    const auto known = std::find(leaves_.begin(), leaves_.end(), id);
    opened.leaves[opened.leaf_count++] = known != leaves_.end()
                                             ? selected.leaves[known - leaves_.begin()]
                                             : select_leaf(id, layer, sequences.count * kv_heads_, sequences, stream);
  }
  opened.positions = opened_positions_.as<int32_t>();
  opened.pages = opened.positions + int64_t{most_rows_} * capacity_;
  opened.starts = opened_numbers_.as<int32_t>();
  opened.tokens = opened.starts + most_rows_;
  opened.counts = opened.tokens + most_rows_;
  opened.attended = opened.available = nullptr;
  finish_selection(opened, stream);
}

void CudaFlow::finish_tokens(const Selection& joined, Stream stream) {
  TokenSelection tokens{.to = joined, .masks = selected_masks_.as<uint32_t>(), .mask_stride = mask_stride()};
  for (size_t i = 0; i < leaves_.size(); ++i) tokens.of_tokens[i] = layout_.node(leaves_[i]).op == Op::kTopKTokens;
  select_tokens(tokens, stream);
}

}  // namespace sluice::cuda
