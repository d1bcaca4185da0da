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

/// Of `right` words, the first ones, where `wanted` were asked for and `found` written.
double credit_of(size_t right, size_t wanted, size_t found, size_t part) {
  const size_t most = std::max(wanted, found);
  if (part == 0) return right == most ? 1 : 0;
  const size_t parts = (most + part - 1) / part;
  return right == most ? 1 : static_cast<double>(right / part) / static_cast<double>(parts);
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

}  // namespace

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
    return {.credit = boxed && same_answer(*boxed, sample.answer) ? 1.0 : 0.0};
  }
  if (!sample.stop.empty()) generated = generated.substr(0, generated.find(sample.stop));
  // must_end marks the mini dialect, whose words are compared as they are.
  const auto wanted = sample.must_end ? split(sample.answer) : normalised_words(sample.answer, sample.items);
  const auto found = sample.must_end ? split(generated) : normalised_words(generated, sample.items);
  const size_t right = sample.scoring == Scoring::kSet ? words_of_both(wanted, found) : words_before_mistake(wanted, found);
  // An answer that does not end where it should goes on.
  const size_t written = found.size() + (sample.must_end && !ended ? 1 : 0);
  return {.credit = credit_of(right, wanted.size(), written, static_cast<size_t>(sample.part))};
}

}  // namespace sluice
