#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "scripting/pattern/integer_relation.h"

namespace sluice {

/// constant + x * of_x + n * of_n + the sum of divisions[k] * of_divisions[k].
struct AffineSum {
  int64_t constant = 0;
  int64_t of_x = 0;
  int64_t of_n = 0;
  std::vector<int64_t> of_divisions;  // fewer than there are divisions: the others do not count
};

/// floor(numerator / denominator), in which divisions before it may stand.
struct FloorDivision {
  AffineSum numerator;
  int64_t denominator = 1;
};

struct AffineConstraint {
  AffineSum sum;
  bool is_equality = false;  // 0; else 0 at least
};

/// Where all constraints hold the function is `value`.
struct QuasiAffinePiece {
  std::vector<FloorDivision> divisions;  // of constraints first, then those of the value
  std::vector<AffineConstraint> constraints;
  AffineSum value;
};

/// Quotients are rounded down; `denominator` is positive.
int64_t floor_divide(int64_t numerator, int64_t denominator);

/// An integer function of one number x, with a parameter n: pieces, on each of which it is affine but for divisions that are
/// rounded down. Where pieces overlap they agree.
class QuasiAffineFunction {
 public:
  QuasiAffineFunction() = default;
  explicit QuasiAffineFunction(std::vector<QuasiAffinePiece> pieces) : pieces_(std::move(pieces)) {}
  /// The largest y that `relation` has beside each x: { x -> y }, parameter n. Throws what the context does, and InputError for
  /// numbers beyond 2^53.
  static QuasiAffineFunction largest(const IntegerContext& context, const IslMap& relation);

  /// Whether no number that evaluation meets exceeds 2^61, for lengths of up to kMostLength.
  bool fits() const;
  static constexpr int64_t kMostLength = int64_t{1} << 24;

  /// values[x] for 0 <= x < n, n up to kMostLength; `none` where there is no piece.
  std::vector<int32_t> values(int n, int32_t none) const;
  /// The same, handed over in parts that stay in a cache.
  void for_parts(int n, int32_t none, const std::function<void(std::span<const int32_t>)>& take) const;
  std::span<const QuasiAffinePiece> pieces() const { return pieces_; }

 private:
  class Reader;
  struct Range;
  class Evaluation;

  std::vector<QuasiAffinePiece> pieces_;
};

}  // namespace sluice
