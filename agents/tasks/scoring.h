#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agents/tasks/task.h"

namespace sluice {

struct Score {
  bool correct = false;
  double matched = 0;  // share of the answer's words that were right before the first mistake; kSet: share found
  double loss = 0;     // kLoss, instead of these: nats a token of what was given
};

/// For all scorings but kLoss. Compares generated text with the sample's answer. `ended`: the model ended the answer itself, it
/// was not cut off.
Score score(const Sample& sample, std::string_view generated, bool ended);

/// Lower-case words of letters and digits; everything else separates. `items` keeps some of them: for kNumbers the words
/// of digits, for kNames those written in five capital letters and the numbers. "and" is no item.
std::vector<std::string> normalised_words(std::string_view text, Items items);

}  // namespace sluice
