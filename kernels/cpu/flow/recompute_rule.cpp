#include "kernels/device/recompute_rule.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>

#include "kernels/cpu/flow/flow.h"
#include "kernels/cpu/flow/state.h"
#include "scripting/base/bits.h"
#include "scripting/graph/plan.h"
#include "scripting/graph/selections.h"

namespace sluice {
namespace {

/// Whether nothing is done with facts by head but to sum them over all heads.
bool sums_all_heads(const FlowGraph& graph) {
  const auto by_head = [&](NodeId id) { return has_axis(graph.nodes[static_cast<size_t>(id)].shape, Axis::kHead); };
  return std::all_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    if (has_axis(node.shape, Axis::kHead) && node.op != Op::kLoad) return false;
    const bool is_sum = node.op == Op::kSum && node.attributes.axis == Axis::kHead;
    return is_sum || std::none_of(node.inputs.begin(), node.inputs.end(), by_head);
  });
}

/// The same with one head.
FlowGraph with_one_head(FlowGraph graph) {
  const auto narrow = [](Shape& shape) {
    for (Dimension& dimension : shape) {
      if (dimension.axis == Axis::kHead) dimension.extent = 1;
    }
  };
  graph.geometry.group = 1;
  for (Node& node : graph.nodes) narrow(node.shape);
  for (State& state : graph.states) narrow(state.shape);
  return graph;
}

/// The index stage of a flow whose pages are copied blocks, and whose states are facts.
class CpuRecomputeRule final : public RecomputeRule {
 public:
  explicit CpuRecomputeRule(std::shared_ptr<const Recompute> rule) : rule_(std::move(rule)) {
    if (rule_->kind != Recompute::Kind::kSelected) return;
    sums_heads_ = sums_all_heads(rule_->graph);
    flow_ = cpu::compile_flow(compile(sums_heads_ ? with_one_head(rule_->graph) : rule_->graph).plan, 1, 1);
    constexpr int kFew = 64;
    constexpr int kMore = 1024;
    fixed_bytes_ = measure(kFew);
    block_bytes_ = (measure(kMore) - fixed_bytes_) / (kMore - kFew) + 1;
  }

  const Recompute& rule() const override { return *rule_; }

  bool reads(CopyFact fact) const override {
    if (flow_ == nullptr) return false;
    const std::vector<State>& states = flow_->plan().graph.states;
    return std::any_of(states.begin(), states.end(), [&](const State& state) { return fact_of(state) == fact; });
  }

  bool sums_heads() const override { return sums_heads_; }

  size_t bytes(int blocks) const override { return fixed_bytes_ + block_bytes_ * static_cast<size_t>(blocks); }

  std::vector<int32_t> select(int blocks, uint64_t seed, const Fill& fill) const override {
    if (flow_ == nullptr) throw InternalError("recompute: the rule selects nothing");
    if (blocks < 1) return {};
    const FlowGraph& graph = flow_->plan().graph;
    const int page = graph.geometry.page;
    std::unique_ptr<Room> room = take_room(blocks);
    cpu::flows::FlowState& state = room->state;
    const auto take = [&](bool of_layer) {
      for (size_t i = 0; i < graph.states.size(); ++i) {
        const CopyFact fact = fact_of(graph.states[i]);
        if (copy_facts()[static_cast<size_t>(fact)].of_layer != of_layer) continue;
        const auto numbers = static_cast<size_t>(blocks) * static_cast<size_t>(elements_per_page(graph.states[i].shape));
        float* const values = state.load(0, 0, static_cast<int>(i), blocks);
        fill(fact, {values, numbers});
        state.save(0, 0, static_cast<int>(i), values, blocks, page);
      }
    };
    take(false);
    take(true);
    std::vector<int32_t> places(static_cast<size_t>(blocks));
    std::iota(places.begin(), places.end(), 0);
    const cpu::PageTable table{.base = nullptr, .stride = 0, .pages = places};
    std::vector<int32_t> selected(places.size());
    const cpu::FlowRow row{
        .tokens = table, .fields = table, .last_tokens = page, .seed = seed, .step = int64_t{blocks} * page, .state = &state};
    selected.resize(static_cast<size_t>(flow_->select(row, *room->scratch, selected.data())));
    const bool of_tokens = is_of_tokens(graph, graph.selection());
    const std::span<const uint32_t> words = flow_->selected_tokens(*room->scratch);
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < selected.size(); ++i) {
      for (int token = 0; token < page; ++token) {
        if (!of_tokens || has_bit(words, static_cast<int64_t>(i) * page + token)) tokens.push_back(selected[i] * page + token);
      }
    }
    keep_room(std::move(room));
    return tokens;
  }

 private:
  /// What a call needs, for up to so many blocks.
  struct Room {
    Room(const cpu::Flow& flow, int blocks)
        : blocks(blocks), state(flow.plan().graph, 1, 1, blocks), scratch(flow.create_scratch(blocks)) {}

    int blocks;
    cpu::flows::FlowState state;
    std::unique_ptr<cpu::FlowScratch> scratch;
  };

  /// That of an earlier call, if it is large enough: memory that nobody has touched yet takes longer than the rule.
  std::unique_ptr<Room> take_room(int blocks) const {
    {
      const std::lock_guard lock(mutex_);
      if (spare_ != nullptr && spare_->blocks >= blocks) return std::move(spare_);
    }
    return std::make_unique<Room>(*flow_, blocks);
  }
  void keep_room(std::unique_ptr<Room> room) const {
    constexpr size_t kMost = size_t{32} << 20;  // bytes
    const std::lock_guard lock(mutex_);
    if (bytes(room->blocks) <= kMost && (spare_ == nullptr || spare_->blocks < room->blocks)) spare_ = std::move(room);
  }

  size_t measure(int blocks) const {
    return flow_->create_scratch(blocks)->bytes() + cpu::flows::FlowState(flow_->plan().graph, 1, 1, blocks).bytes();
  }
  static CopyFact fact_of(const State& state) { return find_copy_fact(state.name)->fact; }

  std::shared_ptr<const Recompute> rule_;
  std::unique_ptr<cpu::Flow> flow_;  // of kSelected
  bool sums_heads_ = false;
  size_t fixed_bytes_ = 0;
  size_t block_bytes_ = 0;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Room> spare_;
};

}  // namespace

bool RecomputeRule::reads_layer() const {
  return std::any_of(copy_facts().begin(), copy_facts().end(),
                     [&](const CopyFactInfo& each) { return each.of_layer && reads(each.fact); });
}

bool RecomputeRule::reads_heads() const {
  return std::any_of(copy_facts().begin(), copy_facts().end(),
                     [&](const CopyFactInfo& each) { return each.by_head && reads(each.fact); });
}

std::shared_ptr<const RecomputeRule> make_recompute_rule(std::shared_ptr<const Recompute> rule) {
  return std::make_shared<const CpuRecomputeRule>(std::move(rule));
}

}  // namespace sluice
