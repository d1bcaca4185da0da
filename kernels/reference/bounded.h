#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "scripting/graph/graph.h"

namespace sluice::oracle {

/// A float64 value and a bound of how far a float32 calculation of it may be off. An infinite error means that float32 may
/// give anything. NaN and infinities without error are to be met exactly.
struct Bounded {
  double value = 0;
  double error = 0;
};

inline constexpr double kUnit = 0x1p-24;   // rounding of one float32 operation, relative
inline constexpr double kTiny = 0x1p-148;  // and absolute
inline constexpr double kLargest = std::numeric_limits<float>::max();
inline constexpr double kUnknown = std::numeric_limits<double>::infinity();

/// The result of an operation with `roundings` roundings.
inline Bounded rounded(double value, double error, double roundings = 1) {
  if (std::isnan(error)) error = kUnknown;
  if (!std::isfinite(value)) return {value, error};
  error += roundings * (kUnit * std::fabs(value) + kTiny);
  if (std::fabs(value) + error > kLargest) error = kUnknown;
  return {value, error};
}

inline bool is_special(Bounded a) { return !std::isfinite(a.value); }
inline bool is_unknown(Bounded a) { return a.error == kUnknown; }
/// True if the sign (or being zero) is beyond doubt.
inline bool is_sign_known(Bounded a) { return a.error == 0 || std::isnan(a.value) || std::fabs(a.value) > a.error; }

inline Bounded add(Bounded a, Bounded b) { return rounded(a.value + b.value, a.error + b.error); }
inline Bounded sub(Bounded a, Bounded b) { return rounded(a.value - b.value, a.error + b.error); }

inline Bounded mul(Bounded a, Bounded b) {
  if (is_unknown(a) || is_unknown(b)) return {a.value * b.value, kUnknown};
  if (is_special(a) || is_special(b)) return {a.value * b.value, is_sign_known(a) && is_sign_known(b) ? 0 : kUnknown};
  return rounded(a.value * b.value, std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + a.error * b.error);
}

inline Bounded div(Bounded a, Bounded b) {
  const double value = a.value / b.value;
  if (is_unknown(a) || is_unknown(b) || !is_sign_known(b)) return {value, kUnknown};
  if (is_special(a) || is_special(b) || b.value == 0) return {value, is_sign_known(a) ? 0 : kUnknown};
  const double least = std::fabs(b.value) - b.error;
  return rounded(value, (a.error + std::fabs(value) * b.error) / least);
}

inline Bounded maximum(Bounded a, Bounded b) {
  const bool nan = std::isnan(a.value) || std::isnan(b.value);
  const double value = nan ? std::nan("") : std::max(a.value, b.value);
  // Which of two zeros it is devices differ in.
  const bool either_zero = a.value == 0 && b.value == 0 && std::signbit(a.value) != std::signbit(b.value);
  return {value, std::max({a.error, b.error, either_zero ? kTiny : 0})};
}
inline Bounded negative(Bounded a) { return {-a.value, a.error}; }
inline Bounded minimum(Bounded a, Bounded b) { return negative(maximum(negative(a), negative(b))); }

/// f(x) for a monotonic f whose implementation makes an error of a few units.
template <class F>
Bounded monotonic(const F& f, Bounded x, double roundings) {
  const double value = f(x.value);
  if (is_unknown(x)) return {value, kUnknown};
  if (x.error == 0 || std::isnan(x.value)) return rounded(value, 0, roundings);
  const double above = std::fabs(f(x.value + x.error) - value);
  const double below = std::fabs(f(x.value - x.error) - value);
  // Where an end of what x may be has no value, as the logarithm of a number below zero, float32 may get there.
  if (std::isnan(above) || std::isnan(below)) return {value, kUnknown};
  return rounded(value, std::max(above, below), roundings);
}

inline Bounded exponential(Bounded x) {
  return monotonic([](double v) { return std::exp(v); }, x, 8);
}
inline Bounded logarithm(Bounded x) {
  return monotonic([](double v) { return std::log(v); }, x, 8);
}
inline Bounded root(Bounded x) {
  return monotonic([](double v) { return std::sqrt(v); }, x, 2);
}
inline Bounded relu(Bounded x) {
  Bounded result = monotonic([](double v) { return v < 0 ? 0 : v; }, x, 0);
  if (x.value == 0 && std::signbit(x.value)) result.error = std::max(result.error, kTiny);  // as of maximum
  return result;
}
/// In float32 exp(-x) overflows where the result is below 1 / FLT_MAX, which then is 0.
inline Bounded sigmoid(Bounded x) {
  Bounded result = monotonic([](double v) { return 1 / (1 + std::exp(-v)); }, x, 12);
  constexpr double kLost = 1 / static_cast<double>(std::numeric_limits<float>::max());
  if (std::fabs(result.value) < 2 * kLost) result.error += 2 * kLost;
  return result;
}
inline Bounded silu(Bounded x) { return mul(x, sigmoid(x)); }
inline Bounded absolute(Bounded x) { return {std::fabs(x.value), x.error}; }

inline bool holds(Compare compare, double a, double b) {
  switch (compare) {
    case Compare::kEq:
      return a == b;
    case Compare::kNe:
      return a != b;
    case Compare::kGt:
      return a > b;
    case Compare::kGe:
      return a >= b;
    case Compare::kLt:
      return a < b;
    case Compare::kLe:
      return a <= b;
  }
  return false;
}

inline Bounded where(Compare compare, Bounded a, Bounded b, Bounded x, Bounded y) {
  const bool first = holds(compare, a.value, b.value);
  const Bounded chosen = first ? x : y;
  const bool special =
      std::isnan(a.value) || std::isnan(b.value) || a.value - b.value == HUGE_VAL || b.value - a.value == HUGE_VAL;
  const double doubt = a.error + b.error;
  const bool sure = doubt == 0 || (doubt < kUnknown && (special || std::fabs(a.value - b.value) > doubt));
  if (sure) return chosen;
  const Bounded other = first ? y : x;
  const double apart = std::fabs(x.value - y.value);
  return {chosen.value, std::isnan(apart) ? kUnknown : chosen.error + other.error + apart};
}

/// Sum of terms in any order. One after the other they may be off by a unit of the whole for each term: equal terms round the
/// same way again and again.
class Sum {
 public:
  void add(Bounded term) {
    value_ += term.value;
    error_ += term.error;
    if (std::isfinite(term.value)) magnitude_ += std::fabs(term.value);
    ++terms_;
  }
  Bounded result() const {
    // Finite terms that overflow on the way may meet the other infinity.
    const bool overflows = magnitude_ > kLargest && !std::isnan(value_);
    const double roundings = std::isfinite(value_) ? terms_ * kUnit * magnitude_ : 0;
    return rounded(value_, overflows ? kUnknown : error_ + roundings);
  }
  int terms() const { return terms_; }

 private:
  double value_ = 0;
  double error_ = 0;
  double magnitude_ = 0;  // of the finite ones
  int terms_ = 0;
};

}  // namespace sluice::oracle
