#pragma once

#include <optional>

#include "kernels/cuda/codegen/values.h"

namespace sluice::cuda::codegen {

/// A reduction over channels whose paged operands lie in blocks: each page is read by `lanes` neighbouring lanes, eight channels
/// (16 bytes of bf16) each, and their sums are combined by shuffles.
struct LaneReduction {
  NodeId node = kNoNode;
  int lanes = 1;    // dim / 8
  int results = 1;  // numbers a page
};

/// If node `id` can be computed so: all that it reads are elementwise functions of blocks' channels, of the query, and of numbers
/// without channels.
std::optional<LaneReduction> find_lane_reduction(const KernelScope& scope, NodeId id);

/// Statements that compute it for the pages of the tile, into its place.
void write_lane_reduction(const KernelScope& scope, const LaneReduction& reduction, Writer& writer);

}  // namespace sluice::cuda::codegen
