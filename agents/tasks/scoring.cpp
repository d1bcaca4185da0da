#include "agents/tasks/scoring.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "agents/tasks/math_answer.h"

namespace sluice {
namespace {

constexpr size_t kNameLength = 5;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_word(char c) { return is_digit(c) || is_upper(c) || (c >= 'a' && c <= 'z') || static_cast<unsigned char>(c) >= 0x80; }

bool is_item(std::string_view word, Items items) {
  const bool number = std::all_of(word.begin(), word.end(), is_digit);
  switch (items) {
    case Items::kWords:
      return true;
    case Items::kNumbers:
      return number;
    case Items::kNames:
      return number || (word.size() == kNameLength && std::all_of(word.begin(), word.end(), is_upper));
  }
  return false;
}

/// Words between spaces, as they are: the mini dialect, where signs are words.
std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text) {
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

size_t words_before_mistake(const std::vector<std::string>& wanted, const std::vector<std::string>& found) {
  const size_t shorter = std::min(wanted.size(), found.size());
  return std::mismatch(wanted.begin(), wanted.begin() + shorter, found.begin()).first - wanted.begin();
}

size_t words_of_both(std::vector<std::string> wanted, std::vector<std::string> found) {
  std::sort(wanted.begin(), wanted.end());
  std::sort(found.begin(), found.end());
  std::vector<std::string> both;
  std::set_intersection(wanted.begin(), wanted.end(), found.begin(), found.end(), std::back_inserter(both));
  return both.size();
}

Score score_in_order(const std::vector<std::string>& wanted, const std::vector<std::string>& found, bool ended, int part_words) {
  const int words = std::max(1, static_cast<int>(wanted.size()));
  const int part = part_words > 0 ? part_words : words;
  const int parts = (words + part - 1) / part;
  if (ended && found == wanted) return {.right = parts, .parts = parts};
  // What goes on after the last word has not ended there.
  return {.right = std::min(static_cast<int>(words_before_mistake(wanted, found)) / part, parts - 1), .parts = parts};
}

Score score_as_set(const std::vector<std::string>& wanted, const std::vector<std::string>& found, int part_words) {
  const int both = static_cast<int>(words_of_both(wanted, found));
  const int parts = std::max(1, static_cast<int>(std::max(wanted.size(), found.size())));
  return part_words > 0 ? Score{.right = both, .parts = parts} : Score{.right = both == parts ? 1 : 0};
}

Score score_words(const Sample& sample, std::string_view generated, bool ended) {
  // must_end marks the mini dialect, whose words are compared as they are.
  const auto wanted = sample.must_end ? split(sample.answer) : normalised_words(sample.answer, sample.items);
  const auto found = sample.must_end ? split(generated) : normalised_words(generated, sample.items);
  if (sample.scoring == Scoring::kSet) return score_as_set(wanted, found, sample.part_words);
  return score_in_order(wanted, found, ended || !sample.must_end, sample.part_words);
}

}  // namespace

int64_t Score::draws_of(int count) const {
  int64_t ways = 1;
  for (int i = 0; i < drawn; ++i) ways = ways * std::max(0, count - i) / (i + 1);
  return ways;
}

std::vector<std::string> normalised_words(std::string_view text, Items items) {
  std::vector<std::string> words;
  std::string word;
  const auto finish = [&] {
    const std::string written = std::exchange(word, {});
    if (written.empty() || !is_item(written, items)) return;
    std::string lower = written;
    for (char& c : lower) c = is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
    if (lower != "and") words.push_back(std::move(lower));
  };
  for (const char c : text) {
    if (is_word(c)) {
      word += c;
    } else {
      finish();
    }
  }
  finish();
  return words;
}

Score score(const Sample& sample, std::string_view generated, bool ended) {
  if (sample.scoring == Scoring::kBoxed) {
    const auto boxed = last_boxed(generated);
    return {.right = boxed && same_answer(*boxed, sample.answer) ? 1 : 0};
  }
  if (!sample.stop.empty()) generated = generated.substr(0, generated.find(sample.stop));
  Score result = score_words(sample, generated, ended);
  result.drawn = std::min(sample.drawn_parts, result.parts);
  return result;
}

}  // namespace sluice
