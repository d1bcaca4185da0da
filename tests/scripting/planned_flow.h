// Flows of which a test writes only the bodies of two stages, and their plans.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "scripting/graph/plan.h"
#include "scripting/lua/trace.h"

namespace sluice::testing {

/// Every pass of the compiler, in its order.
inline const std::vector<std::string> kAllPasses = {
    "remove_unused",  "weigh_summaries", "fold_constants", "simplify",        "merge_common",
    "flatten_unions", "remove_dead",     "contract",       "remove_products", "fuse"};

inline FlowGraph flow_of(const std::string& index, const std::string& cache = "") {
  return trace("local flow = sluice.flow{name = 'x'}\nfunction flow.cache(c) " + cache + " end\nfunction flow.index(q, c) " +
                   index + " end\nreturn flow",
               "x.lua");
}

/// Compiled without the passes `disabled`.
inline Plan plan_of(const std::string& index, const std::string& cache = "", const std::vector<std::string>& disabled = {}) {
  return compile(flow_of(index, cache), {disabled}).plan;
}

/// Nodes of an operator.
inline int count(const FlowGraph& graph, Op op) {
  return static_cast<int>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [op](const Node& node) { return node.op == op; }));
}

}  // namespace sluice::testing
