#include "scripting/graph/pattern_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "scripting/base/bits.h"
#include "scripting/pattern/analysis.h"
#include "scripting/pattern/slot_map.h"
#include "scripting/pattern/text.h"

namespace sluice {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;
constexpr int kMostSlots = 1 << 20;

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

/// A picture of queries, downwards, and keys: each cell as dark as it is seen, of the pairs that dense attention has in it.
std::vector<std::string> drawing_of(const Pattern& pattern, int tokens) {
  constexpr int kCells = 16;
  constexpr int kRows = 16;  // of a cell that are looked at
  constexpr std::array kShades = {"  ", "░░", "▒▒", "▓▓", "██"};
  const int side = std::min(tokens, kCells);
  const auto edge = [&](int cell) { return static_cast<int>(int64_t{cell} * tokens / side); };
  std::vector<uint32_t> words(static_cast<size_t>((tokens + 31) / 32));
  std::vector<std::string> lines;
  for (int y = 0; y < side; ++y) {
    std::vector<int64_t> seen(static_cast<size_t>(side));
    std::vector<int64_t> all(static_cast<size_t>(side));
    const int rows = std::min(kRows, edge(y + 1) - edge(y));
    for (int r = 0; r < rows; ++r) {
      const int i = edge(y) + static_cast<int>((int64_t{r} * (edge(y + 1) - edge(y)) + r * 7919 % rows) / rows);
      pattern.row(i, tokens, words);
      for (int x = 0; x <= y; ++x) {
        const int end = std::min(edge(x + 1), i + 1);
        for (int j = edge(x); j < end; ++j) seen[static_cast<size_t>(x)] += has_bit(words, j) ? 1 : 0;
        all[static_cast<size_t>(x)] += std::max(0, end - edge(x));
      }
    }
    std::string line;
    for (size_t x = 0; x <= static_cast<size_t>(y); ++x) {
      const double share = all[x] == 0 ? 0 : static_cast<double>(seen[x]) / static_cast<double>(all[x]);
      const double shade = std::ceil(share * (kShades.size() - 1));
      line += kShades[static_cast<size_t>(shade)];
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

/// Pages that have a token that the last query sees, or its own: in their slots, or, as where sequences are very long, in the
/// order of their positions.
int64_t pages_read(const PatternAnalysis& analysis, int length, int page, bool in_slots) {
  std::vector<uint32_t> seen(static_cast<size_t>((length + 31) / 32));
  analysis.pattern().row(length - 1, length, seen);
  std::optional<SlotMap> slots;
  // As in a sequence that goes on, but where looking at rows one by one would exceed the bound of an analysis.
  if (in_slots && length <= kMostSlots) slots.emplace(analysis, analysis.is_for_any_length() ? 2 * length : length);
  std::set<int> pages;
  for (int token = 0; token < length; ++token) {
    if (token == length - 1 || has_bit(seen, token)) pages.insert((slots ? slots->slot(token) : token) / page);
  }
  return static_cast<int64_t>(pages.size());
}

}  // namespace

std::vector<PatternFigures> pattern_figures(const FlowGraph& graph, int layers, int64_t tokens) {
  std::map<int, int> layers_of;
  for (int layer = 0; layer < layers; ++layer) {
    if (!graph.patterns.empty() && graph.is_run_by(layer, layers)) ++layers_of[graph.patterns.place_of(layer, layers)];
  }
  std::vector<PatternFigures> figures;
  const AnalysisBound bound = AnalysisBound().shared_by(std::max<size_t>(1, layers_of.size()));
  const auto length = static_cast<int>(std::clamp<int64_t>(tokens, 1, kMostTokens));
  const bool is_dense = graph.patterns.dense_prefill;
  for (const auto& [place, count] : layers_of) {
    const PatternAnalysis analysis(graph.patterns.patterns[static_cast<size_t>(place)], bound);
    const std::optional<CacheSize> size = is_dense ? std::nullopt : analysis.size_for_any_length();
    figures.push_back({.text = to_text(analysis.pattern()),
                       .layers = count,
                       .kept = is_dense ? length : analysis.live_tokens(length),
                       .any_size = size ? to_text(*size) : std::string(),
                       .pages_read = pages_read(analysis, length, graph.geometry.page, !is_dense),
                       .dense_prefill = is_dense,
                       .blind = analysis.blind_rows(length),
                       .area = area_of(analysis.pattern(), length),
                       .drawing = drawing_of(analysis.pattern(), length)});
  }
  return figures;
}

std::string pattern_text(const std::vector<PatternFigures>& figures, int64_t tokens) {
  std::string text;
  for (const PatternFigures& each : figures) {
    text += fmt::format("pattern of {} layer{}: {}\n", each.layers, each.layers == 1 ? "" : "s", each.text);
    if (each.dense_prefill) {
      text += "  prompts are computed densely, so every token is kept, in the order of positions; of steps:\n";
    } else {
      text += fmt::format("  keeps {}; {} of {} tokens\n",
                          each.any_size.empty() ? "what no short rule of the length says" : each.any_size, each.kept, tokens);
    }
    text += fmt::format("  sees {:.1f}% of what dense attention does", 100 * each.area);
    text += each.blind == 0 ? "; every query sees a key\n"
                            : fmt::format("; {} of {} queries see nothing, and give zeros\n", each.blind, tokens);
    text += fmt::format("  the step of the last token reads {} page{}, its own among them\n", each.pages_read,
                        each.pages_read == 1 ? "" : "s");
    if (!each.dense_prefill) {
      text += "  tokens go to slots: the pattern alone says which are read, and a slot is taken again once nobody will\n";
    }
    text += fmt::format("  queries downwards, keys to the right, {} tokens a cell:\n",
                        std::max<int64_t>(1, tokens / std::max<size_t>(1, each.drawing.size())));
    for (const std::string& line : each.drawing) text += "    " + line + "\n";
  }
  return text;
}

}  // namespace sluice
