#pragma once

#include "kernels/cpu/flow/program.h"

namespace sluice::cpu::flows {

/// Stride of `axis` in a dense tensor of `shape`; 0 if it has no such axis. That of the page axis is one page.
int64_t stride_of(const Shape& shape, Axis axis);

/// Resolves the shapes of node `id` of `graph` to loops.
Instruction lower_node(const FlowGraph& graph, NodeId id);

}  // namespace sluice::cpu::flows
