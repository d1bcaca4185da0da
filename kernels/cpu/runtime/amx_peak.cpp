#include "kernels/cpu/simd/amx.h"
#include "kernels/cpu/simd/amx_tiles.h"

#if SLUICE_HAS_AMX

namespace sluice::cpu {
namespace {

SLUICE_AMX void multiply_rounds(int64_t rounds) {
  const amx::TileSession session;
  // Small numbers rather than zeros: the clock may depend on what the multipliers see.
  alignas(64) uint16_t numbers[amx::kTileBytes / sizeof(uint16_t)];
  for (uint16_t& number : numbers) number = 0x3c10;
  asm volatile("" ::"r"(numbers) : "memory");
  _tile_loadd(6, numbers, 64);
  _tile_loadd(7, numbers, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
}

}  // namespace

double amx_multiply_rounds(int64_t rounds) {
  constexpr int kChains = 6;  // more than latency times throughput
  multiply_rounds(rounds);
  return 2.0 * kChains * amx::kTileRows * amx::kTileDepth * 16;
}

}  // namespace sluice::cpu

#else

namespace sluice::cpu {

double amx_multiply_rounds(int64_t) { throw InternalError("AMX was called on a processor without it"); }

}  // namespace sluice::cpu
#endif
