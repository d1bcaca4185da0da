#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_decode.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention/decode_block.h"
#include "kernels/cpu/simd/amx.h"
#include "kernels/cpu/simd/bfloat16.h"
#include "kernels/cpu/simd/simd-inl.h"

// The heads of a group are taken four, two or one at a time (`Heads`); a vector of scores holds tokens x heads. Where the
// processor has AMX, q . k runs on its tiles, which leaves the vector units to weigh V. K and V are read in units of two vectors,
// as `load_pair` gives them; the query and the output lie in that order too. Rows whose length is no multiple of a unit are first
// widened into zero-padded float32 rows.

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

constexpr int kUnit = 2 * static_cast<int>(kLanes);
constexpr int kSlabUnits = kLanes >= 16 ? 2 : 1;  // units of the output that stay in registers

template <typename T>
HWY_INLINE void prefetch_row(const T* row, int dim) {
  const char* bytes = reinterpret_cast<const char*>(row);
  for (int i = 0; i < dim * static_cast<int>(sizeof(T)); i += 64) __builtin_prefetch(bytes + i, 0, 2);
}

/// scores[token][Heads] = q . k. Writes whole quadruples; those past the last token are garbage of the same page.
template <int Heads, typename T>
HWY_INLINE void score_block(const BlockRows<T>& block, const float* query, float* scores) {
  constexpr int kTokens = 4 / Heads;  // of one quadruple
  for (int p = 0; p * block.page < block.tokens; ++p) {
    const int tokens = std::min(block.page, block.tokens - p * block.page);
    const T* row = block.pages[p];
    const T* next = block.next_pages[p];
    for (int t = 0; t < tokens; t += kTokens, row += kTokens * block.dim, next += kTokens * block.dim) {
      for (int i = 0; i < kTokens; ++i) prefetch_row(next + i * block.dim, block.dim);
      VecF32 sums[4];
      SLUICE_UNROLL for (int i = 0; i < 4; ++i) sums[i] = hn::Zero(kF32);
      for (int d = 0; d < block.dim; d += kUnit) {
        SLUICE_UNROLL for (int i = 0; i < kTokens; ++i) {
          VecF32 first;
          VecF32 second;
          load_pair(row + i * block.dim + d, first, second);
          SLUICE_UNROLL for (int h = 0; h < Heads; ++h) {
            const float* q = query + h * block.dim + d;
            sums[i * Heads + h] = hn::MulAdd(first, hn::Load(kF32, q), sums[i * Heads + h]);
            sums[i * Heads + h] = hn::MulAdd(second, hn::Load(kF32, q + kLanes), sums[i * Heads + h]);
          }
        }
      }
      store_four_sums(sums[0], sums[1], sums[2], sums[3], scores);
      scores += 4;
    }
  }
}

/// output[Heads][dim] = output * rescale[Heads] + sum of weights[token][Heads] * v, `Units` units from `d` on.
/// Asks for the rows of the following block but for the first `asked` ones.
template <int Heads, int Units, typename T>
HWY_INLINE void weigh_slab(const BlockRows<T>& block, int d, int asked, const float* weights, const float* rescale,
                           float* output) {
  VecF32 sums[Heads][2 * Units];
  SLUICE_UNROLL for (int h = 0; h < Heads; ++h) {
    SLUICE_UNROLL for (int u = 0; u < 2 * Units; ++u) {
      sums[h][u] = hn::Mul(hn::Set(kF32, rescale[h]), hn::Load(kF32, output + h * block.dim + d + u * kLanes));
    }
  }
  for (int p = 0; p * block.page < block.tokens; ++p) {
    const int tokens = std::min(block.page, block.tokens - p * block.page);
    const T* row = block.pages[p] + d;
    const T* next = block.next_pages[p] + d;
    for (int t = 0; t < tokens; ++t, row += block.dim, next += block.dim, weights += Heads) {
      if (p > 0 || t >= asked) prefetch_row(next, Units * kUnit);
      VecF32 value[2 * Units];
      SLUICE_UNROLL for (int u = 0; u < Units; ++u) load_pair(row + u * kUnit, value[2 * u], value[2 * u + 1]);
      SLUICE_UNROLL for (int h = 0; h < Heads; ++h) {
        const VecF32 weight = hn::Set(kF32, weights[h]);
        SLUICE_UNROLL for (int u = 0; u < 2 * Units; ++u) sums[h][u] = hn::MulAdd(weight, value[u], sums[h][u]);
      }
    }
  }
  SLUICE_UNROLL for (int h = 0; h < Heads; ++h) {
    SLUICE_UNROLL for (int u = 0; u < 2 * Units; ++u) { hn::Store(sums[h][u], kF32, output + h * block.dim + d + u * kLanes); }
  }
}

