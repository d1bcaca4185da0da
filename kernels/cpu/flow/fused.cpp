#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/flow/fused.cpp"
#include "kernels/cpu/simd/targets.h"
// Before any other header of Highway:
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/flow/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::flows::HWY_NAMESPACE {

inline constexpr int64_t kStripVectors = 4;
inline constexpr int64_t kStrip = kStripVectors * kLanes;
inline constexpr int kMostShared = 8;  // rows that are summed side by side
inline constexpr int kPagesAhead = 12;
inline constexpr int64_t kMostPrefetched = 512;  // bytes; hardware goes on from there

HWY_INLINE FloatVector load_stored(const float* source) { return load(source); }
HWY_INLINE FloatVector load_stored(const uint16_t* source) {
  const hn::Rebind<uint16_t, Floats> d16;
  const hn::RebindToUnsigned<Floats> d32;
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, source))));
}
/// The first `count` numbers, then zeros; reads nothing behind them.
template <class T>
HWY_INLINE FloatVector load_first(const T* source, int64_t count) {
  HWY_ALIGN T numbers[kLanes] = {};
  std::memcpy(numbers, source, static_cast<size_t>(std::min(count, kLanes)) * sizeof(T));
  return load_stored(numbers);
}

/// The run of a fused reduction, page after page.
struct FusedRun {
  const FusedReduction& fused;
  std::span<const LeafSource> sources;
  const PageRun& run;

  HWY_INLINE const std::byte* page_of(int leaf, int page) const {
    const int64_t index = fused.leaves[leaf].in_page ? run.pages[page] : page;
    return sources[leaf].base + static_cast<size_t>(index) * sources[leaf].page_step;
  }
  /// Pages lie anywhere in the pool, where hardware does not foresee them.
  HWY_INLINE void prefetch(int page) const {
    if (page + kPagesAhead >= static_cast<int>(run.pages.size())) return;
    for (int leaf = 0; leaf < static_cast<int>(fused.leaves.size()); ++leaf) {
      if (!fused.leaves[leaf].in_page) continue;
      const std::byte* part = page_of(leaf, page + kPagesAhead);
      const int64_t bytes = std::min(fused.leaves[leaf].bytes, kMostPrefetched);
      for (int64_t at = 0; at < bytes; at += 64) hwy::Prefetch(part + at);
    }
  }
};

/// Results in order: the lanes of kLanes rows are combined together.
template <class R>
struct RowSink {
  float* out;
  FloatVector lanes[kLanes + kMostShared];
  int64_t filled = 0;

  HWY_INLINE explicit RowSink(float* target) : out(target) {}

  /// Where the next rows, at most kMostShared, are to be written before `take`.
  HWY_INLINE FloatVector* next() { return lanes + filled; }
  HWY_INLINE void take(int64_t rows) {
    filled += rows;
    while (filled >= kLanes) {
      store(combine_lanes<R>(lanes), out);
      out += kLanes;
      filled -= kLanes;
      for (int64_t i = 0; i < filled; ++i) lanes[i] = lanes[kLanes + i];
    }
  }
  HWY_INLINE void flush() {
    if (filled == 0) return;
    for (int64_t i = filled; i < kLanes; ++i) lanes[i] = R::identity();
    store_up_to(combine_lanes<R>(lanes), filled, out);
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

template <class R>  // NOLINTNEXTLINE(readability-non-const-parameter): the sink writes there
void reduce_general(const FusedRun& all, int64_t used, float* out) {
  RowSink<R> sink(out);
  StripLoop<R> loop;
  for (int page = 0; page < all.run.count; ++page) {
    all.prefetch(page);
    loop.enter_page(all, page);
    for (int row = 0; row < all.fused.rows; ++row) {
      *sink.next() = loop.reduce_row(all.fused, row, used);
      sink.take(1);
    }
  }
  sink.flush();
}

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

template <FusedForm kForm, class T>
void reduce_products(const FusedRun& all, int64_t used, float* out) {
  const FusedReduction& fused = all.fused;
  const int last = kForm == FusedForm::kDot ? 1 : 2;
  RowSink<SumOf> sink(out);
  StripLoop<SumOf> loop;
  for (int page = 0; page < all.run.count; ++page) {
    all.prefetch(page);
    const auto* x = reinterpret_cast<const float*>(all.page_of(0, page));
    const auto* y = reinterpret_cast<const T*>(all.page_of(1, page));
    const auto* z = reinterpret_cast<const T*>(all.page_of(last, page));
    for (int row = 0; row < fused.rows;) {
      const int count = std::min(kMostShared, fused.shared_rows - row % fused.shared_rows);
      const int32_t shared = fused.leaves[1].rows[row];
      FloatVector* sums = sink.next();
      if (!sum_block<kForm>(count, x, &fused.leaves[0].rows[row], y + shared, z + shared, used, sums)) {
        loop.enter_page(all, page);
        for (int i = 0; i < count; ++i) sums[i] = loop.reduce_row(fused, row + i, used);
      }
      sink.take(count);
      row += count;
    }
  }
  sink.flush();
}

bool is_finite(const float* x, const Leaf& leaf, int64_t used) {
  for (const int32_t row : leaf.rows) {
    for (int64_t i = 0; i < used; i += kLanes) {
      const FloatVector numbers = load_first(x + row + i, std::min(kLanes, used - i));
      if (!hn::AllTrue(Floats(), hn::IsFinite(numbers))) return false;
    }
  }
  return true;
}

template <FusedForm kForm>
void reduce_form(const FusedRun& all, int64_t used, float* out) {
  const auto* x = reinterpret_cast<const float*>(all.sources[0].base);
  if (kForm != FusedForm::kDot && !is_finite(x, all.fused.leaves[0], used)) return reduce_general<SumOf>(all, used, out);
  if (all.fused.leaves[1].type == DataType::kBF16) return reduce_products<kForm, uint16_t>(all, used, out);
  reduce_products<kForm, float>(all, used, out);
}

void reduce_by(const FusedRun& all, int64_t used, float* out) {
  switch (all.fused.form) {
    case FusedForm::kDot:
      return reduce_form<FusedForm::kDot>(all, used, out);
    case FusedForm::kUpper:
      return reduce_form<FusedForm::kUpper>(all, used, out);
    case FusedForm::kLower:
      return reduce_form<FusedForm::kLower>(all, used, out);
    case FusedForm::kGeneral:
      break;
  }
  switch (all.fused.reduction) {
    case Reduction::kMax:
      return reduce_general<MaxOf>(all, used, out);
    case Reduction::kMin:
      return reduce_general<MinOf>(all, used, out);
    case Reduction::kL2Norm:
      return reduce_general<SumOfSquares>(all, used, out);
    case Reduction::kMean:
    case Reduction::kSum:
      return reduce_general<SumOf>(all, used, out);
  }
}

void FusedKernel(const FusedReduction& fused, std::span<const LeafSource> sources, const PageRun& run, int64_t used, float* out) {
  reduce_by(FusedRun{fused, sources, run}, used, out);
  finish(fused.reduction, used, int64_t{run.count} * fused.rows, out);
}

}  // namespace sluice::cpu::flows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu::flows {

HWY_EXPORT(FusedKernel);

void reduce_fused(const FusedReduction& fused, std::span<const LeafSource> sources, const PageRun& run, int64_t used,
                  float* out) {
  HWY_DYNAMIC_DISPATCH(FusedKernel)(fused, sources, run, used, out);
}

}  // namespace sluice::cpu::flows
#endif
