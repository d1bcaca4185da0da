#include "kernels/cpu/simd/amx.h"
#include "kernels/cpu/simd/amx_tiles.h"

#if SLUICE_HAS_AMX

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

namespace sluice::cpu {
namespace {

using amx::kTileBytes;
using amx::kTileDepth;
using amx::kTileRows;

constexpr int kRows = 32;  // of a query tile: two groups of 16
static_assert(kRows <= kMostTileColumns);
constexpr int kBlockTokens = 256;  // of one step of the online softmax
constexpr float kNone = -std::numeric_limits<float>::infinity();

// Packed K and V of 32 tokens: for each 32 channels two tiles of K (16 tokens each; rows are pairs of channels), then for
// each 16 channels one tile of V (rows are pairs of tokens).
size_t pack_bytes(int dim) { return static_cast<size_t>(dim) * kAmxPackTokens * 2 * sizeof(uint16_t); }

const std::byte* key_tile(const std::byte* pack, int dim, int half, int depth) {
  return pack + (half * (dim / kTileDepth) + depth) * kTileBytes;
}
const std::byte* value_tile(const std::byte* pack, int dim, int column) {
  return pack + pack_bytes(dim) / 2 + column * kTileBytes;
}

/// What one query tile needs, in one thread's scratch.
struct Scratch {
  std::byte* queries;        // [row group][dim / 32][high, low] tiles
  float* scores;             // [32, 256]
  std::byte* probabilities;  // [row group][256 / 32][high, low] tiles
  float* output;             // [32, dim]

