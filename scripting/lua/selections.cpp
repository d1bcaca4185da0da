#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "scripting/base/suggest.h"
#include "scripting/graph/selections.h"
#include "scripting/graph/verify.h"
#include "scripting/lua/functions.h"

namespace sluice {

namespace {

constexpr const char* kTopKUsage = "for example sluice.topk(score, {k = 61, first = 1, last = 2})";

Value selected(const Arguments& arguments, Op op, std::vector<NodeId> inputs, Attributes attributes) {
  const NodeId id = arguments.builder().emit(op, std::move(inputs), std::move(attributes));
  return {Value::Kind::kHandle, {Handle::Kind::kSelection, Stage::kIndex, id}, 0};
}

int count_of(const Arguments& arguments, Options& options, const std::string& name, const char* what) {
  const int value = options.integer(name, 0);
  if (value < 0) arguments.fail(fmt::format("{} = {} is not a number of {}", name, value, what));
  if (value > GraphLimits::kPages) {
    arguments.fail(fmt::format("{} = {} is too large; at most {} {}", name, value, GraphLimits::kPages, what));
  }
  return value;
}

int pages(const Arguments& arguments, Options& options, const std::string& name) {
  return count_of(arguments, options, name, "pages");
}

/// `what` it counts: pages or tokens.
void read_budget(const Arguments& arguments, Options& options, Attributes& attributes, const char* what = "pages") {
  attributes.k = count_of(arguments, options, "k", what);
  attributes.first = count_of(arguments, options, "first", what);
  attributes.last = count_of(arguments, options, "last", what);
  attributes.ratio = options.number("ratio", 0);
  if (!(attributes.ratio >= 0 && attributes.ratio <= 1)) {
    arguments.fail(fmt::format("ratio = {} is not between 0 and 1", attributes.ratio),
                   fmt::format("it is a share of the {}, such as 1/8", what));
  }
}

/// After the options have been looked at: a misspelt one explains more.
void refuse_empty_budget(const Arguments& arguments, const Attributes& attributes) {
  if (arguments.builder().is_of_copies() && arguments.has(1)) return;  // nobody attends to what it selects
  if (attributes.k + attributes.first + attributes.last == 0 && attributes.ratio == 0) {
    arguments.fail("the budget is empty", "give k or ratio, for example {ratio = 1/8, first = 1, last = 2}");
  }
}

TopKMethod method_from(const Arguments& arguments, const std::string& name) {
  if (name == "auto") return TopKMethod::kAuto;
  if (name == "radix") return TopKMethod::kRadix;
  if (name == "gvr") return TopKMethod::kGvr;
  arguments.fail(fmt::format("no method is called \"{:.40}\"", name), did_you_mean(name, {"auto", "radix", "gvr"}));
}

Value topk(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(2, kTopKUsage);
  const NodeId score = arguments.tensor(0);
  Options options(arguments, arguments.at(1), kTopKUsage);
  Attributes attributes;
  read_budget(arguments, options, attributes);
  attributes.method = method_from(arguments, options.text("method", "auto"));
  options.finish();
  refuse_empty_budget(arguments, attributes);
  return selected(arguments, Op::kTopK, {score}, std::move(attributes));
}

Value approx_topk(const Arguments& arguments, const Function&) {
  constexpr double kDefaultTolerate = 0.1;
  arguments.expect_at_most(2, kTopKUsage);
  const NodeId score = arguments.tensor(0);
  Options options(arguments, arguments.at(1), kTopKUsage);
  Attributes attributes;
  read_budget(arguments, options, attributes);
  attributes.tolerate = options.number("tolerate", kDefaultTolerate);
  if (!(attributes.tolerate >= 0 && attributes.tolerate <= 1)) {
    arguments.fail(fmt::format("tolerate = {} is not between 0 and 1", attributes.tolerate),
                   "it is the share of k that may be inexact");
  }
  options.finish();
  refuse_empty_budget(arguments, attributes);
  return selected(arguments, Op::kApproxTopK, {score}, std::move(attributes));
}

Value topk_tokens(const Arguments& arguments, const Function&) {
  constexpr const char* kUsage = "for example sluice.topk_tokens(score, {k = 256, last = 256})";
  arguments.expect_at_most(2, kUsage);
  const NodeId score = arguments.tensor(0);
  Options options(arguments, arguments.at(1), kUsage);
  Attributes attributes;
  read_budget(arguments, options, attributes, "tokens");
  options.finish();
  refuse_empty_budget(arguments, attributes);
  return selected(arguments, Op::kTopKTokens, {score}, std::move(attributes));
}

NodeId bound(const Arguments& arguments, Options& options) {
  const Datum* above = options.find("above");
  if (!above) arguments.fail("wants a bound", "for example sluice.threshold(score, {above = score:mean(\"page\")})");
  const std::vector<Datum> operand = {*above};
  return Arguments(arguments.builder(), "threshold: above", operand).tensor(0);
}

/// The newest pages that a threshold has whatever their scores are. No score may exceed the bound, and attention needs a page: by
/// default the newest, which holds the query's own token.
int last_pages(const Arguments& arguments, Options& options, int first) {
  if (options.find("last") || first > 0 || arguments.builder().is_of_copies()) return pages(arguments, options, "last");
  return 1;
}

Value threshold(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(2, "threshold(score, {above = bound, last = 1})");
  const NodeId score = arguments.tensor(0);
  Options options(arguments, arguments.at(1), "for example sluice.threshold(score, {above = 0, last = 1})");
  Attributes attributes;
  options.expect({"above", "first", "last", "max"});
  const NodeId above = bound(arguments, options);
  attributes.first = pages(arguments, options, "first");
  attributes.last = last_pages(arguments, options, attributes.first);
  attributes.max_pages = pages(arguments, options, "max");
  if (options.find("max") && attributes.max_pages == 0) {
    arguments.fail("max = 0 leaves no page to attend to", "without max there is no limit");
  }
  return selected(arguments, Op::kThreshold, {score, above}, std::move(attributes));
}

Value topp(const Arguments& arguments, const Function&) {
  constexpr const char* kUsage = "for example sluice.topp(weight, {p = 0.95, last = 1})";
  arguments.expect_at_most(2, kUsage);
  const NodeId score = arguments.tensor(0);
  Options options(arguments, arguments.at(1), kUsage);
  Attributes attributes;
  options.expect({"p", "first", "last", "max"});
  if (options.find("p") == nullptr) arguments.fail("wants p = the share of the weights", kUsage);
  attributes.value = options.number("p", 0);
  if (!(attributes.value > 0 && attributes.value <= 1)) {
    arguments.fail(fmt::format("p = {} is no share above 0 and up to 1", attributes.value), kUsage);
  }
  attributes.first = pages(arguments, options, "first");
  attributes.last = last_pages(arguments, options, attributes.first);
  attributes.max_pages = pages(arguments, options, "max");
  if (options.find("max") && attributes.max_pages == 0) {
    arguments.fail("max = 0 leaves no page to attend to", "without max there is no limit");
  }
  return selected(arguments, Op::kTopP, {score}, std::move(attributes));
}

Value window(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(1, "window{first = 1, last = 16}");
  Options options(arguments, arguments.at(0), "for example sluice.window{first = 1, last = 16}");
  Attributes attributes;
  attributes.first = pages(arguments, options, "first");
  attributes.last = pages(arguments, options, "last");
  options.finish();
  return selected(arguments, Op::kWindow, {}, std::move(attributes));
}

Value unite(const Arguments& arguments, const Function&) {
  if (arguments.size() < 2) arguments.fail("wants two selections or more", "union(a, b, ...)");
  GraphBuilder::Joined all;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const GraphBuilder::Joined one = arguments.joined(i);
    if (one.cover) arguments.fail("a cover has all pages already", "unite selections first: cover{refine = union(a, b), ...}");
    if (one.beside) {
      const auto either = [](const Pattern& a, const Pattern& b) { return a | b; };
      all.beside = all.beside ? joined(*all.beside, *one.beside, either) : one.beside;
    }
    if (one.selection == kNoNode) continue;
    all.selection =
        all.selection == kNoNode ? one.selection : selected(arguments, Op::kUnion, {all.selection, one.selection}, {}).handle.id;
  }
  if (all.selection != kNoNode && all.beside && !all.beside->is_same()) {
    arguments.fail("what stands beside a selection is the same for every head",
                   "patterns by head are flow.pattern's, around a selection or alone");
  }
  if (all.beside) return {Value::Kind::kHandle, arguments.builder().add_joined(all), 0};
  return {Value::Kind::kHandle, {Handle::Kind::kSelection, Stage::kIndex, all.selection}, 0};
}

constexpr const char* kCoverUsage = "for example sluice.cover{refine = sluice.topk(score, {k = 3}), k = c.ksum, v = c.vsum}";

/// The name of the field or the state that a value is as the script can read it, and its shape; none: it is another value.
std::optional<std::pair<std::string, Shape>> kept_value(const FlowGraph& graph, const Datum& given) {
  if (given.kind != Datum::Kind::kHandle) return {};
  const auto id = static_cast<size_t>(given.handle.id);
  if (given.handle.kind == Handle::Kind::kState) return std::pair(graph.states[id].name, graph.states[id].shape);
  if (given.handle.kind != Handle::Kind::kTensor) return {};
  const Node& node = graph.nodes[id];
  if (node.op != Op::kField && node.op != Op::kLoad) return {};
  return std::pair(node.attributes.field, node.shape);
}

/// The name of a cached field, or of a state, that stands for its page.
std::string summary(const Arguments& arguments, Options& options, const char* which) {
  const Datum* given = options.find(which);
  if (given == nullptr) {
    arguments.fail(fmt::format("wants {} = a cached field, or a state, that stands for its page", which), kCoverUsage);
  }
  const FlowGraph& graph = arguments.builder().graph();
  const auto kept = kept_value(graph, *given);
  if (!kept) {
    arguments.fail(
        fmt::format("{} wants a cached field as flow.cache assigned it, or a state, and got {}", which, describe(*given, graph)),
        "compute it in flow.cache, for example c.ksum = c.k:mean(\"token\"), or keep it in flow.after: "
        "c.ksum:save(x, {tail = 128})");
  }
  const Shape wanted = {{Axis::kPage, kDynamic}, {Axis::kDim, graph.geometry.head_dim}};
  if (kept->second != wanted) {
    arguments.fail(fmt::format("{} wants [dim {}] of a page and got {}", which, graph.geometry.head_dim, describe(*given, graph)),
                   "one key and one value stand for a page");
  }
  return kept->first;
}

NodeId window_of(const Arguments& arguments, int last) {
  Attributes attributes;
  attributes.last = std::min(last, GraphLimits::kPages);
  return arguments.builder().emit(Op::kWindow, {}, std::move(attributes));
}

/// The pages that an option names: a selection, "all", or "none" (kNoNode).
NodeId opened_pages(const Arguments& arguments, const char* option, const Datum& given) {
  if (given.kind == Datum::Kind::kText && given.text == "none") return kNoNode;
  if (given.kind == Datum::Kind::kText && given.text == "all")
    return window_of(arguments, GraphLimits::kPages);  // no request has more
  const GraphBuilder& builder = arguments.builder();
  const auto pages = given.kind == Datum::Kind::kHandle ? builder.joined(given.handle) : std::nullopt;
  if (pages && pages->selection != kNoNode && is_of_tokens(builder.graph(), pages->selection))
    arguments.fail(fmt::format("{} wants pages, and these are tokens", option),
                   "a summary stands for a page: it opens as a whole");
  if (!pages || pages->selection == kNoNode || pages->beside || pages->cover) {
    const std::string got = pages && pages->selection != kNoNode ? "one that has more" : describe(given, builder.graph());
    arguments.fail(fmt::format("{} wants a selection of pages, \"all\" or \"none\" and got {}", option, got),
                   "for example sluice.topk(score, {k = 3})");
  }
  return pages->selection;
}

NodeId refined(const Arguments& arguments, Options& options, NodeId tail) {
  const Datum* given = options.find("refine");
  if (given == nullptr) arguments.fail("wants refine = a selection of the pages to open, \"all\" or \"none\"", kCoverUsage);
  const NodeId pages = opened_pages(arguments, "refine", *given);
  if (pages == kNoNode) return tail;
  return given->kind == Datum::Kind::kText ? pages : arguments.builder().emit(Op::kUnion, {pages, tail});
}

/// Summaries of summaries: of how many pages, and which of them open.
void find_levels(const Arguments& arguments, Options& options, GraphBuilder::Cover& cover) {
  constexpr const char* kUsage = "for example levels = 2, group = 8, open = sluice.topk(score, {k = 32})";
  const int levels = options.integer("levels", 1);
  if (levels < 1 || levels > 2) arguments.fail(fmt::format("levels = {} is neither 1 nor 2", levels), kUsage);
  const Datum* const open = options.find("open");
  if (levels == 1) {
    if (open != nullptr || options.find("group") != nullptr)
      arguments.fail("group and open are of two levels of summaries", kUsage);
    return;
  }
  constexpr int kGroup = 8;
  cover.group_pages = options.integer("group", kGroup);
  if (cover.group_pages < 1 || cover.group_pages > GraphLimits::kPages)
    arguments.fail(fmt::format("group = {} is not between 1 and {} pages", cover.group_pages, GraphLimits::kPages), kUsage);
  if (open == nullptr) return;
  const NodeId opened = opened_pages(arguments, "open", *open);
  if (cover.group_pages > 1) cover.opened = opened;
}

/// What is added to the logit of a page's key. A key that stands for n tokens which are like it gets what they would together,
/// if log n is added.
NodeId weight_of_pages(const Arguments& arguments, Options& options) {
  const Datum* given = options.find("bias");
  if (given != nullptr && given->kind == Datum::Kind::kText && given->text == "none") return kNoNode;
  GraphBuilder& builder = arguments.builder();
  if (given == nullptr || (given->kind == Datum::Kind::kText && given->text == "count")) {
    Attributes attributes;
    attributes.value = std::log(builder.graph().geometry.page);
    return builder.emit(Op::kFill, {}, std::move(attributes), {{Axis::kPage, kDynamic}});
  }
  if (given->kind == Datum::Kind::kText) {
    arguments.fail(fmt::format("no bias is called \"{:.40}\"", given->text), did_you_mean(given->text, {"count", "none"}));
  }
  const std::vector<Datum> operand = {*given};
  const NodeId bias = Arguments(builder, "cover: bias", operand).tensor(0);
  const Shape of_pages = {{Axis::kPage, kDynamic}};
  const Shape of_heads = {{Axis::kPage, kDynamic}, {Axis::kHead, builder.graph().geometry.group}};
  if (builder.shape_of(bias) != of_pages && builder.shape_of(bias) != of_heads) {
    arguments.fail(fmt::format("bias wants [page] or [page, head] and got {}", to_string(builder.shape_of(bias))),
                   "it is added to a page's scaled product of query and key");
  }
  // A number that float32 has may have none in base 2, in which devices add it: nothing weighs beside either.
  constexpr double kMost = 2e38;
  const Node& node = builder.graph().nodes[static_cast<size_t>(bias)];
  const double value = node.op == Op::kFill ? node.attributes.value : 0;
  if (std::isinf(value) || std::fabs(value) <= kMost) return bias;
  Attributes attributes;
  attributes.value = std::copysign(kMost, value);
  return builder.emit(Op::kFill, {}, std::move(attributes), of_pages);
}

bool preserves(const Arguments& arguments, Options& options) {
  const std::string mass = options.text("mass", "preserve");
  if (mass == "preserve" || mass == "renormalise") return mass == "preserve";
  arguments.fail(fmt::format("no mass is called \"{:.40}\"", mass), did_you_mean(mass, {"preserve", "renormalise"}));
}

Value cover(const Arguments& arguments, const Function&) {
  if (arguments.builder().stage() != Stage::kIndex)
    arguments.fail("belongs in flow.index",
                   "it says what is attended to: function flow.index(q, c) ... return sluice.cover{...} end");
  arguments.expect_at_most(1, kCoverUsage);
  if (!arguments.has(0)) arguments.fail("wants a table of options", kCoverUsage);
  Options options(arguments, arguments.at(0), kCoverUsage);
  GraphBuilder::Cover cover;
  options.expect({"k", "v", "refine", "mass", "bias", "tail", "levels", "group", "open"});
  cover.keys = summary(arguments, options, "k");
  cover.values = summary(arguments, options, "v");
  cover.preserves = preserves(arguments, options);
  cover.bias = weight_of_pages(arguments, options);
  constexpr int kTail = 128;
  cover.tail = window_of(arguments, tail_pages(arguments, options, kTail));
  const NodeId pages = refined(arguments, options, cover.tail);
  find_levels(arguments, options, cover);
  return {Value::Kind::kHandle, arguments.builder().add_joined({pages, {}, std::move(cover)}), 0};
}

constexpr std::array kFunctions = {
    Function{"topk", topk},
    Function{"approx_topk", approx_topk},
    Function{"threshold", threshold},
    Function{"topp", topp},
    Function{"topk_tokens", topk_tokens},
    Function{"window", window, Op::kWindow, Compare::kEq, false},
    Function{"union", unite},
    Function{"cover", cover, Op::kConstant, Compare::kEq, false},
};

}  // namespace

std::span<const Function> selection_functions() { return kFunctions; }

}  // namespace sluice
