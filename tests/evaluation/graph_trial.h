#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "scripting/graph/graph.h"

namespace sluice::test {

/// What one part of a trial took.
struct TrialStage {
  std::string name;
  double seconds = 0;
  size_t bytes = 0;  // of the text that it wrote
};

struct Trial {
  std::vector<TrialStage> stages;  // as far as it got
  std::string refused;             // the diagnostic, if the graph's own fault ended it
  std::string fault;               // what was thrown that no graph may bring about, and where; or what was judged wrong
};

struct TrialOptions {
  /// Numbers times pages, about, of which `judge` makes what a worker would: a graph that asks for more is not judged.
  double most_judged = 0;
  /// Is told the name of each stage before it begins.
  std::function<void(const std::string&)> begin;
};

/// Sends `graph`, which `verify` accepts, through all that a server and a worker do with it before it runs: to bytes and back,
/// passes, plans for both devices, kernels of both, and, if it is small, the comparison with the reference. Throws nothing.
Trial try_graph(const FlowGraph& graph, const TrialOptions& options = {});

/// Most bytes of CUDA source that a plan of so many nodes may become.
size_t most_source_bytes(size_t nodes);

}  // namespace sluice::test
