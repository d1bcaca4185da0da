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
