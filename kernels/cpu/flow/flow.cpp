#include "kernels/cpu/flow/flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/flow/execute.h"
#include "kernels/cpu/flow/state.h"
#include "kernels/device/random.h"
#include "scripting/base/bits.h"
#include "scripting/graph/selections.h"
#include "scripting/graph/verify.h"

namespace sluice::cpu {

namespace flows {

namespace {

class CpuFlow final : public Flow {
 public:
  CpuFlow(Plan plan, int layers, int kv_heads)
      : plan_(std::move(plan)),
        program_(lower(plan_)),
        layers_(layers),
        kv_heads_(kv_heads),
        index_saves_(plan_.graph.saves_in(Stage::kIndex)),
        score_state_(place_of_score(plan_.graph)),
        united_(leaf_selections(plan_.graph)),
        is_of_tokens_(plan_.graph.nodes.size(), false),
        selection_index_(plan_.graph.nodes.size(), -1),
        scored_index_(plan_.graph.nodes.size(), -1) {
    for (const NodeId id : selections_of(plan_.graph)) is_of_tokens_[static_cast<size_t>(id)] = is_of_tokens(plan_.graph, id);
    int count = 0;
    for (const ProgramStep& step : program_.index) {
      if (step.kind != StepKind::kSelect) continue;
      for (const NodeId id : step.effects) selection_index_[id] = count++;
    }
    int scored = 0;
    for (const NodeId id : scored_selections(plan_.graph)) scored_index_[id] = scored++;
    if (plan_.attend.selection() != kNoNode && selection_index_[plan_.attend.selection()] < 0) {
      throw InternalError("flow: no step of the plan makes the selection");
    }
  }

  const Plan& plan() const override { return plan_; }

  std::unique_ptr<RequestState> create_state(int max_pages) const override {
    if (plan_.graph.states.empty()) return nullptr;
    return std::make_unique<FlowState>(plan_.graph, layers_, kv_heads_, max_pages);
  }

  std::unique_ptr<FlowScratch> create_scratch(int max_pages) const override {
    return std::make_unique<Scratch>(plan_.graph, program_, max_pages);
  }

  void refresh_page(const std::byte* page, std::byte* fields, int tokens, FlowScratch& scratch) const override {
    if (tokens < 1 || tokens > plan_.graph.geometry.page)
      throw InternalError("flow: a page of " + std::to_string(tokens) + " tokens");
    auto& own = static_cast<Scratch&>(scratch);
    Tile tile;
    tile.page = page;
    tile.tokens = tokens;
    for (const Instruction& instruction : program_.cache) execute(plan_, program_, instruction, tile, own);
    for (size_t i = 0; i < plan_.graph.fields.size(); ++i) {
      const Field& field = plan_.graph.fields[i];
      const float* values = value_of(plan_.graph, program_, field.node, 0, tile, own);
      narrow(field.type, values, elements_per_page(field.shape), fields + plan_.fields().field_offsets[i]);
    }
  }

  int select(const FlowRow& row, FlowScratch& scratch, int32_t* selected) const override {
    auto& own = static_cast<Scratch&>(scratch);
    check(row, own);
    const int pages = row.pages();
    const bool needs_run = index_saves_ || row.scores != nullptr || !plan_.attend.is_plain();
    if (plan_.attend.selection() == kNoNode || (!needs_run && covers_all(pages, tokens_in(row)))) {
      std::fill(own.words_of_tokens().begin(), own.words_of_tokens().end(), ~uint32_t{0});
      return select_all(pages, selected);
    }
    load_states(row, own);
    for (const ProgramStep& step : program_.index) run_step(step, row, own);
    // Loads of this step have seen the values of the last one; only now may they change, or after the stage that is still to run.
    if (program_.after.empty()) {
      for (const NodeId save : program_.saves) keep(save, row, own);
    }
    const int result = selection_index_[plan_.attend.selection()];
    if (is_of_tokens_[static_cast<size_t>(plan_.attend.selection())]) return pages_of_tokens(own, result, selected);
    std::copy_n(own.selection(result).data(), own.selection_size(result), selected);
    return own.selection_size(result);
  }

  std::span<const uint32_t> selected_tokens(FlowScratch& scratch) const override {
    return static_cast<Scratch&>(scratch).token_words();
  }

