#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <string_view>

#include "scripting/graph/recompute.h"
#include "scripting/graph/verify.h"
#include "scripting/passes/passes.h"

namespace sluice {

namespace {

using passes::Pass;

// In order, with passes::kShrinking between both. What the script does not use goes first, so that nothing used is merged into
// it: `Node::traced` names what was asked for. Merging before contracting lets two equal products be seen as one with two
// readers; what the passes left unused goes last.
constexpr std::array kFirst = {Pass{"remove_unused", passes::remove_dead}, Pass{"weigh_summaries", passes::weigh_summaries}};
constexpr std::array kLast = {Pass{"contract", passes::contract}, Pass{"remove_products", passes::remove_dead}};
constexpr std::string_view kFuse = "fuse";

class Clock {
 public:
  double microseconds() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::vector<Pass> all_passes() {
  std::vector<Pass> all(kFirst.begin(), kFirst.end());
  all.insert(all.end(), passes::kShrinking.begin(), passes::kShrinking.end());
  all.insert(all.end(), kLast.begin(), kLast.end());
  return all;
}

void check_names(const std::vector<std::string>& disabled) {
  const std::vector<Pass> all = all_passes();
  for (const std::string& name : disabled) {
    const bool known = name == kFuse || std::any_of(all.begin(), all.end(), [&](const Pass& pass) { return pass.name == name; });
    if (known) continue;
    std::string names;
    for (const Pass& pass : all) names += fmt::format("{}, ", pass.name);
    throw InputError(fmt::format("no pass is called \"{}\"", name), fmt::format("the passes are {}{}", names, kFuse));
  }
}

/// A graph that a pass has spoiled is our fault, not the script's.
void verify_after(const std::string_view pass, const FlowGraph& graph, void (*check)(const FlowGraph&) = verify) {
  try {
    check(graph);
  } catch (const FlowError& error) {
    throw InternalError(fmt::format("pass {} left a graph that is refused: {}", pass, error.what()));
  }
}

/// Runs passes and reports of each, of one that runs again all of it together.
class Rewriting {
 public:
  Rewriting(FlowGraph& graph, const std::vector<std::string>& disabled) : graph_(graph), disabled_(disabled) {
    for (const Pass& pass : all_passes()) reports_.push_back({std::string(pass.name), is_enabled(pass.name), 0, 0, 0});
  }

  bool is_enabled(std::string_view name) const { return std::find(disabled_.begin(), disabled_.end(), name) == disabled_.end(); }

  void run(std::span<const Pass> passes) {
    for (const Pass& pass : passes) run(pass);
  }
  const std::vector<PassReport>& reports() const { return reports_; }

 private:
  void run(const Pass& pass) {
    PassReport& report =
        *std::find_if(reports_.begin(), reports_.end(), [&](const auto& each) { return each.name == pass.name; });
    const bool is_first = report.nodes_before == 0;
    if (is_first) report.nodes_before = static_cast<int>(graph_.nodes.size());
    if (report.enabled) {
      const Clock clock;
      pass.run(graph_);
      report.microseconds += clock.microseconds();
      verify_after(pass.name, graph_);
    }
    report.nodes_after = static_cast<int>(graph_.nodes.size());
  }

  FlowGraph& graph_;
  const std::vector<std::string>& disabled_;
  std::vector<PassReport> reports_;
};

}  // namespace

Compilation compile(FlowGraph graph, const CompileOptions& options) {
  check_names(options.disabled_passes);
  verify(graph);
  verify_readers(graph);
  // Whoever runs the rule compiles it; what cannot be is refused here.
  if (graph.recompute != nullptr && graph.recompute->kind == Recompute::Kind::kSelected) compile(graph.recompute->graph, options);
  std::vector<Plan> variants;
  for (FlowGraph& variant : graph.variants) {
    variants.push_back(compile(std::move(variant), options).plan);
    variants.back().program = static_cast<int>(variants.size());
  }
  graph.variants.clear();
  for (size_t i = 0; i < graph.nodes.size(); ++i) graph.nodes[i].traced = static_cast<NodeId>(i);
  Rewriting rewriting(graph, options.disabled_passes);
  rewriting.run(kFirst);
  for (size_t before = graph.nodes.size() + 1; graph.nodes.size() < before;) {
    before = graph.nodes.size();
    rewriting.run(passes::kShrinking);
  }
  rewriting.run(kLast);
  Compilation result;
  result.passes = rewriting.reports();
  PassReport report{std::string(kFuse), rewriting.is_enabled(kFuse), 0, static_cast<int>(graph.nodes.size()), 0};
  const Clock clock;
  result.plan = passes::fuse(std::move(graph), report.enabled);
  report.microseconds = clock.microseconds();
  verify_after(kFuse, result.plan.graph, verify_planned);
  report.nodes_after = static_cast<int>(result.plan.graph.nodes.size());
  result.passes.push_back(std::move(report));
  result.plan.variants = std::move(variants);
  return result;
}

}  // namespace sluice
