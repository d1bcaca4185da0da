#include "scripting/graph/pattern_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "scripting/base/bits.h"
#include "scripting/pattern/analysis.h"
#include "scripting/pattern/head_patterns.h"
#include "scripting/pattern/head_slots.h"
#include "scripting/pattern/page_lives.h"
#include "scripting/pattern/text.h"

namespace sluice {
namespace {

constexpr int64_t kMostSlots = 1 << 20;

/// Rows that are looked at for the share of one of so many patterns: all of them if that takes little.
int area_rows(const Pattern& pattern, int tokens, size_t patterns) {
  constexpr int64_t kMostWords = int64_t{1} << 28;  // that all patterns have looked at
  constexpr int64_t kFewest = 64;
  const int64_t of_row = pattern.row_cost(tokens) + tokens / 32 + 1;
  const int64_t rows = kMostWords / static_cast<int64_t>(patterns) / of_row;
  return static_cast<int>(std::min<int64_t>(tokens, std::max(kFewest, rows)));
}

/// Share of the pairs of dense attention, by so many of the rows.
double area_of(const Pattern& pattern, int tokens, int rows) {
  std::vector<uint32_t> words(static_cast<size_t>((tokens + 31) / 32));
  std::mt19937 random(1);
  double seen = 0;
  double all = 0;
  const auto edge = [&](int r) { return static_cast<int>(int64_t{r} * tokens / rows); };
  for (int r = 0; r < rows; ++r) {
    // One of each stretch, whichever, or strides would hit or miss them all.
    const int i = edge(r) + static_cast<int>(random() % static_cast<unsigned>(edge(r + 1) - edge(r)));
    pattern.row(i, tokens, words);
    for (const uint32_t word : words) seen += std::popcount(word);
    all += i + 1;
  }
  return seen / all;
}

/// PatternFigures::shares of so many cells a side.
std::vector<std::vector<double>> shares_of(const Pattern& pattern, int tokens, int cells) {
  constexpr int kRows = 16;  // of a cell that are looked at
  const int side = std::min(tokens, cells);
  const auto edge = [&](int cell) { return static_cast<int>(int64_t{cell} * tokens / side); };
  std::vector<uint32_t> words(static_cast<size_t>((tokens + 31) / 32));
  std::mt19937 random(1);
  std::vector<std::vector<double>> shares;
  for (int y = 0; y < side; ++y) {
    std::vector<int64_t> seen(static_cast<size_t>(y) + 1);
    std::vector<int64_t> all(static_cast<size_t>(y) + 1);
    const int in_cell = edge(y + 1) - edge(y);
    const int rows = std::min(kRows, in_cell);
    for (int r = 0; r < rows; ++r) {
      // One of each stretch, as in `area_of`.
      const int first = static_cast<int>(int64_t{r} * in_cell / rows);
      const int end_of_stretch = static_cast<int>(int64_t{r + 1} * in_cell / rows);
      const int i = edge(y) + first + static_cast<int>(random() % static_cast<unsigned>(end_of_stretch - first));
      pattern.row(i, tokens, words);
      for (int x = 0; x <= y; ++x) {
        const int end = std::min(edge(x + 1), i + 1);
        seen[static_cast<size_t>(x)] += count_bits(words, edge(x), end);
        all[static_cast<size_t>(x)] += std::max(0, end - edge(x));
      }
    }
    std::vector<double>& line = shares.emplace_back();
    for (size_t x = 0; x < seen.size(); ++x) {
      line.push_back(all[x] == 0 ? 0 : static_cast<double>(seen[x]) / static_cast<double>(all[x]));
    }
  }
  return shares;
}

/// Cells of a picture that are one of letters, a side.
size_t cells_together(const std::vector<std::vector<double>>& shares) {
  constexpr size_t kLines = 16;
  return std::max<size_t>(1, (shares.size() + kLines - 1) / kLines);
}

/// Lines of letters, of fewer cells, each as dark as it is seen.
std::vector<std::string> drawing_of(const std::vector<std::vector<double>>& shares) {
  constexpr std::array kShades = {"  ", "░░", "▒▒", "▓▓", "██"};
  const size_t together = cells_together(shares);
  std::vector<std::string> lines;
  for (size_t y = 0; y < shares.size(); y += together) {
    std::string line;
    for (size_t x = 0; x <= y; x += together) {
      double sum = 0;
      size_t cells = 0;
      for (size_t row = y; row < std::min(shares.size(), y + together); ++row) {
        for (size_t column = x; column < std::min(shares[row].size(), x + together); ++column, ++cells)
          sum += shares[row][column];
      }
      line += kShades[static_cast<size_t>(std::ceil(sum / static_cast<double>(cells) * (kShades.size() - 1)))];
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

const char* role_text(PatternRole role) {
  return role == PatternRole::kBeside ? "beside the selection: " : role == PatternRole::kAround ? "around the selection: " : "";
}

/// "KV head 1 of 4", where a model of more heads has them in turn.
std::string heads_text(int head, int heads) { return fmt::format("KV head {} of {}", head, heads); }

std::string shortened(const std::string& text) {
  constexpr size_t kLongest = 44;
  if (text.size() <= kLongest) return text;
  const size_t end = (kLongest - 3) / 2;  // where patterns of heads often differ
  return text.substr(0, kLongest - 3 - end) + "..." + text.substr(text.size() - end);
}

/// As text of an XML document.
std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return safe;
}

/// What is kept and read under a pattern, for all heads together.
std::string cache_text(const PatternFigures& figures, int64_t tokens) {
  std::string text = figures.heads == 1 ? "" : fmt::format("all {} heads together\n", figures.heads);
  if (figures.dense_prefill) {
    text +=
        "  prompts are computed densely, so all of a prompt is kept until it is there, in pages in the order of positions;\n"
        "  a page goes once no later step reads any of its tokens; of steps:\n";
  } else if (figures.role == PatternRole::kAround) {
    text += fmt::format(
        "  keeps {} of {} tokens at most: flow.index looks at pages in the order of positions, and a page goes\n"
        "  once no later query reads any of its tokens\n",
        figures.kept, tokens);
  } else {
    text += fmt::format("  keeps {}; {} of {} tokens{}{}\n",
                        figures.any_size.empty() ? "a number of tokens for which no rule was found" : figures.any_size,
                        figures.kept, tokens, figures.heads == 1 ? "" : ", in the head that keeps the most",
                        figures.slots <= figures.kept ? "" : fmt::format(", and {} while the text goes on", figures.slots));
  }
  text += fmt::format("  the step of the last token {} {} page{}, its own among them{}\n",
                      figures.role == PatternRole::kAround ? "is shown" : "reads", figures.pages_read,
                      figures.pages_read == 1 ? "" : "s",
                      figures.last_is_blind ? "; it sees nothing, so its bytes and its time are no measure of other steps" : "");
  if (!figures.dense_prefill && figures.role == PatternRole::kAlone) {
    text +=
        fmt::format("  tokens go to slots{}: the pattern alone says which are read, and a slot is taken again once nobody will\n",
                    figures.heads == 1 ? "" : " of each head");
  }
  return text;
}

/// PatternFigures::blind of one of several heads; -1 where the analysis takes longer than its bound.
int64_t blind_rows(const Pattern& pattern, const AnalysisBound& bound, int length) {
  try {
    return PatternAnalysis(pattern, bound).blind_rows(length);
  } catch (const InputError&) {
    return -1;
  }
}

/// What a sequence that goes on has once `length` tokens are there.
struct SlotFigures {
  int64_t pages = 0;  // that have a token that the last query sees in any of the heads, or its own
  int64_t slots = 0;  // of the head that has the most; 0: not known
};

/// In their slots, or, as where sequences are very long, in the order of their positions.
SlotFigures slot_figures(const std::vector<PatternAnalysis>& of_heads, int length, int page, bool in_slots) {
  std::vector<uint32_t> seen(static_cast<size_t>((length + 31) / 32));
  std::set<int> pages;
  SlotFigures figures;
  for (const PatternAnalysis& analysis : of_heads) {
    analysis.pattern().row(length - 1, length, seen);
    std::optional<SlotMap> slots;
    // But where looking at rows one by one would exceed the bound of an analysis.
    if (in_slots && int64_t{length} * static_cast<int64_t>(of_heads.size()) <= kMostSlots) {
      const int64_t most = std::max(2 * int64_t{length}, kMostSlots / static_cast<int64_t>(of_heads.size()));
      slots.emplace(analysis, analysis.is_for_any_length() ? static_cast<int>(std::min(most, kMostSlots)) : length);
      figures.slots = std::max<int64_t>(figures.slots, slots->used(length));
    }
    for (int token = 0; token < length; ++token) {
      if (token == length - 1 || has_bit(seen, token)) pages.insert((slots ? slots->slot(token) : token) / page);
    }
  }
  figures.pages = static_cast<int64_t>(pages.size());
  return figures;
}

/// How many tokens the head keeps that keeps the most, for any length; empty where that is not known, or it is not always the
/// same. `kept`: at `length`.
std::string size_text(const std::vector<PatternAnalysis>& of_heads, int64_t length, int64_t kept) {
  std::vector<CacheSize> sizes;
  int64_t from = 1;
  for (const PatternAnalysis& analysis : of_heads) {
    const std::optional<CacheSize> size = analysis.size_for_any_length();
    if (!size) return {};
    sizes.push_back(*size);
    from = std::max(from, size->from);
  }
  const CacheSize& most = *std::max_element(sizes.begin(), sizes.end(), [](const CacheSize& a, const CacheSize& b) {
    const int64_t of_a = a.growth * b.period;
    const int64_t of_b = b.growth * a.period;
    return of_a != of_b ? of_a < of_b : a.offset * b.period < b.offset * a.period;
  });
  const auto is_less = [&](const CacheSize& size) { return size.at(from) <= most.at(from); };
  if (!std::all_of(sizes.begin(), sizes.end(), is_less)) return {};
  if (most.growth == 0) return length < from || most.at(length) == kept ? to_text(most) : std::string();
  if (length >= from && most.at(length) != kept) return {};
  return from > 1 ? fmt::format("{}, from {} tokens on", to_text(most), from) : to_text(most);
}

bool last_is_blind(const Pattern& pattern, int length) {
  std::vector<uint32_t> seen(static_cast<size_t>((length + 31) / 32));
  pattern.row(length - 1, length, seen);
  return std::all_of(seen.begin(), seen.end(), [](uint32_t word) { return word == 0; });
}

/// Tokens that are kept at most where they lie in the order of positions.
int64_t in_pages(const PatternAnalysis& analysis, int length, int page) {
  return std::min<int64_t>(length, int64_t{page} * PageLives(analysis, length, page).most(length));
}

/// "8 layers" if these are all of so many; else "layer 3", "layers 0 to 2, 5".
std::string layers_text(const std::vector<int>& some, int layers) {
  if (std::ssize(some) == layers) return fmt::format("{} layer{}", layers, layers == 1 ? "" : "s");
  std::string text;
  for (size_t i = 0; i < some.size();) {
    size_t end = i + 1;
    while (end < some.size() && some[end] == some[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", some[i]);
    if (end - i > 1) text += fmt::format("{}{}", end - i > 2 ? " to " : ", ", some[end - 1]);
    i = end;
  }
  return fmt::format("layer{} {}", some.size() == 1 ? "" : "s", text);
}

std::vector<PatternFigures> figures_of(const FlowGraph& graph, int layers, int kv_heads, int64_t tokens) {
  constexpr int kCells = 48;
  std::map<int, std::vector<int>> layers_of;
  std::vector<int> selecting;
  for (int layer = 0; layer < layers; ++layer) {
    if (!graph.is_run_by(layer, layers)) continue;
    selecting.push_back(layer);
    const int place = graph.patterns.empty() ? LayerPatterns::kNone : graph.patterns.place_of(layer, layers);
    if (place != LayerPatterns::kNone) layers_of[place].push_back(layer);
  }
  std::vector<PatternFigures> figures;
  size_t heads_in_all = 1;
  for (const auto& [place, of_place] : layers_of)
    heads_in_all += graph.patterns.patterns[static_cast<size_t>(place)].each().size();
  // The bounds that engines have.
  const AnalysisBound bound = AnalysisBound().shared_by(std::max<size_t>(1, graph.patterns.patterns.size()));
  const AnalysisBound of_head = AnalysisBound().shared_by(std::max<size_t>(1, graph.patterns.count()));
  const auto length = static_cast<int>(std::clamp<int64_t>(tokens, 1, kMostPatternTokens));
  const bool is_dense = graph.patterns.dense_prefill;
  const bool in_slots = !is_dense && graph.sources.empty();
  for (const auto& [place, of_place] : layers_of) {
    const HeadPatterns& heads = graph.patterns.patterns[static_cast<size_t>(place)];
    const int different = std::min(heads.size(), kv_heads);
    // Heads have slots of their own, but pages are those of what any head reads.
    const bool by_head = in_slots && different > 1;
    const std::vector<PatternAnalysis> analyses =
        by_head ? PatternAnalysis::all(heads.each().first(static_cast<size_t>(different)), of_head)
                : PatternAnalysis::all(std::vector{heads.any(kv_heads)}, in_slots ? of_head : bound);
    int64_t kept = is_dense ? length : in_slots ? 0 : in_pages(analyses.front(), length, graph.geometry.page);
    for (const PatternAnalysis& each : analyses) kept = std::max<int64_t>(kept, in_slots ? each.live_tokens(length) : 0);
    const SlotFigures of_slots = slot_figures(analyses, length, graph.geometry.page, in_slots);
    const bool is_blind = last_is_blind(heads.any(kv_heads), length);
    for (int head = 0; head < different; ++head) {
      const Pattern& pattern = heads.of_head(head);
      const int rows = area_rows(pattern, length, heads_in_all);
      figures.push_back({.text = to_text(pattern),
                         .role = graph.sources.empty() ? PatternRole::kAlone : PatternRole::kAround,
                         .layers = static_cast<int>(of_place.size()),
                         .which = layers_text(of_place, layers),
                         .head = head,
                         .heads = different,
                         .kept = kept,
                         .slots = of_slots.slots,
                         .any_size = in_slots ? size_text(analyses, length, kept) : std::string(),
                         .pages_read = of_slots.pages,
                         .last_is_blind = is_blind,
                         .dense_prefill = is_dense,
                         .blind = different == 1 ? analyses.front().blind_rows(length) : blind_rows(pattern, of_head, length),
                         .area = area_of(pattern, length, rows),
                         .is_area_exact = rows == length,
                         .shares = shares_of(pattern, length, kCells)});
    }
  }
  if (const Pattern* const beside = graph.beside(); beside != nullptr && !selecting.empty()) {
    std::vector<uint32_t> seen(static_cast<size_t>((length + 31) / 32));
    beside->row(length - 1, length, seen);
    const int rows = area_rows(*beside, length, heads_in_all);
    figures.push_back({.text = to_text(*beside),
                       .role = PatternRole::kBeside,
                       .layers = static_cast<int>(selecting.size()),
                       .which = layers_text(selecting, layers),
                       .kept = length,
                       .any_size = {},
                       .pages_read = count_pages(seen, length, graph.geometry.page),
                       .area = area_of(*beside, length, rows),
                       .is_area_exact = rows == length,
                       .shares = shares_of(*beside, length, kCells)});
  }
  return figures;
}

}  // namespace

std::vector<PatternFigures> pattern_figures(const FlowGraph& graph, int layers, int kv_heads, int64_t tokens) {
  try {
    return figures_of(graph, layers, kv_heads, tokens);
  } catch (const InputError& error) {
    throw FlowError(graph.patterns.where, error.what(), error.hint());
  }
}

std::string pattern_text(const std::vector<PatternFigures>& figures, int64_t tokens) {
  std::string text;
  if (tokens > kMostPatternTokens && !figures.empty())
    text += fmt::format("figures of patterns, and of steps, are those of {} tokens\n", kMostPatternTokens);
  tokens = std::min(tokens, kMostPatternTokens);
  for (const PatternFigures& each : figures) {
    const char* const what = each.role == PatternRole::kBeside ? "beside the selection" : "pattern";
    const std::string heads = each.heads == 1 ? "" : fmt::format(", {}", heads_text(each.head, each.heads));
    text += fmt::format("{} of {}{}: {}\n", what, each.which, heads, each.text);
    text += fmt::format("  sees {}{:.1f}% of what dense attention does", each.is_area_exact ? "" : "about ", 100 * each.area);
    if (each.role == PatternRole::kBeside) {
      text += fmt::format("\n  of the step of the last token: in {} page{}\n", each.pages_read, each.pages_read == 1 ? "" : "s");
    } else {
      const bool is_around = each.role == PatternRole::kAround;
      text += each.blind < 0    ? "\n"
              : each.blind == 0 ? (is_around ? "; every query may see a key\n" : "; every query sees a key\n")
                                : fmt::format("; {} of {} queries {} nothing, and give{} zeros\n", each.blind, tokens,
                                              each.blind == 1 ? "sees" : "see", each.blind == 1 ? "s" : "");
    }
    if (each.role != PatternRole::kBeside && each.heads == 1) text += cache_text(each, tokens);
    const std::vector<std::string> drawing = drawing_of(each.shares);
    const double a_cell = static_cast<double>(tokens) / static_cast<double>(std::max<size_t>(1, each.shares.size()));
    const std::string in_cell = fmt::format("{:.0f}", a_cell * static_cast<double>(cells_together(each.shares)));
    text += fmt::format("  queries downwards, keys to the right, {} token{} a cell:\n", in_cell, in_cell == "1" ? "" : "s");
    for (const std::string& line : drawing) text += "    " + line + "\n";
    if (each.heads > 1 && each.head + 1 == each.heads) text += cache_text(each, tokens);
  }
  return text;
}

std::string pattern_svg(const std::vector<PatternFigures>& figures, int64_t tokens) {
  constexpr int kSide = 288;  // of a picture
  constexpr size_t kInRow = 4;
  constexpr int kGap = 24;
  constexpr int kLines = 64;  // for what stands above
  constexpr int kHigh = kLines + kSide + kGap;
  tokens = std::min(tokens, kMostPatternTokens);
  std::string pictures;
  for (size_t i = 0; i < figures.size(); ++i) {
    const PatternFigures& each = figures[i];
    const int left = kGap + static_cast<int>(i % kInRow) * (kSide + kGap);
    const double cell = static_cast<double>(kSide) / static_cast<double>(std::max<size_t>(1, each.shares.size()));
    pictures += fmt::format("<g transform=\"translate({} {})\">\n", left, static_cast<int>(i / kInRow) * kHigh + kLines);
    pictures += fmt::format("<text y=\"-42\">{}</text>\n", escaped(shortened(each.text)));
    const std::string heads = each.heads == 1 ? "" : fmt::format(", {}", heads_text(each.head, each.heads));
    pictures += fmt::format("<text y=\"-26\" class=\"note\">{}{}{}</text>\n", role_text(each.role), shortened(each.which), heads);
    pictures += fmt::format("<text y=\"-10\" class=\"note\">{} tokens, {}{:.1f}% of dense attention</text>\n", tokens,
                            each.is_area_exact ? "" : "about ", 100 * each.area);
    pictures += fmt::format("<path class=\"causal\" d=\"M0 0V{0}H{0}Z\"/>\n", kSide);
    for (size_t y = 0; y < each.shares.size(); ++y) {
      for (size_t x = 0; x < each.shares[y].size(); ++x) {
        const double share = each.shares[y][x];
        if (share == 0) continue;
        // Cells overlap by a little, or lines between them would show.
        pictures += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill-opacity=\"{:.2f}\"/>\n",
                                static_cast<double>(x) * cell, static_cast<double>(y) * cell, cell + 0.05, cell + 0.05,
                                0.15 + 0.85 * share);
      }
    }
    pictures += "</g>\n";
  }
  const int width = kGap + static_cast<int>(std::min(kInRow, figures.size())) * (kSide + kGap);
  const int height = static_cast<int>((figures.size() + kInRow - 1) / kInRow) * kHigh;
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\">\n"
             "<title>Which keys (to the right) each query (downwards) sees</title>\n"
             "<style>text{{font:13px sans-serif;fill:#1a1a1a}}.note{{font-size:11px;fill:#555}}.causal{{fill:#eceff3}}"
             "rect{{fill:#1f5fae}}.ground{{fill:#fff}}</style>\n"
             "<rect class=\"ground\" width=\"{0}\" height=\"{1}\"/>\n",
             width, height) +
         pictures + "</svg>\n";
}

}  // namespace sluice
