#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns of its own _mm512_undefined_ps (bug 105593) wherever the intrinsics are inlined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#define SLUICE_HAS_AMX 1
// Functions, not files, are compiled for AMX: inline functions of headers must stay runnable everywhere.
#define SLUICE_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")))
#endif

#if SLUICE_HAS_AMX
namespace sluice::cpu::amx {

inline constexpr int kTileBytes = 1024;  // 16 rows of 64 bytes: 16 x 32 bf16, or 16 x 16 float32
inline constexpr int kTileRows = 16;
inline constexpr int kTileDepth = 32;  // inputs that one instruction sums

/// What LDTILECFG reads (Intel SDM, vol. 1, ch. 18).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {kTileRows, kTileRows, kTileRows, kTileRows, kTileRows, kTileRows, kTileRows, kTileRows};
};
// Constant memory: GCC 12 tells the optimiser that LDTILECFG reads 8 of the 64 bytes only (bug 114098), so stores to the
// rest of a local one may be dropped.
inline constexpr TileConfig kTileConfig{};

/// All eight tiles as 16 rows of 64 bytes for the current thread; released when this goes away.
class TileSession {
 public:
  SLUICE_AMX TileSession() { _tile_loadconfig(&kTileConfig); }
  SLUICE_AMX ~TileSession() { _tile_release(); }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
};

/// Makes what this thread has written visible to the tile loads that follow: GCC 12 does not know that they read memory, and
/// may move a store past them.
inline void publish() { asm volatile("" ::: "memory"); }

/// Stores 32 numbers as two rows of bf16: the nearest bf16 and the nearest bf16 of what is left.
SLUICE_AMX inline void split_row(__m512 first, __m512 second, std::byte* high, std::byte* low) {
  const auto upper = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  const __m512 first_high = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(upper)), 16));
  const __m512 second_high =
      _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(upper, 1)), 16));
  const auto rest =
      reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_sub_ps(second, second_high), _mm512_sub_ps(first, first_high)));
  _mm512_storeu_si512(high, upper);
  _mm512_storeu_si512(low, rest);
}

}  // namespace sluice::cpu::amx
#endif
