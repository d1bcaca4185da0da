#include "scripting/pattern/quasi_affine.h"

#include <isl/aff.h>
#include <isl/constraint.h>
#include <isl/local_space.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {
namespace {

using IslAff = std::unique_ptr<isl_aff, IslDeleter<isl_aff, isl_aff_free>>;
using IslConstraint = std::unique_ptr<isl_constraint, IslDeleter<isl_constraint, isl_constraint_free>>;
using IslPieces = std::unique_ptr<isl_pw_multi_aff, IslDeleter<isl_pw_multi_aff, isl_pw_multi_aff_free>>;

constexpr int64_t kMost = int64_t{1} << 53;

/// An AffineSum for one n, without what is zero. `wholes`: of each division the part that is affine in x, which is not asked of
/// it.
class FoldedSum {
 public:
  FoldedSum(const AffineSum& sum, int64_t n, std::span<const int64_t> wholes)
      : constant_(sum.constant + sum.of_n * n), of_x_(sum.of_x) {
    for (size_t k = 0; k < sum.of_divisions.size(); ++k) {
      if (sum.of_divisions[k] == 0) continue;
      terms_.push_back({k, sum.of_divisions[k]});
      of_x_ += sum.of_divisions[k] * wholes[k];
    }
  }

  int64_t of_x() const { return of_x_; }
  bool has_divisions() const { return !terms_.empty(); }
  int64_t at(int64_t x, std::span<const int64_t> quotients) const { return constant_ + change(x, quotients); }
  /// By how much it changes when x does by `step` and the divisions do by `steps`.
  int64_t change(int64_t step, std::span<const int64_t> steps) const {
    int64_t total = of_x_ * step;
    for (const Term& term : terms_) total += term.factor * steps[term.division];
    return total;
  }
  /// Without x times `multiple`.
  void take_multiple(int64_t multiple) { of_x_ -= multiple; }

 private:
  struct Term {
    size_t division;
    int64_t factor;
  };

  int64_t constant_;
  int64_t of_x_;
  std::vector<Term> terms_;
};

/// A division for one n, less x times `whole`, so that it changes as seldom as may be.
struct FoldedDivision {
  FoldedDivision(const FloorDivision& division, int64_t n, std::span<const int64_t> wholes)
      : numerator(division.numerator, n, wholes),
        denominator(division.denominator),
        whole(floor_divide(2 * numerator.of_x() + denominator, 2 * denominator)) {
    numerator.take_multiple(whole * denominator);
  }

  FoldedSum numerator;
  int64_t denominator;
  int64_t whole;
};

}  // namespace

int64_t floor_divide(int64_t numerator, int64_t denominator) {
  const int64_t quotient = numerator / denominator;
  return quotient - (numerator % denominator < 0 ? 1 : 0);
}

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

  std::vector<QuasiAffinePiece> read(const IslMap& relation) {
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
      AffineConstraint& read = reader.current_.constraints.emplace_back();
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
  QuasiAffinePiece current_;
  std::vector<QuasiAffinePiece> pieces_;
};

QuasiAffineFunction QuasiAffineFunction::largest(const IntegerContext& context, const IslMap& relation) {
  QuasiAffineFunction function;
  function.pieces_ = Reader(context).read(relation);
  return function;
}

namespace {

/// Of the periods of a function's pieces, all in all: three megabytes.
constexpr int64_t kMostPlaces = int64_t{1} << 18;

}  // namespace

/// One piece for one n.
class QuasiAffineFunction::Evaluation {
 public:
  /// What repeats takes of `places`, which are left for periods of all pieces.
  Evaluation(const QuasiAffinePiece& piece, int n, int64_t& places) : Evaluation(piece, n, divisions_of(piece, n), places) {}

  /// into[k] of x = first + k, for those x that are in the piece.
  void put(int64_t first, std::span<int32_t> into) {
    Range range = range_;
    range.keep(1, -first, false);
    range.keep(-1, first + static_cast<int64_t>(into.size()) - 1, false);
    if (range.is_empty()) return;
    const std::span<int32_t> inside =
        into.subspan(static_cast<size_t>(range.first - first), static_cast<size_t>(range.last - range.first + 1));
    period_ > 0 ? put_periods(range, inside.data()) : put_stretches(range, inside.data());
  }

 private:
  struct Condition {
    FoldedSum sum;
    bool is_equality;
  };
  struct Divisions {
    std::vector<FoldedDivision> folded;
    std::vector<int64_t> wholes;
  };

