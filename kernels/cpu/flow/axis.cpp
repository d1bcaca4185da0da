#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/flow/axis.cpp"
#include "kernels/cpu/simd/targets.h"
// Before any other header of Highway:
#include <hwy/foreach_target.h>

#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/flow/storage.h"
#include "kernels/cpu/flow/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::flows::HWY_NAMESPACE {

/// e^x for x <= 0 or NaN, as the softmax needs it.
HWY_INLINE FloatVector decay(FloatVector x) {
  const FloatVector power = hn::Exp(Floats(), hn::Max(x, hn::Set(Floats(), -104.0F)));
  return hn::IfThenElse(hn::Eq(x, x), power, x);
}

void softmax_row(const float* x, int64_t count, float* out) {
  const Floats d;
  const FloatVector largest = hn::Set(d, combine_one<MaxOf>(accumulate<MaxOf>(x, count)));
  FloatVector sums = hn::Zero(d);
  for (int64_t i = 0; i < count; i += kLanes) {
    const FloatVector power = decay(hn::Sub(load(x + i), largest));
    const auto exist = hn::FirstN(d, static_cast<size_t>(std::min(count - i, kLanes)));
    sums = hn::Add(sums, hn::IfThenElseZero(exist, power));
    store_up_to(power, count - i, out + i);
  }
  const FloatVector total = hn::Set(d, combine_one<SumOf>(sums));
  for (int64_t i = 0; i < count; i += kLanes) store_up_to(hn::Div(load(out + i), total), count - i, out + i);
}

void softmax_columns(const float* x, int64_t used, int64_t inner, float* out) {
  for (int64_t column = 0; column < inner; column += kLanes) {
    FloatVector largest = MaxOf::identity();
    for (int64_t j = 0; j < used; ++j) largest = maximum(largest, load(x + j * inner + column));
    FloatVector total = hn::Zero(Floats());
    for (int64_t j = 0; j < used; ++j) {
      const FloatVector power = decay(hn::Sub(load(x + j * inner + column), largest));
      total = hn::Add(total, power);
      store_up_to(power, inner - column, out + j * inner + column);
    }
    for (int64_t j = 0; j < used; ++j) {
      float* place = out + j * inner + column;
      store_up_to(hn::Div(load(place), total), inner - column, place);
    }
  }
}

void SoftmaxKernel(const AxisView& view, const float* x, float* out) {
  for (int64_t o = 0; o < view.outer; ++o) {
    const int64_t at = o * view.extent * view.inner;
    view.inner == 1 ? softmax_row(x + at, view.used, out + at) : softmax_columns(x + at, view.used, view.inner, out + at);
  }
}

void NormalizeKernel(const AxisView& view, const float* x, float* out) {
  for (int64_t o = 0; o < view.outer; ++o) {
    const float* block = x + o * view.extent * view.inner;
    float* result = out + o * view.extent * view.inner;
    if (view.inner == 1) {
      const FloatVector total = hn::Set(Floats(), combine_one<SumOf>(accumulate<SumOf>(block, view.used)));
      for (int64_t i = 0; i < view.used; i += kLanes) store_up_to(hn::Div(load(block + i), total), view.used - i, result + i);
      continue;
    }
    for (int64_t column = 0; column < view.inner; column += kLanes) {
      FloatVector total = hn::Zero(Floats());
      for (int64_t j = 0; j < view.used; ++j) total = hn::Add(total, load(block + j * view.inner + column));
      for (int64_t j = 0; j < view.used; ++j) {
        const int64_t at = j * view.inner + column;
        store_up_to(hn::Div(load(block + at), total), view.inner - column, result + at);
      }
    }
  }
}

void ConvolveKernel(const AxisView& view, std::span<const float> kernel, const float* x, float* out) {
  const int64_t count = view.used * view.inner;
  const int64_t half = static_cast<int64_t>(kernel.size()) / 2;
  for (int64_t o = 0; o < view.outer; ++o) {
    const float* block = x + o * view.extent * view.inner;
    float* result = out + o * view.extent * view.inner;
    std::fill(result, result + count, 0.0F);
    // One tap at a time: the axis flattened with what lies inside it is shifted by whole entries.
    for (int64_t tap = 0; tap < static_cast<int64_t>(kernel.size()); ++tap) {
      const int64_t shift = (tap - half) * view.inner;
      const int64_t end = std::min(count, count - shift);
      const FloatVector weight = hn::Set(Floats(), kernel[tap]);
      for (int64_t i = std::max<int64_t>(0, -shift); i < end; i += kLanes) {
        store_up_to(hn::MulAdd(weight, load(block + i + shift), load(result + i)), end - i, result + i);
      }
    }
  }
}

template <class T>
void widen_all(const std::byte* source, int64_t count, float* target) {
  const auto* numbers = reinterpret_cast<const T*>(source);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(load_stored(numbers + i), Floats(), target + i);
  if (i < count) store_up_to(load_first(numbers + i, count - i), count - i, target + i);
}

void WidenKernel(DataType type, const std::byte* source, int64_t count, float* target) {
  switch (type) {
    case DataType::kF32:
      return widen_all<float>(source, count, target);
    case DataType::kBF16:
      return widen_all<uint16_t>(source, count, target);
    case DataType::kE4M3:
      return widen_all<E4M3>(source, count, target);
    case DataType::kE5M2:
      return widen_all<E5M2>(source, count, target);
  }
}

}  // namespace sluice::cpu::flows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu::flows {

HWY_EXPORT(SoftmaxKernel);
HWY_EXPORT(NormalizeKernel);
HWY_EXPORT(ConvolveKernel);
HWY_EXPORT(WidenKernel);

void softmax(const AxisView& view, const float* x, float* out) { HWY_DYNAMIC_DISPATCH(SoftmaxKernel)(view, x, out); }
void normalize(const AxisView& view, const float* x, float* out) { HWY_DYNAMIC_DISPATCH(NormalizeKernel)(view, x, out); }
void convolve(const AxisView& view, std::span<const float> kernel, const float* x, float* out) {
  HWY_DYNAMIC_DISPATCH(ConvolveKernel)(view, kernel, x, out);
}

void widen(DataType type, const std::byte* source, int64_t count, float* target) {
  HWY_DYNAMIC_DISPATCH(WidenKernel)(type, source, count, target);
}

void narrow(DataType type, const float* source, int64_t count, std::byte* target) {
  switch (type) {
    case DataType::kF32:
      std::memcpy(target, source, static_cast<size_t>(count) * sizeof(float));
      return;
    case DataType::kBF16:
      for (int64_t i = 0; i < count; ++i) {
        const uint16_t bits = round_to_bf16(source[i]);
        std::memcpy(target + i * sizeof(bits), &bits, sizeof(bits));
      }
      return;
    case DataType::kE4M3:
    case DataType::kE5M2:
      for (int64_t i = 0; i < count; ++i) target[i] = std::byte{byte_from_float(type, source[i])};
      return;
  }
}

}  // namespace sluice::cpu::flows
#endif