/// Turns scores[tokens][Heads] into 2^(score - maximum); updates maximum and sum, and gives what the old output counts now.
/// Works on `kRow` numbers at a time, a whole number of tokens, and asks for a line from `ahead` on each time, up to `lines`,
/// so that the memory is not idle meanwhile.
template <int Heads>
HWY_INLINE void soften(float* scores, int tokens, const std::byte* ahead, int lines, float* maximum, float* sum, float* rescale) {
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  constexpr size_t kRow = HWY_MAX(kLanes, 4);
  constexpr size_t kVectors = kRow / kLanes;
  const size_t count = static_cast<size_t>(tokens) * Heads;
  const size_t padded = (count + kRow - 1) / kRow * kRow;
  for (size_t i = count; i < padded; ++i) scores[i] = kMinusInfinity;
  HWY_ALIGN float row[kRow];
  for (size_t v = 0; v < kVectors; ++v) {
    VecF32 largest = hn::Load(kF32, scores + v * kLanes);
    for (size_t i = kRow; i < padded; i += kRow) largest = hn::Max(largest, hn::Load(kF32, scores + i + v * kLanes));
    hn::Store(largest, kF32, row + v * kLanes);
  }
  HWY_ALIGN float fall[kRow] = {};
  for (int h = 0; h < Heads; ++h) {
    float value = maximum[h];
    for (size_t i = h; i < kRow; i += Heads) value = std::max(value, row[i]);
    fall[h] = maximum[h] == value ? 0.0f : maximum[h] - value;
    maximum[h] = value;
  }
  for (size_t i = 0; i < Heads; i += kLanes) hn::Store(exp2(hn::Load(kF32, fall + i)), kF32, fall + i);
  std::copy(fall, fall + Heads, rescale);
  // Where every score so far is -inf, its powers are to vanish rather than to be NaN.
  for (size_t i = 0; i < kRow; ++i) row[i] = maximum[i % Heads] == kMinusInfinity ? 0.0f : maximum[i % Heads];
  int line = 0;
  for (size_t v = 0; v < kVectors; ++v) {
    const VecF32 shift = hn::Load(kF32, row + v * kLanes);
    VecF32 total = hn::Zero(kF32);
    for (size_t i = v * kLanes; i < padded; i += kRow) {
      if (line < lines) __builtin_prefetch(ahead + 64 * static_cast<ptrdiff_t>(line++), 0, 2);
      const VecF32 power = exp2(hn::Sub(hn::Load(kF32, scores + i), shift));
      total = hn::Add(total, power);
      hn::Store(power, kF32, scores + i);
    }
    hn::Store(total, kF32, row + v * kLanes);
  }
  for (int h = 0; h < Heads; ++h) {
    float value = 0;
    for (size_t i = h; i < kRow; i += Heads) value += row[i];
    sum[h] = sum[h] * rescale[h] + value;
  }
}

/// Scores [tokens][Heads] of tokens that are not seen become -inf.
template <int Heads, typename T>
void hide(const BlockRows<T>& keys, float* scores) {
  for (int t = 0; t < keys.tokens; ++t) {
    if ((keys.mask[t / 32] >> (t % 32) & 1U) != 0) continue;
    std::fill_n(scores + t * Heads, Heads, -std::numeric_limits<float>::infinity());
  }
}

/// Where the logits of a block go, of the heads that are taken together.
struct BlockLogits {
  float* first = nullptr;  // null: nowhere
  int heads = 0;
  int stride = 0;  // from token to token

  /// Of scores [tokens][Heads].
  template <int Heads>
  void keep(const float* scores, int tokens) const {
    for (int t = 0; t < tokens; ++t) std::copy_n(scores + t * Heads, heads, first + static_cast<ptrdiff_t>(t) * stride);
  }
};

