#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host/serving/segment_reuse.h"

namespace sluice {

/// How the documents of a suite are cut into text that stood elsewhere before.
struct ReuseLayout {
  int segment = 1024;  // tokens of each; of shorter documents fewer
  double share = 0.9;  // of a document that is segments
  int least = 4;       // segments of a document, if it has the tokens
};

/// Segments of a document of so many tokens, with new text before each and behind the last: whole blocks of `block`. They begin
/// at equal distances, or at the nearest of `cuts` (ascending), where somebody may ask for what the edge divides: a copy has seen
/// the one half without the other. Empty where the document is too short.
std::vector<Segment> segments_of(const ReuseLayout& layout, int tokens, int block, std::span<const int> cuts = {});

/// A text that has the segments of a document in the opposite order, and then what stands between them: whoever computes it knows
/// each segment without what comes before it in the document.
struct KnownText {
  std::vector<int32_t> tokens;
  std::vector<Segment> segments;
};
KnownText known_text(std::span<const int32_t> document, std::span<const Segment> segments);

}  // namespace sluice
