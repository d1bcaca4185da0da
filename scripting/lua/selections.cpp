#include <fmt/format.h>

#include <array>

#include "scripting/base/suggest.h"
#include "scripting/graph/verify.h"
#include "scripting/lua/functions.h"

namespace sluice {

namespace {

constexpr const char* kTopKUsage = "for example sluice.topk(score, {k = 61, first = 1, last = 2})";

Value selected(const Arguments& arguments, Op op, std::vector<NodeId> inputs, Attributes attributes) {
  const NodeId id = arguments.builder().emit(op, std::move(inputs), std::move(attributes));
  return {Value::Kind::kHandle, {Handle::Kind::kSelection, Stage::kIndex, id}, 0};
}

int pages(const Arguments& arguments, Options& options, const std::string& name) {
  const int value = options.integer(name, 0);
  if (value < 0) arguments.fail(fmt::format("{} = {} is not a number of pages", name, value));
  if (value > GraphLimits::kPages) {
    arguments.fail(fmt::format("{} = {} is too large; at most {} pages", name, value, GraphLimits::kPages));
  }
  return value;
}

void read_budget(const Arguments& arguments, Options& options, Attributes& attributes) {
  attributes.k = pages(arguments, options, "k");
  attributes.first = pages(arguments, options, "first");
  attributes.last = pages(arguments, options, "last");
  attributes.ratio = options.number("ratio", 0);
  if (!(attributes.ratio >= 0 && attributes.ratio <= 1)) {
    arguments.fail(fmt::format("ratio = {} is not between 0 and 1", attributes.ratio), "it is a share of the pages, such as 1/8");
  }
}

/// After the options have been looked at: a misspelt one explains more.
void refuse_empty_budget(const Arguments& arguments, const Attributes& attributes) {
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

NodeId bound(const Arguments& arguments, Options& options) {
  const Datum* above = options.find("above");
  if (!above) arguments.fail("wants a bound", "for example sluice.threshold(score, {above = score:mean(\"page\")})");
  const std::vector<Datum> operand = {*above};
  return Arguments(arguments.builder(), "threshold: above", operand).tensor(0);
}

Value threshold(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(2, "threshold(score, {above = bound, last = 1})");
  const NodeId score = arguments.tensor(0);
  Options options(arguments, arguments.at(1), "for example sluice.threshold(score, {above = 0, last = 1})");
  Attributes attributes;
  const NodeId above = bound(arguments, options);
  attributes.first = pages(arguments, options, "first");
  // No score may exceed the bound, and attention needs a page: by default the newest, which holds the query's own token.
  attributes.last = options.find("last") || attributes.first > 0 ? pages(arguments, options, "last") : 1;
  attributes.max_pages = pages(arguments, options, "max");
  if (options.find("max") && attributes.max_pages == 0) {
    arguments.fail("max = 0 leaves no page to attend to", "without max there is no limit");
  }
  options.finish();
  return selected(arguments, Op::kThreshold, {score, above}, std::move(attributes));
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

constexpr std::array kFunctions = {
    Function{"topk", topk},           Function{"approx_topk", approx_topk},
    Function{"threshold", threshold}, Function{"window", window, Op::kWindow, Compare::kEq, false},
    Function{"union", unite},
};

}  // namespace

std::span<const Function> selection_functions() { return kFunctions; }

}  // namespace sluice
