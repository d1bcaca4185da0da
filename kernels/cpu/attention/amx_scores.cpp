#include "kernels/cpu/simd/amx.h"
#include "kernels/cpu/simd/amx_tiles.h"

#if SLUICE_HAS_AMX

#include <array>

namespace sluice::cpu {
namespace {

using amx::kTileDepth;
using amx::kTileRows;

// Tile 0: scores of a group of tokens, a column for each head. 1 and 2: 32 channels of the keys of the group, straight from the
// page. 4 to 7: 32 channels of the query each, high and low; heads of 64 channels stay there from block to block. A row of a
// tile of keys is what the page holds, so K is neither copied nor transposed.
constexpr int kResidentRowBytes = 128;

constexpr amx::TileConfig make_config(int tokens, int heads) {
  amx::TileConfig config;
  for (int tile : {0, 4, 5, 6, 7}) config.row_bytes[tile] = static_cast<uint16_t>(heads * sizeof(float));
  for (int tile : {0, 1, 2}) config.rows[tile] = static_cast<uint8_t>(tokens);
  return config;
}

/// [groups of 8 or 16 tokens][1, 2 or 4 heads]
constexpr amx::TileConfig kConfigs[2][3] = {{make_config(8, 1), make_config(8, 2), make_config(8, 4)},
                                            {make_config(16, 1), make_config(16, 2), make_config(16, 4)}};

SLUICE_AMX void pack_query(const float* query, int heads, int padded, int dim, float factor, std::byte* packed) {
  const __m512 factors = _mm512_set1_ps(factor);
  alignas(64) std::array<uint32_t, 16> high;
  alignas(64) std::array<uint32_t, 16> low;
  auto* words = reinterpret_cast<uint32_t*>(packed);  // [dim / 32][high, low][16 pairs of channels][padded heads]
  for (int d = 0; d < dim; d += kTileDepth, words += 2 * kTileRows * padded) {
    for (int h = 0; h < padded; ++h) {
      high.fill(0);
      low.fill(0);
      if (h < heads) {
        const float* from = query + h * dim + d;
        amx::split_row(_mm512_mul_ps(_mm512_loadu_ps(from), factors), _mm512_mul_ps(_mm512_loadu_ps(from + 16), factors),
                       reinterpret_cast<std::byte*>(high.data()), reinterpret_cast<std::byte*>(low.data()));
      }
      for (int pair = 0; pair < kTileRows; ++pair) {
        words[pair * padded + h] = high[pair];
        words[(kTileRows + pair) * padded + h] = low[pair];
      }
    }
  }
}

template <int Tokens>
SLUICE_AMX void score_block(const BlockRows<uint16_t>& keys, const std::byte* packed, int heads, float* scores) {
  const int groups_per_page = keys.page / Tokens;
  const int groups = (keys.tokens + Tokens - 1) / Tokens;
  const size_t row_bytes = keys.dim * sizeof(uint16_t);
  const int column_bytes = static_cast<int>(heads * sizeof(float));
  const size_t query_tile = static_cast<size_t>(kTileRows) * column_bytes;
  const auto row_of = [&](const uint16_t* const* pages, int group) {
    return reinterpret_cast<const std::byte*>(pages[group / groups_per_page]) + group % groups_per_page * Tokens * row_bytes;
  };
  const bool resident = row_bytes == kResidentRowBytes;
  amx::publish();
  if (resident) {
    _tile_loadd(4, packed, column_bytes);
    _tile_loadd(5, packed + query_tile, column_bytes);
    _tile_loadd(6, packed + 2 * query_tile, column_bytes);
    _tile_loadd(7, packed + 3 * query_tile, column_bytes);
  }
  for (int group = 0; group < groups; ++group, scores += static_cast<ptrdiff_t>(Tokens) * heads) {
    const std::byte* rows = row_of(keys.pages, group);
    const std::byte* next = row_of(keys.next_pages, group);
    // In the order of their addresses, which the memory serves best.
    for (size_t line = 0; line < Tokens * row_bytes; line += 64) __builtin_prefetch(next + line, 0, 2);
    _tile_zero(0);
    if (resident) {
      _tile_loadd(1, rows, kResidentRowBytes);
      _tile_loadd(2, rows + 64, kResidentRowBytes);
      _tile_dpbf16ps(0, 1, 4);
      _tile_dpbf16ps(0, 1, 5);
      _tile_dpbf16ps(0, 2, 6);
      _tile_dpbf16ps(0, 2, 7);
    } else {
      const std::byte* query = packed;
      for (size_t at = 0; at < row_bytes; at += 64, query += 2 * query_tile) {
        _tile_loadd(4, query, column_bytes);
        _tile_loadd(5, query + query_tile, column_bytes);
        _tile_loadd(1, rows + at, row_bytes);
        _tile_dpbf16ps(0, 1, 4);
        _tile_dpbf16ps(0, 1, 5);
      }
    }
    _tile_stored(0, scores, column_bytes);
  }
  amx::publish();
}

SLUICE_AMX void load_config(int tokens, int heads) { _tile_loadconfig(&kConfigs[tokens / 16][heads / 2]); }
SLUICE_AMX void release_tiles() { _tile_release(); }

/// Tokens of one tile of keys.
int tile_tokens(int page) { return page % 16 == 0 ? 16 : 8; }

}  // namespace

void amx_pack_query(const float* query, int heads, int padded, int dim, float factor, std::byte* packed) {
  pack_query(query, heads, padded, dim, factor, packed);
}

AmxScores::~AmxScores() {
  if (heads_ != 0) release_tiles();
}

void AmxScores::score_block(const BlockRows<uint16_t>& keys, const std::byte* packed, int heads, float* scores) {
  const int tokens = tile_tokens(keys.page);
  if (heads != heads_) load_config(tokens, heads);
  heads_ = heads;
  if (tokens == 16) {
    cpu::score_block<16>(keys, packed, heads, scores);
  } else {
    cpu::score_block<8>(keys, packed, heads, scores);
  }
}

}  // namespace sluice::cpu

#else

namespace sluice::cpu {

void amx_pack_query(const float*, int, int, int, float, std::byte*) {}
AmxScores::~AmxScores() = default;
void AmxScores::score_block(const BlockRows<uint16_t>&, const std::byte*, int, float*) {}

}  // namespace sluice::cpu

#endif  // SLUICE_HAS_AMX
