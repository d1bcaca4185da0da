#include "scripting/graph/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "scripting/graph/ops.h"
#include "scripting/graph/recompute.h"
#include "scripting/graph/shapes.h"
#include "scripting/graph/verify_parts.h"

namespace sluice {

using verifying::refuse;

namespace {

template <typename Enum>
bool is_at_most(Enum value, Enum last) {
  return static_cast<size_t>(value) <= static_cast<size_t>(last);
}

/// Names become parts of file names, SQL and generated code.
bool is_identifier(const std::string& name) {
  if (name.empty() || name.size() > GraphLimits::kNameLength) return false;
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return letter(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

bool is_flow_name(const std::string& name) {
  if (name.empty() || name.size() > GraphLimits::kNameLength || name[0] == '.' || name[0] == '-') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  });
}

/// Infinities are useful (masks); NaN never is, and a number that float32 cannot hold would change silently.
bool is_storable(double value) { return std::isinf(value) || std::abs(value) <= std::numeric_limits<float>::max(); }

void verify_header(const FlowGraph& graph) {
  const SourceLocation& where = graph.where;
  if (!is_flow_name(graph.name)) {
    refuse(where, "the flow's name wants 1 to 64 letters, digits, '_', '-' or '.'", "for example name = \"my_flow\"");
  }
  if (!graph.variant.empty() && !is_flow_name(graph.variant))
    refuse(where, "a variant's name wants 1 to 64 letters, digits, '_', '-' or '.'", "for example flow.variant(\"ends\")");
  const Geometry& geometry = graph.geometry;
  const bool power = geometry.page > 0 && (geometry.page & (geometry.page - 1)) == 0;
  if (!power || geometry.page < 8 || geometry.page > 128) {
    refuse(where, fmt::format("page = {}: a page holds 8, 16, 32, 64 or 128 tokens", geometry.page));
  }
  if (geometry.head_dim < 1 || geometry.head_dim > GraphLimits::kHeadDim) {
    refuse(where, fmt::format("a head of {} channels is not supported, 1 to {} are", geometry.head_dim, GraphLimits::kHeadDim));
  }
  if (geometry.group < 1 || geometry.group > GraphLimits::kGroup) {
    refuse(where, fmt::format("{} query heads a KV head are not supported, 1 to {} are", geometry.group, GraphLimits::kGroup));
  }
  if (!is_at_most(geometry.kv, DataType::kE5M2)) refuse(where, "the KV type does not exist", "f32, bf16, e4m3 or e5m2");
  if (graph.layers.sparse.size() > GraphLimits::kLayers) refuse(where, "more layers are chosen than any model has");
  for (const auto& [layer, sparse] : graph.layers.sparse) {
    if (layer < -GraphLimits::kLayers || layer >= GraphLimits::kLayers)
      refuse(where, fmt::format("layers: there is no layer {}", layer));
  }
  if (graph.nodes.size() > GraphLimits::kNodes) {
    refuse(where, fmt::format("the flow has {} operators, at most {} are allowed", graph.nodes.size(), GraphLimits::kNodes));
  }
  if (graph.fields.size() > GraphLimits::kFields) {
    refuse(where, fmt::format("the flow has {} fields, at most {} are allowed", graph.fields.size(), GraphLimits::kFields));
  }
  if (graph.states.size() > GraphLimits::kStates) {
    refuse(where, fmt::format("the flow has {} states, at most {} are allowed", graph.states.size(), GraphLimits::kStates));
  }
}
void verify_states(const FlowGraph& graph) {
  std::set<std::string> names;
  int64_t kept = 0;
  for (const State& state : graph.states) {
    if (!is_identifier(state.name)) refuse(state.where, "a state's name wants letters, digits and '_', at most 64");
    if (!names.insert(state.name).second) refuse(state.where, fmt::format("state \"{}\" is declared twice", state.name));
    if (graph.find_field(state.name)) refuse(state.where, fmt::format("\"{}\" is a field and a state", state.name), "rename one");
    check_shape(state.shape, fmt::format("state \"{}\"", state.name), state.where);
    if (elements_per_page(state.shape) > GraphLimits::kRowElements) {
      refuse(state.where, fmt::format("state \"{}\" {} is too large, at most {} numbers a page fit", state.name,
                                      to_string(state.shape), GraphLimits::kRowElements));
    }
    kept += elements_per_page(state.shape);
    if (kept > GraphLimits::kKeptElements) {
      refuse(state.where, fmt::format("state \"{}\" {} is one too many, all states together may have {} numbers a page",
                                      state.name, to_string(state.shape), GraphLimits::kKeptElements));
    }
    if (!is_storable(state.initial))
      refuse(state.where, fmt::format("state \"{}\" begins with NaN or beyond float32", state.name));
  }
}

/// Names and types only: what a field's node is, is checked once nodes are known to be sound.
void verify_field_headers(const FlowGraph& graph) {
  std::set<std::string> names;
  for (const Field& field : graph.fields) {
    if (!is_identifier(field.name) || field.name == "k" || field.name == "v") {
      refuse(field.where, fmt::format("\"{}\" cannot be a field's name", field.name),
             "letters, digits and '_', and neither k nor v");
    }
    if (!names.insert(field.name).second) refuse(field.where, fmt::format("field \"{}\" is assigned twice", field.name));
    if (!is_at_most(field.type, DataType::kE5M2)) refuse(field.where, fmt::format("field \"{}\" has no known type", field.name));
    check_shape(field.shape, fmt::format("field \"{}\"", field.name), field.where);
    if (has_axis(field.shape, Axis::kPage))
      refuse(field.where, fmt::format("field \"{}\" must not have a page axis", field.name));
  }
}

void verify_field_nodes(const FlowGraph& graph) {
  for (const Field& field : graph.fields) {
    if (field.node < 0 || static_cast<size_t>(field.node) >= graph.nodes.size()) {
      refuse(field.where, fmt::format("field \"{}\" has no value", field.name));
    }
    const Node& node = graph.nodes[static_cast<size_t>(field.node)];
    if (node.stage != Stage::kCache)
      refuse(field.where, fmt::format("field \"{}\" is not computed in the cache stage", field.name));
    if (node.shape != field.shape) {
      refuse(field.where,
             fmt::format("field \"{}\" is {} and its value {}", field.name, to_string(field.shape), to_string(node.shape)));
    }
  }
}

/// `may_be_empty`: nobody attends to what is selected.
void verify_budget(const Node& node, bool may_be_empty) {
  const Attributes& a = node.attributes;
  for (const auto& [name, value] : {std::pair{"k", a.k}, {"first", a.first}, {"last", a.last}, {"max", a.max_pages}}) {
    if (value < 0 || value > GraphLimits::kPages)
      refuse(node, fmt::format("{} = {} is not a number of {}", name, value, node.op == Op::kTopKTokens ? "tokens" : "pages"));
  }
  if (node.op == Op::kTopK || node.op == Op::kApproxTopK || node.op == Op::kTopKTokens) {
    if (!(a.ratio >= 0 && a.ratio <= 1)) refuse(node, fmt::format("ratio = {} is not between 0 and 1", a.ratio));
    if (a.k + a.first + a.last == 0 && a.ratio == 0 && !may_be_empty) {
      refuse(node, "the budget is empty", "give k, ratio, first or last, for example {ratio = 1/8, first = 1, last = 2}");
    }
  }
  if (node.op == Op::kTopK && !is_at_most(a.method, TopKMethod::kGvr))
    refuse(node, "no such method", "\"auto\", \"radix\" or \"gvr\"");
  if (node.op == Op::kApproxTopK && !(a.tolerate >= 0 && a.tolerate <= 1)) {
    refuse(node, fmt::format("tolerate = {} is not between 0 and 1", a.tolerate));
  }
  if (node.op == Op::kTopP && !(a.value > 0 && a.value <= 1))
    refuse(node, fmt::format("p = {} is no share above 0 and up to 1", a.value), "for example sluice.topp(score, {p = 0.95})");
  const bool needs_forced = node.op == Op::kThreshold || node.op == Op::kTopP || node.op == Op::kWindow;
  if (needs_forced && a.first + a.last == 0 && !may_be_empty) {
    refuse(node, "no page might be selected, and attention needs one", "keep the newest page with last = 1");
  }
  if ((node.op == Op::kThreshold || node.op == Op::kTopP) && a.max_pages > 0 && a.max_pages < a.first + a.last) {
    refuse(node, fmt::format("max = {} is less than first + last = {}", a.max_pages, a.first + a.last));
  }
}

void verify_attributes(const Node& node, bool may_be_empty) {
  const Attributes& a = node.attributes;
  if (!is_at_most(a.axis, Axis::kSub)) refuse(node, "an axis that does not exist");
  if (!is_at_most(a.compare, Compare::kLe)) refuse(node, "a comparison that does not exist");
  if ((node.op == Op::kConstant || node.op == Op::kFill || node.op == Op::kMaskSlice) && !is_storable(a.value)) {
    refuse(node, std::isnan(a.value) ? std::string("the number is NaN") : fmt::format("the number {} is beyond float32", a.value),
           "use a number up to 3.4e38, math.huge or -math.huge");
  }
  if (node.op == Op::kConv1d) {
    if (a.kernel.empty() || a.kernel.size() % 2 == 0 || a.kernel.size() > GraphLimits::kKernel) {
      refuse(node, fmt::format("a kernel of {} numbers; an odd number up to {} is wanted", a.kernel.size(), GraphLimits::kKernel),
             "pad the kernel with a zero");
    }
    if (!std::all_of(a.kernel.begin(), a.kernel.end(), [](float tap) { return std::isfinite(tap); })) {
      refuse(node, "the kernel holds a number that is not finite");
    }
  }
  if (is_selection(node.op)) verify_budget(node, may_be_empty);
}

void verify_inputs(const FlowGraph& graph, const Node& node, NodeId id) {
  const auto wanted = static_cast<size_t>(info_of(node.op).inputs);
  if (node.inputs.size() != wanted) refuse(node, fmt::format("has {} operands and wants {}", node.inputs.size(), wanted));
  for (const NodeId input : node.inputs) {
    if (input < 0 || input >= id) refuse(node, fmt::format("operand {} is not computed before %{}", input, id));
    const Node& operand = graph.nodes[static_cast<size_t>(input)];
    if (operand.stage != node.stage) refuse(node, "an operand belongs to another stage", "pass it through a field or a state");
    if (operand.op == Op::kSave) refuse(node, "a save has no value");
    if (is_selection(operand.op) != (node.op == Op::kUnion)) {
      refuse(node, is_selection(operand.op) ? "got a selection and wants a tensor" : "wants selections and got a tensor");
    }
  }
}

/// What limits of work hold for.
enum class Work : uint8_t { kAll, kComputed };

/// `before`: the stage of the node before.
void verify_stage(const Node& node, Stage before) {
  if (!is_at_most(node.stage, Stage::kAfter)) refuse(node, "a stage that does not exist");
  if (node.stage < before) {
    const std::string_view own = name_of(node.stage);
    const std::string_view begun = name_of(before);
    refuse(node, fmt::format("is of the {} stage, and that of {} has begun", own, begun));
  }
  const OpInfo& info = info_of(node.op);
  if (!exists_in(info, node.stage)) refuse(node, fmt::format("exists in the {} stage only", stages_of(info)));
}

void verify_nodes(const FlowGraph& graph, Work counted) {
  Stage stage = Stage::kCache;
  int64_t work = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!is_op(node.op)) refuse(node.where, fmt::format("%{} is an operator that does not exist", i));
    verify_stage(node, stage);
    stage = node.stage;
    verify_attributes(node, graph.ranks_copies);
    verify_inputs(graph, node, static_cast<NodeId>(i));
    const Shape shape = infer_shape(graph, node);
    if (shape != node.shape) refuse(node, fmt::format("says {} and computes {}", to_string(node.shape), to_string(shape)));
    if (own_attributes(node.op, node.attributes) != node.attributes) refuse(node, "has an attribute that it does not read");
    if (counted == Work::kAll || !is_source(node.op)) work += work_of(graph, node);
    if (work > GraphLimits::kWork) {
      refuse(node, fmt::format("the flow computes more than {} numbers a page", GraphLimits::kWork),
             "summarise pages in flow.cache and score the summaries");
    }
  }
}

