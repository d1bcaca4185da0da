#include "scripting/pattern/quasi_affine.h"

#include <isl/aff.h>
#include <isl/constraint.h>
#include <isl/local_space.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {
namespace {

using IslAff = std::unique_ptr<isl_aff, IslDeleter<isl_aff, isl_aff_free>>;
using IslConstraint = std::unique_ptr<isl_constraint, IslDeleter<isl_constraint, isl_constraint_free>>;
using IslPieces = std::unique_ptr<isl_pw_multi_aff, IslDeleter<isl_pw_multi_aff, isl_pw_multi_aff_free>>;

constexpr int64_t kMost = int64_t{1} << 53;

int64_t floor_divide(int64_t numerator, int64_t denominator) {
  const int64_t quotient = numerator / denominator;
  return quotient - (numerator % denominator < 0 ? 1 : 0);
}

int64_t sum_of(const AffineSum& sum, int64_t x, int64_t n, const std::vector<int64_t>& divisions) {
  int64_t total = sum.constant + sum.of_x * x + sum.of_n * n;
  for (size_t k = 0; k < sum.of_divisions.size(); ++k) total += sum.of_divisions[k] * divisions[k];
  return total;
}

bool has_divisions(const AffineSum& sum) {
  return std::any_of(sum.of_divisions.begin(), sum.of_divisions.end(), [](int64_t factor) { return factor != 0; });
}

/// A division for one x after the other. Where no other division stands in it, nothing is divided from one to the next.
class SteppedDivision {
 public:
  /// `before`: the divisions before it.
  SteppedDivision(const FloorDivision& division, int64_t x, int64_t n, const std::vector<int64_t>& before)
      : division_(&division), depends_(has_divisions(division.numerator)) {
    const int64_t numerator = sum_of(division.numerator, x, n, before);
    quotient_ = floor_divide(numerator, division.denominator);
    rest_ = numerator - quotient_ * division.denominator;
    more_ = floor_divide(division.numerator.of_x, division.denominator);
    more_rest_ = division.numerator.of_x - more_ * division.denominator;
  }

  int64_t quotient() const { return quotient_; }
  /// To `x`, which is one more than before.
  void step(int64_t x, int64_t n, const std::vector<int64_t>& before) {
    if (depends_) {
      quotient_ = floor_divide(sum_of(division_->numerator, x, n, before), division_->denominator);
      return;
    }
    quotient_ += more_;
    rest_ += more_rest_;
    if (rest_ < division_->denominator) return;
    rest_ -= division_->denominator;
    ++quotient_;
  }

 private:
  const FloorDivision* division_;
  bool depends_;
  int64_t quotient_ = 0;
  int64_t rest_ = 0;
  int64_t more_ = 0;
  int64_t more_rest_ = 0;
};

}  // namespace

/// Numbers x from the first to the last.
struct QuasiAffineFunction::Range {
  int64_t first = 0;
  int64_t last = -1;

  bool is_empty() const { return first > last; }
  /// Those with of_x * x + rest >= 0, or = 0.
  void keep(int64_t of_x, int64_t rest, bool is_equality) {
    if (of_x > 0) first = std::max(first, -floor_divide(rest, of_x));
    if (of_x < 0) last = std::min(last, floor_divide(rest, -of_x));
    if (of_x == 0 && rest < 0) last = first - 1;
    if (is_equality) keep(-of_x, -rest, false);
  }
};

/// Takes pieces out of the library's objects. Exceptions wait until its callbacks have returned.
class QuasiAffineFunction::Reader {
 public:
  explicit Reader(const IntegerContext& context) : context_(context) {}

  std::vector<Piece> read(const IslMap& relation) {
    IslPieces pieces(isl_map_lexmax_pw_multi_aff(isl_map_copy(relation.get())));
    context_.require(pieces.get());
    // Coalescing may take in what is not there (PatternAnalysis).
    IslPieces fewer(isl_pw_multi_aff_coalesce(isl_pw_multi_aff_copy(pieces.get())));
    context_.require(fewer.get());
    if (context_.require(isl_pw_multi_aff_is_equal(pieces.get(), fewer.get()))) pieces = std::move(fewer);
    call([&](auto* callback) { return isl_pw_multi_aff_foreach_piece(pieces.get(), callback, this); }, &Reader::piece);
    return std::move(pieces_);
  }

 private:
  template <typename ForEach, typename Callback>
  void call(ForEach&& for_each, Callback* callback) {
    const isl_stat status = for_each(callback);
    if (failure_) std::rethrow_exception(failure_);
    context_.require(status);
  }

  template <typename Work>
  isl_stat guarded(Work&& work) {
    try {
      work();
      return isl_stat_ok;
    } catch (...) {
      failure_ = std::current_exception();
      return isl_stat_error;
    }
  }

