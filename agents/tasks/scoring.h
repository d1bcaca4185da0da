#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agents/tasks/task.h"

namespace sluice {

struct Score {
  int right = 0;    // parts of the answer (Sample::part_words)
  int parts = 1;    // of the answer; of a set as many as were written, if those are more
  double loss = 0;  // kLoss, instead: nats a token of what was given

  double credit() const { return static_cast<double>(right) / parts; }
  bool is_whole() const { return right == parts; }
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
