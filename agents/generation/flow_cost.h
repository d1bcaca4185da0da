#pragma once

#include "scripting/graph/graph.h"

namespace sluice {

/// Operations on numbers, or so, that a flow takes for each page that a decode step scores, in one layer and KV head.
double operations_a_page(const FlowGraph& graph);

}  // namespace sluice
