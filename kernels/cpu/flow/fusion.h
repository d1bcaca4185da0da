#pragma once

#include <optional>
#include <vector>

#include "kernels/cpu/flow/kernels.h"
#include "scripting/graph/plan.h"

namespace sluice::cpu::flows {

/// A reduction and the elementwise nodes below it as one kernel.
struct Fusion {
  struct Source {
    NodeId node = kNoNode;
    size_t page_offset = 0;  // bytes, where the leaf is read in its page
    bool is_field = false;   // that page is one of the fields
  };
  FusedReduction kernel;
  std::vector<Source> sources;   // of the leaves
  std::vector<NodeId> absorbed;  // computed inside, and nowhere else
};

/// What the nodes of a fused step may become, by node.
struct FusionRules {
  std::vector<bool> absorbable;  // elementwise, and read by one node of the same step only
  std::vector<bool> in_page;     // stored in pages, and wanted as a tensor by no other step
};

/// The kernel for reduction or contraction `id` of a fused step, if there is anything to be gained: operands that need not be
/// stored, or that can be read where they lie.
std::optional<Fusion> fuse_reduction(const Plan& plan, NodeId id, const FusionRules& rules);

}  // namespace sluice::cpu::flows