  static isl_stat piece(isl_set* domain, isl_multi_aff* values, void* self) {
    auto& reader = *static_cast<Reader*>(self);
    IslSet owned(domain);
    IslAff value(isl_multi_aff_get_aff(values, 0));
    isl_multi_aff_free(values);
    return reader.guarded([&] {
      reader.value_ = reader.context_.require(std::move(value));
      IslSet known(isl_set_compute_divs(owned.release()));
      reader.context_.require(known.get());
      reader.call([&](auto* callback) { return isl_set_foreach_basic_set(known.get(), callback, self); }, &Reader::basic_set);
    });
  }

  static isl_stat basic_set(isl_basic_set* set, void* self) {
    auto& reader = *static_cast<Reader*>(self);
    const std::unique_ptr<isl_basic_set, IslDeleter<isl_basic_set, isl_basic_set_free>> owned(set);
    return reader.guarded([&] {
      reader.current_ = {};
      const std::unique_ptr<isl_local_space, IslDeleter<isl_local_space, isl_local_space_free>> space(
          isl_basic_set_get_local_space(set));
      reader.context_.require(space.get());
      const isl_size count = isl_local_space_dim(space.get(), isl_dim_div);
      if (count < 0) reader.context_.require(isl_stat_error);
      for (isl_size k = 0; k < count; ++k) {
        const IslAff division = reader.context_.require(IslAff(isl_local_space_get_div(space.get(), k)));
        if (isl_aff_is_nan(division.get()) != isl_bool_false) throw InternalError("isl: a division that is not known");
        reader.current_.divisions.push_back(reader.division_of(division.get(), 0));
      }
      reader.call([&](auto* callback) { return isl_basic_set_foreach_constraint(set, callback, self); }, &Reader::constraint);
      reader.read_value();
      reader.pieces_.push_back(std::move(reader.current_));
    });
  }

  static isl_stat constraint(isl_constraint* constraint, void* self) {
    auto& reader = *static_cast<Reader*>(self);
    const IslConstraint owned(constraint);
    return reader.guarded([&] {
      if (isl_constraint_is_div_constraint(constraint) == isl_bool_true) return;
      const auto coefficient = [&](isl_dim_type type, size_t place) {
        return reader.number(isl_constraint_get_coefficient_val(constraint, type, static_cast<int>(place)));
      };
      Constraint& read = reader.current_.constraints.emplace_back();
      read.is_equality = isl_constraint_is_equality(constraint) == isl_bool_true;
      read.sum.constant = reader.number(isl_constraint_get_constant_val(constraint));
      read.sum.of_x = coefficient(isl_dim_set, 0);
      read.sum.of_n = coefficient(isl_dim_param, 0);
      for (size_t k = 0; k < reader.current_.divisions.size(); ++k) {
        read.sum.of_divisions.push_back(coefficient(isl_dim_div, k));
      }
    });
  }

  int64_t number(isl_val* value) const {
    const IslVal owned = context_.require(IslVal(value));
    if (isl_val_is_int(owned.get()) != isl_bool_true) throw InternalError("isl: a number that is no integer");
    const IslVal size(isl_val_abs(isl_val_copy(owned.get())));
    if (isl_val_cmp_si(context_.require(size.get()), kMost) > 0) {
      throw InputError("the pattern's numbers become too large to be analysed",
                       "smaller strides, or such that divide each other");
    }
    return isl_val_get_num_si(owned.get());
  }

  /// `aff` times its denominator, whose divisions are those of the piece from `base` on.
  AffineSum sum_of_aff(isl_aff* aff, size_t base) const {
    const auto scaled = [&](isl_val* value) { return number(isl_val_mul(value, isl_aff_get_denominator_val(aff))); };
    AffineSum sum;
    sum.constant = scaled(isl_aff_get_constant_val(aff));
    sum.of_x = scaled(isl_aff_get_coefficient_val(aff, isl_dim_in, 0));
    sum.of_n = scaled(isl_aff_get_coefficient_val(aff, isl_dim_param, 0));
    const isl_size count = isl_aff_dim(aff, isl_dim_div);
    sum.of_divisions.resize(base, 0);
    for (isl_size k = 0; k < count; ++k) sum.of_divisions.push_back(scaled(isl_aff_get_coefficient_val(aff, isl_dim_div, k)));
    return sum;
  }

  /// floor(`aff`).
  FloorDivision division_of(isl_aff* aff, size_t base) const {
    return {sum_of_aff(aff, base), number(isl_aff_get_denominator_val(aff))};
  }

