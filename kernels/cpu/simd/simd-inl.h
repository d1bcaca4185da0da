// Vector helpers, compiled once for each instruction set: include after hwy/highway.h in files that use foreach_target.

#if defined(SLUICE_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_CPU_SIMD_INL_H_
#undef SLUICE_KERNELS_CPU_SIMD_INL_H_
#else
#define SLUICE_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

#ifdef __clang__
#define SLUICE_UNROLL _Pragma("unroll")
#else
#define SLUICE_UNROLL _Pragma("GCC unroll 32")
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VecF32 = hn::Vec<F32>;
inline constexpr F32 kF32{};
inline constexpr size_t kLanes = hn::MaxLanes(kF32);

/// Two vectors from 2 * kLanes stored numbers. bf16: the even-numbered ones, then the odd-numbered ones, which costs one
/// instruction each; f32: the first half, then the second.
HWY_INLINE void load_pair(const uint16_t* from, VecF32& first, VecF32& second) {
  const hn::RebindToUnsigned<F32> words;
#if HWY_TARGET == HWY_SCALAR
  first = hn::BitCast(kF32, hn::Set(words, uint32_t{from[0]} << 16));
  second = hn::BitCast(kF32, hn::Set(words, uint32_t{from[1]} << 16));
#else
  const auto bits = hn::BitCast(words, hn::LoadU(hn::ScalableTag<uint16_t>(), from));
  first = hn::BitCast(kF32, hn::ShiftLeft<16>(bits));
  second = hn::BitCast(kF32, hn::And(bits, hn::Set(words, 0xffff0000U)));
#endif
}

HWY_INLINE void load_pair(const float* from, VecF32& first, VecF32& second) {
  first = hn::LoadU(kF32, from);
  second = hn::LoadU(kF32, from + kLanes);
}

/// Where element `i` of a row lies once its pairs of vectors are laid out as `load_pair` gives them.
template <typename T>
HWY_INLINE constexpr size_t paired_position(size_t i) {
  if (sizeof(T) == sizeof(float)) return i;
  const size_t within = i % (2 * kLanes);
  return i - within + within / 2 + within % 2 * kLanes;
}

/// 2^x for x in [-inf, 127], relative error below 2e-7; under 2^-126 it gives about 2^-126, NaN stays NaN.
HWY_INLINE VecF32 exp2(VecF32 x) {
  // Max returns its second operand if either is NaN.
  x = hn::Max(hn::Set(kF32, -126.0f), x);
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const VecF32 magic = hn::Set(kF32, 12582912.0f);
  const VecF32 shifted = hn::Add(x, magic);
  const VecF32 part = hn::Sub(x, hn::Sub(shifted, magic));  // [-0.5, 0.5]
  // 2^part = 1 + part * p(part); p interpolates at the Chebyshev nodes, error 5e-9.
  VecF32 value = hn::Set(kF32, 1.545316294e-4f);
  value = hn::MulAdd(value, part, hn::Set(kF32, 1.339086336e-3f));
  value = hn::MulAdd(value, part, hn::Set(kF32, 9.618082557e-3f));
  value = hn::MulAdd(value, part, hn::Set(kF32, 5.550357114e-2f));
  value = hn::MulAdd(value, part, hn::Set(kF32, 2.402265076e-1f));
  value = hn::MulAdd(value, part, hn::Set(kF32, 6.931471880e-1f));
  value = hn::MulAdd(value, part, hn::Set(kF32, 1.0f));
  const hn::RebindToSigned<F32> integers;
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(integers, shifted));
  const VecF32 scaled = hn::BitCast(kF32, hn::Add(hn::BitCast(integers, value), exponent));
  return hn::IfThenElse(hn::IsNaN(x), x, scaled);
}

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE void store_four_sums(VecF32 a, VecF32 b, VecF32 c, VecF32 d, float* to) {
  hn::Store(a, kF32, to);
  hn::Store(b, kF32, to + 1);
  hn::Store(c, kF32, to + 2);
  hn::Store(d, kF32, to + 3);
}

#else

/// Sums over the 128-bit blocks of `v`.
template <class D, class V>
HWY_INLINE hn::Vec<hn::Full128<float> > sum_of_blocks(D d, V v) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// Stores the sums of the lanes of four vectors side by side.
HWY_INLINE void store_four_sums(VecF32 a, VecF32 b, VecF32 c, VecF32 d, float* to) {
  const VecF32 ab = hn::Add(hn::InterleaveLower(kF32, a, b), hn::InterleaveUpper(kF32, a, b));
  const VecF32 cd = hn::Add(hn::InterleaveLower(kF32, c, d), hn::InterleaveUpper(kF32, c, d));
  const hn::Repartition<double, F32> wide;
  const auto low = hn::InterleaveLower(wide, hn::BitCast(wide, ab), hn::BitCast(wide, cd));
  const auto high = hn::InterleaveUpper(wide, hn::BitCast(wide, ab), hn::BitCast(wide, cd));
  const VecF32 sums = hn::Add(hn::BitCast(kF32, low), hn::BitCast(kF32, high));
  hn::StoreU(sum_of_blocks(kF32, sums), hn::Full128<float>(), to);
}

#endif

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
