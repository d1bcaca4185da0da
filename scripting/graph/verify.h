#pragma once

#include "scripting/graph/graph.h"

namespace sluice {

/// Refuses every graph that a device could not run: trusts nothing in it, neither ids, shapes, attributes nor names.
/// Throws FlowError with the location of the offending node.
void verify(const FlowGraph& graph);

/// Most nodes, fields, states and elements per page of one node that a graph may have.
struct GraphLimits {
  static constexpr int kNodes = 4096;
  static constexpr int kFields = 64;
  static constexpr int kStates = 64;
  static constexpr int64_t kElements = 65536;  // of one node, the page axis not counted
};

}  // namespace sluice
