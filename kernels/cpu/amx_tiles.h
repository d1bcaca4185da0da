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

/// All eight tiles as 16 rows of 64 bytes for the current thread; released when this goes away.
class TileSession {
 public:
  SLUICE_AMX TileSession() {
    struct Config {
      uint8_t palette;
      uint8_t start_row;
      uint8_t reserved[14];
      uint16_t row_bytes[16];
      uint8_t rows[16];
    };
    alignas(64) Config config{};
    config.palette = 1;
    for (int tile = 0; tile < 8; ++tile) {
      config.row_bytes[tile] = 64;
      config.rows[tile] = kTileRows;
    }
    _tile_loadconfig(&config);
  }
  SLUICE_AMX ~TileSession() { _tile_release(); }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
};

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
