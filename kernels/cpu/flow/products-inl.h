// Sums of products whose rows share what they are multiplied with, compiled once for each instruction set.

#if defined(SLUICE_KERNELS_CPU_FLOW_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_CPU_FLOW_PRODUCTS_INL_H_
#undef SLUICE_KERNELS_CPU_FLOW_PRODUCTS_INL_H_
#else
#define SLUICE_KERNELS_CPU_FLOW_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/flow/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::flows::HWY_NAMESPACE {

inline constexpr int kMostShared = 8;  // rows that are summed side by side

/// One vector of x * y for kRows rows of x.
template <int kRows>
struct DotSums {
  FloatVector sums[kRows];

  HWY_INLINE void clear() {
    for (FloatVector& sum : sums) sum = hn::Zero(Floats());
  }
  template <class Read>
  HWY_INLINE void add(FloatVector y, const Read& x) {
    for (int row = 0; row < kRows; ++row) sums[row] = hn::MulAdd(x(row), y, sums[row]);
  }
  HWY_INLINE bool is_sound() const { return true; }
};

/// The same for maximum(x * y, x * z): that is x * maximum(y, z) where x is not negative, else x * minimum(y, z), as rounding
/// keeps the order. True of finite numbers only: 0 * inf is NaN.
template <int kRows>
struct BoundSums {
  FloatVector sums[kRows];
  FloatVector zero_or_nan;

  HWY_INLINE void clear() {
    for (FloatVector& sum : sums) sum = hn::Zero(Floats());
    zero_or_nan = hn::Zero(Floats());
  }
  template <class Read>
  HWY_INLINE void add(FloatVector for_positive, FloatVector for_negative, const Read& x) {
    for (int row = 0; row < kRows; ++row) {
      const FloatVector factor = x(row);
      sums[row] = hn::MulAdd(factor, hn::IfNegativeThenElse(factor, for_negative, for_positive), sums[row]);
    }
  }
  HWY_INLINE void watch(FloatVector y, FloatVector z) {
    zero_or_nan = hn::MulAdd(y, hn::Zero(Floats()), zero_or_nan);
    zero_or_nan = hn::MulAdd(z, hn::Zero(Floats()), zero_or_nan);
  }
  HWY_INLINE bool is_sound() const { return hn::AllTrue(Floats(), hn::Eq(zero_or_nan, zero_or_nan)); }
};

/// kRows rows of x that share y (and z). False if the sums are not those of the expression.
template <FusedForm kForm, int kRows, class T>
HWY_INLINE bool sum_products(const float* x, const int32_t* x_rows, const T* y, const T* z, int64_t used, FloatVector* rows) {
  std::conditional_t<kForm == FusedForm::kDot, DotSums<kRows>, BoundSums<kRows>> sums;
  sums.clear();
  const float* factors[kRows];
  for (int row = 0; row < kRows; ++row) factors[row] = x + x_rows[row];
  const auto add = [&](FloatVector first, FloatVector second, const auto& read) HWY_ATTR {
    if constexpr (kForm == FusedForm::kDot) {
      sums.add(first, read);
    } else {
      sums.watch(first, second);
      const FloatVector larger = hn::Max(first, second);
      const FloatVector smaller = hn::Min(first, second);
      kForm == FusedForm::kUpper ? sums.add(larger, smaller, read) : sums.add(smaller, larger, read);
    }
  };
  int64_t i = 0;
  for (; i + kLanes <= used; i += kLanes)
    add(load_stored(y + i), load_stored(z + i), [&](int row) HWY_ATTR { return load(factors[row] + i); });
  if (i < used) {
    const int64_t left = used - i;
    add(load_first(y + i, left), load_first(z + i, left), [&](int row) HWY_ATTR { return load_first(factors[row] + i, left); });
  }
  for (int row = 0; row < kRows; ++row) rows[row] = sums.sums[row];
  return sums.is_sound();
}

template <FusedForm kForm, class T>
HWY_INLINE bool sum_block(int count, const float* x, const int32_t* x_rows, const T* y, const T* z, int64_t used,
                          FloatVector* rows) {
  switch (count) {
    case 1:
      return sum_products<kForm, 1>(x, x_rows, y, z, used, rows);
    case 2:
      return sum_products<kForm, 2>(x, x_rows, y, z, used, rows);
    case 3:
      return sum_products<kForm, 3>(x, x_rows, y, z, used, rows);
    case 4:
      return sum_products<kForm, 4>(x, x_rows, y, z, used, rows);
    case 5:
      return sum_products<kForm, 5>(x, x_rows, y, z, used, rows);
    case 6:
      return sum_products<kForm, 6>(x, x_rows, y, z, used, rows);
    case 7:
      return sum_products<kForm, 7>(x, x_rows, y, z, used, rows);
    default:
      return sum_products<kForm, kMostShared>(x, x_rows, y, z, used, rows);
  }
}

}  // namespace sluice::cpu::flows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
