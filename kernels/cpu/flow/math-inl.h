// The elementwise operators of flows on one vector, compiled once for each instruction set (see Highway's foreach_target.h).

#if defined(SLUICE_KERNELS_CPU_FLOW_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_CPU_FLOW_MATH_INL_H_
#undef SLUICE_KERNELS_CPU_FLOW_MATH_INL_H_
#else
#define SLUICE_KERNELS_CPU_FLOW_MATH_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>

#include "kernels/cpu/flow/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::flows::HWY_NAMESPACE {

struct AddOf {
  static HWY_INLINE FloatVector of(FloatVector a, FloatVector b) { return hn::Add(a, b); }
};
struct SubOf {
  static HWY_INLINE FloatVector of(FloatVector a, FloatVector b) { return hn::Sub(a, b); }
};
struct MulOf {
  static HWY_INLINE FloatVector of(FloatVector a, FloatVector b) { return hn::Mul(a, b); }
};
struct DivOf {
  static HWY_INLINE FloatVector of(FloatVector a, FloatVector b) { return hn::Div(a, b); }
};
struct MaximumOf {
  static HWY_INLINE FloatVector of(FloatVector a, FloatVector b) { return maximum(a, b); }
};
struct MinimumOf {
  static HWY_INLINE FloatVector of(FloatVector a, FloatVector b) { return minimum(a, b); }
};

/// Highway's Exp over all numbers: its polynomial wants a bounded argument.
HWY_INLINE FloatVector exponential(FloatVector x) {
  const Floats d;
  const auto over = hn::Gt(x, hn::Set(d, 88.7228394F));
  const FloatVector inside = hn::Min(hn::Max(x, hn::Set(d, -104.0F)), hn::Set(d, 88.7228394F));
  const FloatVector power = hn::IfThenElse(over, hn::Set(d, std::numeric_limits<float>::infinity()), hn::Exp(d, inside));
  return hn::IfThenElse(hn::Eq(x, x), power, x);
}

/// Highway's Log over all numbers: -inf at zero, NaN below, +inf at +inf.
HWY_INLINE FloatVector logarithm(FloatVector x) {
  const Floats d;
  const FloatVector infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const auto ordinary = hn::And(hn::Gt(x, hn::Zero(d)), hn::Lt(x, infinity));
  const FloatVector special =
      hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity),
                     hn::IfThenElse(hn::Eq(x, infinity), infinity, hn::Set(d, std::numeric_limits<float>::quiet_NaN())));
  return hn::IfThenElse(ordinary, hn::Log(d, hn::IfThenElse(ordinary, x, hn::Set(d, 1.0F))), special);
}

HWY_INLINE FloatVector logistic(FloatVector x) {
  const FloatVector one = hn::Set(Floats(), 1.0F);
  return hn::Div(one, hn::Add(one, exponential(hn::Neg(x))));
}

struct ReluOf {
  static HWY_INLINE FloatVector of(FloatVector x) { return hn::IfThenElse(hn::Lt(x, hn::Zero(Floats())), hn::Zero(Floats()), x); }
};
struct SigmoidOf {
  static HWY_INLINE FloatVector of(FloatVector x) { return logistic(x); }
};
struct SiluOf {
  static HWY_INLINE FloatVector of(FloatVector x) { return hn::Mul(x, logistic(x)); }
};
struct ExpOf {
  static HWY_INLINE FloatVector of(FloatVector x) { return exponential(x); }
};
struct LogOf {
  static HWY_INLINE FloatVector of(FloatVector x) { return logarithm(x); }
};
struct AbsOf {
  static HWY_INLINE FloatVector of(FloatVector x) { return hn::Abs(x); }
};
struct SqrtOf {
  static HWY_INLINE FloatVector of(FloatVector x) { return hn::Sqrt(x); }
};

HWY_INLINE hn::Mask<Floats> holds(Compare compare, FloatVector a, FloatVector b) {
  switch (compare) {
    case Compare::kEq:
      return hn::Eq(a, b);
    case Compare::kNe:
      return hn::Not(hn::Eq(a, b));  // Highway's Ne is false for NaN on some targets
    case Compare::kGt:
      return hn::Gt(a, b);
    case Compare::kGe:
      return hn::Ge(a, b);
    case Compare::kLt:
      return hn::Lt(a, b);
    case Compare::kLe:
      return hn::Le(a, b);
  }
  return hn::Eq(a, b);
}

}  // namespace sluice::cpu::flows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
