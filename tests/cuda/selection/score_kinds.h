#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

/// Rows of scores that selections are tested on, and the judge of exact ones, which shares no code with them.
namespace sluice::testing {

extern const std::vector<std::string> kScoreKinds;

/// [rows, stride] scores of a kind, of which each row has `length`; +inf between rows. Where a kind has a threshold it lies near
/// the k-th best.
std::vector<float> make_scores(const std::string& kind, int rows, int length, int64_t stride, int k, std::mt19937_64& random);

/// The best k of scores, ascending: higher first, ties to the lower place, NaN below -inf, -0 and +0 equal.
std::vector<int32_t> best_of(const float* scores, int length, int k);

}  // namespace sluice::testing