void verify_saves(const FlowGraph& graph) {
  std::vector<NodeId> found;
  std::set<std::string> saved;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op != Op::kSave) continue;
    found.push_back(static_cast<NodeId>(i));
    const std::string& name = node.attributes.field;
    const State* state = graph.find_state(name);
    if (!state) refuse(node, fmt::format("no state is called \"{}\"", name));
    if (!saved.insert(name).second) refuse(node, fmt::format("state \"{}\" is saved twice in one step", name));
    const Shape& shape = graph.nodes[static_cast<size_t>(node.inputs[0])].shape;
    if (node.attributes.last < 0 || node.attributes.last > GraphLimits::kPages) {
      refuse(node, fmt::format("a tail of {} pages", node.attributes.last));
    }
    if (node.attributes.last > 0 && !has_axis(shape, Axis::kPage)) {
      refuse(node, fmt::format("state \"{}\" {} has no pages that could leave a tail", name, to_string(shape)),
             "a state with a tail has the axis \"page\"");
    }
    if (shape != state->shape) {
      refuse(node, fmt::format("state \"{}\" is {} and got {}", name, to_string(state->shape), to_string(shape)),
             "declare the state with the axes that are saved, in their order");
    }
  }
  if (found != graph.saves) refuse(graph.where, "the list of saves is not that of the operators");
}

