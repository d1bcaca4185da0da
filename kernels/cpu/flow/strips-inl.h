// The expression of a fused reduction, a strip of a row at a time, compiled once for each instruction set.

#if defined(SLUICE_KERNELS_CPU_FLOW_STRIPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_CPU_FLOW_STRIPS_INL_H_
#undef SLUICE_KERNELS_CPU_FLOW_STRIPS_INL_H_
#else
#define SLUICE_KERNELS_CPU_FLOW_STRIPS_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>

#include "kernels/cpu/flow/math-inl.h"
#include "kernels/cpu/flow/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::flows::HWY_NAMESPACE {

inline constexpr int64_t kStripVectors = 4;
inline constexpr int64_t kStrip = kStripVectors * kLanes;
inline constexpr int kPagesAhead = 12;
inline constexpr int64_t kMostPrefetched = 512;  // bytes; hardware goes on from there

/// The run of a fused reduction, page after page.
struct FusedRun {
  const FusedReduction& fused;
  std::span<const LeafSource> sources;
  const PageRun& run;

  HWY_INLINE const std::byte* page_of(int leaf, int page) const {
    const int64_t index = sources[leaf].pages != nullptr ? sources[leaf].pages[page] : page;
    return sources[leaf].base + static_cast<size_t>(index) * sources[leaf].page_step;
  }
  /// Pages lie anywhere in the pool, where hardware does not foresee them.
  HWY_INLINE void prefetch(int page) const {
    if (page + kPagesAhead >= run.pages) return;
    for (int leaf = 0; leaf < static_cast<int>(fused.leaves.size()); ++leaf) {
      if (!fused.leaves[leaf].in_page) continue;
      const std::byte* part = page_of(leaf, page + kPagesAhead);
      const int64_t bytes = std::min(fused.leaves[leaf].bytes, kMostPrefetched);
      for (int64_t at = 0; at < bytes; at += 64) hwy::Prefetch(part + at);
    }
  }
};

template <class T>
void widen_strip(const T* source, int64_t step, int64_t count, float* strip) {
  if (step == 0) {
    const FloatVector all = hn::Set(Floats(), hn::GetLane(load_first(source, 1)));
    for (int64_t i = 0; i < count; i += kLanes) hn::Store(all, Floats(), strip + i);
    return;
  }
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::Store(load_stored(source + i), Floats(), strip + i);
  if (i < count) hn::Store(load_first(source + i, count - i), Floats(), strip + i);
}

template <class F>
HWY_INLINE void unary_strip(const float* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) hn::Store(F::of(load(x + i)), Floats(), out + i);
}
template <class F>
HWY_INLINE void binary_strip(const float* a, const float* b, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) hn::Store(F::of(load(a + i), load(b + i)), Floats(), out + i);
}

/// Runs one step on a strip; whole vectors, so what lies behind `count` is of no meaning.
void run_step(const Expression::Step& step, const float* const* values, int64_t count, float* out) {
  const auto operand = [&](int i) HWY_ATTR { return values[step.operands[i]]; };
  switch (step.op) {
    case Op::kAdd:
      return binary_strip<AddOf>(operand(0), operand(1), count, out);
    case Op::kSub:
      return binary_strip<SubOf>(operand(0), operand(1), count, out);
    case Op::kMul:
      return binary_strip<MulOf>(operand(0), operand(1), count, out);
    case Op::kDiv:
      return binary_strip<DivOf>(operand(0), operand(1), count, out);
    case Op::kMaximum:
      return binary_strip<MaximumOf>(operand(0), operand(1), count, out);
    case Op::kMinimum:
      return binary_strip<MinimumOf>(operand(0), operand(1), count, out);
    case Op::kRelu:
      return unary_strip<ReluOf>(operand(0), count, out);
    case Op::kSigmoid:
      return unary_strip<SigmoidOf>(operand(0), count, out);
    case Op::kSilu:
      return unary_strip<SiluOf>(operand(0), count, out);
    case Op::kExp:
      return unary_strip<ExpOf>(operand(0), count, out);
    case Op::kLog:
      return unary_strip<LogOf>(operand(0), count, out);
    case Op::kAbs:
      return unary_strip<AbsOf>(operand(0), count, out);
    case Op::kSqrt:
      return unary_strip<SqrtOf>(operand(0), count, out);
    case Op::kWhere:
      for (int64_t i = 0; i < count; i += kLanes) {
        const auto first = holds(step.compare, load(operand(0) + i), load(operand(1) + i));
        hn::Store(hn::IfThenElse(first, load(operand(2) + i), load(operand(3) + i)), Floats(), out + i);
      }
      return;
    default:
      throw InternalError("fused reduction: not an elementwise operator");
  }
}

