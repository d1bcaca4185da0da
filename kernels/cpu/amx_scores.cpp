#include "kernels/cpu/amx.h"
#include "kernels/cpu/amx_tiles.h"

#if SLUICE_HAS_AMX

#include <algorithm>
#include <array>

namespace sluice::cpu {
namespace {

using amx::kTileDepth;
using amx::kTileRows;

// Tiles 0 to 3: scores of four groups of tokens. 4 and 5: 32 channels of the query, high and low, a column for each head.
// 6 and 7: 32 channels of the keys of one group, straight from the page. A row of a page's tile is what the page holds, so
// K is neither copied nor transposed.
constexpr int kGroups = 4;

constexpr amx::TileConfig make_config(int tokens, int heads) {
  amx::TileConfig config;
  for (int tile = 0; tile < 6; ++tile) config.row_bytes[tile] = static_cast<uint16_t>(heads * sizeof(float));
  for (int tile : {0, 1, 2, 3, 6, 7}) config.rows[tile] = static_cast<uint8_t>(tokens);
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

template <int Lines>
inline void prefetch_lines(const std::byte* from) {
  for (int line = 0; line < Lines; ++line) __builtin_prefetch(from + line * 64, 0, 2);
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
  amx::publish();
  _tile_loadconfig(&kConfigs[Tokens / 16][heads / 2]);
  for (int first = 0; first < groups; first += kGroups) {
    const int count = std::min(kGroups, groups - first);
    std::array<const std::byte*, kGroups> rows;
    std::array<const std::byte*, kGroups> next;
    for (int i = 0; i < count; ++i) {
      rows[i] = row_of(keys.pages, first + i);
      next[i] = row_of(keys.next_pages, first + i);
    }
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    const std::byte* query = packed;
    for (size_t at = 0; at < row_bytes; at += 64, query += 2 * query_tile) {
      _tile_loadd(4, query, column_bytes);
      _tile_loadd(5, query + query_tile, column_bytes);
      prefetch_lines<Tokens>(next[0] + at * Tokens);
      _tile_loadd(6, rows[0] + at, row_bytes);
      _tile_dpbf16ps(0, 6, 4);
      _tile_dpbf16ps(0, 6, 5);
      if (count > 1) {
        prefetch_lines<Tokens>(next[1] + at * Tokens);
        _tile_loadd(7, rows[1] + at, row_bytes);
        _tile_dpbf16ps(1, 7, 4);
        _tile_dpbf16ps(1, 7, 5);
      }
      if (count > 2) {
        prefetch_lines<Tokens>(next[2] + at * Tokens);
        _tile_loadd(6, rows[2] + at, row_bytes);
        _tile_dpbf16ps(2, 6, 4);
        _tile_dpbf16ps(2, 6, 5);
      }
      if (count > 3) {
        prefetch_lines<Tokens>(next[3] + at * Tokens);
        _tile_loadd(7, rows[3] + at, row_bytes);
        _tile_dpbf16ps(3, 7, 4);
        _tile_dpbf16ps(3, 7, 5);
      }
    }
    float* to = scores + static_cast<size_t>(first) * Tokens * heads;
    const int step = Tokens * heads;
    _tile_stored(0, to, column_bytes);
    if (count > 1) _tile_stored(1, to + step, column_bytes);
    if (count > 2) _tile_stored(2, to + 2 * step, column_bytes);
    if (count > 3) _tile_stored(3, to + 3 * step, column_bytes);
  }
  _tile_release();
  amx::publish();
}

}  // namespace

void amx_pack_query(const float* query, int heads, int padded, int dim, float factor, std::byte* packed) {
  pack_query(query, heads, padded, dim, factor, packed);
}

void amx_score_block(const BlockRows<uint16_t>& keys, const std::byte* packed, int heads, float* scores) {
  if (keys.page % 16 == 0) {
    score_block<16>(keys, packed, heads, scores);
  } else {
    score_block<8>(keys, packed, heads, scores);
  }
}

}  // namespace sluice::cpu

#else

namespace sluice::cpu {

void amx_pack_query(const float*, int, int, int, float, std::byte*) {}
void amx_score_block(const BlockRows<uint16_t>&, const std::byte*, int, float*) {}

}  // namespace sluice::cpu

#endif  // SLUICE_HAS_AMX
