#include "agents/tasks/salad_layout.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr std::array<const char*, 4> kPatterns = {"ABAB", "AABBAABB", "ABCABC", "AAABBBCCC"};
constexpr int kLeastSegment = 4;
constexpr int kMostSegment = 12;

int letters_of(std::string_view pattern) { return *std::max_element(pattern.begin(), pattern.end()) - 'A' + 1; }

/// `groups` times as many topics as the pattern has letters, in segments of `size` lines.
SaladLayout interleave(Rng& rng, int lines, std::string_view pattern, int size, int repetitions, int groups,
                       const SaladExtent& most) {
  SaladLayout layout;
  layout.pattern = pattern;
  const int period = static_cast<int>(pattern.size());
  const int letters = letters_of(pattern);
  layout.topics = groups * letters;
  layout.lines.resize(lines);
  std::vector<std::vector<int>> free(layout.topics);  // lines that may tell of a topic
  for (int segment = 0; segment < repetitions * period; ++segment) {
    const int topic = segment / period % groups * letters + (pattern[segment % period] - 'A');
    layout.lines[segment * size] = {SaladLayout::Line::Kind::kHeader, topic, -1};
    for (int i = 1; i < size; ++i) free[topic].push_back(segment * size + i);
  }
  size_t room = free.front().size();
  for (const std::vector<int>& places : free) room = std::min(room, places.size());
  layout.attributes = std::min(static_cast<int>(room) * 2 / 3, most.attributes);
  for (int topic = 0; topic < layout.topics; ++topic) {
    const std::vector<int> places = rng.distinct(free[topic], layout.attributes);
    for (int attribute = 0; attribute < layout.attributes; ++attribute) {
      layout.lines[places[attribute]] = {SaladLayout::Line::Kind::kAttribute, topic, attribute};
    }
  }
  return layout;
}

}  // namespace

SaladLayout salad_layout(Rng& rng, int lines, const SaladExtent& most) {
  if (lines < kLeastSaladLines) throw InternalError("a salad of too few lines");
  std::vector<std::string> fitting;
  for (const std::string pattern : kPatterns) {
    if (static_cast<int>(pattern.size()) * kLeastSegment <= lines) fitting.push_back(pattern);
  }
  const std::string pattern = rng.pick(fitting);
  const int period = static_cast<int>(pattern.size());
  // As many whole repetitions as fit with segments of a size drawn from 4 to 12; lines left over are hay at the end.
  const int longest = std::min(kMostSegment, lines / period);
  const int size = rng.between(kLeastSegment, longest);
  const int repetitions = lines / (size * period);
  const int groups = rng.between(1, std::min(repetitions, most.topics / letters_of(pattern)));
  return interleave(rng, lines, pattern, size, repetitions, groups, most);
}

SaladLayout salad_layout_of(Rng& rng, int lines, std::string_view pattern, const SaladExtent& most) {
  if (lines < least_salad_lines(pattern)) throw InternalError("a salad of too few lines");
  return interleave(rng, lines, pattern, lines / static_cast<int>(pattern.size()), 1, 1, most);
}

}  // namespace sluice
