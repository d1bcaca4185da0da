#include "scripting/graph/pattern_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "scripting/pattern/analysis.h"
#include "scripting/pattern/text.h"

namespace sluice {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;

/// Share of the pairs of dense attention; of long sequences by some of the rows.
double area_of(const Pattern& pattern, int tokens) {
  constexpr int kRows = 512;
  std::vector<uint32_t> words(static_cast<size_t>((tokens + 31) / 32));
  double seen = 0;
  double all = 0;
  const int rows = std::min(tokens, kRows);
  for (int r = 0; r < rows; ++r) {
    // Rows that are spread evenly, and at no fixed distance, or strides would hit or miss them all.
    const auto i = static_cast<int>((r + (r * 7919 % rows + 0.5) / rows) * tokens / rows);
    pattern.row(i, tokens, words);
    for (const uint32_t word : words) seen += std::popcount(word);
    all += i + 1;
  }
  return seen / all;
}

}  // namespace

std::vector<PatternFigures> pattern_figures(const FlowGraph& graph, int layers, int64_t tokens) {
  std::map<int, int> layers_of;
  for (int layer = 0; layer < layers; ++layer) {
    if (graph.layers.is_sparse(layer, layers)) ++layers_of[graph.patterns.place_of(layer, layers)];
  }
  std::vector<PatternFigures> figures;
  const auto length = static_cast<int>(std::clamp<int64_t>(tokens, 1, kMostTokens));
  for (const auto& [place, count] : layers_of) {
    if (place == LayerPatterns::kNone) continue;
    const PatternAnalysis analysis(graph.patterns.patterns[static_cast<size_t>(place)]);
    const auto size = analysis.size_for_any_length();
    figures.push_back({.text = to_text(analysis.pattern()),
                       .layers = count,
                       .kept = analysis.live_tokens(length),
                       .any_size = size ? to_text(*size) : std::string(),
                       .blind = analysis.blind_rows(length),
                       .area = area_of(analysis.pattern(), length)});
  }
  return figures;
}

std::string pattern_text(const std::vector<PatternFigures>& figures, int64_t tokens) {
  std::string text;
  for (const PatternFigures& each : figures) {
    text += fmt::format("pattern of {} layer{}: {}\n", each.layers, each.layers == 1 ? "" : "s", each.text);
    text += fmt::format("  keeps {}; {} of {} tokens\n",
                        each.any_size.empty() ? "what no short rule of the length says" : each.any_size, each.kept, tokens);
    text += fmt::format("  sees {:.1f}% of what dense attention does", 100 * each.area);
    text += each.blind == 0 ? "; every query sees a key\n"
                            : fmt::format("; {} of {} queries see nothing, and give zeros\n", each.blind, tokens);
    text += "  tokens go to slots: the pattern alone says which are read, and a slot is taken again once nobody will\n";
  }
  return text;
}

}  // namespace sluice
