#pragma once

#include <cstdint>
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

/// An integer function of one number x, with a parameter n: pieces, on each of which it is affine but for divisions that are
/// rounded down. Where pieces overlap they agree.
class QuasiAffineFunction {
 public:
  /// The largest y that `relation` has beside each x: { x -> y }, parameter n. Throws what the context does, and InputError for
  /// numbers beyond 2^53.
  static QuasiAffineFunction largest(const IntegerContext& context, const IslMap& relation);

  /// values[x] for 0 <= x < n; `none` where there is no piece.
  std::vector<int32_t> values(int n, int32_t none) const;
  size_t pieces() const { return pieces_.size(); }

 private:
  struct Constraint {
    AffineSum sum;
    bool is_equality = false;  // 0; else 0 at least
  };
  struct Piece {
    std::vector<FloorDivision> divisions;  // of constraints first, then those of the value
    std::vector<Constraint> constraints;
    AffineSum value;
  };
  class Reader;

  struct Range;

  static void evaluate(const Piece& piece, int n, std::vector<int32_t>& values);
  /// `others`: constraints with divisions, which are left to be met in `range`.
  static void evaluate_runs(const Piece& piece, const std::vector<const Constraint*>& others, int n, const Range& range,
                            std::vector<int32_t>& values);
  static void evaluate_each(const Piece& piece, const std::vector<const Constraint*>& others, int n, const Range& range,
                            std::vector<int32_t>& values);

  std::vector<Piece> pieces_;
};

}  // namespace sluice
