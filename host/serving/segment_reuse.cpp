#include "host/serving/segment_reuse.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sluice {
namespace {

/// Tokens at the end of a prompt that count as its own where it ends with copied ones.
constexpr int kTail = 64;

/// Of those that are copied.
void add_best(const CopiedTokens& tokens, std::span<const float> scores, double share, std::vector<uint8_t>& chosen) {
  std::vector<int32_t> candidates;
  for (size_t token = static_cast<size_t>(tokens.begun); token < tokens.copied.size(); ++token) {
    if (tokens.copied[token] != 0) candidates.push_back(static_cast<int32_t>(token));
  }
  const auto best = std::min(candidates.size(), static_cast<size_t>(std::ceil(share * static_cast<double>(candidates.size()))));
  const auto score = [&](int32_t token) {
    const float own = scores[static_cast<size_t>(token)];
    return std::isnan(own) ? -INFINITY : own;
  };
  // A total order: higher scores first, of equals the older token.
  const auto before = [&](int32_t a, int32_t b) { return score(a) != score(b) ? score(a) > score(b) : a < b; };
  std::nth_element(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(best), candidates.end(), before);
  for (size_t i = 0; i < best; ++i) chosen[static_cast<size_t>(candidates[i])] = 1;
}

/// A block on either side of what is the prompt's own (overflow, section 3.3).
void add_neighbours(const CopiedTokens& tokens, std::span<const int32_t> own, std::vector<uint8_t>& chosen) {
  const auto end = static_cast<int>(tokens.copied.size());
  const auto is_own = [&](int token) { return tokens.copied[static_cast<size_t>(token)] == 0; };
  for (const int32_t row : own) {
    if (!is_own(row)) continue;
    if (row > tokens.begun && !is_own(row - 1)) {
      for (int token = std::max(tokens.begun, row - tokens.block); token < row; ++token) chosen[static_cast<size_t>(token)] = 1;
    }
    if (row + 1 < end && !is_own(row + 1)) {
      for (int token = row + 1; token < std::min(end, row + 1 + tokens.block); ++token) chosen[static_cast<size_t>(token)] = 1;
    }
  }
}

}  // namespace

int CopiedTokens::count() const { return static_cast<int>(std::count(copied.begin(), copied.end(), 1)); }

std::vector<int32_t> CopiedTokens::rows_of_their_own() const {
  const auto end = static_cast<int>(copied.size());
  const bool ends_copied = end > begun && copied.back() != 0;
  std::vector<int32_t> rows;
  for (int token = begun; token < end; ++token) {
    if (copied[static_cast<size_t>(token)] == 0 || (ends_copied && token >= end - kTail)) rows.push_back(token);
  }
  return rows;
}

std::vector<int32_t> rows_to_compute(const CopiedTokens& tokens, const Recomputation& rule, std::span<const float> scores) {
  const auto end = static_cast<int>(tokens.copied.size());
  std::vector<uint8_t> chosen(tokens.copied.size(), 0);
  const std::vector<int32_t> own = tokens.rows_of_their_own();
  // Without a rule a prompt's last tokens are as they are copied, too.
  for (const int32_t row : own) {
    if (tokens.copied[static_cast<size_t>(row)] == 0 || rule.rule == Recomputation::Rule::kSparseQ)
      chosen[static_cast<size_t>(row)] = 1;
  }
  switch (rule.rule) {
    case Recomputation::Rule::kNone:
      break;
    case Recomputation::Rule::kAll:
      std::fill(chosen.begin() + tokens.begun, chosen.end(), 1);
      break;
    case Recomputation::Rule::kEdges:
      for (const int32_t first : tokens.firsts) {
        for (int token = first; token < std::min(end, first + rule.edge); ++token) chosen[static_cast<size_t>(token)] = 1;
      }
      break;
    case Recomputation::Rule::kSparseQ:
      add_best(tokens, scores, rule.share, chosen);
      add_neighbours(tokens, own, chosen);
      break;
    case Recomputation::Rule::kKeys:
      add_best(tokens, scores, rule.share, chosen);
      break;
  }
  std::vector<int32_t> rows;
  for (int token = tokens.begun; token < end; ++token) {
    if (chosen[static_cast<size_t>(token)] != 0) rows.push_back(token);
  }
  return rows;
}

}  // namespace sluice
