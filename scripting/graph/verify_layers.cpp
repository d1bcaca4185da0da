// What layers run, and the patterns that they have.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "scripting/graph/kept_tokens.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/verify.h"
#include "scripting/graph/verify_parts.h"
#include "scripting/pattern/analysis.h"
#include "scripting/pattern/text.h"

namespace sluice {

namespace verifying {

/// A mask a query is made of it, and of each of those that heads have in turn.
void verify_cost(const SourceLocation& where, const HeadPatterns& patterns, const std::string& what) {
  constexpr int64_t kTokens = 1 << 17;
  int64_t cost = 0;
  for (const Pattern& pattern : patterns.each()) cost += pattern.row_cost(kTokens);
  if (cost <= GraphLimits::kPatternCost) return;
  const std::string of_heads = patterns.is_same() ? "" : fmt::format(", in each of {} heads", patterns.size());
  refuse(where,
         fmt::format("{} takes too long: what a query sees of {} tokens takes {} steps to find{}, and {} are allowed", what,
                     kTokens, cost, of_heads, GraphLimits::kPatternCost),
         patterns.is_same() ? "fewer parts, or larger blocks" : "fewer parts or heads, or larger blocks");
}

void verify_patterns(const FlowGraph& graph) {
  const LayerPatterns& of = graph.patterns;
  if (of.empty() && of.dense_prefill) {
    refuse(graph.where, "sluice.flow: prefill = \"dense\" is for flows with flow.pattern",
           "prompts of all others are dense anyway");
  }
  if (of.empty()) return;
  if (of.patterns.size() > GraphLimits::kPatterns) {
    refuse(of.where,
           fmt::format("flow.pattern has {} patterns, at most {} are allowed", of.patterns.size(), GraphLimits::kPatterns));
  }
  const auto is_place = [&](int place) { return place >= LayerPatterns::kNone && place < static_cast<int>(of.patterns.size()); };
  if (!is_place(of.rest)) refuse(of.where, "flow.pattern: the other layers have a pattern that does not exist");
  if (of.layers.size() > GraphLimits::kLayers) refuse(of.where, "flow.pattern names more layers than any model has");
  for (const auto& [layer, place] : of.layers) {
    if (layer < -GraphLimits::kLayers || layer >= GraphLimits::kLayers)
      refuse(of.where, fmt::format("flow.pattern: there is no layer {}", layer));
    if (!is_place(place)) refuse(of.where, fmt::format("flow.pattern: layer {} has a pattern that does not exist", layer));
  }
  for (const HeadPatterns& patterns : of.patterns) {
    verify_cost(of.where, patterns, "flow.pattern");
    try {
      patterns.any();
    } catch (const InputError& error) {
      refuse(of.where, fmt::format("flow.pattern: what any head sees is not to be said: {}", error.what()), error.hint());
    }
  }
  if (graph.sources.empty() || graph.eviction) return;  // with which no pattern goes
  for (const Node& node : graph.nodes) {
    if (node.op != Op::kTopK || node.attributes.method != TopKMethod::kGvr) continue;
    refuse(node, "method \"gvr\" begins with the pages of the last step, and flow.pattern shows flow.index other pages at each",
           "\"auto\" or \"radix\"");
  }
  for (const State& state : graph.states) {
    if (!has_axis(state.shape, Axis::kPage)) continue;
    refuse(state.where,
           fmt::format("state \"{}\" is kept by page, and flow.pattern shows flow.index other pages at each step", state.name),
           "keep a state without the page axis, or return sluice.union(selection, pattern) in place of flow.pattern");
  }
}

}  // namespace verifying

using verifying::refuse;

namespace {

/// Where a pattern keeps more than the budget of any text, or all of it but some tokens. What grows slowly may do for the texts
/// that a model takes: engines look at these.
void verify_kept(const Eviction& eviction) {
  const PatternAnalysis analysis(*eviction.keep);
  if (analysis.is_empty()) refuse(eviction.where, "evict: no query sees any key under the pattern that is kept");
  const std::optional<CacheSize> size = analysis.size_for_any_length();
  if (!size || (size->growth != 0 && size->growth != size->period)) return;
  if (size->growth == 0 && size->at(size->from) <= eviction.budget) {
    // Rows of a chunk come together. Once as many tokens as that have come nothing changes any more.
    constexpr int kMostPositions = 1 << 16;
    const int64_t enough = size->from + 2 * int64_t{eviction.budget} + 2 * int64_t{eviction.chunk};
    const int positions = static_cast<int>(std::min<int64_t>(enough, kMostPositions));
    const std::vector<int32_t> last_readers = analysis.last_readers(positions);
    check_kept_tokens(eviction, last_readers, positions, 1);
    if (eviction.chunk > 0) check_kept_tokens(eviction, last_readers, positions, eviction.chunk);
    return;
  }
  refuse(eviction.where, fmt::format("evict: the pattern keeps {}, and the budget is {}", to_text(*size), eviction.budget),
         "keep fewer by the pattern, or give a larger budget");
}

}  // namespace

void verify_readers(const FlowGraph& graph) {
  for (const FlowGraph& variant : graph.variants) verify_readers(variant);
  if (graph.eviction && graph.eviction->keep) verify_kept(*graph.eviction);
  const LayerPatterns& patterns = graph.patterns;
  const auto quoted = [](const Pattern& pattern) {
    constexpr size_t kLongest = 160;
    const std::string text = to_text(pattern);
    return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
  };
  std::vector<Pattern> of_heads;
  for (const HeadPatterns& heads : patterns.patterns) of_heads.insert(of_heads.end(), heads.each().begin(), heads.each().end());
  if (!of_heads.empty()) {
    const auto analyses = PatternAnalysis::all(of_heads, AnalysisBound().shared_by(of_heads.size()));
    size_t place = 0;
    for (const HeadPatterns& heads : patterns.patterns) {
      static_cast<void>(heads.any());  // what is kept: it must not have too many parts
      for (int head = 0; head < heads.size(); ++head, ++place) {
        if (!analyses[place].is_empty()) continue;
        const std::string whose = heads.is_same() ? "" : fmt::format(", which is that of head {}", head);
        refuse(patterns.where, fmt::format("no query sees any key under {}{}", quoted(of_heads[place]), whose));
      }
    }
  }
  if (graph.beside() == nullptr || !PatternAnalysis(*graph.beside(), AnalysisBound()).is_empty()) return;
  refuse(graph.nodes[static_cast<size_t>(graph.selection())].where,
         fmt::format("no query sees any key under {}, which stands beside the selection", quoted(*graph.beside())));
}

void verify_layers(const FlowGraph& graph, int layers) {
  for (const FlowGraph& variant : graph.variants) verify_layers(variant, layers);
  for (int layer = 0; layer < layers && !graph.variants.empty(); ++layer) {
    int programs = graph.layers.is_sparse(layer, layers) ? 1 : 0;
    for (const FlowGraph& variant : graph.variants) programs += variant.layers.is_sparse(layer, layers) ? 1 : 0;
    if (programs > 1)
      refuse(graph.where, fmt::format("layers: layer {} has {} programs", layer, programs), "name the layer once");
  }
  const std::string range = fmt::format("layers are numbered 0 to {}, or from the end -1 to -{}", layers - 1, layers);
  for (const auto& [layer, sparse] : graph.layers.sparse) {
    if (layer >= -layers && layer < layers) continue;
    refuse(graph.where, fmt::format("layers: there is no layer {} in a model of {} layers", layer, layers), range);
  }
  for (const auto& [layer, sparse] : graph.layers.sparse) {
    const auto other = graph.layers.sparse.find(layer - layers);
    if (layer < 0 || other == graph.layers.sparse.end() || other->second == sparse) continue;
    const bool has_programs = !graph.variants.empty() || !graph.variant.empty();
    refuse(graph.where,
           fmt::format("layers: {} and {} are one layer in a model of {} layers, and it cannot {}", layer, other->first, layers,
                       has_programs ? "have two programs, or one and be \"full\"" : "be \"full\" and \"sparse\""),
           "name the layer once");
  }
  // Of several programs some may have no layer of a small model.
  if (graph.variants.empty() && graph.variant.empty()) verifying::verify_masses(graph, graph.layers.is_sparse_anywhere(layers));
  const LayerPatterns& patterns = graph.patterns;
  for (const auto& [layer, place] : patterns.layers) {
    if (layer < -layers || layer >= layers) {
      refuse(patterns.where, fmt::format("flow.pattern: there is no layer {} in a model of {} layers", layer, layers), range);
    }
    if (place != LayerPatterns::kNone && !graph.layers.is_sparse(layer < 0 ? layer + layers : layer, layers)) {
      refuse(patterns.where, fmt::format("flow.pattern: layer {} has a pattern, and layers says that it is \"full\"", layer));
    }
    const auto other = patterns.layers.find(layer - layers);
    if (layer < 0 || other == patterns.layers.end() || other->second == place) continue;
    refuse(patterns.where,
           fmt::format("flow.pattern: {} and {} are one layer in a model of {} layers", layer, other->first, layers),
           "name the layer once");
  }
}

}  // namespace sluice
