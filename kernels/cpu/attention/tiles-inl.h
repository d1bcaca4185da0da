// Products of queries and tokens a tile at a time, compiled once for each instruction set.

#if defined(SLUICE_KERNELS_CPU_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_KERNELS_CPU_ATTENTION_TILES_INL_H_
#undef SLUICE_KERNELS_CPU_ATTENTION_TILES_INL_H_
#else
#define SLUICE_KERNELS_CPU_ATTENTION_TILES_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/simd/bfloat16.h"
#include "kernels/cpu/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

constexpr int kColumns = kMostTileColumns;  // queries of a tile, (token, head) pairs, or tokens where these are the lanes
constexpr int kBlock = 128;                 // tokens of K and V at a time
constexpr int kRegisterRows = kLanes >= 16 ? 8 : 4;  // rows of an outer product that stay in registers
constexpr int kRegisterColumns = 2 * static_cast<int>(kLanes);

/// c[rows][kColumns] (+)= a * b: a(i, k) = a[i * row_step + k * column_step], b [depth][kColumns]; `rows` is a multiple of
/// kRegisterRows. `scale` [kColumns] multiplies c first; null: c starts from zero.
HWY_INLINE void outer_products(const float* a, int row_step, int column_step, const float* b, int rows, int depth,
                               const float* scale, float* c) {
  for (int column = 0; column < kColumns; column += kRegisterColumns) {
    for (int row = 0; row < rows; row += kRegisterRows) {
      VecF32 sums[kRegisterRows][2];
      float* to = c + row * kColumns + column;
      SLUICE_UNROLL for (int r = 0; r < kRegisterRows; ++r) {
        SLUICE_UNROLL for (int v = 0; v < 2; ++v) {
          const int at = v * static_cast<int>(kLanes);
          sums[r][v] = scale == nullptr ? hn::Zero(kF32)
                                        : hn::Mul(hn::Load(kF32, scale + column + at), hn::Load(kF32, to + r * kColumns + at));
        }
      }
      const float* left = a + row * row_step;
      const float* right = b + column;
      for (int k = 0; k < depth; ++k, left += column_step, right += kColumns) {
        const VecF32 first = hn::Load(kF32, right);
        const VecF32 second = hn::Load(kF32, right + kLanes);
        SLUICE_UNROLL for (int r = 0; r < kRegisterRows; ++r) {
          const VecF32 value = hn::Set(kF32, left[r * row_step]);
          sums[r][0] = hn::MulAdd(value, first, sums[r][0]);
          sums[r][1] = hn::MulAdd(value, second, sums[r][1]);
        }
      }
      SLUICE_UNROLL for (int r = 0; r < kRegisterRows; ++r) {
        hn::Store(sums[r][0], kF32, to + r * kColumns);
        hn::Store(sums[r][1], kF32, to + r * kColumns + kLanes);
      }
    }
  }
}

/// Widens `tokens` rows of a block; rows up to `padded` become zero.
inline void widen_rows(const KvPages& kv, const int32_t* pages, bool keys, int tokens, int padded, float* rows) {
  for (int t = 0; t < tokens; ++t, rows += kv.dim) {
    const int32_t page = pages[t / kv.page];
    const std::byte* block = keys ? kv.keys(page) : kv.values(page);
    const int64_t at = static_cast<int64_t>(t % kv.page) * kv.dim;
    if (kv.type == DataType::kBF16) {
      const auto* narrow = reinterpret_cast<const uint16_t*>(block) + at;
      for (int i = 0; i < kv.dim; ++i) rows[i] = widen(narrow[i]);
    } else {
      std::copy_n(reinterpret_cast<const float*>(block) + at, kv.dim, rows);
    }
  }
  std::fill(rows, rows + static_cast<int64_t>(padded - tokens) * kv.dim, 0.0f);
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
