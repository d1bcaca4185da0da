#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/flow/reduce.cpp"
#include "kernels/cpu/simd/targets.h"
// Before any other header of Highway:
#include <hwy/foreach_target.h>

#include <cmath>

#include "kernels/cpu/flow/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::flows::HWY_NAMESPACE {

/// Rows of consecutive numbers, long enough for whole vectors.
template <class R>
void reduce_long_rows(const float* x, int64_t rows, int64_t row_step, int64_t used, float* out) {
  FloatVector lanes[kLanes];
  for (int64_t row = 0; row < rows; row += kLanes) {
    const int64_t count = rows - row < kLanes ? rows - row : kLanes;
    if (count == 1) {
      out[row] = combine_one<R>(accumulate<R>(x + row * row_step, used));
      continue;
    }
    for (int64_t i = 0; i < kLanes; ++i) {
      lanes[i] = i < count ? accumulate<R>(x + (row + i) * row_step, used) : R::identity();
    }
    store_up_to(combine_lanes<R>(lanes), count, out + row);
  }
}

/// Rows shorter than a vector: one lane a row.
template <class R>
void reduce_short_rows(const float* x, int64_t rows, int64_t row_step, int64_t used, float* out) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const auto row_index = hn::Iota(di, 0);
  for (int64_t row = 0; row < rows; row += kLanes) {
    const int64_t count = rows - row < kLanes ? rows - row : kLanes;
    const auto inside = hn::Min(row_index, hn::Set(di, static_cast<int32_t>(count - 1)));
    const auto index = hn::Mul(inside, hn::Set(di, static_cast<int32_t>(row_step)));
    FloatVector lanes = R::identity();
    for (int64_t j = 0; j < used; ++j) lanes = R::add(lanes, hn::GatherIndex(d, x + row * row_step + j, index));
    store_up_to(lanes, count, out + row);
  }
}

/// Neighbouring columns in the lanes of a vector.
template <class R>
void reduce_columns(const float* x, const AxisView& view, float* out) {
  for (int64_t o = 0; o < view.outer; ++o) {
    const float* block = x + o * view.extent * view.inner;
    float* result = out + o * view.inner;
    int64_t column = 0;
    for (; column + 2 * kLanes <= view.inner; column += 2 * kLanes) {
      FloatVector first = R::identity();
      FloatVector second = R::identity();
      for (int64_t j = 0; j < view.used; ++j) {
        first = R::add(first, load(block + j * view.inner + column));
        second = R::add(second, load(block + j * view.inner + column + kLanes));
      }
      store(first, result + column);
      store(second, result + column + kLanes);
    }
    for (; column < view.inner; column += kLanes) {
      FloatVector lanes = R::identity();
      for (int64_t j = 0; j < view.used; ++j) lanes = R::add(lanes, load(block + j * view.inner + column));
      store_up_to(lanes, view.inner - column, result + column);
    }
  }
}

template <class R>
void reduce_by(const AxisView& view, const float* x, float* out) {
  if (view.inner > 1) return reduce_columns<R>(x, view, out);
  if (view.used >= kLanes) return reduce_long_rows<R>(x, view.outer, view.extent, view.used, out);
  reduce_short_rows<R>(x, view.outer, view.extent, view.used, out);
}

void ReduceKernel(Reduction reduction, const AxisView& view, const float* x, float* out) {
  switch (reduction) {
    case Reduction::kMean:
      reduce_by<SumOf>(view, x, out);
      break;
    case Reduction::kMax:
      reduce_by<MaxOf>(view, x, out);
      break;
    case Reduction::kMin:
      reduce_by<MinOf>(view, x, out);
      break;
    case Reduction::kL2Norm:
      reduce_by<SumOfSquares>(view, x, out);
      break;
    case Reduction::kSum:
      reduce_by<SumOf>(view, x, out);
      break;
  }
  finish(reduction, view.used, view.outer * view.inner, out);
}

/// Sums along an axis where both operands are consecutive: kLanes dot products at a time share one combination of lanes.
struct DotLoop {
  const float* a;
  const float* b;
  float* out;
  int64_t a_row;
  int64_t b_row;
  int64_t used;
  FloatVector lanes[kLanes] = {};
  int64_t filled = 0;

