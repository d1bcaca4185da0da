// The programs of a flow that has several.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "scripting/graph/verify.h"
#include "scripting/graph/verify_parts.h"

namespace sluice::verifying {

void verify_variants(const FlowGraph& graph) {
  if (graph.variants.empty()) return;
  if (graph.variants.size() > GraphLimits::kVariants) {
    refuse(graph.where, fmt::format("the flow has {} programs, at most {} are allowed", graph.variants.size() + 1,
                                    GraphLimits::kVariants + 1));
  }
  std::set<std::string> names = {graph.variant};
  std::set<int> named;
  int rests = graph.layers.rest_sparse ? 1 : 0;
  const auto add_layers = [&](const FlowGraph& program) {
    for (const auto& [layer, runs] : program.layers.sparse) {
      if (runs && !named.insert(layer).second)
        refuse(graph.where, fmt::format("layers: layer {} has two programs", layer), "name the layer once");
    }
  };
  add_layers(graph);
  for (const FlowGraph& variant : graph.variants) {
    if (!names.insert(variant.variant).second)
      refuse(variant.where, fmt::format("two variants are called \"{}\"", variant.variant));
    if (!variant.variants.empty()) refuse(variant.where, "a variant has variants");
    const Geometry& own = variant.geometry;
    const Geometry& wanted = graph.geometry;
    if (own.head_dim != wanted.head_dim || own.group != wanted.group || own.page != wanted.page || own.kv != wanted.kv)
      refuse(variant.where, fmt::format("variant \"{}\" has other pages than the flow", variant.variant));
    rests += variant.layers.rest_sparse ? 1 : 0;
    add_layers(variant);
  }
  if (rests > 1) refuse(graph.where, "layers: the other layers have two programs");
}

}  // namespace sluice::verifying
