#pragma once

#include "scripting/graph/graph.h"

namespace sluice {

/// Shape of `node`, whose inputs are nodes of `graph` with checked shapes and ids. `kFill` and `kReshape` declare their
/// shape in `node.shape`, which is checked. Reads no other shape in `node`.
/// Throws FlowError at `node.where`: the operator, the axes and extents it got, what it wants, what to try.
Shape infer_shape(const FlowGraph& graph, const Node& node);

/// Throws FlowError at `where` unless every axis occurs once, the page axis is first and dynamic, and all other extents are
/// positive, with at most GraphLimits::kElements elements a page. `what` begins the message.
void check_shape(const Shape& shape, const std::string& what, const SourceLocation& where);

}  // namespace sluice
