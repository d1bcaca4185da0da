#include "kernels/cpu/flow/program.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "kernels/cpu/flow/instruction.h"
#include "kernels/cpu/flow/tile_space.h"
#include "scripting/graph/ops.h"

namespace sluice::cpu::flows {

namespace {

/// Floats of tile buffers that are live at once: with the pages they are read from, they stay in a first-level cache or
/// little beyond it.
constexpr int64_t kTileFloats = 12 * 1024;
constexpr int64_t kMostTilePages = 256;

int64_t padded(int64_t floats) { return (floats + kPadding - 1) / kPadding * kPadding; }

class Lowering {
 public:
  explicit Lowering(const Plan& plan) : plan_(plan), graph_(plan.graph) {
    program_.slots.resize(graph_.nodes.size());
    readable_.resize(graph_.nodes.size());
    readers_.resize(graph_.nodes.size());
    copied_.resize(graph_.nodes.size());
    for (const Node& reader : graph_.nodes) {
      for (const NodeId input : reader.inputs) ++readers_[static_cast<size_t>(input)];
    }
  }

  Program run() {
    place_constants();
    // Attention reads a bias after the states have been saved.
    for (const AttendedSource& source : plan_.attend.sources) {
      if (source.bias != kNoNode && node(source.bias).op == Op::kLoad) copied_[static_cast<size_t>(source.bias)] = true;
    }
    order_saves();
    for (const NodeId id : plan_.cache) {
      if (node(id).op == Op::kConstant) continue;
      place_fixed(id);
      program_.cache.push_back(lower_checked(id));
    }
    for (const PlanStep& step : plan_.index) lower_step(step, program_.index);
    for (const PlanStep& step : plan_.after) lower_step(step, program_.after);
    program_.fixed_floats += kPadding;
    program_.tile_floats += kPadding;
    return std::move(program_);
  }

 private:
  const Node& node(NodeId id) const {
    if (id < 0 || static_cast<size_t>(id) >= graph_.nodes.size())
      throw InternalError("flow: the plan names no node of its graph");
    return graph_.nodes[static_cast<size_t>(id)];
  }
  Slot& slot(NodeId id) { return program_.slots[static_cast<size_t>(id)]; }

  void place_constants() {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes.size()); ++id) {
      if (node(id).op == Op::kConstant) place_fixed(id);
    }
  }
  void place_fixed(NodeId id) {
    slot(id) = {Place::kFixed, program_.fixed_floats, 0};
    readable_[static_cast<size_t>(id)] = true;
    program_.fixed_floats += padded(elements_per_page(node(id).shape));
  }
  void place_row(NodeId id) {
    const int64_t elements = elements_per_page(node(id).shape);
    slot(id) = {Place::kRow, program_.row_floats, elements};
    readable_[static_cast<size_t>(id)] = true;
    program_.row_floats += elements;
  }
  void place_state(NodeId id) {
    const Shape& shape = node(id).shape;
    readable_[static_cast<size_t>(id)] = true;
    slot(id) = {Place::kState, state_index(node(id).attributes.field),
                has_axis(shape, Axis::kPage) ? elements_per_page(shape) : 0};
  }

  /// True if `save` takes its value from where `state` lies.
  bool reads_in_place(NodeId save, const std::string& state) const {
    const NodeId value = node(save).inputs[0];
    return node(value).op == Op::kLoad && node(value).attributes.field == state && !copied_[static_cast<size_t>(value)];
  }

  /// A load is the state's own memory, so a state is saved after those that are saved from it. States that hand their values
  /// round in a circle have no such order: one load of each circle is copied.
  void order_saves() {
    std::vector<NodeId> left = graph_.saves;
    while (!left.empty()) {
      const auto reads = [&](NodeId other, NodeId save) {
        return other != save && reads_in_place(other, node(save).attributes.field);
      };
      const auto unread = std::find_if(left.begin(), left.end(), [&](NodeId save) {
        return std::none_of(left.begin(), left.end(), [&](NodeId other) { return reads(other, save); });
      });
      if (unread != left.end()) {
        program_.saves.push_back(*unread);
        left.erase(unread);
        continue;
      }
      for (const NodeId other : left) {
        if (reads(other, left.front())) copied_[static_cast<size_t>(node(other).inputs[0])] = true;
      }
    }
  }