/// Evaluates the expression for one row at a time, a strip of it at a time.
template <class R>
struct StripLoop {
  HWY_ALIGN float strips[Expression::kMostLeaves + Expression::kMostSteps][kStrip];
  const float* values[Expression::kMostLeaves + Expression::kMostSteps];
  const std::byte* parts[Expression::kMostLeaves];

  void enter_page(const FusedRun& all, int page) {
    for (int leaf = 0; leaf < static_cast<int>(all.fused.leaves.size()); ++leaf) parts[leaf] = all.page_of(leaf, page);
  }
  /// Makes values[leaf] the strip that starts at `at`. Behind buffers, unlike pages, there is something to be read.
  HWY_INLINE void read_leaf(const Leaf& leaf, int index, int row, int64_t at, int64_t count) {
    const int64_t first = leaf.rows[row] + at * leaf.step;
    if (leaf.type == DataType::kBF16) {
      widen_strip(reinterpret_cast<const uint16_t*>(parts[index]) + first, leaf.step, count, strips[index]);
    } else if (leaf.type == DataType::kE4M3) {
      widen_strip(reinterpret_cast<const E4M3*>(parts[index]) + first, leaf.step, count, strips[index]);
    } else if (leaf.type == DataType::kE5M2) {
      widen_strip(reinterpret_cast<const E5M2*>(parts[index]) + first, leaf.step, count, strips[index]);
    } else if (leaf.in_page || leaf.step == 0) {
      widen_strip(reinterpret_cast<const float*>(parts[index]) + first, leaf.step, count, strips[index]);
    } else {
      values[index] = reinterpret_cast<const float*>(parts[index]) + first;
      return;
    }
    values[index] = strips[index];
  }
  FloatVector reduce_row(const FusedReduction& fused, int row, int64_t used) {
    FloatVector sums[kStripVectors];
    for (FloatVector& sum : sums) sum = R::identity();
    const float* root = nullptr;
    for (int64_t at = 0; at < used; at += kStrip) {
      const int64_t count = std::min(kStrip, used - at);
      for (size_t leaf = 0; leaf < fused.leaves.size(); ++leaf)
        read_leaf(fused.leaves[leaf], static_cast<int>(leaf), row, at, count);
      root = values[0];
      for (int s = 0; s < fused.expression.count; ++s) {
        const int result = Expression::kMostLeaves + s;
        run_step(fused.expression.steps[s], values, count, strips[result]);
        root = values[result] = strips[result];
      }
      int64_t i = 0;
      for (; (i + 1) * kLanes <= count; ++i) sums[i] = R::add(sums[i], load(root + i * kLanes));
      if (i * kLanes < count) {
        const auto exist = hn::FirstN(Floats(), static_cast<size_t>(count - i * kLanes));
        sums[i] = hn::IfThenElse(exist, R::add(sums[i], load(root + i * kLanes)), sums[i]);
      }
    }
    return R::combine(R::combine(sums[0], sums[1]), R::combine(sums[2], sums[3]));
  }
};

}  // namespace sluice::cpu::flows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
