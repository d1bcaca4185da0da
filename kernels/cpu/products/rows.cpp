#include "kernels/cpu/products/rows.h"

#include <cmath>

#include "kernels/cpu/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/products/rows.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kStep = static_cast<int64_t>(kLanes);

void rms_norm_any(const float* x, const float* gain, int64_t columns, float epsilon, float* out) {
  VecF32 squares = hn::Zero(kF32);
  int64_t i = 0;
  for (; i + kStep <= columns; i += kStep) {
    const VecF32 value = hn::LoadU(kF32, x + i);
    squares = hn::MulAdd(value, value, squares);
  }
  float sum = hn::GetLane(hn::SumOfLanes(kF32, squares));
  for (; i < columns; ++i) sum += x[i] * x[i];
  const float factor = 1.0f / std::sqrt(sum / static_cast<float>(columns) + epsilon);
  const VecF32 factors = hn::Set(kF32, factor);
  for (i = 0; i + kStep <= columns; i += kStep) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(kF32, x + i), factors), hn::LoadU(kF32, gain + i)), kF32, out + i);
  }
  for (; i < columns; ++i) out[i] = x[i] * factor * gain[i];
}

void add_any(float* x, const float* delta, int64_t columns) {
  int64_t i = 0;
  for (; i + kStep <= columns; i += kStep) {
    hn::StoreU(hn::Add(hn::LoadU(kF32, x + i), hn::LoadU(kF32, delta + i)), kF32, x + i);
  }
  for (; i < columns; ++i) x[i] += delta[i];
}

HWY_INLINE VecF32 silu_times(VecF32 gate, VecF32 up) {
  const VecF32 one = hn::Set(kF32, 1.0f);
  // exp(-gate), kept finite so that the quotient of a large negative gate is a small number and not 0/inf.
  const VecF32 power = exp2(hn::Min(hn::Set(kF32, 126.0f), hn::Mul(gate, hn::Set(kF32, -1.44269504f))));
  return hn::Mul(hn::Div(gate, hn::Add(one, power)), up);
}

void silu_multiply_any(const float* gate, const float* up, int64_t columns, float* out) {
  int64_t i = 0;
  for (; i + kStep <= columns; i += kStep) {
    hn::StoreU(silu_times(hn::LoadU(kF32, gate + i), hn::LoadU(kF32, up + i)), kF32, out + i);
  }
  if (i < columns) {
    HWY_ALIGN float rest[2 * kLanes] = {};
    for (int64_t j = i; j < columns; ++j) rest[j - i] = gate[j], rest[kStep + j - i] = up[j];
    hn::Store(silu_times(hn::Load(kF32, rest), hn::Load(kF32, rest + kLanes)), kF32, rest);
    for (int64_t j = i; j < columns; ++j) out[j] = rest[j - i];
  }
}

void rotate_any(float* x, const float* cosine, const float* sine, int64_t half) {
  int64_t i = 0;
  for (; i + kStep <= half; i += kStep) {
    const VecF32 a = hn::LoadU(kF32, x + i);
    const VecF32 b = hn::LoadU(kF32, x + half + i);
    const VecF32 c = hn::LoadU(kF32, cosine + i);
    const VecF32 s = hn::LoadU(kF32, sine + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), kF32, x + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), kF32, x + half + i);
  }
  for (; i < half; ++i) {
    const float a = x[i];
    const float b = x[half + i];
    x[i] = a * cosine[i] - b * sine[i];
    x[half + i] = b * cosine[i] + a * sine[i];
  }
}

}  // namespace
}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(rms_norm_any);
HWY_EXPORT(add_any);
HWY_EXPORT(silu_multiply_any);
HWY_EXPORT(rotate_any);

void rms_norm_row(const float* x, const float* gain, int64_t columns, float epsilon, float* out) {
  HWY_DYNAMIC_DISPATCH(rms_norm_any)(x, gain, columns, epsilon, out);
}

void add_row(float* x, const float* delta, int64_t columns) { HWY_DYNAMIC_DISPATCH(add_any)(x, delta, columns); }

void silu_multiply_row(const float* gate, const float* up, int64_t columns, float* out) {
  HWY_DYNAMIC_DISPATCH(silu_multiply_any)(gate, up, columns, out);
}

void rotate_row(float* x, const float* cosine, const float* sine, int64_t half) {
  HWY_DYNAMIC_DISPATCH(rotate_any)(x, cosine, sine, half);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
