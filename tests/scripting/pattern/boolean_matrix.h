#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "scripting/pattern/pattern.h"

namespace sluice::test {

/// What an expression means, written out: a matrix of queries and keys, by brute force. Nothing of Pattern but its nodes is used.
class BooleanMatrix {
 public:
  BooleanMatrix(int rows, int columns) : rows_(rows), columns_(columns), bits_(static_cast<size_t>(rows) * columns) {}
  /// Of the expression's node at `place`, not yet cut off at the diagonal.
  static BooleanMatrix of(const Pattern& pattern, int place, int rows, int columns);
  /// Of the whole, cut off.
  static BooleanMatrix of(const Pattern& pattern, int length);

  int rows() const { return rows_; }
  int columns() const { return columns_; }
  bool at(int i, int j) const { return bits_[static_cast<size_t>(i) * columns_ + j] != 0; }
  void set(int i, int j, bool value) { bits_[static_cast<size_t>(i) * columns_ + j] = value ? 1 : 0; }
  bool operator==(const BooleanMatrix&) const = default;

 private:
  int rows_;
  int columns_;
  std::vector<uint8_t> bits_;
};

/// A random expression of `parts` parts at most, whose numbers suit lengths of a few hundred.
Pattern random_pattern(std::mt19937& random, int parts);

}  // namespace sluice::test
