#pragma once

#include "kernels/cpu/flow_program.h"

namespace sluice::cpu::flows {

/// Resolves the shapes of node `id` of `graph` to loops.
Instruction lower_node(const FlowGraph& graph, NodeId id);

}  // namespace sluice::cpu::flows
