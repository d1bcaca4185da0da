#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scripting/graph/graph.h"

namespace sluice {

/// What a pattern of a flow comes to.
struct PatternFigures {
  std::string text;                  // as a script would write it
  int layers = 0;                    // that have it
  int64_t kept = 0;                  // tokens, of `tokens`
  std::string any_size;              // "516 tokens, whatever the length"; empty: not known
  int64_t pages_read = 0;            // by the step of the last of `tokens`
  bool dense_prefill = false;        // every token is kept, and only steps have the pattern
  int64_t blind = 0;                 // queries of `tokens` that see nothing
  double area = 0;                   // share of the pairs of dense attention, over `tokens` queries
  std::vector<std::string> drawing;  // lines of queries, in columns of keys
};

/// Of each pattern that a layer of a model of `layers` layers has, for sequences of `tokens` tokens, 2^24 at most. Throws
/// InputError as PatternAnalysis does.
std::vector<PatternFigures> pattern_figures(const FlowGraph& graph, int layers, int64_t tokens);

/// The same in words, a few lines for each.
std::string pattern_text(const std::vector<PatternFigures>& figures, int64_t tokens);

}  // namespace sluice
