#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agents/tasks/task.h"

namespace sluice {

struct Score {
  int right = 0;    // parts of the answer (Sample::part_words)
  int parts = 1;    // of the answer; of a set as many as were written, if those are more
  int drawn = 1;    // Sample::drawn_parts, or all parts, if those are fewer
  double loss = 0;  // kLoss, instead: nats a token of what was given

  bool is_whole() const { return right == parts; }
  double share() const { return static_cast<double>(right) / parts; }
  /// Ways to draw `drawn` of `count` parts.
  int64_t draws_of(int count) const;
  /// The probability that parts drawn at random are all right.
  double credit() const { return static_cast<double>(draws_of(right)) / static_cast<double>(draws_of(parts)); }
};

/// For all scorings but kLoss. Compares generated text with the sample's answer. `ended`: the model ended the answer itself, it
/// was not cut off.
///
/// Of an answer in order (kExact) the parts before the first mistake are right, and the last one only if the answer ends with it.
/// Of a set the words found are.
Score score(const Sample& sample, std::string_view generated, bool ended);

/// Lower-case words of letters and digits; everything else separates. `items` keeps some of them: for kNumbers the words
/// of digits, for kNames those written in five capital letters and the numbers. "and" is no item.
std::vector<std::string> normalised_words(std::string_view text, Items items);

}  // namespace sluice
