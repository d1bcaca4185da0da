#include "scripting/repl/reference.h"

#include <fmt/format.h>

#include <sstream>
#include <vector>

#include "scripting/base/suggest.h"
#include "scripting/graph/ops.h"
#include "scripting/lua/functions.h"

namespace sluice::repl {

namespace {

std::vector<std::string> lua_names(const OpInfo& info) {
  std::istringstream stream{std::string(info.lua_names)};
  std::vector<std::string> names;
  for (std::string name; stream >> name;) names.push_back(name);
  return names;
}

/// How the arguments are written, and the shape of the result (docs/FLOWS.md).
struct Form {
  std::string arguments;
  std::string shape;
};

Form form_of(Op op) {
  if (is_unary_elementwise(op)) return {"(x)", "[axes] -> [axes]"};
  if (is_binary_elementwise(op)) return {"(a, b)", "[axes], [axes] -> the axes of both, by name"};
  if (is_reduction(op)) return {"(x, axis, ...)", "[axes] -> [axes without axis]"};
  if (is_interleave(op)) return {"(x, axis, group)", "[axis n] -> [sub n/group], the other axes stay"};
  switch (op) {
    case Op::kWhere:
      return {"(a, b, x, y)", "[axes] of four -> the axes of all, by name"};
    case Op::kFill:
      return {"(value, axes)", "-> [axes]"};
    case Op::kContract:
      return {"(a, b, axis = \"dim\")", "[axis, ...], [axis, ...] -> the other axes of both, by name"};
    case Op::kKron:
      return {"(a, b, axis)", "[axis m], [axis n] -> [axis m*n]"};
    case Op::kSoftmax:
    case Op::kNormalize:
      return {"(x, axis = \"page\")", "[axes] -> [axes]"};
    case Op::kConv1d:
      return {"(x, kernel, axis = \"page\")", "[axes] -> [axes]"};
    case Op::kReshape:
      return {"(x, axes)", "[axes] -> the axes given; page stays"};
    case Op::kTranspose:
      return {"(x)", "[..., a, b] -> [..., b, a]"};
    case Op::kMaskSlice:
      return {"(x, axis, start = 0, stop = end, value = 0)", "[axes] -> [axes]"};
    case Op::kPosition:
    case Op::kRandom:
      return {"()", "-> [page]"};
    case Op::kLoad:
      return {"(name, {axes =, init =})", "-> the axes of the state"};
    case Op::kSave:
      return {"(name, x, {tail =})", "the axes of the state"};
    case Op::kTopK:
      return {"(score, {k =, first =, last =, ratio =, method =})", "[page] -> a selection"};
    case Op::kApproxTopK:
      return {"(score, {k =, first =, last =, ratio =, tolerate = 0.1})", "[page] -> a selection"};
    case Op::kThreshold:
      return {"(score, {above =, first =, last =, max =})", "[page] -> a selection"};
    case Op::kTopP:
      return {"(score, {p =, first =, last =, max =})", "[page] -> a selection"};
    case Op::kTopKTokens:
      return {"(score, {k =, first =, last =, ratio =})", "[page, token] -> a selection of tokens"};
    case Op::kWindow:
      return {"{first =, last =}", "-> a selection"};
    case Op::kUnion:
      return {"(a, b, ...)", "selections -> a selection"};
    default:
      return {};
  }
}

/// Functions that are no single operator.
const std::vector<OperatorReference>& composed() {
  static const std::vector<OperatorReference> functions = {
      {"add_mul", "sluice.add_mul(x, a, b)", "cache, index and after", "the axes of all, by name", "(x + a) * b"},
      {"cfill", "c.NAME = sluice.cfill(value, axes)", "cache", "-> a state [page, axes]",
       "declares a state that begins as a number"},
      {"cover",
       "sluice.cover{refine =, k =, v =, mass = \"preserve\", bias = \"count\", tail = 128, levels = 1, group = 8, "
       "open = \"none\"}",
       "index", "a selection, fields or states [dim] -> a cover",
       "attends to the pages of `refine` and the newest token by token, and to all others each through what stands for it"},
      {"evict", "sluice.evict(score, {budget =, first = 0, recent = 1, compress = \"chunk\", chunk =, keep =})", "after",
       "[page, token]", "tokens with the lowest scores leave once there are `budget`"},
      {"extent", "sluice.extent(x, axis)", "cache, index and after", "", "the extent as a Lua number; not of page"},
      {"flow", "sluice.flow { name =, page =, kv =, fields =, layers =, prompt_mass =, recompute = }", "", "",
       "declares the flow, outside its stages"},
      {"mass", "flow.after(q, c, mass)", "after", "[page, token, head]",
       "what attention gave each token: of a head 1 in all, 0 where it did not look"},
      {"parameter", "sluice.parameter(name, value)", "", "", "a number, a text or one of a list, which may be set from outside"},
      {"variant", "local other = flow.variant(name)", "", "",
       "another program of the flow, with stages of its own, for the layers that `layers` gives its name"},
  };
  return functions;
}

constexpr std::string_view kPatternPrefix = "pattern.";

OperatorReference of_pattern(std::string_view name, std::string_view arguments, std::string_view summary) {
  return {fmt::format("{}{}", kPatternPrefix, name), fmt::format("sluice.{}{}{}", kPatternPrefix, name, arguments),
          "outside stages, index", "-> a pattern", std::string(summary)};
}

/// Which keys a query at i sees, by geometry alone: those at j <= i of which the summary is true.
const std::vector<OperatorReference>& patterns() {
  static const std::vector<OperatorReference> functions = {
      of_pattern("rect", "{size =, at = 0, stride = 1, offset = 0}",
                 "a rectangle of rows and columns, each a number or {rows, columns}, spread by strides"),
      of_pattern("diag", "{offset = 0, size =, stride = 1}",
                 "offset <= i - j < offset + size, where stride divides i - j - offset"),
      of_pattern("causal", "()", "all of them"),
      of_pattern("sink", "(n)", "j < n"),
      of_pattern("window", "(w)", "i - j < w"),
      of_pattern("dilated", "(w, r)", "i - j < w * r, and r divides i - j"),
      of_pattern("blocks", "(b, n)", "i // b - j // b < n"),
      of_pattern("strided", "(w, s)", "i - j < w, or s divides i - j"),
      of_pattern("fixed", "(b)", "i // b = j // b, or j % b = b - 1"),
      of_pattern("by_head", "{a, b, ...}", "KV head h has the pattern at place h modulo their number"),
      of_pattern("intersect", "(a, b, ...)", "those that all see; also a & b, a * b"),
      of_pattern("unite", "(a, b, ...)", "those that any sees; also a | b, a + b"),
      of_pattern("complement", "(a)", "those that it does not see; also ~a"),
      of_pattern("spread", "(block, a)", "a block for each point of a, as a Kronecker product; also block >> a"),
  };
  return functions;
}

std::string text_of(const OperatorReference& reference) {
  std::string text = fmt::format("{}   {}\n", reference.signature, reference.summary);
  if (!reference.stage.empty()) text += fmt::format("  stage: {}\n", reference.stage);
  if (!reference.shape.empty()) text += fmt::format("  shape: {}\n", reference.shape);
  return text;
}

/// Where a pattern has the name of an operator.
std::string namesake_of(const OperatorReference& reference) {
  for (const OperatorReference& pattern : patterns()) {
    if (pattern.name == fmt::format("{}{}", kPatternPrefix, reference.name))
      return fmt::format("  see also: {}\n", pattern.signature);
  }
  return {};
}

}  // namespace

std::vector<OperatorReference> operator_references() {
  std::vector<OperatorReference> references;
  for (const OpInfo& info : all_ops()) {
    const Form form = form_of(info.op);
    for (const std::string& name : lua_names(info)) {
      references.push_back({name, fmt::format("sluice.{}{}", name, form.arguments), std::string(stages_of(info)), form.shape,
                            std::string(info.doc)});
    }
  }
  for (const std::vector<OperatorReference>& more : {composed(), patterns()})
    references.insert(references.end(), more.begin(), more.end());
  return references;
}

std::string operator_list() {
  std::string text;
  const std::vector<OperatorReference> references = operator_references();
  for (const std::string_view stages : {"cache, index and after", "cache", "index and after", "index", "after", ""}) {
    std::string line;
    for (const OperatorReference& reference : references) {
      if (reference.stage == stages) line += " " + reference.name;
    }
    text += fmt::format("{}:{}\n", stages.empty() ? "outside stages" : stages, line);
  }
  text += "patterns:";
  for (const OperatorReference& reference : patterns()) text += " " + reference.name;
  return text + "\n";
}

std::string operator_help(const std::string& name) {
  const std::vector<OperatorReference> references = operator_references();
  std::vector<std::string> known;
  for (const std::string& called : {name, fmt::format("{}{}", kPatternPrefix, name)}) {
    for (const OperatorReference& reference : references) {
      if (reference.name == called || "sluice." + reference.name == called) return text_of(reference) + namesake_of(reference);
      known.push_back(reference.name);
    }
  }
  if (name == "pattern" || name == "sluice.pattern") {
    std::string text = "patterns say by geometry alone which key a query sees:\n";
    for (const OperatorReference& reference : patterns())
      text += fmt::format("  {}   {}\n", reference.signature, reference.summary);
    return text;
  }
  const std::string meant = closest(name, known);
  throw InputError(fmt::format("no operator is called \"{:.40}\"", name),
                   meant.empty() ? ":help lists them" : fmt::format("did you mean \"{}\"?", meant));
}

}  // namespace sluice::repl
