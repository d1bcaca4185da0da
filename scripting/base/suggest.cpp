#include "scripting/base/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace sluice {

namespace {

constexpr size_t kLongestWord = 64;  // longer words are no misspellings

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);  // two rows up, for swaps
  std::vector<size_t> above(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1), above[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string closest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > kLongestWord) return {};
  size_t best = std::max<size_t>(1, word.size() / 3) + 1;
  std::string found;
  for (const std::string& candidate : candidates) {
    const size_t candidate_distance = distance(word, candidate);
    if (candidate_distance < best) {
      best = candidate_distance;
      found = candidate;
    }
  }
  return found;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  if (const std::string found = closest(word, candidates); !found.empty()) return fmt::format("did you mean \"{}\"?", found);
  std::string list;
  for (const std::string& candidate : candidates) list += (list.empty() ? "" : ", ") + candidate;
  return list.empty() ? list : "there are " + list;
}

}  // namespace sluice