  static Divisions divisions_of(const QuasiAffinePiece& piece, int n) {
    Divisions divisions;
    for (const FloorDivision& division : piece.divisions) {
      const FoldedDivision& folded = divisions.folded.emplace_back(division, n, divisions.wholes);
      divisions.wholes.push_back(folded.whole);
    }
    return divisions;
  }

  Evaluation(const QuasiAffinePiece& piece, int n, Divisions divisions, int64_t& places)
      : range_{0, n - 1},
        divisions_(std::move(divisions.folded)),
        value_(piece.value, n, divisions.wholes),
        quotients_(divisions_.size()),
        rests_(divisions_.size()) {
    for (const AffineConstraint& constraint : piece.constraints) {
      const FoldedSum sum(constraint.sum, n, divisions.wholes);
      if (sum.has_divisions()) {
        conditions_.push_back({sum, constraint.is_equality});
      } else {
        range_.keep(sum.of_x(), sum.at(0, {}), constraint.is_equality);
      }
    }
    // Where divisions seldom change, stretches of x are done as a whole.
    constexpr int64_t kLongStretch = 16;
    const bool are_long = std::all_of(divisions_.begin(), divisions_.end(), [](const FoldedDivision& division) {
      return std::abs(division.numerator.of_x()) * kLongStretch <= division.denominator;
    });
    if (!are_long) find_period(places);
  }

  void divide_at(int64_t x) {
    for (size_t k = 0; k < divisions_.size(); ++k) {
      const int64_t numerator = divisions_[k].numerator.at(x, quotients_);
      quotients_[k] = floor_divide(numerator, divisions_[k].denominator);
      rests_[k] = numerator - quotients_[k] * divisions_[k].denominator;
    }
  }

  /// Looks for the number of x after which no division leaves another rest. From one period to the next all is affine, so that
  /// the first tells what the others are.
  void find_period(int64_t& places) {
    constexpr int64_t kMostPeriod = int64_t{1} << 14;  // whose places stay in a cache
    std::vector<int64_t> steps;                        // of the quotients in a period
    int64_t period = 1;
    for (const FoldedDivision& division : divisions_) {
      const int64_t change = division.numerator.change(period, steps);
      const int64_t times = division.denominator / std::gcd(change, division.denominator);
      if (times > kMostPeriod / period) return;
      period *= times;
      for (int64_t& step : steps) step *= times;
      steps.push_back(change / (division.denominator / times));
    }
    if (2 * period > range_.last - range_.first || period > places) return;
    places -= period;
    period_ = period;
    value_step_ = static_cast<uint32_t>(value_.change(period, steps));
    for (int64_t x = range_.first; x < range_.first + period; ++x) {
      divide_at(x);
      Range times{0, (range_.last - x) / period};
      for (const Condition& condition : conditions_) {
        times.keep(condition.sum.change(period, steps), condition.sum.at(x, quotients_), condition.is_equality);
      }
      if (times.is_empty()) times = {0, -1};
      firsts_.push_back(static_cast<int32_t>(x + times.first * period));
      lasts_.push_back(static_cast<int32_t>(x + times.last * period));
      values_.push_back(static_cast<uint32_t>(value_.at(x, quotients_)));
    }
  }

  void put_periods(const Range& range, int32_t* into) const {
    for (int64_t x = range.first; x <= range.last;) {
      const int64_t time = (x - range_.first) / period_;
      const int64_t begin = range_.first + time * period_;
      const auto from = static_cast<size_t>(x - begin);
      const auto end = static_cast<size_t>(std::min(period_, range.last + 1 - begin));
      const uint32_t more = static_cast<uint32_t>(time) * value_step_;
      int32_t* const values = into + (x - range.first);
      for (size_t k = from; k < end; ++k) {
        const int32_t place = static_cast<int32_t>(begin) + static_cast<int32_t>(k);
        const bool is_in = (firsts_[k] <= place) & (place <= lasts_[k]);
        int32_t& value = values[k - from];
        value = is_in ? static_cast<int32_t>(values_[k] + more) : value;
      }
      x = begin + static_cast<int64_t>(end);
    }
  }

