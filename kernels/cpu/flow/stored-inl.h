// Vectors of numbers as pages store them, compiled once for each instruction set.

#if defined(SLUICE_KERNELS_CPU_FLOW_STORED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_CPU_FLOW_STORED_INL_H_
#undef SLUICE_KERNELS_CPU_FLOW_STORED_INL_H_
#else
#define SLUICE_KERNELS_CPU_FLOW_STORED_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "kernels/cpu/flow/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::flows::HWY_NAMESPACE {

/// Numbers of 8 bits (storage.h), by their codes.
struct E4M3 {
  uint8_t code = 0;
};
struct E5M2 {
  uint8_t code = 0;
};

/// Exponent and mantissa go where float32 has them, and a product makes up for the other bias, exactly, of numbers below the
/// least normal one, too.
template <int kMantissa, int kBias, int kFirstSpecial, bool kHasInfinity>
HWY_INLINE FloatVector widen_codes(const uint8_t* codes) {
  const hn::Rebind<uint8_t, Floats> d8;
  const hn::RebindToUnsigned<Floats> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d8, codes));
  const auto magnitude = hn::And(bits, hn::Set(d32, 0x7f));
  const auto scale = hn::BitCast(Floats(), hn::Set(d32, static_cast<uint32_t>(2 * 127 - kBias) << 23));
  const FloatVector finite = hn::Mul(hn::BitCast(Floats(), hn::ShiftLeft<23 - kMantissa>(magnitude)), scale);
  const auto is_special = hn::Gt(magnitude, hn::Set(d32, kFirstSpecial - 1));
  auto special = hn::Set(d32, 0x7fc00000U);  // NaN
  if constexpr (kHasInfinity)
    special = hn::IfThenElse(hn::Eq(magnitude, hn::Set(d32, kFirstSpecial)), hn::Set(d32, 0x7f800000U), special);
  const auto value = hn::IfThenElse(is_special, special, hn::BitCast(d32, finite));
  return hn::BitCast(Floats(), hn::Or(value, hn::ShiftLeft<24>(hn::And(bits, hn::Set(d32, 0x80)))));
}

HWY_INLINE FloatVector load_stored(const E4M3* source) {
  return widen_codes<3, 7, 0x7f, false>(reinterpret_cast<const uint8_t*>(source));
}
HWY_INLINE FloatVector load_stored(const E5M2* source) {
  return widen_codes<2, 15, 0x7c, true>(reinterpret_cast<const uint8_t*>(source));
}
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

}  // namespace sluice::cpu::flows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
