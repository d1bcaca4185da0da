#include "scripting/graph/text.h"

#include <fmt/format.h>

#include <cmath>

#include "scripting/graph/ops.h"
#include "scripting/graph/recompute.h"
#include "scripting/pattern/text.h"

namespace sluice {

namespace {

constexpr size_t kShapeColumn = 36;

/// The shortest decimal that reads back as the same number: the same on every machine.
std::string number_text(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const auto narrow = static_cast<float>(value);
  return static_cast<double>(narrow) == value ? fmt::format("{}", narrow) : fmt::format("{}", value);
}

std::string bound_text(int bound) { return bound == kToEnd ? "end" : fmt::format("{}", bound); }

std::string budget_text(const Attributes& a) {
  std::string text;
  if (a.k > 0) text += fmt::format(" k={}", a.k);
  if (a.ratio > 0) text += fmt::format(" ratio={}", number_text(a.ratio));
  if (a.first > 0) text += fmt::format(" first={}", a.first);
  if (a.last > 0) text += fmt::format(" last={}", a.last);
  return text;
}

std::string kernel_text(const std::vector<float>& kernel) {
  std::string text;
  for (const float tap : kernel) text += (text.empty() ? "" : " ") + number_text(tap);
  return text;
}

std::string attributes_text(const Node& node) {
  const Attributes& a = node.attributes;
  if (is_reduction(node.op)) return fmt::format(" over {}", name_of(a.axis));
  if (is_interleave(node.op)) return fmt::format(" over {} by {}", name_of(a.axis), a.group);
  switch (node.op) {
    case Op::kConstant:
    case Op::kFill:
      return " " + number_text(a.value);
    case Op::kField:
    case Op::kLoad:
      return " " + a.field;
    case Op::kSave:
      return " " + a.field + (a.last > 0 ? fmt::format(" last={}", a.last) : "");
    case Op::kContract:
    case Op::kKron:
    case Op::kSoftmax:
    case Op::kNormalize:
      return fmt::format(" over {}", name_of(a.axis));
    case Op::kConv1d:
      return fmt::format(" over {} by ({})", name_of(a.axis), kernel_text(a.kernel));
    case Op::kMaskSlice:
      return fmt::format(" over {} from {} to {} else {}", name_of(a.axis), a.start, bound_text(a.stop), number_text(a.value));
    case Op::kTopKTokens:
      return budget_text(a);
    case Op::kTopP:
      return fmt::format(" p={}", number_text(a.value)) + budget_text(a) +
             (a.max_pages > 0 ? fmt::format(" max={}", a.max_pages) : "");
    case Op::kTopK:
      return budget_text(a) + (a.method == TopKMethod::kAuto ? "" : fmt::format(" method={}", name_of(a.method)));
    case Op::kApproxTopK:
      return budget_text(a) + fmt::format(" tolerate={}", number_text(a.tolerate));
    case Op::kThreshold:
      return budget_text(a) + (a.max_pages > 0 ? fmt::format(" max={}", a.max_pages) : "");
    case Op::kWindow:
      return budget_text(a);
    default:
      return "";
  }
}

std::string node_text(const FlowGraph& graph, NodeId id) {
  const Node& node = graph.nodes[static_cast<size_t>(id)];
  std::string text = fmt::format("%{} = {}", id, name_of(node.op));
  if (node.op == Op::kWhere) text += fmt::format("_{}", name_of(node.attributes.compare));
  for (const NodeId input : node.inputs) text += fmt::format(" %{}", input);
  text += attributes_text(node);
  if (has_no_shape(node.op)) return text;
  return fmt::format("{:<{}} {}", text, kShapeColumn, to_string(node.shape));
}

std::string layers_text(const LayerChoice& layers) {
  const auto mode = [](bool sparse) { return sparse ? "sparse" : "full"; };
  std::string text = "{";
  for (const auto& [layer, sparse] : layers.sparse) text += fmt::format("{}: {}, ", layer, mode(sparse));
  return text + fmt::format("rest: {}}}", mode(layers.rest_sparse));
}

std::string patterns_text(const LayerPatterns& patterns) {
  if (patterns.empty()) return "";
  const auto text_of = [&](int place) {
    return place == LayerPatterns::kNone ? "full" : to_text(patterns.patterns[static_cast<size_t>(place)]);
  };
  const char* const prefill = patterns.dense_prefill ? " prefill dense" : "";
  if (patterns.layers.empty()) return fmt::format("pattern {}{}\n", text_of(patterns.rest), prefill);
  std::string text = "pattern {";
  for (const auto& [layer, place] : patterns.layers) text += fmt::format("{}: {}, ", layer, text_of(place));
  return text + fmt::format("rest: {}}}{}\n", text_of(patterns.rest), prefill);
}

std::string header_text(const FlowGraph& graph) {
  const Geometry& g = graph.geometry;
  return fmt::format("flow \"{}\" page {} kv {} dim {} group {} layers {}\n", graph.name, g.page, name_of(g.kv), g.head_dim,
                     g.group, layers_text(graph.layers));
}

std::string stage_text(const FlowGraph& graph, Stage stage) {
  std::string text;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].stage == stage) text += "  " + node_text(graph, static_cast<NodeId>(i)) + "\n";
  }
  return text;
}

