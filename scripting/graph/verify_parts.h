#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "scripting/graph/graph.h"
#include "scripting/graph/ops.h"

/// What the files of `verify` have in common.
namespace sluice::verifying {

[[noreturn]] inline void refuse(const SourceLocation& where, const std::string& message, std::string hint = {}) {
  throw FlowError(where, message, std::move(hint));
}

[[noreturn]] inline void refuse(const Node& node, const std::string& message, std::string hint = {}) {
  refuse(node.where, fmt::format("{}: {}", spoken_name_of(node.op), message), std::move(hint));
}

// verify_layers.cpp

/// Refuses patterns whose masks take too long to make. `what`: what they are called in the message.
void verify_cost(const SourceLocation& where, const HeadPatterns& patterns, const std::string& what);
/// The patterns of layers, and what may stand beside them.
void verify_patterns(const FlowGraph& graph);

// verify_attention.cpp

/// What attention runs over, and the stage that follows it. Nodes are sound.
void verify_attention(const FlowGraph& graph);
/// A flow whose after stage, at `where`, follows no selection and evicts nobody.
[[noreturn]] void refuse_idle_after(const SourceLocation& where);
/// Pages that attention knows by a state that is yet to be saved for them. What scripts write is refused.
void verify_tails(const FlowGraph& graph);
/// Whether a node is the product of the query and keys that are a field [dim] (AttentionSource::logits).
bool is_product_of_keys(const FlowGraph& graph, const Node& node, const std::string& keys);
/// Refuses a flow that reads what attention gave, unless there `is_any`, of a layer that runs the flow.
void verify_masses(const FlowGraph& graph, bool is_any);

// verify_variants.cpp

/// The programs of a flow that has several, as far as they have to do with each other.
void verify_variants(const FlowGraph& graph);

// verify_eviction.cpp

/// Who leaves (FlowGraph::eviction), and what cannot be where tokens do. Nodes and states are sound.
void verify_eviction(const FlowGraph& graph);

}  // namespace sluice::verifying
