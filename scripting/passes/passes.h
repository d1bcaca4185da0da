#pragma once

#include <array>
#include <string_view>

#include "scripting/graph/plan.h"

namespace sluice::passes {

// Rewrites of a verified graph into a smaller one of the same meaning; each leaves a graph that `verify` accepts.
// "Same meaning" holds for infinities, NaN and signed zeros too; only `contract` may differ, by float32 rounding.

/// Attention to summaries gets the products of the query and their keys (AttentionSource::logits), which the index stage often
/// computes anyway.
void weigh_summaries(FlowGraph& graph);
/// Elementwise operators on numbers become numbers, computed in float32. What devices may compute differently stays an operator:
/// exp, log, sigmoid, silu, the larger or smaller of two zeros of different signs, and a result that is NaN.
void fold_constants(FlowGraph& graph);
/// x * 1, x / 1, x - 0, -(-x), max(x, x), relu(relu(x)), double transposes, reshapes of reshapes, kron without a pair.
void simplify(FlowGraph& graph);
/// sum(a * b, axis) becomes contract(a, b, axis) where both have the axis and the product has no other reader.
void contract(FlowGraph& graph);
/// Operators with the same operands and attributes become one.
void merge_common(FlowGraph& graph);
/// Unions of unions that share operands become one row of unions, in which each selection stands once.
void flatten_unions(FlowGraph& graph);
/// Drops what reaches neither the selection nor a state that it depends on; fields and states that nothing reads go too.
void remove_dead(FlowGraph& graph);

struct Pass {
  std::string_view name;
  void (*run)(FlowGraph&);
};

/// They go on as long as nodes become fewer: what one leaves another may take. Merging before unions lets two equal selections be
/// seen as one.
inline constexpr std::array kShrinking = {Pass{"fold_constants", fold_constants}, Pass{"simplify", simplify},
                                          Pass{"merge_common", merge_common}, Pass{"flatten_unions", flatten_unions},
                                          Pass{"remove_dead", remove_dead}};

/// Splits the index stage and the after stage into steps (fuse.cpp describes the schedule). May copy sources (fields, keys,
/// positions ...) into the steps that read them. With `together` false every node gets a step of its own. Throws FlowError if the
/// steps leave more than GraphLimits::kKeptElements numbers a page to later steps.
Plan fuse(FlowGraph graph, bool together);

}  // namespace sluice::passes
