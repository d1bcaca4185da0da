#pragma once

#include <string>
#include <vector>

#include "agents/tasks/rng.h"

namespace sluice::english {

/// About 150 common nouns and 60 adjectives, one word each, all lower case.
const std::vector<std::string>& nouns();
const std::vector<std::string>& adjectives();
/// 40 properties that a place can have: "height", "budget".
const std::vector<std::string>& properties();

/// `count` different names such as "amber-falcon".
std::vector<std::string> hyphenated_names(Rng& rng, int count);
/// `count` different names of five capital letters without vowels, so that none is a word.
std::vector<std::string> capital_names(Rng& rng, int count);
/// `count` different numbers of `digits` digits, the first not 0.
std::vector<std::string> numbers(Rng& rng, int count, int digits);
/// A sentence that says nothing about codes, variables, topics or rules.
std::string hay(Rng& rng);

}  // namespace sluice::english