  HWY_INLINE FloatVector products(const float* x, const float* y) const {
    FloatVector first = hn::Zero(Floats());
    FloatVector second = hn::Zero(Floats());
    int64_t j = 0;
    for (; j + 2 * kLanes <= used; j += 2 * kLanes) {
      first = hn::MulAdd(load(x + j), load(y + j), first);
      second = hn::MulAdd(load(x + j + kLanes), load(y + j + kLanes), second);
    }
    for (; j < used; j += kLanes) {
      const auto exist = hn::FirstN(Floats(), static_cast<size_t>(used - j));
      first = hn::IfThenElse(exist, hn::MulAdd(load(x + j), load(y + j), first), first);
    }
    return hn::Add(first, second);
  }
  HWY_INLINE void operator()(const int64_t* offsets, int64_t at, int64_t n) {
    const float* x = a + offsets[0];
    const float* y = b + offsets[1];
    int64_t i = 0;
    if (b_row == 0 && kLanes >= 4 && filled % 4 == 0) {
      for (; i + 4 <= n; i += 4) {
        four_products(x + i * a_row, y);
        if (filled == kLanes) flush();
      }
    }
    for (; i < n; ++i) {
      lanes[filled++] = products(x + i * a_row, y + i * b_row);
      if (filled == kLanes) flush();
    }
  }
  /// Four rows of a against one of b, such as the heads of a query against a page: each vector of b is read once.
  HWY_INLINE void four_products(const float* x, const float* y) {
    FloatVector sums[4] = {hn::Zero(Floats()), hn::Zero(Floats()), hn::Zero(Floats()), hn::Zero(Floats())};
    int64_t j = 0;
    for (; j + kLanes <= used; j += kLanes) {
      const FloatVector shared = load(y + j);
      for (int row = 0; row < 4; ++row) sums[row] = hn::MulAdd(load(x + row * a_row + j), shared, sums[row]);
    }
    if (j < used) {
      const auto exist = hn::FirstN(Floats(), static_cast<size_t>(used - j));
      const FloatVector shared = load(y + j);
      for (int row = 0; row < 4; ++row) {
        sums[row] = hn::IfThenElse(exist, hn::MulAdd(load(x + row * a_row + j), shared, sums[row]), sums[row]);
      }
    }
    for (int row = 0; row < 4; ++row) lanes[filled++] = sums[row];
  }
  /// Results come in order, so the lanes may span several runs of the inner loop.
  HWY_INLINE void flush() {
    if (filled == 0) return;
    const int64_t count = filled;
    for (; filled < kLanes; ++filled) lanes[filled] = hn::Zero(Floats());
    store_up_to(combine_lanes<SumOf>(lanes), count, out);
    out += count;
    filled = 0;
  }
};

/// Sums along an axis with results in the lanes.
struct SumProductLoop {
  const float* a;
  const float* b;
  float* out;
  int64_t a_lane;
  int64_t b_lane;
  int64_t a_step;
  int64_t b_step;
  int64_t used;

  HWY_INLINE void operator()(const int64_t* offsets, int64_t at, int64_t n) const {
    for (int64_t i = 0; i < n; i += kLanes) {
      const float* x = a + offsets[0] + i * a_lane;
      const float* y = b + offsets[1] + i * b_lane;
      FloatVector sum = hn::Zero(Floats());
      for (int64_t j = 0; j < used; ++j) {
        sum = hn::MulAdd(load_strided(x + j * a_step, a_lane, n - i), load_strided(y + j * b_step, b_lane, n - i), sum);
      }
      store_up_to(sum, n - i, out + at + i);
    }
  }
};

void ContractKernel(const LoopNest& nest, int64_t pages, int64_t used, int64_t a_step, int64_t b_step, const float* a,
                    const float* b, float* out) {
  const int last = nest.rank - 1;
  const int64_t a_lane = nest.stride[0][last];
  const int64_t b_lane = nest.stride[1][last];
  if (a_step == 1 && b_step == 1) {
    DotLoop dots{a, b, out, a_lane, b_lane, used};
    walk<2>(nest, pages, dots);
    dots.flush();
  } else {
    walk<2>(nest, pages, SumProductLoop{a, b, out, a_lane, b_lane, a_step, b_step, used});
  }
}

}  // namespace sluice::cpu::flows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu::flows {

HWY_EXPORT(ReduceKernel);
HWY_EXPORT(ContractKernel);

void reduce(Reduction reduction, const AxisView& view, const float* x, float* out) {
  HWY_DYNAMIC_DISPATCH(ReduceKernel)(reduction, view, x, out);
}
void contract(const LoopNest& nest, int64_t pages, int64_t used, int64_t a_step, int64_t b_step, const float* a, const float* b,
              float* out) {
  HWY_DYNAMIC_DISPATCH(ContractKernel)(nest, pages, used, a_step, b_step, a, b, out);
}

}  // namespace sluice::cpu::flows
#endif
