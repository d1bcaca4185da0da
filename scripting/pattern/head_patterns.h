#pragma once

#include <span>
#include <utility>
#include <vector>

#include "scripting/pattern/pattern.h"

namespace sluice {

/// Which keys the queries of each KV head of a layer see: head h has the pattern at place h modulo their number, so that a few
/// patterns do for models of any number of heads (LongNet, section 3.1, whose offset is a head's number).
class HeadPatterns {
 public:
  static constexpr int kMost = 16;

  /// The same for every head.
  HeadPatterns(Pattern pattern) : heads_{std::move(pattern)} {}  // NOLINT(google-explicit-constructor): it is one of them
  /// Patterns that are those before once more are dropped: {a, b, a, b} is {a, b}. Throws InputError for none, or more than
  /// kMost.
  static HeadPatterns of(std::vector<Pattern> heads);

  /// Of how many heads patterns are told; 1: all see the same.
  int size() const { return static_cast<int>(heads_.size()); }
  bool is_same() const { return heads_.size() == 1; }
  const Pattern& of_head(int head) const { return heads_[static_cast<size_t>(head) % heads_.size()]; }
  std::span<const Pattern> each() const { return heads_; }
  /// What any of the first `heads` heads sees. Throws InputError for an expression of more than Pattern::kMostNodes.
  Pattern any(int heads) const;
  /// The same of all heads.
  Pattern any() const { return any(size()); }

  bool operator==(const HeadPatterns&) const = default;

 private:
  HeadPatterns() = default;

  std::vector<Pattern> heads_;
};

/// Of as many heads as either tells: `join` (const Pattern&, const Pattern&) of what both have for a head. Throws InputError as
/// it and HeadPatterns::of do.
template <typename Join>
HeadPatterns joined(const HeadPatterns& a, const HeadPatterns& b, Join join) {
  int size = a.size();
  while (size % b.size() != 0 && size <= HeadPatterns::kMost * HeadPatterns::kMost) size += a.size();
  std::vector<Pattern> heads;
  for (int head = 0; head < size; ++head) heads.push_back(join(a.of_head(head), b.of_head(head)));
  return HeadPatterns::of(std::move(heads));
}

}  // namespace sluice
