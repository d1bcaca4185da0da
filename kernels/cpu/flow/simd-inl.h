// Building blocks of the flow kernels, compiled once for each instruction set (see Highway's foreach_target.h).

#if defined(SLUICE_KERNELS_CPU_FLOW_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_CPU_FLOW_SIMD_INL_H_
#undef SLUICE_KERNELS_CPU_FLOW_SIMD_INL_H_
#else
#define SLUICE_KERNELS_CPU_FLOW_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "kernels/cpu/flow/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::flows::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using FloatVector = hn::Vec<Floats>;
inline constexpr int64_t kLanes = HWY_LANES(float);
static_assert(kLanes <= kPadding);

HWY_INLINE FloatVector load(const float* source) { return hn::LoadU(Floats(), source); }
HWY_INLINE void store(FloatVector values, float* target) { hn::StoreU(values, Floats(), target); }
/// Stores the first `count` lanes; the rest of the target keeps its values.
HWY_INLINE void store_first(FloatVector values, int64_t count, float* target) {
  hn::BlendedStore(values, hn::FirstN(Floats(), static_cast<size_t>(count)), Floats(), target);
}
HWY_INLINE void store_up_to(FloatVector values, int64_t count, float* target) {
  count >= kLanes ? store(values, target) : store_first(values, count, target);
}

/// Lanes source[0], source[step], ...; those from `count` on are unspecified.
HWY_INLINE FloatVector load_strided(const float* source, int64_t step, int64_t count) {
  if (step == 1) return load(source);
  if (step == 0) return hn::Set(Floats(), *source);
  HWY_ALIGN float lanes[kLanes] = {};
  for (int64_t lane = 0; lane < (count < kLanes ? count : kLanes); ++lane) lanes[lane] = source[lane * step];
  return hn::Load(Floats(), lanes);
}

/// The larger; NaN if either is. The instructions of x86 give the second operand if either is NaN.
HWY_INLINE FloatVector maximum(FloatVector a, FloatVector b) {
#if HWY_TARGET == HWY_SCALAR
  const FloatVector larger = hn::IfThenElse(hn::Gt(a, b), a, b);
#else
  const FloatVector larger = hn::Max(a, b);
#endif
  return hn::IfThenElse(hn::Eq(a, a), larger, a);
}
HWY_INLINE FloatVector minimum(FloatVector a, FloatVector b) {
#if HWY_TARGET == HWY_SCALAR
  const FloatVector smaller = hn::IfThenElse(hn::Lt(a, b), a, b);
#else
  const FloatVector smaller = hn::Min(a, b);
#endif
  return hn::IfThenElse(hn::Eq(a, a), smaller, a);
}

struct SumOf {
  static HWY_INLINE FloatVector identity() { return hn::Zero(Floats()); }
  static HWY_INLINE FloatVector add(FloatVector sum, FloatVector x) { return hn::Add(sum, x); }
  static HWY_INLINE FloatVector combine(FloatVector a, FloatVector b) { return hn::Add(a, b); }
};
struct SumOfSquares {
  static HWY_INLINE FloatVector identity() { return hn::Zero(Floats()); }
  static HWY_INLINE FloatVector add(FloatVector sum, FloatVector x) { return hn::MulAdd(x, x, sum); }
  static HWY_INLINE FloatVector combine(FloatVector a, FloatVector b) { return hn::Add(a, b); }
};
struct MaxOf {
  static HWY_INLINE FloatVector identity() { return hn::Set(Floats(), -std::numeric_limits<float>::infinity()); }
  static HWY_INLINE FloatVector add(FloatVector best, FloatVector x) { return maximum(best, x); }
  static HWY_INLINE FloatVector combine(FloatVector a, FloatVector b) { return maximum(a, b); }
};
struct MinOf {
  static HWY_INLINE FloatVector identity() { return hn::Set(Floats(), std::numeric_limits<float>::infinity()); }
  static HWY_INLINE FloatVector add(FloatVector best, FloatVector x) { return minimum(best, x); }
  static HWY_INLINE FloatVector combine(FloatVector a, FloatVector b) { return minimum(a, b); }
};