  void put_stretches(const Range& range, int32_t* into) {
    for (int64_t x = range.first; x <= range.last;) {
      divide_at(x);
      Range inside{x, range.last};
      for (size_t k = 0; k < divisions_.size(); ++k) {
        const int64_t of_x = divisions_[k].numerator.of_x();
        inside.keep(-of_x, of_x * x + divisions_[k].denominator - 1 - rests_[k], false);
        inside.keep(of_x, rests_[k] - of_x * x, false);
      }
      const int64_t end = std::max(inside.last, x) + 1;  // numbers that were forged may be anything
      // Within the stretch all sums are affine.
      for (const Condition& condition : conditions_) {
        const int64_t of_x = condition.sum.of_x();
        inside.keep(of_x, condition.sum.at(x, quotients_) - of_x * x, condition.is_equality);
      }
      int64_t value = inside.is_empty() ? 0 : value_.at(inside.first, quotients_);
      for (int64_t y = inside.first; y <= inside.last; ++y, value += value_.of_x()) {
        into[y - range.first] = static_cast<int32_t>(value);
      }
      x = end;
    }
  }

  Range range_;  // of x that meet the constraints without divisions
  std::vector<FoldedDivision> divisions_;
  std::vector<Condition> conditions_;  // the constraints with divisions
  FoldedSum value_;
  std::vector<int64_t> quotients_;  // of the divisions, at the x that is looked at
  std::vector<int64_t> rests_;      // that they leave there
  // Of each x of the first period: the first and the last, period_ apart, that are in the piece, and the value if it is one.
  int64_t period_ = 0;  // 0: stretches are done as a whole
  uint32_t value_step_ = 0;
  std::vector<int32_t> firsts_;
  std::vector<int32_t> lasts_;
  std::vector<uint32_t> values_;
};

bool QuasiAffineFunction::fits() const {
  constexpr double kMost = 2.3e18;  // 2^61: sums of two such fit
  constexpr auto kLength = static_cast<double>(kMostLength);
  for (const QuasiAffinePiece& piece : pieces_) {
    // Of divisions as Evaluation has them: the size of their whole at most, and of their quotient.
    std::vector<double> wholes;
    std::vector<double> quotients;
    const auto slope_of = [&](const AffineSum& sum) {
      double slope = std::fabs(static_cast<double>(sum.of_x));
      for (size_t k = 0; k < sum.of_divisions.size(); ++k)
        slope += sum.of_divisions[k] == 0 ? 0 : std::fabs(static_cast<double>(sum.of_divisions[k])) * wholes[k];
      return slope;
    };
    const auto size_of = [&](const AffineSum& sum) {
      double size = std::fabs(static_cast<double>(sum.constant)) + kLength * slope_of(sum) +
                    kLength * std::fabs(static_cast<double>(sum.of_n));
      for (size_t k = 0; k < sum.of_divisions.size(); ++k)
        size += sum.of_divisions[k] == 0 ? 0 : std::fabs(static_cast<double>(sum.of_divisions[k])) * quotients[k];
      return size;
    };
    for (const FloorDivision& division : piece.divisions) {
      const auto denominator = static_cast<double>(division.denominator);
      const double size = size_of(division.numerator);
      if (size + denominator >= kMost) return false;
      wholes.push_back(std::floor(slope_of(division.numerator) / denominator + 0.5));
      quotients.push_back(size / denominator + 1 + kLength * wholes.back());
    }
    for (const AffineConstraint& constraint : piece.constraints) {
      if (size_of(constraint.sum) >= kMost) return false;
    }
    if (size_of(piece.value) >= kMost) return false;
  }
  return true;
}

std::vector<int32_t> QuasiAffineFunction::values(int n, int32_t none) const {
  std::vector<int32_t> values(static_cast<size_t>(n), none);
  int64_t places = kMostPlaces;
  for (const QuasiAffinePiece& piece : pieces_) Evaluation(piece, n, places).put(0, values);
  return values;
}

void QuasiAffineFunction::for_parts(int n, int32_t none, const std::function<void(std::span<const int32_t>)>& take) const {
  std::vector<Evaluation> pieces;
  int64_t places = kMostPlaces;
  for (const QuasiAffinePiece& piece : pieces_) pieces.emplace_back(piece, n, places);
  constexpr int kPart = 8192;
  std::vector<int32_t> values(static_cast<size_t>(std::min(n, kPart)));
  for (int first = 0; first < n; first += kPart) {
    const std::span<int32_t> part = std::span(values).first(static_cast<size_t>(std::min(kPart, n - first)));
    std::fill(part.begin(), part.end(), none);
    for (Evaluation& piece : pieces) piece.put(first, part);
    take(part);
  }
}

}  // namespace sluice
