#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scripting/graph/graph.h"

namespace sluice {

/// Figures of patterns are of no more tokens.
inline constexpr int64_t kMostPatternTokens = int64_t{1} << 20;

/// What a pattern is to its flow.
enum class PatternRole : uint8_t {
  kAlone,   // layers have nothing else
  kAround,  // the index stage is shown what the pattern has
  kBeside,  // its tokens are attended to beside what the index stage selects
};

/// What a pattern of a flow comes to.
struct PatternFigures {
  std::string text;  // as a script would write it
  PatternRole role = PatternRole::kAlone;
  int layers = 0;          // that have it
  std::string which = {};  // of the model's layers, in words
  int head = 0;            // of `heads`: KV heads of this number modulo `heads` have it
  int heads = 1;           // 1: all have it
  int64_t kept = 0;        // tokens, of `tokens` after which the text ends, in the head that keeps the most
  int64_t slots = 0;       // the same where the text goes on, as far as is looked at; 0: not known, or there are no slots
  std::string any_size;    // "516 tokens, whatever the length"; empty: not known, or all
  int64_t pages_read = 0;  // by the step of the last of `tokens`, for any head; beside a selection: those that have a token of it
  bool last_is_blind = false;  // the last of `tokens` sees nothing, in any head: its step is no measure of others
  bool dense_prefill = false;  // a prompt is kept until it is there, and only steps have the pattern
  int64_t blind = 0;           // queries of `tokens` that see nothing of it; -1: not known, of one of several heads
  double area = 0;             // share of the pairs of dense attention, over `tokens` queries
  bool is_area_exact = true;   // false: it is that of some of the queries
  /// A picture of `tokens` queries, downwards, and keys: of each cell, row by row up to the diagonal, the share of the pairs of
  /// dense attention that it has.
  std::vector<std::vector<double>> shares;
};

/// Of each pattern that a layer of a model of `layers` layers, or one of its `kv_heads` KV heads, has, for sequences of `tokens`
/// tokens, kMostPatternTokens at most; the one that stands beside a selection is last. Throws FlowError where PatternAnalysis
/// throws InputError.
std::vector<PatternFigures> pattern_figures(const FlowGraph& graph, int layers, int kv_heads, int64_t tokens);

/// The same in words, a few lines for each, with pictures of letters.
std::string pattern_text(const std::vector<PatternFigures>& figures, int64_t tokens);

/// The pictures as a document of SVG, one beside the other.
std::string pattern_svg(const std::vector<PatternFigures>& figures, int64_t tokens);

}  // namespace sluice
