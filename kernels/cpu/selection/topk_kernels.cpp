#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/selection/topk_kernels.cpp"
#include "kernels/cpu/simd/targets.h"
// Before any other header of Highway:
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <bit>

#include "kernels/cpu/selection/topk.h"
#include "kernels/cpu/selection/topk_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Keys = hn::ScalableTag<uint32_t>;
inline constexpr int kKeyLanes = HWY_LANES(uint32_t);

void OrderKeysKernel(const float* scores, int count, uint32_t* keys) {
  const Keys d;
  const hn::RebindToFloat<Keys> df;
  const hn::RebindToSigned<Keys> di;
  int i = 0;
  for (; i + kKeyLanes <= count; i += kKeyLanes) {
    const auto score = hn::LoadU(df, scores + i);
    const auto bits = hn::BitCast(d, hn::Add(score, hn::Zero(df)));  // -0 + 0 is +0
    const auto sign = hn::BitCast(d, hn::ShiftRight<31>(hn::BitCast(di, bits)));
    const auto key = hn::Xor(bits, hn::Or(sign, hn::Set(d, 0x80000000U)));
    hn::StoreU(hn::IfThenElseZero(hn::RebindMask(d, hn::Eq(score, score)), key), d, keys + i);
  }
  for (; i < count; ++i) keys[i] = order_key(std::bit_cast<uint32_t>(scores[i]));
}

int KeepMatchingKernel(const uint32_t* keys, int count, uint32_t mask, uint32_t prefix, uint32_t* kept) {
  const Keys d;
  int n = 0;
  int i = 0;
  for (; i + kKeyLanes <= count; i += kKeyLanes) {
    const auto key = hn::LoadU(d, keys + i);
    const auto matches = hn::Eq(hn::And(key, hn::Set(d, mask)), hn::Set(d, prefix));
    n += static_cast<int>(hn::CompressStore(key, matches, d, kept + n));
  }
  for (; i < count; ++i) {
    if ((keys[i] & mask) == prefix) kept[n++] = keys[i];
  }
  return n;
}

int EmitAboveKernel(const uint32_t* keys, int count, uint32_t cut, int ties, int32_t first, int32_t* selected) {
  const Keys d;
  const hn::RebindToSigned<Keys> di;
  int n = 0;
  int i = 0;
  for (; i + kKeyLanes <= count; i += kKeyLanes) {
    const auto key = hn::LoadU(d, keys + i);
    auto taken = hn::Gt(key, hn::Set(d, cut));
    if (ties > 0) {
      const auto equal = hn::Eq(key, hn::Set(d, cut));
      const int found = static_cast<int>(hn::CountTrue(d, equal));
      if (found > ties) break;  // the last tie lies inside this vector
      taken = hn::Or(taken, equal);
      ties -= found;
    }
    if (hn::AllFalse(d, taken)) continue;
    const auto index = hn::Iota(di, first + i);
    n += static_cast<int>(hn::CompressStore(index, hn::RebindMask(di, taken), di, selected + n));
  }
  for (; i < count; ++i) {
    if (keys[i] > cut || (keys[i] == cut && ties-- > 0)) selected[n++] = first + i;
  }
  return n;
}

int FindEqualKernel(const uint32_t* keys, int count, uint32_t key, int32_t* places) {
  const Keys d;
  const hn::RebindToSigned<Keys> di;
  int n = 0;
  int i = 0;
  for (; i + kKeyLanes <= count; i += kKeyLanes) {
    const auto found = hn::Eq(hn::LoadU(d, keys + i), hn::Set(d, key));
    n += static_cast<int>(hn::CompressStore(hn::Iota(di, i), hn::RebindMask(di, found), di, places + n));
  }
  for (; i < count; ++i) {
    if (keys[i] == key) places[n++] = i;
  }
  return n;
}

int KeepAtLeastKernel(const float* scores, int count, float floor, float* kept, int32_t* places) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<Keys> di;
  int n = 0;
  int i = 0;
  for (; i + kKeyLanes <= count; i += kKeyLanes) {
    const auto score = hn::LoadU(df, scores + i);
    const auto enough = hn::Ge(score, hn::Set(df, floor));
    hn::CompressStore(score, enough, df, kept + n);
    n += static_cast<int>(hn::CompressStore(hn::Iota(di, i), hn::RebindMask(di, enough), di, places + n));
  }
  for (; i < count; ++i) {
    if (!(scores[i] >= floor)) continue;
    kept[n] = scores[i];
    places[n++] = i;
  }
  return n;
}

void MapToBinsKernel(const float* scores, int count, float low, float scale, int most, uint32_t* bins) {
  const Keys d;
  const hn::RebindToFloat<Keys> df;
  const hn::RebindToSigned<Keys> di;
  const auto largest = hn::Set(df, static_cast<float>(most));
  int i = 0;
  // Subtraction, product, clamp and truncation each keep the order, so the whole does.
  for (; i + kKeyLanes <= count; i += kKeyLanes) {
    const auto score = hn::LoadU(df, scores + i);
    const auto place = hn::Mul(hn::Sub(score, hn::Set(df, low)), hn::Set(df, scale));
    const auto inside = hn::Min(hn::Max(place, hn::Zero(df)), largest);
    const auto bin = hn::Add(hn::ConvertTo(di, inside), hn::Set(di, 1));
    hn::StoreU(hn::IfThenElseZero(hn::RebindMask(d, hn::Eq(score, score)), hn::BitCast(d, bin)), d, bins + i);
  }
  for (; i < count; ++i) {
    const float inside = std::min(std::max((scores[i] - low) * scale, 0.0F), static_cast<float>(most));
    bins[i] = scores[i] == scores[i] ? 1 + static_cast<uint32_t>(inside) : 0;
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(OrderKeysKernel);
HWY_EXPORT(KeepMatchingKernel);
HWY_EXPORT(EmitAboveKernel);
HWY_EXPORT(FindEqualKernel);
HWY_EXPORT(KeepAtLeastKernel);
HWY_EXPORT(MapToBinsKernel);

void order_keys(const float* scores, int count, uint32_t* keys) { HWY_DYNAMIC_DISPATCH(OrderKeysKernel)(scores, count, keys); }
int keep_matching(const uint32_t* keys, int count, uint32_t mask, uint32_t prefix, uint32_t* kept) {
  return HWY_DYNAMIC_DISPATCH(KeepMatchingKernel)(keys, count, mask, prefix, kept);
}
int emit_above(const uint32_t* keys, int count, uint32_t cut, int ties, int32_t first, int32_t* selected) {
  return HWY_DYNAMIC_DISPATCH(EmitAboveKernel)(keys, count, cut, ties, first, selected);
}
int find_equal(const uint32_t* keys, int count, uint32_t key, int32_t* places) {
  return HWY_DYNAMIC_DISPATCH(FindEqualKernel)(keys, count, key, places);
}
int keep_at_least(const float* scores, int count, float floor, float* kept, int32_t* places) {
  return HWY_DYNAMIC_DISPATCH(KeepAtLeastKernel)(scores, count, floor, kept, places);
}
void map_to_bins(const float* scores, int count, float low, float scale, int most, uint32_t* bins) {
  HWY_DYNAMIC_DISPATCH(MapToBinsKernel)(scores, count, low, scale, most, bins);
}

}  // namespace sluice::cpu
#endif