/// Combines the lanes of each of kLanes vectors: lane i of the result is that of rows[i]. Overwrites `rows`.
template <class R>
HWY_INLINE FloatVector combine_lanes(FloatVector* rows) {
#if HWY_TARGET != HWY_SCALAR  // whose vectors have one lane, and which lacks these shuffles
  const Floats d;
  for (int64_t left = kLanes; left > 1; left /= 2) {
    for (int64_t i = 0; i < left / 2; ++i) {
      const FloatVector low = rows[2 * i];
      const FloatVector high = rows[2 * i + 1];
      rows[i] = R::combine(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
    }
  }
#endif
  return rows[0];
}

/// The combined lanes of one vector.
template <class R>
HWY_INLINE float combine_one(FloatVector lanes) {
  FloatVector rows[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) rows[i] = lanes;
  return hn::GetLane(combine_lanes<R>(rows));
}

/// Combines `count` consecutive numbers into the lanes of one vector.
template <class R>
HWY_INLINE FloatVector accumulate(const float* x, int64_t count) {
  const Floats d;
  FloatVector first = R::identity();
  FloatVector second = R::identity();
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    first = R::add(first, load(x + i));
    second = R::add(second, load(x + i + kLanes));
  }
  for (; i + kLanes <= count; i += kLanes) first = R::add(first, load(x + i));
  if (i < count) {
    const auto exist = hn::FirstN(d, static_cast<size_t>(count - i));
    second = hn::IfThenElse(exist, R::add(second, load(x + i)), second);
  }
  return R::combine(first, second);
}

/// What is left to do for `count` combined sums: means are divided by the number of entries, norms are roots.
HWY_INLINE void finish(Reduction reduction, int64_t used, int64_t count, float* values) {
  const FloatVector entries = hn::Set(Floats(), static_cast<float>(used));
  for (int64_t i = 0; i < count; i += kLanes) {
    if (reduction == Reduction::kMean) store_up_to(hn::Div(load(values + i), entries), count - i, values + i);
    if (reduction == Reduction::kL2Norm) store_up_to(hn::Sqrt(load(values + i)), count - i, values + i);
  }
}

/// Runs inner(offsets, at, n) for every run of the innermost loop: offsets of the operands, of the result, and the length.
/// The two innermost loops are plain ones; those outside count like an odometer.
template <int kOperands, class Inner>
HWY_INLINE void walk(const LoopNest& nest, int64_t pages, Inner&& inner) {
  const int last = nest.rank - 1;
  const auto extent_of = [&](int loop) HWY_ATTR { return nest.extent[loop] * (loop == 0 && nest.paged ? pages : 1); };
  const int64_t n = extent_of(last);
  int64_t offsets[kOperands] = {};
  if (last == 0) return inner(offsets, 0, n);
  const int64_t runs = extent_of(last - 1);
  int64_t index[LoopNest::kMaxRank] = {};
  for (int64_t at = 0;;) {
    for (int64_t run = 0; run < runs; ++run, at += n) {
      inner(offsets, at, n);
      for (int o = 0; o < kOperands; ++o) offsets[o] += nest.stride[o][last - 1];
    }
    for (int o = 0; o < kOperands; ++o) offsets[o] -= nest.stride[o][last - 1] * runs;
    int loop = last - 2;
    for (; loop >= 0; --loop) {
      for (int o = 0; o < kOperands; ++o) offsets[o] += nest.stride[o][loop];
      if (++index[loop] < extent_of(loop)) break;
      for (int o = 0; o < kOperands; ++o) offsets[o] -= nest.stride[o][loop] * extent_of(loop);
      index[loop] = 0;
    }
    if (loop < 0) return;
  }
}

}  // namespace sluice::cpu::flows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
