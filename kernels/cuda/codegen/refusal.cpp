#include "kernels/cuda/codegen/refusal.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/selection/selection.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/selections.h"

namespace sluice::cuda::codegen {

namespace {

/// A compiler's time grows with the text, and others wait for it: this much takes the better part of a minute, the longest
/// shipped flow, a seventh of it, two seconds.
constexpr size_t kMostSourceBytes = 128 << 10;

Refusal no_cover(const std::string& what, const std::string& hint) {
  return {
      fmt::format("{}; device \"cuda\" attends to the tokens of one selection's pages, and to one summary of all others", what),
      hint};
}

std::optional<Refusal> refusal_of_cover(const Plan& plan) {
  const std::vector<AttendedSource>& sources = plan.attend.sources;
  const std::string hint = "use sluice.cover, or --device cpu";
  if (sources.size() != 2 || !sources[0].is_plain())
    return no_cover(fmt::format("attention to {} sources", sources.size()), hint);
  const AttendedSource& summaries = sources[1];
  if (summaries.keys.entries != 1 || !summaries.others) return no_cover("attention to several entries a page", hint);
  const bool others_of_tail = plan.graph.nodes[static_cast<size_t>(summaries.selection)].op == Op::kWindow;
  if (summaries.selection != sources[0].selection && !(summaries.shares && others_of_tail))
    return no_cover("attention to summaries of pages that are attended to as they are", hint);
  const int field = summaries.values.field;
  if (field >= 0 && plan.graph.fields[static_cast<size_t>(field)].type == DataType::kF32)
    return no_cover("summaries as f32", "keep them as bf16");
  if (summaries.logits == kNoNode) return no_cover("a flow without room for the products of summaries", "use fewer operators");
  return {};
}

}  // namespace

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

std::optional<Refusal> refusal_of_attention(const Plan& plan) {
  for (const Plan& variant : plan.variants) {
    if (auto refusal = refusal_of_attention(variant)) return refusal;
  }
  if (!plan.attend.is_plain()) {
    if (auto refusal = refusal_of_cover(plan)) return refusal;
  }
  size_t united = leaf_selections(plan.graph).size();
  for (const AttendedSource& source : plan.attend.sources)
    united = std::max(united, leaf_selections(plan.graph, source.opened).size());
  if (united <= Selection::kMostLeaves) return {};
  return Refusal{fmt::format("a union of {} selections; device \"cuda\" joins at most {}", united, Selection::kMostLeaves),
                 "unite fewer, or use --device cpu"};
}

std::optional<Refusal> refusal_of(const GeneratedSource& source) {
  if (source.own_bytes <= kMostSourceBytes) return {};
  return Refusal{fmt::format("{} kB of CUDA source; device \"cuda\" compiles at most {} kB for a flow", source.own_bytes / 1000,
                             kMostSourceBytes / 1000),
                 "use fewer operators and fewer steps over all pages, or --device cpu"};
}

std::optional<Refusal> refusal_of(const Plan& plan) {
  if (auto refusal = refusal_of_attention(plan)) return refusal;
  if (auto refusal = refusal_of(plan.layout)) return refusal;
  for (const Plan* program : plan.programs()) {
    if (auto refusal = refusal_of(generate(FlowLayout(*program)))) return refusal;
  }
  return {};
}

}  // namespace sluice::cuda::codegen
