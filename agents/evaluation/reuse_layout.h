#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agents/tasks/task.h"
#include "host/serving/segment_reuse.h"
#include "host/text/tokenizer.h"

namespace sluice {

/// Segments are whole blocks of so many tokens. A page of any flow is a part of it, so that all flows have the same segments.
inline constexpr int kReuseBlock = 128;

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

/// Where in a document an edge divides what is asked for, ascending: before a word of an answer that follows the one before it in
/// the answer, which the two do at hardly another place.
std::vector<int> cuts_of_answers(std::span<const int32_t> document, std::span<const std::string> answers,
                                 const Tokenizer& tokenizer);

/// Throws InputError for documents of so many tokens if they are too short for segments.
void require_segments(const ReuseLayout& layout, int tokens);

/// A text that somebody has computed before.
struct KnownText {
  std::vector<int32_t> tokens;
  std::vector<Segment> segments;
  std::vector<int32_t> answer;  // that is generated behind it
  std::string answer_key;       // under which that is known
};

/// The name under which segment `place` of a document is known on an occasion.
std::string name_of_segment(Occasion occasion, size_t place);
/// What has to be computed for the segments of a document to be known, each without what comes before it in the document; on
/// kChat without its first turns alone. What stands between segments is part of it, so that their last pages are full; where
/// they are answers, the last block of each may be unknown.
std::vector<KnownText> known_texts(Occasion occasion, std::span<const int32_t> document, std::span<const Segment> segments);

}  // namespace sluice