void verify_parts(const FlowGraph& graph, Work counted) {
  verify_header(graph);
  verifying::verify_patterns(graph);
  verify_field_headers(graph);
  verify_states(graph);
  verify_nodes(graph, counted);
  verify_field_nodes(graph);
  verify_saves(graph);
}

/// Whether attention reads a state that is still to be saved.
bool awaits_saves(const FlowGraph& graph) {
  const auto is_saved = [&](const std::string& name) {
    return std::any_of(graph.saves.begin(), graph.saves.end(), [&](NodeId save) {
      const Node& node = graph.nodes[static_cast<size_t>(save)];
      return node.stage == Stage::kAfter && node.attributes.field == name;
    });
  };
  const auto awaits = [&](const std::string& name) { return graph.find_state(name) != nullptr && !is_saved(name); };
  return std::any_of(graph.sources.begin(), graph.sources.end(),
                     [&](const AttentionSource& source) { return awaits(source.keys) || awaits(source.values); });
}

}  // namespace

int64_t work_of(const FlowGraph& graph, const Node& node) {
  int64_t work = elements_per_page(node.shape);
  for (const NodeId input : node.inputs) work = std::max(work, elements_per_page(graph.nodes[static_cast<size_t>(input)].shape));
  if (node.op == Op::kContract) {
    const Shape& a = graph.nodes[static_cast<size_t>(node.inputs[0])].shape;
    work = std::max(work, elements_per_page(node.shape) * a[find_axis(a, node.attributes.axis)].extent);
  }
  if (node.op == Op::kConv1d) work *= static_cast<int64_t>(node.attributes.kernel.size());
  return work;
}

void verify(const FlowGraph& graph) {
  verify_parts(graph, Work::kAll);
  verifying::verify_attention(graph);
  verifying::verify_eviction(graph);
  verifying::verify_variants(graph);
  for (const FlowGraph& variant : graph.variants) verify(variant);
  if (graph.recompute != nullptr) verify_recompute(*graph.recompute);
}

void verify_unfinished(const FlowGraph& graph) {
  verify_parts(graph, Work::kAll);
  verifying::verify_eviction(graph);
  if (graph.sources.empty() || awaits_saves(graph)) return;
  verifying::verify_attention(graph);
  verifying::verify_tails(graph);
}

void verify_planned(const FlowGraph& graph) {
  verify_parts(graph, Work::kComputed);
  verifying::verify_attention(graph);
  verifying::verify_eviction(graph);
}

}  // namespace sluice
