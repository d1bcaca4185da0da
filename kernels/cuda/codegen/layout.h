#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scripting/graph/plan.h"

namespace sluice::cuda::codegen {

/// Where values lie that one kernel hands to a later one: in a row's memory, `fixed` numbers and then, for each paged value, a
/// buffer of a number of pages that is known at run time.
struct RowSlot {
  bool stored = false;
  bool paged = false;
  int64_t offset = 0;    // fixed: of the number; paged: numbers a page of the buffers before it
  int buffer = 0;        // paged: how many buffers are before it
  int64_t per_page = 0;  // numbers
};

/// Where a state lies in the block of its layer and KV head.
struct StateSlot {
  bool paged = false;
  int64_t offset = 0;         // paged: numbers a page of the states before it; else numbers of those without a page axis
  int64_t saved_offset = -1;  // of a state of pages that leave a tail: of a number a page, 1 once the page is saved
};

/// Steps that run in one launch.
struct Launch {
  bool by_row = false;                      // a block for every row; else blocks for pieces of rows
  std::vector<const PlanStep*> steps = {};  // of Plan::index, or of Plan::after
  std::vector<NodeId> plans = {};           // selections whose budgets it computes
  std::vector<NodeId> saves = {};           // afterwards
};

/// A selection by score, in the order of the graph's nodes.
struct ScoredSelection {
  NodeId node = kNoNode;
  NodeId score = kNoNode;
};

/// A plan cut into launches, with the places of what they hand on. For `capacity` pages, a multiple of kPad, a row has
///   fixed_numbers + row_numbers * capacity + (buffers + 1) * kPad
/// numbers; a paged value begins at fixed_numbers + offset * capacity + buffer * kPad + shift.
struct FlowLayout {
  static constexpr int kPad = 4;

  explicit FlowLayout(const Plan& given);

  const Plan& plan;
  std::vector<bool> query_only;   // by node: depends on the query and states without pages alone; every kernel computes it anew
  std::vector<bool> kept;         // by node: computed once; all others are computed wherever they are read
  std::vector<int> inlined;       // by node: how many nodes are computed where it is read, itself among them
  std::vector<RowSlot> slots;     // by node
  std::vector<StateSlot> states;  // by index in the graph
  std::vector<Launch> launches;   // of the index stage
  std::vector<Launch> after;      // of the after stage
  std::vector<ScoredSelection> selections;
  std::vector<NodeId> attended;  // paged values that attention reads: logits of summaries, and what is added to them
  int64_t fixed_numbers = 0;
  int64_t row_numbers = 0;
  int64_t held_numbers = 0;  // of these, before all others, what the index stage has
  int buffers = 0;
  int64_t state_page_numbers = 0;
  int64_t state_fixed_numbers = 0;  // a multiple of kPad

  const Node& node(NodeId id) const { return plan.graph.nodes[static_cast<size_t>(id)]; }
  int state_index(const std::string& name) const;
  /// Number of the selection `id` in `selections`.
  int selection_index(NodeId id) const;
  /// Scores of a page that selection `id` ranks: one, or one for each token.
  int scores_of_page(NodeId id) const { return node(id).op == Op::kTopKTokens ? plan.layout.page : 1; }
  /// Nodes of a step that are computed into places of their own.
  std::vector<NodeId> computed_by(const PlanStep& step) const;
  /// Of a launch.
  std::vector<NodeId> computed_by(const Launch& launch) const;
  /// Numbers that the buffer of `id` is moved by, 0 to 3, so that the first score that top-k reads is aligned to 16 bytes.
  int shift_of(NodeId id) const;

 private:
  void find_attended();
  bool is_one_step_from_stored(NodeId id) const;
  void find_query_only();
  /// Keeps what is made of more than `most` nodes that are not kept; returns how many computations the text has then.
  int64_t keep_beyond(int most);
  void find_kept();
  /// Whether kernels would compute query-only values so often that they had better be kept in rows.
  bool repeats_queries() const;
  void keep_queries();
  void place_states();
  void cut();
  /// Whether the after stage is one page-local step, and others of pages that leave a tail: values are saved as they come.
  bool saves_by_pages() const;
  void cut(const PlanStep& step, std::vector<Launch>& to) const;
  void place();
  bool is_light(const PlanStep& step) const;
  bool stays_inline(NodeId id) const;
};

/// Operators that read several entries of an operand.
bool reads_along_axis(Op op);
/// Whether how many a selection by score takes depends on the scores.
bool counts_scores(const Node& selection);
/// Whether chance has a say in what a selection takes.
bool is_drawn(const Node& selection);

/// Keys, values and fields.
bool is_block_part(Op op);
/// A state that has lines of channels for each page.
bool is_line_of_state(const Node& node);
/// Where a part of a block begins, and how its numbers are stored.
struct BlockPart {
  size_t offset = 0;
  DataType type = DataType::kBF16;
  bool in_field_page = false;  // in the block of a page that fields have of their own
};
BlockPart part_of(const Plan& plan, const Node& node);

}  // namespace sluice::cuda::codegen