  int64_t state_index(const std::string& name) const {
    for (size_t i = 0; i < graph_.states.size(); ++i) {
      if (graph_.states[i].name == name) return static_cast<int64_t>(i);
    }
    throw InternalError("flow: no state \"" + name + "\"");
  }

  /// Values must be where the step that runs `id` can read them.
  Instruction lower_checked(NodeId id) { return lower_checked(id, node(id).inputs); }
  Instruction lower_checked(NodeId id, std::span<const NodeId> operands) {
    for (const NodeId input : operands) {
      const bool has_value = !has_no_shape(node(input).op);
      if (has_value && !readable_[static_cast<size_t>(input)]) {
        throw InternalError("flow: node " + std::to_string(id) + " reads node " + std::to_string(input) +
                            ", which its plan does not keep");
      }
    }
    return lower_node(graph_, id);
  }

  void place_masses(NodeId id) {
    readable_[static_cast<size_t>(id)] = true;
    slot(id) = {Place::kMass, 0, elements_per_page(node(id).shape)};
  }

  void lower_step(const PlanStep& step, std::vector<ProgramStep>& steps) {
    ProgramStep lowered;
    lowered.kind = step.kind;
    lowered.is_of_leaving_pages = step.is_of_leaving_pages;
    std::vector<NodeId> tiled;
    for (const NodeId id : step.nodes) {
      const Node& current = node(id);
      if (current.op == Op::kConstant) continue;
      if (has_no_shape(current.op)) {
        lower_checked(id);
        lowered.effects.push_back(id);
      } else if (current.op == Op::kLoad && !copied_[static_cast<size_t>(id)]) {
        place_state(id);
      } else if (current.op == Op::kMass) {
        place_masses(id);
      } else if (!has_axis(current.shape, Axis::kPage)) {
        place_fixed(id);
        Instruction instruction = lower_checked(id);
        (instruction.along_page ? lowered.pages : lowered.once).push_back(std::move(instruction));
      } else if (step.kind == StepKind::kPages && current.op != Op::kLoad) {
        tiled.push_back(id);
      } else {
        place_row(id);
        lowered.pages.push_back(lower_checked(id));
      }
    }
    lowered.tile_pages = kMostTilePages;
    if (!tiled.empty()) lower_tiles(step, tiled, lowered);
    steps.push_back(std::move(lowered));
    // What stayed in a tile cannot be read by later steps.
    for (const NodeId id : tiled) {
      if (slot(id).place == Place::kTile) readable_[static_cast<size_t>(id)] = false;
    }
  }

  /// A node of a fused step that is computed, with the values that it reads from buffers.
  struct TileNode {
    NodeId id = kNoNode;
    std::vector<NodeId> operands;
    std::optional<Fusion> fusion;
  };

  /// The nodes of a fused step without those that reductions compute on the way or read in pages.
  std::vector<TileNode> fuse_reductions(const PlanStep& step, const std::vector<NodeId>& tiled) const {
    FusionRules rules{std::vector<bool>(graph_.nodes.size()), std::vector<bool>(graph_.nodes.size())};
    std::vector<bool> in_step(graph_.nodes.size());
    for (const NodeId id : tiled) in_step[static_cast<size_t>(id)] = true;
    for (const NodeId id : step.outputs) in_step[static_cast<size_t>(id)] = false;
    for (const NodeId id : tiled) {
      const auto at = static_cast<size_t>(id);
      rules.absorbable[at] = in_step[at] && is_elementwise(node(id).op) && readers_[at] == 1;
      rules.in_page[at] = in_step[at] && lies_in_page(node(id));
    }
    std::vector<TileNode> nodes;
    std::vector<bool> unread(graph_.nodes.size());
    for (const NodeId id : tiled) {
      TileNode one{id, node(id).inputs, fuse_reduction(plan_, id, rules)};
      if (one.fusion) {
        one.operands.clear();
        for (size_t leaf = 0; leaf < one.fusion->sources.size(); ++leaf) {
          if (!one.fusion->kernel.leaves[leaf].in_page) one.operands.push_back(one.fusion->sources[leaf].node);
        }
        for (const NodeId inside : one.fusion->absorbed) unread[static_cast<size_t>(inside)] = true;
      }
      nodes.push_back(std::move(one));
    }
    std::erase_if(nodes, [&](const TileNode& one) { return unread[static_cast<size_t>(one.id)]; });
    unread = rules.in_page;
    for (const TileNode& one : nodes) {
      for (const NodeId operand : one.operands) unread[static_cast<size_t>(operand)] = false;
    }
    std::erase_if(nodes, [&](const TileNode& one) { return unread[static_cast<size_t>(one.id)]; });
    return nodes;
  }

