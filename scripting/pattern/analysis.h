#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scripting/pattern/pattern.h"
#include "scripting/pattern/quasi_affine.h"

namespace sluice {

/// How many tokens are kept at most, for every length from `from` on: constant + length * growth / period, rounded down.
struct CacheSize {
  int64_t constant = 0;
  int64_t growth = 0;
  int64_t period = 1;
  int64_t from = 1;

  int64_t at(int64_t length) const { return constant + length * growth / period; }
};

/// "1056 tokens, whatever the length", "n - 511 tokens".
std::string to_text(const CacheSize& size);

/// How much an analysis may cost.
struct AnalysisBound {
  unsigned long operations = 100'000;  // of isl: half a second; the patterns of the paper take thousands
  int64_t words = int64_t{1} << 32;    // of rows that are looked at: a second or two

  /// Where so many patterns are analysed.
  AnalysisBound shared_by(size_t patterns) const { return {operations / patterns, words / static_cast<int64_t>(patterns)}; }
};

/// When each token is read for the last time under a pattern, and what follows from that: which tokens have to be kept, and how
/// many at a time (SAS, section 5). The set of points is a relation of integers, and what is asked of it is answered for every
/// length at once, by the library that compilers use for such sets (isl). Where that takes too long, rows are looked at one by
/// one.
class PatternAnalysis {
 public:
  explicit PatternAnalysis(Pattern pattern, const AnalysisBound& bound = {});

  const Pattern& pattern() const { return pattern_; }
  /// Whether it is known that no query sees any key.
  bool is_empty() const { return is_empty_; }
  /// Whether it is known for every length.
  bool is_for_any_length() const { return functions_.has_value(); }

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
  struct Functions {
    QuasiAffineFunction last_reader;  // of the key at x
    QuasiAffineFunction last_key;     // that the query at x sees
  };
  /// Throws as above.
  void require_few_rows(int length) const;

  Pattern pattern_;
  AnalysisBound bound_;
  bool is_empty_ = false;
  std::optional<Functions> functions_;
};

/// The most intervals [j, last[j]] that have a point in common; those with last[j] < 0 are none. last[j] >= j otherwise.
int most_live(const std::vector<int32_t>& last);

/// Slots of a cache for tokens that live from j to last[j]: the lowest that is free, so that no more are used than most_live says
/// (intervals are coloured with as few colours as possible when they are taken in the order of their beginnings). -1: not kept.
std::vector<int32_t> slots_of(const std::vector<int32_t>& last);

}  // namespace sluice
