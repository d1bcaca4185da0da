#include "agents/tasks/word_list.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr double kZipfExponent = 2;
constexpr int kAttempts = 1000;  // a list where two words tie for the last place is drawn again

/// Draws `length` words by `weights`.
std::vector<std::string> draw(const std::vector<std::string>& shuffled, const std::vector<double>& weights, Rng& rng,
                              int length) {
  std::vector<double> cumulative(weights.size());
  std::partial_sum(weights.begin(), weights.end(), cumulative.begin());
  std::vector<std::string> words;
  for (int i = 0; i < length; ++i) {
    const double point = rng.uniform() * cumulative.back();
    words.push_back(shuffled[std::upper_bound(cumulative.begin(), cumulative.end() - 1, point) - cumulative.begin()]);
  }
  return words;
}

template <typename Weights>
WordList draw_without_tie(const std::vector<std::string>& vocabulary, Rng& rng, int length, int wanted, Weights&& weights) {
  std::vector<std::string> shuffled = vocabulary;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    rng.shuffle(shuffled);
    std::vector<std::string> words = draw(shuffled, weights(), rng, length);
    if (auto most = most_frequent(words, wanted)) return {std::move(words), *std::move(most)};
  }
  throw InternalError("no word list without ties was found");
}

}  // namespace

std::optional<std::vector<std::string>> most_frequent(const std::vector<std::string>& words, size_t wanted) {
  std::unordered_map<std::string, int> counts;
  std::vector<std::string> order;
  for (const std::string& word : words) {
    if (counts[word]++ == 0) order.push_back(word);
  }
  if (order.size() <= wanted) return std::nullopt;
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) { return counts[a] > counts[b]; });
  if (counts[order[wanted - 1]] == counts[order[wanted]]) return std::nullopt;
  order.resize(wanted);
  return order;
}

WordList common_word_list(const std::vector<std::string>& vocabulary, Rng& rng, int length, int common) {
  return draw_without_tie(vocabulary, rng, length, common, [&] {
    std::vector<double> weights(vocabulary.size(), 1);
    const double share = 0.2 + 0.3 * rng.uniform();
    double sum = 0;
    for (int i = 0; i < common; ++i) sum += weights[i] = 0.5 + 0.5 * rng.uniform();
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] =
          i < static_cast<size_t>(common) ? share * weights[i] / sum : (1 - share) / static_cast<double>(weights.size() - common);
    }
    return weights;
  });
}

WordList frequent_word_list(const std::vector<std::string>& vocabulary, Rng& rng, int length, int frequent) {
  return draw_without_tie(vocabulary, rng, length, frequent, [&] {
    std::vector<double> weights;
    for (size_t rank = 1; rank <= vocabulary.size(); ++rank) weights.push_back(1 / std::pow(rank, kZipfExponent));
    return weights;
  });
}

}  // namespace sluice