  /// True for what kernels read as pages store it.
  static bool lies_in_page(const Node& source) {
    return source.op == Op::kField || source.op == Op::kKey || source.op == Op::kValue;
  }

  /// Places the nodes of a fused step, reusing the space of values that no later node of the step reads.
  void lower_tiles(const PlanStep& step, const std::vector<NodeId>& tiled, ProgramStep& lowered) {
    std::vector<TileNode> nodes = fuse_reductions(step, tiled);
    std::map<NodeId, size_t> last_use;
    for (size_t i = 0; i < nodes.size(); ++i) {
      last_use[nodes[i].id] = i;
      for (const NodeId operand : nodes[i].operands) last_use[operand] = i;
    }
    TileSpace space;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const NodeId id = nodes[i].id;
      const int64_t elements = elements_per_page(node(id).shape);
      Instruction instruction = lower_checked(id, nodes[i].operands);
      instruction.fusion = std::move(nodes[i].fusion);
      if (instruction.along_page && instruction.op != Op::kMaskSlice) {
        throw InternalError("flow: node " + std::to_string(id) + " works along pages and cannot be fused");
      }
      std::vector<NodeId> dying;
      for (const NodeId operand : nodes[i].operands) {
        const bool dies = slot(operand).place == Place::kTile && last_use[operand] == i;
        if (dies && std::find(dying.begin(), dying.end(), operand) == dying.end()) dying.push_back(operand);
      }
      if (std::find(step.outputs.begin(), step.outputs.end(), id) != step.outputs.end()) {
        place_row(id);
      } else {
        // An elementwise result may overwrite an operand that it replaces entry by entry.
        const auto replaced = std::find_if(dying.begin(), dying.end(), [&](NodeId input) {
          return is_elementwise(node(id).op) && node(input).shape == node(id).shape;
        });
        if (replaced != dying.end()) {
          slot(id) = {Place::kTile, slot(*replaced).offset, elements};
          dying.erase(replaced);
        } else {
          slot(id) = {Place::kTile, space.take(elements), elements};
        }
        readable_[static_cast<size_t>(id)] = true;
        if (last_use[id] == i) dying.push_back(id);
      }
      for (const NodeId gone : dying) space.give_back(slot(gone).offset, slot(gone).per_page);
      lowered.pages.push_back(std::move(instruction));
    }
    int64_t tile = std::clamp<int64_t>(kTileFloats / std::max<int64_t>(space.peak(), 1), 1, kMostTilePages);
    if (tile > kPadding) tile -= tile % kPadding;
    lowered.tile_pages = static_cast<int>(tile);
    program_.tile_floats = std::max(program_.tile_floats, tile * space.peak());
  }

  const Plan& plan_;
  const FlowGraph& graph_;
  Program program_;
  std::vector<bool> readable_;  // by node: its value can be read where lowering stands
  std::vector<int> readers_;    // by node: how often nodes read it
  std::vector<bool> copied_;    // by node: a load that is not read where the state lies
};

}  // namespace

Program lower(const Plan& plan) { return Lowering(plan).run(); }

}  // namespace sluice::cpu::flows
