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

/// When each token is read for the last time under a pattern, and what follows from that: which tokens have to be kept, and how
/// many at a time (SAS, section 5). The set of points is a relation of integers, and what is asked of it is answered for every
/// length at once, by the library that compilers use for such sets (isl).
class PatternAnalysis {
 public:
  static constexpr unsigned long kMostOperations = 250'000;  // a second or two at most; the patterns of the paper take thousands

  /// Throws InputError if the pattern is too complex: more than `most_operations` of the library.
  explicit PatternAnalysis(Pattern pattern, unsigned long most_operations = kMostOperations);

  const Pattern& pattern() const { return pattern_; }
  /// Whether no query sees any key, whatever the length.
  bool is_empty() const { return is_empty_; }

  /// The last query that reads each of `length` tokens; -1: none does.
  std::vector<int32_t> last_readers(int length) const { return last_reader_.values(length, -1); }
  /// Queries of `length` that see nothing.
  int blind_rows(int length) const;
  /// The most tokens that a later query, or the same, still reads, over all queries of `length`: the smallest cache.
  int live_tokens(int length) const;
  /// The same for every length; none if the pattern has no period below 2^20 tokens, so that it says nothing of other lengths.
  std::optional<CacheSize> size_for_any_length() const;

 private:
  Pattern pattern_;
  bool is_empty_ = false;
  QuasiAffineFunction last_reader_;  // of the key at x
  QuasiAffineFunction last_key_;     // that the query at x sees
};

/// The most intervals [j, last[j]] that have a point in common; those with last[j] < 0 are none. last[j] >= j otherwise.
int most_live(const std::vector<int32_t>& last);

/// Slots of a cache for tokens that live from j to last[j]: the lowest that is free, so that no more are used than most_live says
/// (intervals are coloured with as few colours as possible when they are taken in the order of their beginnings). -1: not kept.
std::vector<int32_t> slots_of(const std::vector<int32_t>& last);

}  // namespace sluice