  SourcePages source_pages(size_t source, const FlowRow& row, FlowScratch& scratch) const override {
    auto& own = static_cast<Scratch&>(scratch);
    const AttendedSource& asked = plan_.attend.sources.at(source);
    const auto selected = [&](NodeId id) -> std::span<const int32_t> {
      if (id == kNoNode) return {};
      const int index = selection_index_[id];
      return {own.selection(index).data(), static_cast<size_t>(own.selection_size(index))};
    };
    SourcePages pages{.selected = selected(asked.selection), .opened = selected(asked.opened)};
    if (asked.keys.state >= 0) pages.keys = own.states()[static_cast<size_t>(asked.keys.state)];
    if (asked.values.state >= 0) pages.values = own.states()[static_cast<size_t>(asked.values.state)];
    const auto value = [&](NodeId id) { return value_of(plan_.graph, program_, id, 0, whole_row(row), own); };
    if (asked.logits != kNoNode) pages.logits = value(asked.logits);
    if (asked.bias == kNoNode) return pages;
    pages.bias = value(asked.bias);
    pages.bias_heads = static_cast<int>(elements_per_page(plan_.graph.nodes[static_cast<size_t>(asked.bias)].shape));
    return pages;
  }

  void run_after(const FlowRow& row, Ending ending, float* masses, FlowScratch& scratch) const override {
    auto& own = static_cast<Scratch&>(scratch);
    check(row, own);
    own.masses() = masses;
    load_states(row, own);
    for (const ProgramStep& step : program_.after) run_step(step, row, own);
    for (const NodeId save : program_.saves) {
      const bool is_due = ending == Ending::kStep || plan_.graph.nodes[static_cast<size_t>(save)].stage == Stage::kAfter;
      if (is_due) keep(save, row, own);
    }
    // The next chunk's rows give weights of their own.
    if (ending == Ending::kPrompt && plan_.graph.eviction) state_of(row).forget_prompt_masses(row.layer, row.kv_head);
  }

  float* prompt_masses(RequestState& state, int layer, int kv_head, int pages) const override {
    return kept_by(state).prompt_masses(layer, kv_head, pages);
  }

  std::span<const SlotMove> evict(RequestState& state, int layer, int kv_head, int tokens, HeldTokens held,
                                  std::span<const int32_t> rows, FlowScratch& scratch) const override {
    FlowState& kept = kept_by(state);
    const std::span<int32_t> positions = kept.positions(layer, kv_head);
    if (static_cast<size_t>(held.staying) + rows.size() > positions.size() || static_cast<size_t>(tokens) > positions.size())
      throw InternalError(fmt::format("eviction: {} tokens and {} rows, room for {}", tokens, rows.size(), positions.size()));
    std::span<const SlotMove> moves;
    if (tokens > held.staying) {
      const int pages = pages_for(tokens, plan_.graph.geometry.page);
      held.scores = {kept.load(layer, kv_head, score_state_, pages), static_cast<size_t>(tokens)};
      held.positions = positions.first(static_cast<size_t>(tokens));
      moves = static_cast<Scratch&>(scratch).leavers().find(*plan_.graph.eviction, held);
      kept.move_tokens(layer, kv_head, moves, held.staying);
    }
    std::copy(rows.begin(), rows.end(), positions.begin() + held.staying);
    return moves;
  }

 private:
  static int place_of_score(const FlowGraph& graph) {
    if (!graph.eviction) return -1;
    return static_cast<int>(graph.find_state(graph.eviction->score) - graph.states.data());
  }

  void load_states(const FlowRow& row, Scratch& scratch) const {
    for (size_t i = 0; i < plan_.graph.states.size(); ++i)
      scratch.states()[i] = state_of(row).load(row.layer, row.kv_head, static_cast<int>(i), row.pages());
  }

  void check(const FlowRow& row, const Scratch& scratch) const {
    const int pages = row.pages();
    if (pages < 1) throw InternalError("flow: a row without pages");
    if (pages > scratch.max_pages()) {
      throw InternalError("flow: a row of " + std::to_string(pages) + " pages, scratch for " +
                          std::to_string(scratch.max_pages()));
    }
    if (row.last_tokens < 1 || row.last_tokens > plan_.graph.geometry.page) {
      throw InternalError("flow: a last page of " + std::to_string(row.last_tokens) + " tokens");
    }
    if (row.state == nullptr && !plan_.graph.states.empty())
      throw InternalError("flow: " + plan_.graph.name + " keeps state and got none");
  }

