#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "scripting/pattern/pattern.h"
#include "scripting/pattern/solution.h"

namespace sluice {

/// How many tokens are kept at most, for every length from `from` on: (length * growth + offset) / period, rounded down.
struct CacheSize {
  int64_t growth = 0;
  int64_t offset = 0;
  int64_t period = 1;
  int64_t from = 1;

  int64_t at(int64_t length) const;
};

/// "1056 tokens, whatever the length", "n - 511 tokens", "(n + 1) / 1000 tokens".
std::string to_text(const CacheSize& size);

/// How much an analysis may cost.
struct AnalysisBound {
  unsigned long operations = 100'000;  // of isl: half a second; the patterns of the paper take thousands
  int64_t words = int64_t{1} << 32;    // of rows that are looked at: a second or two

  /// Where so many patterns are analysed. Fewer operations than `kFewest` find next to nothing, and the process that
  /// analyses them has a second for all (sandbox/sandboxed_solve.h).
  AnalysisBound shared_by(size_t patterns) const {
    constexpr unsigned long kFewest = 25'000;
    return {std::max(kFewest, operations / patterns), words / static_cast<int64_t>(patterns)};
  }
};

/// When each token is read for the last time under a pattern, and what follows from that: which tokens have to be kept, and how
/// many at a time (SAS, section 5). The set of points is a relation of integers, and what is asked of it is answered for every
/// length at once, by the library that compilers use for such sets (isl). Where that takes too long, rows are looked at one by
/// one.
class PatternAnalysis {
 public:
  explicit PatternAnalysis(Pattern pattern, const AnalysisBound& bound = {});
  /// Of each, which costs less than one after the other.
  static std::vector<PatternAnalysis> all(std::span<const Pattern> patterns, const AnalysisBound& bound);

  const Pattern& pattern() const { return pattern_; }
  /// Whether it is known that no query sees any key.
  bool is_empty() const { return solution_ != nullptr && solution_->is_empty; }
  /// Whether it is known for every length.
  bool is_for_any_length() const { return solution_ != nullptr; }

  // These throw InputError where there are more words of rows to look at than the bound allows.

  /// The last query that reads each of `length` tokens; -1: none does.
  std::vector<int32_t> last_readers(int length) const;
  /// Queries of `length` that see nothing.
  int blind_rows(int length) const;
  /// The most tokens that a later query, or the same, still reads, over all queries of `length`: the smallest cache.
  int live_tokens(int length) const;
  /// The same for every length; none if that is not known, or the pattern has no period below 2^20 tokens, so that it says
  /// nothing of other lengths.
  std::optional<CacheSize> size_for_any_length() const;

 private:
  PatternAnalysis(Pattern pattern, const AnalysisBound& bound, std::shared_ptr<const PatternSolution> solution)
      : pattern_(std::move(pattern)), bound_(bound), solution_(std::move(solution)) {}
  /// Throws as above.
  void require_few_rows(int length) const;
  /// The most tokens that live at a time while the queries [first, end) come, of a text of `length` tokens.
  int64_t live_between(int64_t first, int64_t end, int64_t length) const;

  Pattern pattern_;
  AnalysisBound bound_;
  std::shared_ptr<const PatternSolution> solution_;  // null: rows are looked at
};

/// The most intervals [j, last[j]] that have a point in common; those with last[j] < 0 are none. last[j] >= j otherwise.
int most_live(std::span<const int32_t> last);

/// Slots of a cache for tokens that live from j to last[j]: the lowest that is free, so that no more are used than most_live says
/// (intervals are coloured with as few colours as possible when they are taken in the order of their beginnings). -1: not kept.
std::vector<int32_t> slots_of(const std::vector<int32_t>& last);

}  // namespace sluice