/// `tiles`: the query as amx_pack_query leaves it, or null for scores by vectors.
template <int Heads, typename T>
void attend_heads(const BlockRows<T>& keys, const BlockRows<T>& values, const float* query, AmxScores& amx,
                  const std::byte* tiles, float* scores, float* maximum, float* sum, float* output, const BlockLogits& logits) {
  float rescale[Heads];
  bool scored = false;
  if constexpr (sizeof(T) == 2) {
    if (tiles != nullptr) {
      amx.score_block(keys, tiles, Heads, scores);
      scored = true;
    }
  }
  if (!scored) score_block<Heads>(keys, query, scores);
  if (keys.mask != nullptr) hide<Heads>(keys, scores);
  if (logits.first != nullptr) logits.keep<Heads>(scores, keys.tokens);
  // About a line for each vector of scores, in whole rows of V.
  const int row_bytes = values.dim * static_cast<int>(sizeof(T));
  const int asked = std::min(values.page, keys.tokens * Heads / static_cast<int>(kLanes) * 64 / row_bytes);
  soften<Heads>(scores, keys.tokens, reinterpret_cast<const std::byte*>(values.next_pages[0]), asked * row_bytes / 64, maximum,
                sum, rescale);
  int d = 0;
  for (; d + kSlabUnits * kUnit <= values.dim; d += kSlabUnits * kUnit) {
    weigh_slab<Heads, kSlabUnits>(values, d, asked, scores, rescale, output);
  }
  if constexpr (kSlabUnits > 1) {
    for (; d < values.dim; d += kUnit) weigh_slab<Heads, 1>(values, d, asked, scores, rescale, output);
  }
}

/// Heads that are taken together when `left` are.
int heads_together(int left) { return left >= 3 ? 4 : left; }

/// One block for the whole group; heads past `group` up to the padded count are zero queries.
template <typename T>
void attend_block(const BlockRows<T>& keys, const BlockRows<T>& values, const float* query, AmxScores& amx,
                  const std::byte* tiles, int group, float* scores, float* maximum, float* sum, float* output, float* logits) {
  for (int h = 0; h < group; h += heads_together(group - h)) {
    const BlockLogits kept{logits == nullptr ? nullptr : logits + h, std::min(heads_together(group - h), group - h), group};
    const float* q = query + h * keys.dim;
    const std::byte* t = tiles == nullptr ? nullptr : tiles + amx_query_bytes(h, keys.dim);  // of these heads
    float* out = output + h * keys.dim;
    switch (heads_together(group - h)) {
      case 4:
        attend_heads<4>(keys, values, q, amx, t, scores, maximum + h, sum + h, out, kept);
        break;
      case 2:
        attend_heads<2>(keys, values, q, amx, t, scores, maximum + h, sum + h, out, kept);
        break;
      default:
        attend_heads<1>(keys, values, q, amx, t, scores, maximum + h, sum + h, out, kept);
    }
  }
}

int padded_group(int group) { return (group + 3) / 4 * 4; }
int padded_dim(int dim) { return (dim + kUnit - 1) / kUnit * kUnit; }

template <typename T>
void set_block(BlockRows<T>& block, const KvPages& kv, std::span<const int32_t> pages, size_t first, int count, bool keys) {
  for (int i = 0; i < count; ++i) {
    const int32_t page = pages[first + i];
    const int32_t next = pages[std::min(first + i + count, pages.size() - 1)];
    block.pages[i] = reinterpret_cast<const T*>(keys ? kv.keys(page) : kv.values(page));
    block.next_pages[i] = reinterpret_cast<const T*>(keys ? kv.keys(next) : kv.values(next));
  }
}

/// Copies the rows of a block into zero-padded float32 rows.
template <typename T>
void widen_block(const KvPages& kv, const BlockRows<T>& from, int dim, float* rows, BlockRows<float>& to) {
  for (int t = 0; t < from.tokens; ++t) {
    const T* row = from.pages[t / from.page] + t % from.page * kv.dim;
    for (int i = 0; i < kv.dim; ++i) {
      if constexpr (sizeof(T) == 2) {
        rows[t * dim + i] = widen(row[i]);
      } else {
        rows[t * dim + i] = row[i];
      }
    }
    std::fill(rows + t * dim + kv.dim, rows + (t + 1) * dim, 0.0f);
  }
  to.pages[0] = to.next_pages[0] = rows;
  to.page = kDecodeBlockTokens;
  to.tokens = from.tokens;
  to.dim = dim;
}

/// Where things lie in the scratch of `prepare_piece` and `attend_piece`.
struct Scratch {
  int dim;           // channels, whole units
  float* scores;     // [tokens of a block, heads taken together]
  float* query;      // [heads, dim] scaled, in the order of load_pair
  float* output;     // [heads, dim]
  std::byte* tiles;  // packed query heads for AMX, in the memory of wide_keys: rows are widened or scored on tiles
  float* wide_keys;  // [tokens of a block, dim], for rows that are no whole units
  float* wide_values;

