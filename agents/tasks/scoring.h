#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agents/tasks/task.h"

namespace sluice {

struct Score {
  /// Share of the answer's parts that are right: those before the first mistake, of sets those found. Words that are too
  /// many count against it.
  double credit = 0;
  double loss = 0;  // kLoss, instead: nats a token of what was given

  bool is_whole() const { return credit == 1; }
};

/// For all scorings but kLoss. Compares generated text with the sample's answer. `ended`: the model ended the answer itself, it
/// was not cut off.
Score score(const Sample& sample, std::string_view generated, bool ended);

/// Lower-case words of letters and digits; everything else separates. `items` keeps some of them: for kNumbers the words
/// of digits, for kNames those written in five capital letters and the numbers. "and" is no item.
std::vector<std::string> normalised_words(std::string_view text, Items items);

}  // namespace sluice
