#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/flow/elementwise.cpp"
#include "kernels/cpu/simd/targets.h"
// Before any other header of Highway:
#include <hwy/foreach_target.h>

#include "kernels/cpu/flow/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::flows::HWY_NAMESPACE {

/// How an operand advances in the innermost loop.
enum class Step : uint8_t { kScalar, kDense, kStrided };

template <Step kStep>
struct Reader {
  const float* base;
  int64_t stride;

  HWY_INLINE FloatVector at(int64_t i, int64_t left) const {
    if constexpr (kStep == Step::kDense) return load(base + i);
    if constexpr (kStep == Step::kScalar) return hn::Set(Floats(), *base);
    return load_strided(base + i * stride, stride, left);
  }
};

template <class F, Step kA, Step kB>
struct BinaryLoop {
  const float* a;
  const float* b;
  float* out;
  int64_t a_step;
  int64_t b_step;

  HWY_INLINE void operator()(const int64_t* offsets, int64_t at, int64_t n) const {
    const Reader<kA> x{a + offsets[0], a_step};
    const Reader<kB> y{b + offsets[1], b_step};
    float* result = out + at;
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(F::of(x.at(i, kLanes), y.at(i, kLanes)), result + i);
    if (i < n) store_first(F::of(x.at(i, n - i), y.at(i, n - i)), n - i, result + i);
  }
};

template <class F>  // NOLINTNEXTLINE(readability-non-const-parameter): the loops write there
void binary_of(const LoopNest& nest, int64_t pages, const float* a, const float* b, float* out) {
  const int64_t a_step = nest.stride[0][nest.rank - 1];
  const int64_t b_step = nest.stride[1][nest.rank - 1];
  if (a_step == 1 && b_step == 1) {
    walk<2>(nest, pages, BinaryLoop<F, Step::kDense, Step::kDense>{a, b, out, a_step, b_step});
  } else if (a_step == 1 && b_step == 0) {
    walk<2>(nest, pages, BinaryLoop<F, Step::kDense, Step::kScalar>{a, b, out, a_step, b_step});
  } else if (a_step == 0 && b_step == 1) {
    walk<2>(nest, pages, BinaryLoop<F, Step::kScalar, Step::kDense>{a, b, out, a_step, b_step});
  } else {
    walk<2>(nest, pages, BinaryLoop<F, Step::kStrided, Step::kStrided>{a, b, out, a_step, b_step});
  }
}

void BinaryKernel(Op op, const LoopNest& nest, int64_t pages, const float* a, const float* b, float* out) {
  switch (op) {
    case Op::kAdd:
      return binary_of<AddOf>(nest, pages, a, b, out);
    case Op::kSub:
      return binary_of<SubOf>(nest, pages, a, b, out);
    case Op::kMul:
    case Op::kKron:
      return binary_of<MulOf>(nest, pages, a, b, out);
    case Op::kDiv:
      return binary_of<DivOf>(nest, pages, a, b, out);
    case Op::kMaximum:
      return binary_of<MaximumOf>(nest, pages, a, b, out);
    case Op::kMinimum:
      return binary_of<MinimumOf>(nest, pages, a, b, out);
    default:
      throw InternalError("binary kernel: not a binary operator");
  }
}

template <class F>
void unary_of(const float* x, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(F::of(load(x + i)), out + i);
  if (i < count) store_first(F::of(load(x + i)), count - i, out + i);
}

void UnaryKernel(Op op, const float* x, int64_t count, float* out) {
  switch (op) {
    case Op::kRelu:
      return unary_of<ReluOf>(x, count, out);
    case Op::kSigmoid:
      return unary_of<SigmoidOf>(x, count, out);
    case Op::kSilu:
      return unary_of<SiluOf>(x, count, out);
    case Op::kExp:
      return unary_of<ExpOf>(x, count, out);
    case Op::kLog:
      return unary_of<LogOf>(x, count, out);
    case Op::kAbs:
      return unary_of<AbsOf>(x, count, out);
    case Op::kSqrt:
      return unary_of<SqrtOf>(x, count, out);
    default:
      throw InternalError("unary kernel: not a unary operator");
  }
}

struct WhereLoop {
  Compare compare;
  std::array<const float*, 4> inputs;
  std::array<int64_t, 4> step;
  float* out;

  HWY_INLINE FloatVector operand(int o, const int64_t* offsets, int64_t i, int64_t n) const {
    return load_strided(inputs[o] + offsets[o] + i * step[o], step[o], n - i);
  }
  HWY_INLINE void operator()(const int64_t* offsets, int64_t at, int64_t n) const {
    for (int64_t i = 0; i < n; i += kLanes) {
      const auto condition = holds(compare, operand(0, offsets, i, n), operand(1, offsets, i, n));
      store_up_to(hn::IfThenElse(condition, operand(2, offsets, i, n), operand(3, offsets, i, n)), n - i, out + at + i);
    }
  }
};

// NOLINTNEXTLINE(readability-non-const-parameter): the loop writes there
void WhereKernel(Compare compare, const LoopNest& nest, int64_t pages, const std::array<const float*, 4>& inputs, float* out) {
  WhereLoop loop{compare, inputs, {}, out};
  for (int o = 0; o < 4; ++o) loop.step[o] = nest.stride[o][nest.rank - 1];
  walk<4>(nest, pages, loop);
}

struct CopyLoop {
  const float* x;
  float* out;
  int64_t step;

  HWY_INLINE void operator()(const int64_t* offsets, int64_t at, int64_t n) const {
    for (int64_t i = 0; i < n; i += kLanes) {
      store_up_to(load_strided(x + offsets[0] + i * step, step, n - i), n - i, out + at + i);
    }
  }
};

void CopyKernel(const LoopNest& nest, int64_t pages, const float* x, float* out) {
  walk<1>(nest, pages, CopyLoop{x, out, nest.stride[0][nest.rank - 1]});
}

}  // namespace sluice::cpu::flows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu::flows {

HWY_EXPORT(BinaryKernel);
HWY_EXPORT(UnaryKernel);
HWY_EXPORT(WhereKernel);
HWY_EXPORT(CopyKernel);

void binary(Op op, const LoopNest& nest, int64_t pages, const float* a, const float* b, float* out) {
  HWY_DYNAMIC_DISPATCH(BinaryKernel)(op, nest, pages, a, b, out);
}
void unary(Op op, const float* x, int64_t count, float* out) { HWY_DYNAMIC_DISPATCH(UnaryKernel)(op, x, count, out); }
void where(Compare compare, const LoopNest& nest, int64_t pages, const std::array<const float*, 4>& inputs, float* out) {
  HWY_DYNAMIC_DISPATCH(WhereKernel)(compare, nest, pages, inputs, out);
}
void copy_strided(const LoopNest& nest, int64_t pages, const float* x, float* out) {
  HWY_DYNAMIC_DISPATCH(CopyKernel)(nest, pages, x, out);
}

}  // namespace sluice::cpu::flows
#endif
