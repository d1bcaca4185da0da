#include "tests/support/flow_script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <vector>

#include "scripting/graph/ops.h"
#include "scripting/pattern/text.h"

namespace sluice::testing {

namespace {

std::string number_text(double value) {
  if (std::isnan(value)) return "(0/0)";
  if (std::isinf(value)) return value > 0 ? "(1/0)" : "(-1/0)";
  return value < 0 ? fmt::format("({})", value) : fmt::format("{}", value);
}

std::string axes_text(const Shape& shape) {
  std::string text;
  for (const Dimension& dimension : shape) {
    const std::string name = fmt::format("\"{}\"", name_of(dimension.axis));
    text += dimension.axis == Axis::kPage ? name + "," : fmt::format("{{{},{}}},", name, dimension.extent);
  }
  return "{" + text + "}";
}

class Writing {
 public:
  explicit Writing(const FlowGraph& graph) : graph_(graph) {}

  std::string run() {
    std::string types;
    for (const Field& field : graph_.fields) types += fmt::format("{}=\"{}\",", field.name, name_of(field.type));
    text_ = fmt::format(
        "local s, v = sluice, {{}}\nlocal flow = s.flow {{ name = \"random\", page = {}, kv = \"{}\", fields = {{{}}} }}\n",
        graph_.geometry.page, name_of(graph_.geometry.kv), types);
    if (graph_.beside() != nullptr) {
      text_ += "local p = s.pattern\nlocal rect, diag, causal, sink, window, dilated = ";
      text_ += "p.rect, p.diag, p.causal, p.sink, p.window, p.dilated\n";
    }
    text_ += "function flow.cache(c)\n";
    write(Stage::kCache);
    for (const Field& field : graph_.fields) text_ += fmt::format("c.{}={}\n", field.name, value(field.node));
    text_ += "end\nfunction flow.index(q, c)\n";
    write(Stage::kIndex);
    return text_ + fmt::format("return {}\nend\nreturn flow\n", attended());
  }

 private:
  void write(Stage stage) {
    for (size_t id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      if (node.stage != stage) continue;
      if (node.op != Op::kSave) text_ += value(static_cast<NodeId>(id)) + "=";
      text_ += call(node) + "\n";
    }
  }

  std::string attended() const {
    const std::string selection = value(graph_.selection());
    if (graph_.beside() == nullptr) return selection;
    return fmt::format("s.union({}, {})", selection, to_text(*graph_.beside()));
  }

  static std::string value(NodeId id) { return fmt::format("v[{}]", id); }

  std::string call(const Node& node) const {
    const Attributes& a = node.attributes;
    const std::string axis = fmt::format("\"{}\"", name_of(a.axis));
    const auto with = [&](const std::string& more) {
      std::string inputs;
      for (const NodeId input : node.inputs) inputs += (inputs.empty() ? "" : ",") + value(input);
      if (!more.empty() && !inputs.empty()) inputs += ",";
      return fmt::format("s.{}({}{})", name_in_scripts(node), inputs, more);
    };
    if (is_reduction(node.op)) return with(axis);
    if (is_interleave(node.op)) return with(fmt::format("{},{}", axis, a.group));
    switch (node.op) {
      case Op::kQuery:
        return "q";
      case Op::kKey:
        return "c.k";
      case Op::kValue:
        return "c.v";
      case Op::kField:
        return "c." + a.field;
      case Op::kConstant:
      case Op::kFill:
        return fmt::format("s.fill({},{})", number_text(a.value), axes_text(node.shape));
      case Op::kLoad:
        return fmt::format("s.load(\"{}\",{{axes={},init={}}})", a.field, axes_text(node.shape),
                           number_text(graph_.find_state(a.field)->initial));
      case Op::kSave:
        return fmt::format("s.save(\"{}\",{})", a.field, value(node.inputs[0]));
      case Op::kContract:
      case Op::kKron:
      case Op::kSoftmax:
      case Op::kNormalize:
        return with(axis);
      case Op::kConv1d:
        return with(fmt::format("{{{}}},{}", fmt::join(a.kernel, ","), axis));
      case Op::kReshape:
        return with(axes_text(node.shape));
      case Op::kMaskSlice:
        return with(fmt::format("{},{},{},{}", axis, a.start, a.stop == kToEnd ? "nil" : fmt::format("{}", a.stop),
                                number_text(a.value)));
      case Op::kTopK:
        return with(fmt::format("{{k={},first={},last={},ratio={}}}", a.k, a.first, a.last, number_text(a.ratio)));
      case Op::kApproxTopK:
        return with(fmt::format("{{k={},first={},last={},ratio={},tolerate={}}}", a.k, a.first, a.last, number_text(a.ratio),
                                number_text(a.tolerate)));
      case Op::kThreshold:
        return fmt::format("s.threshold({},{{above={},first={},last={}{}}})", value(node.inputs[0]), value(node.inputs[1]),
                           a.first, a.last, a.max_pages > 0 ? fmt::format(",max={}", a.max_pages) : "");
      case Op::kTopP:
        return with(fmt::format("{{p={},first={},last={}{}}}", number_text(a.value), a.first, a.last,
                                a.max_pages > 0 ? fmt::format(",max={}", a.max_pages) : ""));
      case Op::kTopKTokens:
        return with(fmt::format("{{k={},first={},last={},ratio={}}}", a.k, a.first, a.last, number_text(a.ratio)));
      case Op::kWindow:
        return fmt::format("s.window{{first={},last={}}}", a.first, a.last);
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
      case Op::kDiv:
        return value(node.inputs[0]) + "+-*/"[static_cast<int>(node.op) - static_cast<int>(Op::kAdd)] + value(node.inputs[1]);
      default:
        return node.inputs.size() == 1 ? fmt::format("{}:{}()", value(node.inputs[0]), name_of(node.op)) : with("");
    }
  }

  static std::string name_in_scripts(const Node& node) {
    if (node.op == Op::kWhere) return fmt::format("where_{}", name_of(node.attributes.compare));
    if (node.op == Op::kContract) return "dot";
    return std::string(name_of(node.op));
  }

  const FlowGraph& graph_;
  std::string text_;
};

}  // namespace

std::string script_of(const FlowGraph& graph) { return Writing(graph).run(); }

}  // namespace sluice::testing