/// "select %5" or "select %5 and diag(0, 512)" for the plain one, else a line for each: "attend %5 by ksum, vsum + %7".
std::string sources_text(const FlowGraph& graph) {
  if (graph.sources.empty()) return "";
  const auto beside = [](const AttentionSource& source) {
    return source.beside ? fmt::format(" and {}\n", to_text(*source.beside)) : std::string("\n");
  };
  if (graph.attends_plainly()) return fmt::format("  select %{}{}", graph.selection(), beside(graph.sources.front()));
  std::string text;
  for (const AttentionSource& source : graph.sources) {
    text +=
        fmt::format("  attend {}%{} by {}, {}", source.others ? "others of " : "", source.selection, source.keys, source.values);
    if (source.logits != kNoNode) text += fmt::format(", logits %{}", source.logits);
    if (source.bias != kNoNode) text += fmt::format(" + %{}", source.bias);
    if (source.shares) text += " shared";
    if (source.group_pages > 1) text += fmt::format(", {} pages together", source.group_pages);
    if (source.opened != kNoNode) text += fmt::format(" but those of %{}", source.opened);
    text += beside(source);
  }
  return text;
}

/// "evict by evict_score budget 512 first 4 recent 256 chunk 254", or "... prompt".
std::string eviction_text(const Eviction& eviction) {
  std::string text =
      fmt::format("  evict by {} budget {} first {} recent {}", eviction.score, eviction.budget, eviction.first, eviction.recent);
  text += eviction.chunk > 0 ? fmt::format(" chunk {}", eviction.chunk) : std::string(" prompt");
  if (eviction.keep) text += fmt::format(" keep {}", to_text(*eviction.keep));
  return text + "\n";
}

/// "after prompts all", "after prompts 64" or "after prompts none": the rows of a prompt that count.
std::string after_text(const FlowGraph& graph) {
  const std::string after = stage_text(graph, Stage::kAfter);
  if (after.empty()) return "";
  const std::string rows = graph.mass_rows == kToEnd ? "all" : graph.mass_rows == 0 ? "none" : fmt::format("{}", graph.mass_rows);
  return fmt::format("after prompts {}\n{}{}", rows, after, graph.eviction ? eviction_text(*graph.eviction) : "");
}

std::string ids_text(const std::vector<NodeId>& ids) {
  std::string text;
  for (const NodeId id : ids) text += fmt::format(" %{}", id);
  return text;
}

/// Bytes of a step's outputs in its row buffers: "4 B a page + 256 B".
std::string buffers_text(const FlowGraph& graph, const PlanStep& step) {
  int64_t per_page = 0;
  int64_t fixed = 0;
  if (step.kind == StepKind::kSelect) return "a list of pages";
  for (const NodeId id : step.outputs) {
    const Shape& shape = graph.nodes[static_cast<size_t>(id)].shape;
    (has_axis(shape, Axis::kPage) ? per_page : fixed) += elements_per_page(shape) * static_cast<int64_t>(sizeof(float));
  }
  std::string text;
  if (per_page > 0) text += fmt::format("{} B a page", per_page);
  if (fixed > 0) text += fmt::format("{}{} B", text.empty() ? "" : " + ", fixed);
  return text;
}

std::string steps_text(const FlowGraph& graph, const std::vector<PlanStep>& steps) {
  std::string text;
  for (size_t i = 0; i < steps.size(); ++i) {
    text += fmt::format("  {} {}:{}", i, name_of(steps[i].kind), ids_text(steps[i].nodes));
    if (steps[i].is_of_leaving_pages) text += " (leaving pages)";
    if (!steps[i].outputs.empty()) text += fmt::format(" ->{} ({})", ids_text(steps[i].outputs), buffers_text(graph, steps[i]));
    text += "\n";
  }
  return text;
}

}  // namespace

std::string_view name_of(StepKind kind) {
  constexpr std::string_view kNames[] = {"query", "pages", "row", "select", "save"};
  return kNames[static_cast<size_t>(kind)];
}

std::string to_text(const FlowGraph& graph, NodeId node) { return node_text(graph, node); }

std::string to_text(const FlowGraph& graph) {
  std::string text = header_text(graph) + patterns_text(graph.patterns);
  for (const State& state : graph.states) {
    text += fmt::format("state {} {} = {}\n", state.name, to_string(state.shape), number_text(state.initial));
  }
  if (const std::string cache = stage_text(graph, Stage::kCache); !cache.empty() || !graph.fields.empty()) {
    text += "cache\n" + cache;
    for (const Field& field : graph.fields)
      text += fmt::format("  field {} {} = %{}\n", field.name, name_of(field.type), field.node);
  }
  if (const std::string index = stage_text(graph, Stage::kIndex); !index.empty()) {
    text += "index\n" + index;
    text += sources_text(graph);
  }
  text += after_text(graph);
  if (graph.recompute != nullptr) text += to_text(*graph.recompute);
  for (const FlowGraph& variant : graph.variants) text += fmt::format("variant \"{}\"\n{}", variant.variant, to_text(variant));
  return text;
}

std::string to_text(const Plan& plan) {
  std::string text = to_text(plan.graph);
  text += fmt::format("page {} B: key at {}, value at {}", plan.layout.bytes, plan.layout.key_offset, plan.layout.value_offset);
  if (plan.has_field_pages()) text += fmt::format("\nfield page {} B", plan.fields().bytes);
  for (size_t i = 0; i < plan.graph.fields.size(); ++i) {
    const char* const sign = i == 0 && plan.has_field_pages() ? ":" : ",";
    text += fmt::format("{} {} at {}", sign, plan.graph.fields[i].name, plan.fields().field_offsets[i]);
  }
  text += "\nplan\n";
  if (!plan.cache.empty()) text += fmt::format("  refresh:{}\n", ids_text(plan.cache));
  text += steps_text(plan.graph, plan.index);
  if (!plan.after.empty()) text += "after\n" + steps_text(plan.graph, plan.after);
  for (const Plan& variant : plan.variants) text += fmt::format("variant \"{}\"\n{}", variant.graph.variant, to_text(variant));
  return text;
}

}  // namespace sluice