  void read_value() {
    const size_t base = current_.divisions.size();
    const isl_size count = isl_aff_dim(value_.get(), isl_dim_div);
    for (isl_size k = 0; k < count; ++k) {
      const IslAff division = context_.require(IslAff(isl_aff_get_div(value_.get(), k)));
      current_.divisions.push_back(division_of(division.get(), base));
    }
    if (number(isl_aff_get_denominator_val(value_.get())) == 1) {
      current_.value = sum_of_aff(value_.get(), base);
      return;
    }
    // The whole is an integer: a division without rest.
    current_.divisions.push_back(division_of(value_.get(), base));
    current_.value.of_divisions.resize(current_.divisions.size(), 0);
    current_.value.of_divisions.back() = 1;
  }

  const IntegerContext& context_;
  std::exception_ptr failure_;
  IslAff value_;
  Piece current_;
  std::vector<Piece> pieces_;
};

QuasiAffineFunction QuasiAffineFunction::largest(const IntegerContext& context, const IslMap& relation) {
  QuasiAffineFunction function;
  function.pieces_ = Reader(context).read(relation);
  return function;
}

void QuasiAffineFunction::evaluate(const Piece& piece, int n, std::vector<int32_t>& values) {
  Range range{0, n - 1};
  std::vector<const Constraint*> others;
  for (const Constraint& constraint : piece.constraints) {
    if (has_divisions(constraint.sum)) {
      others.push_back(&constraint);
      continue;
    }
    range.keep(constraint.sum.of_x, constraint.sum.constant + constraint.sum.of_n * n, constraint.is_equality);
  }
  if (range.is_empty()) return;
  // Where divisions seldom change, stretches of x are done as a whole.
  constexpr int64_t kLongRun = 16;
  const bool in_runs = std::all_of(piece.divisions.begin(), piece.divisions.end(), [](const FloorDivision& division) {
    return std::abs(division.numerator.of_x) * kLongRun <= division.denominator;
  });
  if (in_runs) return evaluate_runs(piece, others, n, range, values);
  evaluate_each(piece, others, n, range, values);
}

void QuasiAffineFunction::evaluate_runs(const Piece& piece, const std::vector<const Constraint*>& others, int n,
                                        const Range& range, std::vector<int32_t>& values) {
  std::vector<int64_t> divisions(piece.divisions.size());
  for (int64_t x = range.first; x <= range.last;) {
    int64_t end = range.last + 1;  // of the run
    for (size_t k = 0; k < divisions.size(); ++k) {
      const FloorDivision& division = piece.divisions[k];
      const int64_t numerator = sum_of(division.numerator, x, n, divisions);
      divisions[k] = floor_divide(numerator, division.denominator);
      const int64_t rest = numerator - divisions[k] * division.denominator;
      const int64_t step = division.numerator.of_x;
      if (step > 0) end = std::min(end, x + (division.denominator - rest + step - 1) / step);
      if (step < 0) end = std::min(end, x + rest / -step + 1);
    }
    // Within the run all sums are affine.
    Range inside{x, end - 1};
    for (const Constraint* constraint : others) {
      const int64_t of_x = constraint->sum.of_x;
      inside.keep(of_x, sum_of(constraint->sum, x, n, divisions) - of_x * x, constraint->is_equality);
    }
    int64_t value = inside.is_empty() ? 0 : sum_of(piece.value, inside.first, n, divisions);
    for (int64_t at = inside.first; at <= inside.last; ++at, value += piece.value.of_x) {
      values[static_cast<size_t>(at)] = static_cast<int32_t>(value);
    }
    x = end;
  }
}

void QuasiAffineFunction::evaluate_each(const Piece& piece, const std::vector<const Constraint*>& others, int n,
                                        const Range& range, std::vector<int32_t>& values) {
  const auto [first, last] = range;
  std::vector<int64_t> divisions(piece.divisions.size());
  std::vector<SteppedDivision> stepped;
  for (size_t k = 0; k < divisions.size(); ++k) {
    divisions[k] = stepped.emplace_back(piece.divisions[k], first, n, divisions).quotient();
  }
  for (int64_t x = first; x <= last; ++x) {
    for (size_t k = 0; k < divisions.size() && x > first; ++k) {
      stepped[k].step(x, n, divisions);
      divisions[k] = stepped[k].quotient();
    }
    const bool is_in = std::all_of(others.begin(), others.end(), [&](const Constraint* constraint) {
      const int64_t sum = sum_of(constraint->sum, x, n, divisions);
      return constraint->is_equality ? sum == 0 : sum >= 0;
    });
    if (is_in) values[static_cast<size_t>(x)] = static_cast<int32_t>(sum_of(piece.value, x, n, divisions));
  }
}

std::vector<int32_t> QuasiAffineFunction::values(int n, int32_t none) const {
  std::vector<int32_t> values(static_cast<size_t>(n), none);
  for (const Piece& piece : pieces_) evaluate(piece, n, values);
  return values;
}

}  // namespace sluice
