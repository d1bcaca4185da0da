#include "kernels/cpu/simd/amx.h"
#include "kernels/cpu/simd/amx_tiles.h"

#if SLUICE_HAS_AMX

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace sluice::cpu {
namespace {

using amx::kTileBytes;
using amx::kTileDepth;
using amx::kTileRows;

constexpr int64_t kPanel = CpuWeight::kPanel;
constexpr int kPanelStride = kPanel * 2 * sizeof(uint16_t);  // bytes from one pair of inputs to the next

bool has_instructions() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kAmxBf16 = 1U << 22, kAmxTile = 1U << 24;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bf16");
}

bool ask_permission() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// Two row groups of 16; for each block of 32 inputs the high and the low tile.
std::byte* split_tile(std::byte* scratch, int64_t block, int group, int half) {
  return scratch + ((block * 2 + group) * 2 + half) * kTileBytes;
}

SLUICE_AMX void split_rows(const Matrix& x, std::byte* scratch) {
  const int64_t blocks = (x.columns + kTileDepth - 1) / kTileDepth;
  // Rows past the last keep what was there: a tile's rows never mix, and theirs are not read back.
  for (int64_t row = 0; row < x.rows; ++row) {
    const int group = static_cast<int>(row / kTileRows);
    const int64_t line = row % kTileRows * 64;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t left = std::min<int64_t>(kTileDepth, x.columns - block * kTileDepth);
      const uint32_t mask = left >= 32 ? ~0U : (1U << left) - 1;
      const float* from = x.row(row) + block * kTileDepth;
      const __m512 first = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from);
      const __m512 second = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + 16);
      amx::split_row(first, second, split_tile(scratch, block, group, 0) + line, split_tile(scratch, block, group, 1) + line);
    }
  }
}

/// Asks for the weights that the loop reads a few blocks later: tile loads cover too little memory to hide its latency.
inline void prefetch_block(const std::byte* block) {
  constexpr int kAhead = 4 * kTileRows * kPanelStride;
  for (int line = 0; line < kTileRows * kPanelStride; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(block) + kAhead + line, _MM_HINT_T0);
  }
}

SLUICE_AMX void panel_product(const CpuWeight& weight, int64_t panel, const std::byte* split, const Matrix& out) {
  const std::byte* from = weight.panel(panel);
  const int64_t blocks = weight.padded_columns() / kTileDepth;
  const bool both = out.rows > kTileRows;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t block = 0; block < blocks; ++block) {
    const std::byte* rows = split + block * 4 * kTileBytes;
    prefetch_block(from);
    _tile_loadd(6, from, kPanelStride);
    _tile_loadd(7, from + 64, kPanelStride);
    _tile_loadd(4, rows, 64);
    _tile_loadd(5, rows + kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(0, 5, 6);
    _tile_dpbf16ps(1, 5, 7);
    if (both) {
      _tile_loadd(4, rows + 2 * kTileBytes, 64);
      _tile_loadd(5, rows + 3 * kTileBytes, 64);
      _tile_dpbf16ps(2, 4, 6);
      _tile_dpbf16ps(3, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    from += kTileRows * kPanelStride;
  }
  alignas(64) float sums[kAmxRows * kPanel];
  constexpr int kStride = kPanel * sizeof(float);
  _tile_stored(0, sums, kStride);
  _tile_stored(1, sums + 16, kStride);
  if (both) {
    _tile_stored(2, sums + kTileRows * kPanel, kStride);
    _tile_stored(3, sums + kTileRows * kPanel + 16, kStride);
  }
  const int64_t first = panel * kPanel;
  const int64_t outputs = std::min(kPanel, out.columns - first);
  for (int64_t row = 0; row < out.rows; ++row) {
    std::memcpy(out.row(row) + first, sums + row * kPanel, outputs * sizeof(float));
  }
}

SLUICE_AMX void panel_products(const CpuWeight& weight, int64_t first, int64_t last, const std::byte* split, const Matrix& out) {
  const amx::TileSession session;
  amx::publish();
  for (int64_t panel = first; panel < last; ++panel) panel_product(weight, panel, split, out);
}

}  // namespace

bool amx_available() {
  static const bool available = has_instructions() && ask_permission();
  return available;
}

size_t amx_matmul_scratch_bytes(int64_t columns) {
  return static_cast<size_t>((columns + kTileDepth - 1) / kTileDepth) * 4 * kTileBytes;
}

void amx_split_rows(const Matrix& x, std::byte* scratch) { split_rows(x, scratch); }

void amx_panel_products(const CpuWeight& weight, int64_t first, int64_t last, const std::byte* scratch, const Matrix& out) {
  panel_products(weight, first, last, scratch, out);
}

}  // namespace sluice::cpu

#else

namespace sluice::cpu {

bool amx_available() { return false; }
size_t amx_matmul_scratch_bytes(int64_t) { return 0; }
void amx_split_rows(const Matrix&, std::byte*) { throw InternalError("AMX was called on a processor without it"); }
void amx_panel_products(const CpuWeight&, int64_t, int64_t, const std::byte*, const Matrix&) {
  throw InternalError("AMX was called on a processor without it");
}

}  // namespace sluice::cpu
#endif
