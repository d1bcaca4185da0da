#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agents/tasks/rng.h"

namespace sluice {

/// Where an interleaved document tells which attribute of which topic. Topics are indices from 0, attributes too.
struct SaladLayout {
  struct Line {
    enum class Kind : uint8_t { kHay, kHeader, kAttribute } kind = Kind::kHay;
    int topic = -1;
    int attribute = -1;
  };
  std::string pattern;  // of segments; letters are topics
  int topics = 0;       // 2 to 12
  int attributes = 0;   // 4 or more, the same for every topic; each topic's attribute is told exactly once
  std::vector<Line> lines;
};

/// Fewest lines that a layout can have: one segment of four lines for each letter of the shortest pattern.
inline constexpr int kLeastSaladLines = 16;

/// What a layout may have at most.
struct SaladExtent {
  int topics = 12;
  int attributes = 40;
};

/// Patterns of WikiSalad's difficulties (LuKA, section 4.1), a topic a letter. The last comes twice, so that A returns after C.
inline constexpr std::string_view kSaladEasy = "ABAB";
inline constexpr std::string_view kSaladMedium = "AABBAABB";
inline constexpr std::string_view kSaladHard = "ABCABC";
inline constexpr std::string_view kSaladVeryHard = "AAABBBCCCAAABBBCCC";

/// Interleaves topics by a pattern drawn at random among those that fit ("ABAB", "AABBAABB", "ABCABC", "AAABBBCCC"), repeated
/// over `lines` lines with further topics in place of its letters. Segments have 4 to 12 lines: a header, then attributes of its
/// topic among hay. Every attribute of every topic is in the document, so every question has an answer. `lines` >=
/// kLeastSaladLines.
SaladLayout salad_layout(Rng& rng, int lines, const SaladExtent& most = {});

/// Fewest lines of a document that is one `pattern`.
constexpr int least_salad_lines(std::string_view pattern) { return 4 * static_cast<int>(pattern.size()); }

/// Interleaves by `pattern` once: its segments are equally long and take all `lines` (least_salad_lines at least), but for a few
/// of hay at the end. Every attribute of every topic is in the document.
SaladLayout salad_layout_of(Rng& rng, int lines, std::string_view pattern, const SaladExtent& most = {});

}  // namespace sluice
