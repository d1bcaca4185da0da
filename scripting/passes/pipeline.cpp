#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include "scripting/graph/recompute.h"
#include "scripting/graph/verify.h"
#include "scripting/passes/passes.h"

namespace sluice {

namespace {

struct Pass {
  std::string_view name;
  void (*run)(FlowGraph&);
};

// In order. What the script does not use goes first, so that nothing used is merged into it: `Node::traced` names what was asked
// for. Merging before contracting lets two equal products be seen as one with two readers, and before unions two equal selections
// as one; what the passes left unused goes last.
constexpr std::array kPasses = {
    Pass{"remove_unused", passes::remove_dead},     Pass{"weigh_summaries", passes::weigh_summaries},
    Pass{"fold_constants", passes::fold_constants}, Pass{"simplify", passes::simplify},
    Pass{"merge_common", passes::merge_common},     Pass{"flatten_unions", passes::flatten_unions},
    Pass{"remove_dead", passes::remove_dead},       Pass{"contract", passes::contract},
    Pass{"remove_products", passes::remove_dead},
};
constexpr std::string_view kFuse = "fuse";

class Clock {
 public:
  double microseconds() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void check_names(const std::vector<std::string>& disabled) {
  for (const std::string& name : disabled) {
    const bool known =
        name == kFuse || std::any_of(kPasses.begin(), kPasses.end(), [&](const Pass& pass) { return pass.name == name; });
    if (known) continue;
    std::string names;
    for (const Pass& pass : kPasses) names += fmt::format("{}, ", pass.name);
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
  const auto is_enabled = [&](std::string_view name) {
    return std::find(options.disabled_passes.begin(), options.disabled_passes.end(), name) == options.disabled_passes.end();
  };
  Compilation result;
  for (const Pass& pass : kPasses) {
    PassReport report{std::string(pass.name), is_enabled(pass.name), 0, static_cast<int>(graph.nodes.size()), 0};
    if (report.enabled) {
      const Clock clock;
      pass.run(graph);
      report.microseconds = clock.microseconds();
      verify_after(pass.name, graph);
    }
    report.nodes_after = static_cast<int>(graph.nodes.size());
    result.passes.push_back(std::move(report));
  }
  PassReport report{std::string(kFuse), is_enabled(kFuse), 0, static_cast<int>(graph.nodes.size()), 0};
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
