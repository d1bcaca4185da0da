#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "host/serving/engine.h"

namespace sluice::testing {

/// A prompt of parts, those at odd places of which are segments; six tokens are generated, with their log-probabilities.
inline Request prompt_of_parts(const std::vector<std::vector<int32_t>>& parts, const std::string& extra_key) {
  Request made;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto first = static_cast<int>(made.prompt.size());
    made.prompt.insert(made.prompt.end(), parts[i].begin(), parts[i].end());
    if (i % 2 == 1) made.segments.push_back({first, static_cast<int>(made.prompt.size()), extra_key});
  }
  made.max_tokens = 6;
  made.ignore_eos = true;
  made.likely = 0;
  return made;
}

inline RequestResult run(Engine& engine, Request made) {
  engine.submit(std::move(made));
  return engine.run_all().front();
}

/// Between the log-probabilities of the same tokens.
inline double largest_distance(const RequestResult& a, const RequestResult& b) {
  double largest = 0;
  for (size_t i = 0; i < a.tokens.size(); ++i)
    largest = std::max(largest, std::fabs(double(a.probabilities.of_tokens[i]) - b.probabilities.of_tokens[i]));
  return largest;
}

}  // namespace sluice::testing