  FlowState& kept_by(RequestState& state) const { return static_cast<FlowState&>(state.of_program(plan_.program)); }
  FlowState& state_of(const FlowRow& row) const { return kept_by(*row.state); }

  /// True if one of the united selections takes every page whatever the scores are.
  bool covers_all(int pages, int tokens) const {
    return std::any_of(united_.begin(), united_.end(), [&](NodeId id) {
      const Node& node = plan_.graph.nodes[static_cast<size_t>(id)];
      if (node.op == Op::kTopKTokens) return budget_of(node.attributes, tokens) == tokens;
      if (node.op == Op::kTopK || node.op == Op::kApproxTopK) return budget_of(node.attributes, pages) == pages;
      return int64_t{node.attributes.first} + node.attributes.last >= pages;
    });
  }

  int tokens_in(const FlowRow& row) const { return (row.pages() - 1) * plan_.graph.geometry.page + row.last_tokens; }

  /// The pages that have the tokens of a selection; which tokens they are is left in the scratch.
  int pages_of_tokens(Scratch& scratch, int selection, int32_t* selected) const {
    const int page = plan_.graph.geometry.page;
    std::vector<uint32_t>& words = scratch.words_of_tokens();
    std::fill(words.begin(), words.end(), 0U);
    int count = 0;
    for (int i = 0; i < scratch.selection_size(selection); ++i) {
      const int32_t token = scratch.selection(selection)[static_cast<size_t>(i)];
      if (count == 0 || selected[count - 1] != token / page) selected[count++] = token / page;
      set_bit(words, int64_t{count - 1} * page + token % page);
    }
    return count;
  }

  /// A selection as tokens, in room of its own if it is one of pages.
  std::span<const int32_t> as_tokens(NodeId id, const FlowRow& row, Scratch& scratch) const {
    const int index = selection_index_[id];
    const std::span<const int32_t> list(scratch.selection(index).data(), static_cast<size_t>(scratch.selection_size(index)));
    if (is_of_tokens_[static_cast<size_t>(id)]) return list;
    const int page = plan_.graph.geometry.page;
    std::vector<int32_t>& tokens = scratch.tokens();
    size_t count = 0;
    for (const int32_t place : list) {
      for (int32_t token = place * page; token < std::min((place + 1) * page, tokens_in(row)); ++token) tokens[count++] = token;
    }
    return std::span(tokens).first(count);
  }

  static Tile whole_row(const FlowRow& row) {
    Tile tile;
    tile.row = &row;
    tile.count = tile.pages = row.pages();
    tile.tokens = row.last_tokens;
    return tile;
  }

  /// Pages from `first` to before `end`.
  struct PageRange {
    int first = 0;
    int end = 0;
  };

  int pages_behind_tail(const Attributes& save, const FlowRow& row) const {
    return sluice::pages_behind_tail(save.last, tokens_in(row), plan_.graph.geometry.page);
  }

  /// Those that leave a tail in this step, of any save that has one.
  PageRange leaving_pages(const FlowRow& row) const {
    PageRange range{row.pages(), 0};
    for (const NodeId save : program_.saves) {
      const Attributes& own = plan_.graph.nodes[static_cast<size_t>(save)].attributes;
      if (own.last == 0) continue;
      range.first = std::min(range.first, state_of(row).saved_pages(row.layer, row.kv_head, state_index(own.field)));
      range.end = std::max(range.end, pages_behind_tail(own, row));
    }
    return range;
  }

  void run_step(const ProgramStep& step, const FlowRow& row, Scratch& scratch) const {
    Tile tile = whole_row(row);
    const PageRange range = step.is_of_leaving_pages ? leaving_pages(row) : PageRange{0, tile.pages};
    if (range.first >= range.end) return;
    for (const Instruction& instruction : step.once) execute(plan_, program_, instruction, tile, scratch);
    if (step.kind == StepKind::kPages) {
      for (tile.first = range.first; tile.first < range.end; tile.first += step.tile_pages) {
        tile.count = std::min(step.tile_pages, range.end - tile.first);
        tile.tile_first = tile.first;
        tile.tile_pages = step.tile_pages;
        for (const Instruction& instruction : step.pages) execute(plan_, program_, instruction, tile, scratch);
      }
    } else {
      for (const Instruction& instruction : step.pages) execute(plan_, program_, instruction, tile, scratch);
    }
    if (step.kind != StepKind::kSelect) return;
    for (const NodeId id : step.effects) run_selection(id, row, scratch);
  }