  Scratch(const KvPages& kv, int group, float* memory)
      : dim(padded_dim(kv.dim)),
        scores(memory),
        query(scores + 4 * kDecodeBlockTokens),
        output(query + padded_group(group) * dim),
        tiles(reinterpret_cast<std::byte*>(output + padded_group(group) * dim)),
        wide_keys(output + padded_group(group) * dim),
        wide_values(wide_keys + kDecodeBlockTokens * dim) {}
};

template <typename T>
void prepare_query(const KvPages& kv, const float* query, int group, float factor, const Scratch& scratch) {
  const int dim = scratch.dim;
  const bool direct = dim == kv.dim;
  std::fill(scratch.query, scratch.query + padded_group(group) * dim, 0.0f);
  for (int h = 0; h < group; ++h) {
    for (int i = 0; i < kv.dim; ++i) {
      scratch.query[h * dim + (direct ? paired_position<T>(i) : i)] = query[h * kv.dim + i] * factor;
    }
  }
}

/// Asks for K and then V of the first block, which nothing else asks for early.
void prefetch_first_block(const KvPages& kv, std::span<const int32_t> pages) {
  const size_t count = std::min<size_t>(pages.size(), kDecodeBlockTokens / kv.page);
  const size_t bytes = static_cast<size_t>(kv.page) * kv.dim * size_of(kv.type);
  for (size_t i = 0; i < count; ++i) {
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(kv.keys(pages[i]) + at, 0, 2);
  }
  for (size_t i = 0; i < count; ++i) {
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(kv.values(pages[i]) + at, 0, 2);
  }
}

void prepare_piece_any(const KvPages& kv, std::span<const int32_t> pages, const float* query, int group, float scale, bool tiles,
                       float* memory) {
  prefetch_first_block(kv, pages);
  const Scratch scratch(kv, group, memory);
  const float factor = scale * 1.44269504088896341f;
  if (tiles && amx_scores_take(kv)) {
    for (int h = 0; h < group; h += heads_together(group - h)) {
      const int together = heads_together(group - h);
      amx_pack_query(query + h * kv.dim, std::min(together, group - h), together, kv.dim, factor,
                     scratch.tiles + amx_query_bytes(h, kv.dim));
    }
  } else if (kv.type == DataType::kBF16) {
    prepare_query<uint16_t>(kv, query, group, factor, scratch);
  } else {
    prepare_query<float>(kv, query, group, factor, scratch);
  }
}

/// Copies an output row to where the caller wants it: out of the order of load_pair if `paired`.
void copy_output(const float* from, int dim, bool paired, float* to) {
  if (!paired) {
    std::copy(from, from + dim, to);
    return;
  }
  for (int d = 0; d < dim; d += kUnit) {
    hn::StoreInterleaved2(hn::Load(kF32, from + d), hn::Load(kF32, from + d + kLanes), kF32, to + d);
  }
}

template <typename T>
void attend_piece_of(const KvPages& kv, std::span<const int32_t> pages, size_t piece, int last_tokens, const uint32_t* mask,
                     int group, bool on_tiles, float* memory, const Partial& result, float* logits) {
  const Scratch scratch(kv, group, memory);
  const int dim = scratch.dim;
  const bool direct = dim == kv.dim;
  const int heads = padded_group(group);
  const std::byte* tiles = on_tiles ? scratch.tiles : nullptr;
  float maximum[kMostHeads];
  float sum[kMostHeads];
  std::fill(maximum, maximum + heads, -std::numeric_limits<float>::infinity());
  std::fill(sum, sum + heads, 0.0f);
  std::fill(scratch.output, scratch.output + heads * dim, 0.0f);

  AmxScores amx;
  const int pages_per_block = kDecodeBlockTokens / kv.page;
  BlockRows<T> keys;
  BlockRows<T> values;
  keys.page = values.page = kv.page;
  keys.dim = values.dim = kv.dim;
  for (size_t first = 0; first < piece; first += pages_per_block) {
    const int count = static_cast<int>(std::min<size_t>(pages_per_block, piece - first));
    keys.tokens = values.tokens = count * kv.page - (first + count == piece ? kv.page - last_tokens : 0);
    keys.mask = mask == nullptr ? nullptr : mask + first * static_cast<size_t>(kv.page) / 32;
    set_block(keys, kv, pages, first, count, true);
    set_block(values, kv, pages, first, count, false);
    if (direct) {
      attend_block(keys, values, scratch.query, amx, tiles, group, scratch.scores, maximum, sum, scratch.output, logits);
    } else {
      BlockRows<float> float_keys;
      BlockRows<float> float_values;
      widen_block(kv, keys, dim, scratch.wide_keys, float_keys);
      float_keys.mask = keys.mask;
      widen_block(kv, values, dim, scratch.wide_values, float_values);
      attend_block(float_keys, float_values, scratch.query, amx, nullptr, group, scratch.scores, maximum, sum, scratch.output,
                   logits);
    }
    if (logits != nullptr) logits += static_cast<ptrdiff_t>(keys.tokens) * group;
  }
  for (int h = 0; h < group; ++h) {
    result.maximum[h] = maximum[h];
    result.sum[h] = sum[h];
    copy_output(scratch.output + h * dim, kv.dim, direct && sizeof(T) == 2, result.output + h * kv.dim);
  }
}

