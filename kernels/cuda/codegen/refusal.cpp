#include "kernels/cuda/codegen/refusal.h"

#include <fmt/format.h>

#include "kernels/cuda/selection.h"
#include "scripting/graph/selections.h"

namespace sluice::cuda::codegen {

std::optional<Refusal> refusal_of(const PageLayout& layout) {
  if (layout.kv == DataType::kF32) {
    return Refusal{"KV as f32; device \"cuda\" keeps bf16, e4m3 or e5m2", "use bf16 for KV, or --device cpu"};
  }
  if (layout.head_dim != 64 && layout.head_dim != 128 && layout.head_dim != 256) {
    return Refusal{fmt::format("heads of {} channels; device \"cuda\" attends those of 64, 128 or 256", layout.head_dim),
                   "use --device cpu for this model"};
  }
  return {};
}

std::optional<Refusal> refusal_of(const FlowGraph& graph) {
  const size_t united = leaf_selections(graph).size();
  if (united <= Selection::kMostLeaves) return {};
  return Refusal{fmt::format("a union of {} selections; device \"cuda\" joins at most {}", united, Selection::kMostLeaves),
                 "unite fewer, or use --device cpu"};
}

std::optional<Refusal> refusal_of(const Plan& plan) {
  if (auto refusal = refusal_of(plan.graph)) return refusal;
  return refusal_of(plan.layout);
}

}  // namespace sluice::cuda::codegen