  void run_selection(NodeId id, const FlowRow& row, Scratch& scratch) const {
    const Node& node = plan_.graph.nodes[static_cast<size_t>(id)];
    const Tile tile = whole_row(row);
    const int index = selection_index_[id];
    int32_t* list = scratch.selection(index).data();
    const auto value = [&](size_t input) { return value_of(plan_.graph, program_, node.inputs[input], 0, tile, scratch); };
    const auto scores = [&] {
      const auto numbers = node.op == Op::kTopKTokens ? static_cast<size_t>(tokens_in(row)) : row.tokens.pages.size();
      const std::span<const float> all(value(0), numbers);
      if (row.scores != nullptr) std::copy(all.begin(), all.end(), row.scores + scored_index_[id] * row.score_stride);
      return all;
    };
    const auto selection = [&](size_t input) {
      const int of = selection_index_[node.inputs[input]];
      return std::span<const int32_t>(scratch.selection(of).data(), static_cast<size_t>(scratch.selection_size(of)));
    };
    int count = 0;
    switch (node.op) {
      case Op::kTopK:
        count = scratch.selector().top_k(scores(), node.attributes, list);
        break;
      case Op::kApproxTopK: {
        const uint64_t key = random_key(row.seed, RandomPurpose::kApproxTopK, row.layer, row.kv_head, row.step);
        count = scratch.selector().approx_top_k(scores(), node.attributes, key, list);
        break;
      }
      case Op::kThreshold:
        count = scratch.selector().threshold(scores(), *value(1), node.attributes, list);
        break;
      case Op::kTopP:
        count = scratch.selector().top_p(scores(), node.attributes, list);
        break;
      case Op::kTopKTokens:
        count = scratch.selector().top_k(scores(), node.attributes, list);
        break;
      case Op::kWindow:
        count = select_window(tile.pages, node.attributes, list);
        break;
      case Op::kUnion:
        if (is_of_tokens_[static_cast<size_t>(id)]) {  // so is one of the two at least, and there is room for the other
          count = select_union(as_tokens(node.inputs[0], row, scratch), as_tokens(node.inputs[1], row, scratch), list);
        } else {
          count = select_union(selection(0), selection(1), list);
        }
        break;
      default:
        throw InternalError("flow: " + std::string(name_of(node.op)) + " is no selection");
    }
    scratch.selection_size(index) = count;
  }

  void keep(NodeId save, const FlowRow& row, Scratch& scratch) const {
    const Node& node = plan_.graph.nodes[static_cast<size_t>(save)];
    const Tile tile = whole_row(row);
    const float* values = value_of(plan_.graph, program_, node.inputs[0], 0, tile, scratch);
    const int state = state_index(node.attributes.field);
    if (node.attributes.last > 0) {
      state_of(row).save_leaving(row.layer, row.kv_head, state, values, pages_behind_tail(node.attributes, row));
    } else {
      state_of(row).save(row.layer, row.kv_head, state, values, tile.pages, row.last_tokens);
    }
  }

  int state_index(const std::string& name) const {
    return static_cast<int>(plan_.graph.find_state(name) - plan_.graph.states.data());
  }

  Plan plan_;
  Program program_;
  int layers_;
  int kv_heads_;
  bool index_saves_;                  // the index stage keeps a state
  int score_state_;                   // of the tokens that may leave; -1: none may
  std::vector<NodeId> united_;        // whose union the result is
  std::vector<bool> is_of_tokens_;    // by node: a selection of tokens
  std::vector<int> selection_index_;  // by node: its list in the scratch, or -1
  std::vector<int> scored_index_;     // by node: its place among those that rank by a score, or -1
};

}  // namespace

}  // namespace flows

std::unique_ptr<Flow> compile_flow(const Plan& plan, int layers, int kv_heads) {
  verify_layers(plan.graph, layers);
  return std::make_unique<flows::CpuFlow>(plan, layers, kv_heads);
}

}  // namespace sluice::cpu