  Scratch(std::byte* memory, int dim) {
    queries = memory;
    scores = reinterpret_cast<float*>(queries + static_cast<size_t>(2) * (dim / kTileDepth) * 2 * kTileBytes);
    probabilities = reinterpret_cast<std::byte*>(scores + kRows * kBlockTokens);
    output = reinterpret_cast<float*>(probabilities + static_cast<size_t>(2) * (kBlockTokens / kTileDepth) * 2 * kTileBytes);
  }
  static size_t bytes(int dim) {
    return static_cast<size_t>(2) * (dim / kTileDepth) * 2 * kTileBytes + kRows * kBlockTokens * sizeof(float) +
           static_cast<size_t>(2) * (kBlockTokens / kTileDepth) * 2 * kTileBytes +
           static_cast<size_t>(kRows) * dim * sizeof(float);
  }
};

/// 2^x for x <= 0, relative error below 2e-7; far below 2^-126 it is 0.
SLUICE_AMX inline __m512 exp2_negative(__m512 x) {
  const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 part = _mm512_sub_ps(x, whole);  // [-0.5, 0.5]; NaN for -inf
  // 2^part = 1 + part * p(part), p through the Chebyshev nodes.
  __m512 value = _mm512_set1_ps(1.545316294e-4f);
  value = _mm512_fmadd_ps(value, part, _mm512_set1_ps(1.339086336e-3f));
  value = _mm512_fmadd_ps(value, part, _mm512_set1_ps(9.618082557e-3f));
  value = _mm512_fmadd_ps(value, part, _mm512_set1_ps(5.550357114e-2f));
  value = _mm512_fmadd_ps(value, part, _mm512_set1_ps(2.402265076e-1f));
  value = _mm512_fmadd_ps(value, part, _mm512_set1_ps(6.931471880e-1f));
  value = _mm512_fmadd_ps(value, part, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(value, whole);
}

SLUICE_AMX void split_queries(const PrefillTile& tile, int group, int dim, std::byte* queries) {
  const int depths = dim / kTileDepth;
  for (int row = 0; row < kRows; ++row) {
    const int token = row / group;
    const float* from = token < tile.rows ? tile.queries + token * tile.query_stride + row % group * dim : nullptr;
    for (int depth = 0; depth < depths; ++depth) {
      std::byte* high = queries + ((row / kTileRows * depths + depth) * 2) * kTileBytes + row % kTileRows * 64;
      if (from == nullptr) {
        std::memset(high, 0, 64);
        std::memset(high + kTileBytes, 0, 64);
        continue;
      }
      amx::split_row(_mm512_loadu_ps(from + depth * 32), _mm512_loadu_ps(from + depth * 32 + 16), high, high + kTileBytes);
    }
  }
}

/// scores[32, 32 of 256] = queries * the keys of one pack.
SLUICE_AMX void score_pack(const std::byte* queries, const std::byte* pack, int dim, float* scores) {
  constexpr int kStride = kBlockTokens * sizeof(float);
  const int depths = dim / kTileDepth;
  amx::publish();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int depth = 0; depth < depths; ++depth) {
    const std::byte* upper = queries + depth * 2 * kTileBytes;
    const std::byte* lower = upper + depths * 2 * kTileBytes;
    _tile_loadd(6, key_tile(pack, dim, 0, depth), 64);
    _tile_loadd(7, key_tile(pack, dim, 1, depth), 64);
    _tile_loadd(4, upper, 64);
    _tile_loadd(5, lower, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(4, upper + kTileBytes, 64);
    _tile_loadd(5, lower + kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, scores, kStride);
  _tile_stored(1, scores + 16, kStride);
  _tile_stored(2, scores + kTileRows * kBlockTokens, kStride);
  _tile_stored(3, scores + kTileRows * kBlockTokens + 16, kStride);
}

/// Lanes of the 16 tokens from `token` that lie before `visible`.
SLUICE_AMX inline __mmask16 visible_lanes(int token, int visible) {
  const int left = visible - token;
  return static_cast<__mmask16>(left >= 16 ? 0xffff : left <= 0 ? 0 : (1 << left) - 1);
}

/// Scores of one row become probabilities 2^(score * scale - maximum), split into tiles; the first `visible` of `tokens` count.
SLUICE_AMX inline void soften_row(const float* scores, int tokens, int visible, float scale, std::byte* tiles, float& maximum,
                                  float& sum, float& correction) {
  const __m512 none = _mm512_set1_ps(kNone);
  __m512 largest = none;
  __m512 largest_too = none;
  int token = 0;
  for (; token + 32 <= visible; token += 32) {
    largest = _mm512_max_ps(largest, _mm512_loadu_ps(scores + token));
    largest_too = _mm512_max_ps(largest_too, _mm512_loadu_ps(scores + token + 16));
  }
  for (; token < visible; token += 16) {
    largest = _mm512_max_ps(largest, _mm512_mask_loadu_ps(none, visible_lanes(token, visible), scores + token));
  }
  const float before = maximum;
  maximum = visible > 0 ? std::max(before, _mm512_reduce_max_ps(_mm512_max_ps(largest, largest_too)) * scale) : before;
  correction = before == maximum ? 1.0f : std::exp2(before - maximum);
  const __m512 factor = _mm512_set1_ps(scale);
  const __m512 shift = _mm512_set1_ps(maximum);
  __m512 total = _mm512_setzero_ps();
  for (token = 0; token + 32 <= visible; token += 32, tiles += 2 * kTileBytes) {
    const __m512 first = exp2_negative(_mm512_fmsub_ps(_mm512_loadu_ps(scores + token), factor, shift));
    const __m512 second = exp2_negative(_mm512_fmsub_ps(_mm512_loadu_ps(scores + token + 16), factor, shift));
    total = _mm512_add_ps(total, _mm512_add_ps(first, second));
    amx::split_row(first, second, tiles, tiles + kTileBytes);
  }
  for (; token < tokens; token += 32, tiles += 2 * kTileBytes) {
    const __m512 first = exp2_negative(_mm512_fmsub_ps(_mm512_loadu_ps(scores + token), factor, shift));
    const __m512 second = exp2_negative(_mm512_fmsub_ps(_mm512_loadu_ps(scores + token + 16), factor, shift));
    const __m512 first_seen = _mm512_maskz_mov_ps(visible_lanes(token, visible), first);
    const __m512 second_seen = _mm512_maskz_mov_ps(visible_lanes(token + 16, visible), second);
    total = _mm512_add_ps(total, _mm512_add_ps(first_seen, second_seen));
    amx::split_row(first_seen, second_seen, tiles, tiles + kTileBytes);
  }
  sum = sum * correction + _mm512_reduce_add_ps(total);
}

/// The same where those tokens count that have a bit in `words`, one for each of `packs` packs.
SLUICE_AMX void soften_masked_row(const float* scores, const uint32_t* words, int packs, float scale, std::byte* tiles,
                                  float& maximum, float& sum, float& correction) {
  const __m512 none = _mm512_set1_ps(kNone);
  const auto lanes = [&](int pack, int half) { return static_cast<__mmask16>(words[pack] >> (16 * half)); };
  __m512 largest = none;
  for (int pack = 0; pack < packs; ++pack) {
    for (int half = 0; half < 2; ++half) {
      largest = _mm512_max_ps(largest, _mm512_mask_loadu_ps(none, lanes(pack, half), scores + 32 * pack + 16 * half));
    }
  }
  const float before = maximum;
  maximum = std::max(before, _mm512_reduce_max_ps(largest) * scale);
  correction = before == maximum ? 1.0f : std::exp2(before - maximum);
  const __m512 factor = _mm512_set1_ps(scale);
  const __m512 shift = _mm512_set1_ps(maximum == kNone ? 0 : maximum);
  __m512 total = _mm512_setzero_ps();
  for (int pack = 0; pack < packs; ++pack, tiles += 2 * kTileBytes) {
    const __m512 first = exp2_negative(_mm512_fmsub_ps(_mm512_loadu_ps(scores + 32 * pack), factor, shift));
    const __m512 second = exp2_negative(_mm512_fmsub_ps(_mm512_loadu_ps(scores + 32 * pack + 16), factor, shift));
    const __m512 first_seen = _mm512_maskz_mov_ps(lanes(pack, 0), first);
    const __m512 second_seen = _mm512_maskz_mov_ps(lanes(pack, 1), second);
    total = _mm512_add_ps(total, _mm512_add_ps(first_seen, second_seen));
    amx::split_row(first_seen, second_seen, tiles, tiles + kTileBytes);
  }
  sum = sum * correction + _mm512_reduce_add_ps(total);
}

/// Packs of one step of the online softmax.
struct Block {
  static constexpr int kMost = kBlockTokens / kAmxPackTokens;

  std::array<int, kMost> numbers;  // of the packs
  int count = 0;
};

/// The next packs from `pack` on, which moves behind them: those of which a row of the tile sees a token.
Block next_block(const PrefillTile& tile, int& pack) {
  Block block;
  for (; pack * kAmxPackTokens < tile.length && block.count < Block::kMost; ++pack) {
    if (tile.sees_any(pack * kAmxPackTokens, std::min(kAmxPackTokens, tile.length - pack * kAmxPackTokens))) {
      block.numbers[block.count++] = pack;
    }
  }
  return block;
}

/// output[16 rows, 64 channels from `column`] += probabilities * values of a block of `packed`.
SLUICE_AMX void accumulate(const std::byte* probabilities, const std::byte* packed, const Block& block, int dim, int column,
                           int columns, float* output) {
  const int64_t stride = dim * static_cast<int64_t>(sizeof(float));
  float* target = output + column * 16;
  amx::publish();
  _tile_loadd(0, target, stride);
  if (columns > 1) _tile_loadd(1, target + 16, stride);
  if (columns > 2) _tile_loadd(2, target + 32, stride);
  if (columns > 3) _tile_loadd(3, target + 48, stride);
  for (int pack = 0; pack < block.count; ++pack) {
    const std::byte* values = value_tile(packed + block.numbers[pack] * pack_bytes(dim), dim, column);
    _tile_loadd(4, probabilities + pack * 2 * kTileBytes, 64);
    _tile_loadd(5, probabilities + (pack * 2 + 1) * kTileBytes, 64);
    _tile_loadd(6, values, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(0, 5, 6);
    if (columns > 1) {
      _tile_loadd(7, values + kTileBytes, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(1, 5, 7);
    }
    if (columns > 2) {
      _tile_loadd(6, values + 2 * kTileBytes, 64);
      _tile_dpbf16ps(2, 4, 6);
      _tile_dpbf16ps(2, 5, 6);
    }
    if (columns > 3) {
      _tile_loadd(7, values + 3 * kTileBytes, 64);
      _tile_dpbf16ps(3, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, target, stride);
  if (columns > 1) _tile_stored(1, target + 16, stride);
  if (columns > 2) _tile_stored(2, target + 32, stride);
  if (columns > 3) _tile_stored(3, target + 48, stride);
}

SLUICE_AMX void scale_row(float* row, int dim, float factor) {
  const __m512 by = _mm512_set1_ps(factor);
  for (int i = 0; i < dim; i += 16) _mm512_storeu_ps(row + i, _mm512_mul_ps(_mm512_loadu_ps(row + i), by));
}

SLUICE_AMX void attend(const std::byte* packed, int dim, const PrefillTile& tile, int group, float scale, std::byte* memory) {
  const amx::TileSession session;
  const Scratch scratch(memory, dim);
  split_queries(tile, group, dim, scratch.queries);
  std::memset(scratch.output, 0, static_cast<size_t>(kRows) * dim * sizeof(float));
  std::array<float, kRows> maxima;
  std::array<float, kRows> sums{};
  maxima.fill(kNone);
  const float scale_base_2 = scale * std::numbers::log2e_v<float>;
  const int used_rows = tile.rows * group;
  const int row_groups = used_rows > kTileRows ? 2 : 1;
  int next = 0;  // pack
  for (Block block = next_block(tile, next); block.count > 0; block = next_block(tile, next)) {
    for (int pack = 0; pack < block.count; ++pack) {
      score_pack(scratch.queries, packed + block.numbers[pack] * pack_bytes(dim), dim, scratch.scores + pack * kAmxPackTokens);
    }
    const int start = block.numbers[0] * kAmxPackTokens;
    const int tokens = block.count * kAmxPackTokens;
    for (int row = 0; row < row_groups * kTileRows; ++row) {
      std::byte* tiles = scratch.probabilities +
                         static_cast<size_t>(row / kTileRows) * (kBlockTokens / kTileDepth) * 2 * kTileBytes +
                         row % kTileRows * 64;
      float correction = 1;
      if (tile.masks != nullptr) {
        std::array<uint32_t, Block::kMost> words{};
        const uint32_t* const mask = tile.masks + static_cast<ptrdiff_t>(row / group) * tile.mask_stride;
        for (int pack = 0; pack < block.count && row < used_rows; ++pack) words[pack] = mask[block.numbers[pack]];
        soften_masked_row(scratch.scores + row * kBlockTokens, words.data(), block.count, scale_base_2, tiles, maxima[row],
                          sums[row], correction);
      } else {
        const int seen = row < used_rows ? tile.slots[row / group] + 1 : tile.length;
        soften_row(scratch.scores + row * kBlockTokens, tokens, std::clamp(seen - start, 0, tokens), scale_base_2, tiles,
                   maxima[row], sums[row], correction);
      }
      if (correction != 1.0f) scale_row(scratch.output + row * dim, dim, correction);
    }
    for (int row_group = 0; row_group < row_groups; ++row_group) {
      const std::byte* probabilities =
          scratch.probabilities + static_cast<size_t>(row_group) * (kBlockTokens / kTileDepth) * 2 * kTileBytes;
      for (int column = 0; column < dim / 16; column += 4) {
        accumulate(probabilities, packed, block, dim, column, std::min(4, dim / 16 - column),
                   scratch.output + row_group * kTileRows * dim);
      }
    }
  }
  for (int row = 0; row < used_rows; ++row) {
    float* from = scratch.output + row * dim;
    if (tile.log_sums != nullptr) tile.log_sums[row] = maxima[row] + std::log2(sums[row]);
    scale_row(from, dim, tile.masks != nullptr && sums[row] == 0 ? 0.0f : 1.0f / sums[row]);
    std::memcpy(tile.out + row / group * tile.out_stride + row % group * dim, from, dim * sizeof(float));
  }
}

}  // namespace

size_t amx_packed_bytes(int64_t tokens, int dim) {
  return static_cast<size_t>((tokens + kAmxPackTokens - 1) / kAmxPackTokens) * pack_bytes(dim);
}

void amx_pack_tokens(const KvPages& kv, const int32_t* pages, int first, int length, std::byte* packed) {
  const int dim = kv.dim;
  std::byte* pack = packed + first / kAmxPackTokens * pack_bytes(dim);
  std::memset(pack, 0, pack_bytes(dim));
  const int count = std::min(kAmxPackTokens, length - first);
  for (int token = 0; token < count; ++token) {
    const int position = first + token;
    const int64_t offset = static_cast<int64_t>(position % kv.page) * dim * static_cast<int64_t>(sizeof(uint16_t));
    const std::byte* key = kv.keys(pages[position / kv.page]) + offset;
    auto* keys = pack + token / kTileRows * (dim / kTileDepth) * kTileBytes + token % kTileRows * 4;
    for (int pair = 0; pair < dim / 2; ++pair) std::memcpy(keys + pair * 64, key + pair * 4, 4);
    const auto* value = reinterpret_cast<const uint16_t*>(kv.values(pages[position / kv.page]) + offset);
    auto* values = reinterpret_cast<uint16_t*>(pack + pack_bytes(dim) / 2);
    for (int column = 0; column < dim / 16; ++column) {
      uint16_t* target = values + column * (kTileBytes / 2) + token / 2 * 32 + token % 2;
      for (int i = 0; i < 16; ++i) target[2 * i] = value[column * 16 + i];
    }
  }
}

int amx_tile_rows(int group) { return std::max(1, kRows / group); }

size_t amx_attention_scratch_bytes(int dim) { return Scratch::bytes(dim); }

void amx_attend_tile(const std::byte* packed, int dim, const PrefillTile& tile, int group, float scale, std::byte* scratch) {
  attend(packed, dim, tile, group, scale, scratch);
}

}  // namespace sluice::cpu

#else

namespace sluice::cpu {

size_t amx_packed_bytes(int64_t, int) { return 0; }
void amx_pack_tokens(const KvPages&, const int32_t*, int, int, std::byte*) {
  throw InternalError("AMX was called on a processor without it");
}
int amx_tile_rows(int) { return 1; }
size_t amx_attention_scratch_bytes(int) { return 0; }
void amx_attend_tile(const std::byte*, int, const PrefillTile&, int, float, std::byte*) {
  throw InternalError("AMX was called on a processor without it");
}

}  // namespace sluice::cpu
#endif