void attend_piece_any(const KvPages& kv, std::span<const int32_t> pages, size_t piece, int last_tokens, const uint32_t* mask,
                      int group, bool tiles, float* memory, const Partial& result, float* logits) {
  if (kv.type == DataType::kBF16) {
    attend_piece_of<uint16_t>(kv, pages, piece, last_tokens, mask, group, tiles && amx_scores_take(kv), memory, result, logits);
  } else {
    attend_piece_of<float>(kv, pages, piece, last_tokens, mask, group, false, memory, result, logits);
  }
}

}  // namespace
}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(prepare_piece_any);
HWY_EXPORT(attend_piece_any);

namespace {
constexpr int kWidestUnit = 32;  // numbers that a unit has with the widest vectors
}  // namespace

int pieces_of(int pages, int page_tokens) {
  const int pages_per_piece = std::max(1, kPieceTokens / page_tokens);
  return (pages + pages_per_piece - 1) / pages_per_piece;
}

size_t partial_floats(int group, int dim) { return (static_cast<size_t>(group) * (dim + 2) + 15) / 16 * 16; }

Partial partial_at(float* buffer, int group, int dim) { return {buffer, buffer + group, buffer + 2 * group}; }

size_t decode_scratch_floats(int group, int dim) {
  const size_t widest = (dim + kWidestUnit - 1) / kWidestUnit * kWidestUnit;
  const size_t heads = (group + 3) / 4 * 4;
  return 4 * kDecodeBlockTokens + 2 * heads * widest + 2 * kDecodeBlockTokens * widest;
}

void prepare_piece(const KvPages& kv, std::span<const int32_t> pages, const float* query, int group, float scale, bool tiles,
                   float* scratch) {
  HWY_DYNAMIC_DISPATCH(prepare_piece_any)(kv, pages, query, group, scale, tiles, scratch);
}

void attend_piece(const KvPages& kv, std::span<const int32_t> pages, size_t piece, int last_tokens, const uint32_t* mask,
                  int group, bool tiles, float* scratch, const Partial& result, float* logits) {
  HWY_DYNAMIC_DISPATCH(attend_piece_any)(kv, pages, piece, last_tokens, mask, group, tiles, scratch, result, logits);
}

void merge_partials(float* partials, int count, int group, int dim, float* out, float* log_sums) {
  const size_t step = partial_floats(group, dim);
  const Partial first = partial_at(partials, group, dim);
  for (int h = 0; h < group; ++h) {
    float maximum = first.maximum[h];
    float sum = first.sum[h];
    float* output = out + h * dim;
    std::memcpy(output, first.output + h * dim, dim * sizeof(float));
    for (int i = 1; i < count; ++i) {
      const Partial next = partial_at(partials + i * step, group, dim);
      const float larger = std::max(maximum, next.maximum[h]);
      const float mine = maximum == larger ? 1.0f : std::exp2(maximum - larger);
      const float theirs = next.maximum[h] == larger ? 1.0f : std::exp2(next.maximum[h] - larger);
      sum = sum * mine + next.sum[h] * theirs;
      for (int d = 0; d < dim; ++d) output[d] = output[d] * mine + next.output[h * dim + d] * theirs;
      maximum = larger;
    }
    const float inverse = 1.0f / sum;
    for (int d = 0; d < dim; ++d) output[d] *= inverse;
    if (log_sums != nullptr) log_sums[h] = maximum + std::log2(sum);
  }
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
